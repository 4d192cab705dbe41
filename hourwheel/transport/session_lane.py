"""One producer's part of a session: requests that are answered in their order, as by a stream.

The requests of all lanes go in the session's frames, together with those of consumers. A node
works on them in the order in which they were sent, whatever else is in the frames.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hourwheel import errors
from hourwheel.transport.endpoints import Move
from hourwheel.transport.retry import Failure
from hourwheel.transport.session_stream import CallFailed, NoSession, SessionStream
from hourwheel.transport.stream import OnFailure, Stream, StreamBroken
from hourwheel.v1.broker_pb2 import PublishStreamRequest, PublishStreamResponse

_FIELD: Final = "publish"


class SessionLane(Stream[PublishStreamRequest, PublishStreamResponse]):
    """See the top of this file. It ends with its session, or by `cancel`.

    Invariant: `_calls` are what was written and not read, in that order.
    """

    def __init__(
        self,
        session: SessionStream,
        timeout_ms: float,
        *,
        address: str,
        on_failure: OnFailure,
        on_refused: Callable[[NoSession], None],
    ) -> None:
        """Nothing is written yet.

        Args:
            session: it may still be refused.
            timeout_ms: how long an answer may take.
            address: the endpoint that the session goes to.
            on_failure: see `Stream`.
            on_refused: called where the node opens no session.
        """
        super().__init__(None, address=address, on_failure=on_failure)
        self._session = session
        self._timeout_ms = timeout_ms
        self._on_refused = on_refused
        self._calls: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._has_call = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether the session takes no more calls."""
        return self._session.is_over

    async def write(self, request: PublishStreamRequest) -> None:
        """Send one request. Raises `StreamBroken`: the session has ended."""
        if self._session.is_over:
            # What was written before may have got through.
            error = errors.Unavailable("the session has ended")
            raise StreamBroken(Failure(error, is_definite=not self._calls))
        self._calls.append(self._session.begin(_FIELD, request, self._timeout_ms))
        self._has_call.set()

    async def read(self) -> PublishStreamResponse:
        """The answer to the oldest request that has none. Raises `StreamBroken`."""
        while not self._calls:
            self._has_call.clear()
            await self._has_call.wait()
        try:
            answer: PublishStreamResponse = await self._calls[0][1]
        except NoSession as refusal:
            self._on_refused(refusal)
            error = errors.Unavailable("the node opens no session")
            raise StreamBroken(Failure(error, is_definite=True), Move.AT_ONCE) from None
        except CallFailed as failed:
            if failed.detail is None:
                raise self._lost(failed.failure) from None
            answer = PublishStreamResponse(error=failed.detail)
        self._calls.popleft()
        return answer

    def _lost(self, failure: Failure) -> StreamBroken:
        is_late = isinstance(failure.error, errors.Timeout)
        move = self.on_failure(failure.error, self._timeout_ms if is_late else 0.0)
        return StreamBroken(failure, move)

    def cancel(self) -> None:
        """Give up what has no answer; the session goes on."""
        while self._calls:
            call_id, future = self._calls.popleft()
            if not future.cancel() and not future.cancelled():
                future.exception()  # or asyncio logs it
            self._session.give_up(call_id)
