"""A consumer's messages as the node pushes them: a receive stream, opened again when it ends.

    buffer --room--> credits --session--> node
    buffer <--batch-- answer <--session-- node

Its credits are what the buffer asks for. A stream that is silent for as long as a poll would wait
is closed and opened anew: of a node that does not answer that, another one may have taken over.
"""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

from hourwheel import errors
from hourwheel.client.poll import Poll
from hourwheel.client.prefetch_buffer import PrefetchBuffer
from hourwheel.limits import RECEIVE_MESSAGE_COUNT_MAX
from hourwheel.transport.channel import CALL_TIMEOUT_MS, Channel
from hourwheel.transport.connection import Connection
from hourwheel.transport.retry import Failure, Pace
from hourwheel.transport.session_stream import CallFailed, NoSession, SessionStream
from hourwheel.v1 import consumer_pb2, session_pb2

SILENT_MS: Final = 20_000.0
"""As long as a poll waits."""
LEAVE_MS: Final = 500.0
"""So long a consumer that is closed waits for the end of its stream."""
CONFIRM_ANSWERS: Final = 64
"""After so many answers the next frame confirms to the node that they have arrived."""
AGAIN_MS: Final = 60_000.0
"""A node that has no streams for us is asked again after so long."""
_SECONDS: Final = 0.001


class MessageStream:
    """Of one consumer and one topic. Belongs to one event loop.

    Invariant: `_requested` messages of what `buffer` asks for are asked for here.
    """

    def __init__(
        self,
        channel: Channel,
        poll: Poll,
        buffer: PrefetchBuffer,
        changed: asyncio.Event,
        on_arrival: Callable[[], None],
    ) -> None:
        """Closed.

        Args:
            channel: to the nodes.
            poll: what is asked for, and reads the answers.
            buffer: says how much, and gets it.
            changed: set when there may be more room in it.
            on_arrival: called when messages have come.
        """
        self._channel, self._poll, self._buffer = channel, poll, buffer
        self._changed, self._on_arrival = changed, on_arrival
        self._stream_id = self._received_count = 0
        """By which it is opened again, and its messages so far."""
        self._begin_anew()
        self._answers = self._confirmed_answers = 0
        self._requested = 0
        self._is_over = True
        self._reason: CallFailed | None = None
        """Why it has ended; None: in order."""
        self._unread: errors.HourwheelError | None = None
        """An answer could not be read."""
        self._tell: Callable[[bool], None] | None = None
        """Tells the node of the credits; takes whether that is urgent."""
        self._pace: Pace | None = None
        self._again_at_ms = 0.0

    def _begin_anew(self) -> None:
        self._stream_id, self._received_count = secrets.randbits(64) or 1, 0

    def is_due(self) -> bool:
        """Whether to open it now, or to make polls."""
        return self._channel.clock.monotonic_ms() >= self._again_at_ms

    async def run(self, pace: Pace, before_wait: Callable[[], None]) -> None:
        """Have it open until it ends, or learn that the node has none for us.

        Args:
            pace: hears how it ended.
            before_wait: called whenever it begins to wait for room.

        Raises:
            HourwheelError: why it has ended, or was not opened.
        """
        self._pace = pace
        await self._poll.join()
        if not await self._channel.try_once(partial(self._use, before_wait), pace):
            self._again_at_ms = self._channel.clock.monotonic_ms() + AGAIN_MS

    async def _use(self, before_wait: Callable[[], None], connection: Connection) -> bool:
        session = await connection.find_stream_session()
        if session is None:
            return False
        self._is_over, self._reason, self._unread = False, None, None
        self._confirmed_answers = self._answers
        self._ask_for_more()
        call_id = session.open_stream(self._request(), self)
        self._tell = partial(self._set_credits, session, call_id)
        try:
            await self._keep_open(self._tell, before_wait)
            await self._close(session, call_id, CALL_TIMEOUT_MS)
        except asyncio.CancelledError:
            await self._close(session, call_id, LEAVE_MS)
            raise
        finally:
            self._tell = None
            session.drop_stream(call_id)
            self._buffer.add(self._requested, None)
            self._requested = 0
        self._raise_reason()
        self._channel.note_answer(connection.address, 0.0)
        return True

    def _raise_reason(self) -> None:
        if self._unread is not None:
            self._begin_anew()  # else that answer would come again
            raise self._unread
        if self._reason is not None:
            raise self._reason
        if not self._is_over:
            error = errors.Timeout("a receive stream was not ended in time")
            raise CallFailed(Failure(error, is_definite=False))

    def _request(self) -> session_pb2.ReceiveStreamRequest:
        return session_pb2.ReceiveStreamRequest(
            receive=self._poll.stream_request(self._buffer.poll_messages),
            stream_id=self._stream_id,
            received_count=self._received_count,
            credits=self._requested,
        )

    async def _keep_open(
        self, tell: Callable[[bool], None], before_wait: Callable[[], None]
    ) -> None:
        """Give it credits until it has ended, or was silent for too long."""
        now_ms = self._channel.clock.monotonic_ms
        answers, silent_at_ms = self._answers, now_ms() + SILENT_MS
        while not self._is_over and self._unread is None:
            self._changed.clear()
            before_wait()
            if self._ask_for_more():
                tell(True)
            if self._answers != answers:
                answers, silent_at_ms = self._answers, now_ms() + SILENT_MS
            if now_ms() >= silent_at_ms:
                return
            await self._wait(silent_at_ms - now_ms())

    async def _close(self, session: SessionStream, call_id: int, wait_ms: float) -> None:
        """Wait for its end, and so for all that the node has sent of it."""
        now_ms = self._channel.clock.monotonic_ms
        until_ms = now_ms() + wait_ms
        session.close_stream(call_id)
        while not self._is_over and now_ms() < until_ms:
            self._changed.clear()
            await self._wait(until_ms - now_ms())

    async def _wait(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, wait_ms) * _SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- credits ----------------------------------------------------------------------------------

    def _ask_for_more(self) -> bool:
        """Ask for as much as there is room for; whether that is something else than before."""
        before, buffer = self._requested, self._buffer
        self._requested -= buffer.take_back(self._requested)
        while self._requested + buffer.poll_messages <= RECEIVE_MESSAGE_COUNT_MAX:
            more = buffer.reserve()
            if not more:
                break
            self._requested += more
        return self._requested != before

    def _set_credits(self, session: SessionStream, call_id: int, is_urgent: bool) -> None:  # noqa: FBT001 - a callback's only fact
        self._confirmed_answers = self._answers
        session.set_credits(call_id, self._received_count, self._requested, is_urgent=is_urgent)

    # -- what the session tells -------------------------------------------------------------------

    def on_answer(self, answer: consumer_pb2.ReceiveResponse) -> None:
        """See `StreamOwner`."""
        self._answers += 1
        try:
            batch = self._poll.read(answer)
        except errors.HourwheelError as error:
            self._unread = error
            self._changed.set()
            return
        count = len(batch.delivery)
        self._received_count += count
        used = min(count, self._requested)
        self._requested -= used
        self._buffer.add(used, batch or None)
        if self._pace is not None:
            self._pace.on_success()
        if self._buffer.is_overfull:
            self._changed.set()
        elif self._tell is not None and self._answers - self._confirmed_answers >= CONFIRM_ANSWERS:
            self._tell(False)
        if batch:
            self._on_arrival()
        elif self._buffer.has_room:
            self._changed.set()

    def on_end(self, reason: CallFailed | NoSession | None) -> None:
        """See `StreamOwner`."""
        self._is_over = True
        self._reason = reason if isinstance(reason, CallFailed) else None
        self._changed.set()
