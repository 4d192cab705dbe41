"""A session: the calls of one process to one node, over one stream (`SessionService.Session`).

    ask --> calls to send --writer--> frame ~~> node
    ask <-- future, by call_id <--reader-- frame <~~

What is asked for in one turn of the event loop, or while a frame is on its way out, goes together
in the next frame: frames grow with the load, and a lone call goes at once. Retries, and where to
go, are the caller's (`hourwheel.transport.channel`).

Acknowledgements for which no caller waits are joined: those of one group that wait for the same
frame are one call, however many consumers they come from, and each gets its part of the answer.

A receive stream is a call with many answers. Its credits go with the next frame; what they are is
its owner's business (`hourwheel.client.groups.message_stream`).
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from hourwheel import errors
from hourwheel.limits import RECEIPT_COUNT_MAX
from hourwheel.transport.grpc_errors import make_error
from hourwheel.transport.methods import ACK
from hourwheel.transport.retry import Failure, is_undecided
from hourwheel.transport.stream import Stream, StreamBroken
from hourwheel.v1 import broker_pb2, consumer_pb2, session_pb2

FRAME_CALLS_MAX: Final = 256
"""Fewer than a node takes."""
FRAME_BYTES: Final = 1 << 20
"""Calls are put into one frame up to this size; a larger one goes alone."""
IDLE_S: Final = 30.0
"""A session that was of no use for so long is ended: nodes have room for so many."""
LINGER_S: Final = 0.002
"""So long a call waits for others if it is not urgent."""
LINGER_CALLS_MIN: Final = 16
"""With fewer calls under way there are no others worth waiting for."""
_SECONDS: Final = 0.001
_MS_MAX: Final = (1 << 32) - 1
_NO_ROOM: Final = "limits.sessions"
_NO_SHARE: Final = "calls_in_flight"
"""The caller's quota, of its open sessions too: single calls have a room of their own in it."""
_CODES: Final = {int(code.value[0]): code.name for code in grpc.StatusCode}


class CallFailed(Exception):
    """A call has failed; carries an error of ours, and never reaches a user itself."""

    def __init__(self, failure: Failure, detail: broker_pb2.ErrorDetail | None = None) -> None:
        """`failure` says why; `detail`, what the node has answered, if it was that."""
        super().__init__(failure.error.message)
        self.failure = failure
        self.detail = detail


class NoSession(Exception):
    """The node opens no session, and has not looked at the call; never reaches a user.

    Single calls may go: see `Connection.call`.
    """

    def __init__(self, *, is_for_good: bool) -> None:
        """`is_for_good`: it is too old; else it, or its caller, has too many."""
        super().__init__()
        self.is_for_good = is_for_good


class StreamOwner(Protocol):
    """Whose messages come by a receive stream."""

    def on_answer(self, answer: consumer_pb2.ReceiveResponse) -> None:
        """Some have come."""
        ...

    def on_end(self, reason: "CallFailed | NoSession | None") -> None:
        """No more come. None: in order; open another one."""
        ...


@dataclass(slots=True)
class _Waiting:
    future: "asyncio.Future[Any]"
    field: str
    until_s: float
    """By the loop's clock."""


class _JoinedAcks:
    """Acknowledgements of several callers that are one call, by the number of the first.

    Invariant: `_parts[call]` has the callers in the order of their ranges in the call, and each of
    them, the first included, is in `_call_of`.
    """

    def __init__(self) -> None:
        """None are."""
        self._last: dict[str, int] = {}
        """Group -> the last call that others may join, if it is not sent yet."""
        self._parts: dict[int, list[tuple[int, int]]] = {}
        """Call -> (caller, how many ranges are its own)."""
        self._call_of: dict[int, int] = {}

    def join(self, call_id: int, request: Any, to_send: dict[int, session_pb2.SessionCall]) -> bool:
        """Put a request into a call of its group that is still to be sent; whether there was one.

        Else the next ones may join this call, if it is one that has ranges only.
        """
        if request.receipts:
            return False
        first_id = self._last.get(request.group, 0)
        first = to_send.get(first_id)
        if first is None or len(first.ack.ranges) + len(request.ranges) > RECEIPT_COUNT_MAX:
            self._last[request.group] = call_id
            return False
        if first_id not in self._parts:
            self._parts[first_id] = [(first_id, len(first.ack.ranges))]
            self._call_of[first_id] = first_id
        self._parts[first_id].append((call_id, len(request.ranges)))
        self._call_of[call_id] = first_id
        first.ack.ranges.extend(request.ranges)
        return True

    def call_of(self, call_id: int) -> int:
        """The call by which a caller's request goes, or has gone."""
        return self._call_of.get(call_id, call_id)

    def leave(self, call_id: int) -> bool:
        """A caller waits no longer; whether no other one waits for the same call."""
        first_id = self._call_of.pop(call_id, None)
        if first_id is None:
            return True
        if any(one in self._call_of for one, _ in self._parts[first_id]):
            return False
        del self._parts[first_id]
        return True

    def take(self, call_id: int) -> list[tuple[int, int]]:
        """The callers of a call that is answered, and how many ranges each has; empty: it alone."""
        parts = self._parts.pop(call_id, [])
        for caller_id, _ in parts:
            self._call_of.pop(caller_id, None)
        return parts

    def clear(self) -> None:
        """The session is over."""
        self._last.clear()
        self._parts.clear()
        self._call_of.clear()


class SessionStream:
    """One session, from its opening to its end. Belongs to one event loop.

    Invariant: no node has seen the calls in `_calls`, and each has somebody in `_waiting`.
    """

    def __init__(self, call: Any) -> None:
        """`call`: of grpc.aio, just begun."""
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._stream: Stream[Any, Any] = Stream(call)
        self._waiting: dict[int, _Waiting] = {}
        self._calls: dict[int, session_pb2.SessionCall] = {}
        """To be sent."""
        self._acks = _JoinedAcks()
        self._streams: dict[int, StreamOwner] = {}
        self._credits: dict[int, session_pb2.ReceiveCredits] = {}
        """To be sent, by stream."""
        self._given_up: list[int] = []
        self._to_do = asyncio.Event()
        self._is_less = asyncio.Event()
        """A call or a stream has ended, since `_settle` has looked."""
        self._is_lingering = False
        self._last_id = 0
        self._idle_id = -1
        """The last call when there was nothing to do the last time."""
        self._is_open = asyncio.Event()
        self._hello: asyncio.Future[bool] = self._loop.create_future()
        """Whether the node offers receive streams."""
        self._hello.add_done_callback(_look_at)
        self.is_over = False
        """No more calls: it has ended, or will."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = float("inf")
        self._tasks = [
            self._loop.create_task(self._read(), name="hourwheel-session-read"),
            self._loop.create_task(self._write(), name="hourwheel-session-write"),
        ]

    async def ask(
        self, field: str, request: Any, timeout_ms: float, *, is_urgent: bool = True
    ) -> Any:
        """Make one call; who is cancelled gives it up.

        Args:
            field: of `SessionCall`, which it goes into.
            request: what to send.
            timeout_ms: how long to wait for the answer.
            is_urgent: send it now. Else, where many calls are under way, it goes with the next that
                is, or after `LINGER_S`: for those whose callers have gone.

        Raises:
            CallFailed: it was refused, or there is no answer.
            NoSession: the node opens no session.
        """
        call_id, future = self.begin(field, request, timeout_ms, is_urgent=is_urgent)
        try:
            return await future
        finally:
            self.give_up(call_id)

    def begin(
        self, field: str, request: Any, timeout_ms: float, *, is_urgent: bool = True
    ) -> "tuple[int, asyncio.Future[Any]]":
        """As `ask`, without waiting: its number, and what gets the answer.

        Who asks no more gives it up, by its number.
        """
        self._last_id = call_id = self._last_id + 1
        until_s = self._loop.time() + timeout_ms * _SECONDS
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.is_over:  # it has just been idle for too long, say
            future.set_exception(CallFailed(_over()))
            return call_id, future
        self._waiting[call_id] = _Waiting(future, field, until_s)
        is_joined = (
            not is_urgent
            and field == ACK.session_field
            and self._acks.join(call_id, request, self._calls)
        )
        if not is_joined:
            fields = {
                "call_id": call_id,
                "timeout_ms": min(_MS_MAX, max(1, int(timeout_ms))),
                field: request,
            }
            self._calls[call_id] = session_pb2.SessionCall(**fields)
        if is_urgent or len(self._waiting) + len(self._streams) < LINGER_CALLS_MIN:
            self._to_do.set()
        elif not self._is_lingering:
            self._is_lingering = True
            self._loop.call_later(LINGER_S, self._end_lingering)
        if until_s < self._timer_s:
            self._set_timer(until_s)
        return call_id, future

    async def offers_streams(self) -> bool:
        """Whether the node takes receive streams. Raises as `ask`: it has not come to that."""
        return await asyncio.shield(self._hello)

    def open_stream(self, request: session_pb2.ReceiveStreamRequest, owner: StreamOwner) -> int:
        """Open a receive stream, of a node that offers it: its number.

        The owner hears of its end, also where that comes from `close_stream`, or the session has
        ended by now.
        """
        self._last_id = call_id = self._last_id + 1
        if self.is_over:
            self._loop.call_soon(owner.on_end, CallFailed(_over()))
            return call_id
        self._streams[call_id] = owner
        self._calls[call_id] = session_pb2.SessionCall(call_id=call_id, receive_stream=request)
        if self._timer is None:
            self._set_timer(self._loop.time() + IDLE_S)
        self._to_do.set()
        return call_id

    def set_credits(
        self, call_id: int, received_count: int, credits_count: int, *, is_urgent: bool
    ) -> None:
        """So many of its messages have arrived, and so many more may come.

        Where that is not urgent it goes with the next frame, whenever there is one.
        """
        if call_id in self._streams:
            self._credits[call_id] = session_pb2.ReceiveCredits(
                call_id=call_id, received_count=received_count, credits=credits_count
            )
            if is_urgent:
                self._to_do.set()

    def close_stream(self, call_id: int) -> None:
        """End it: what was sent before still comes, then its end."""
        owner = self._streams.get(call_id)
        if owner is None:
            return
        self._credits.pop(call_id, None)
        if self._calls.pop(call_id, None) is not None:  # no node has seen it
            self.drop_stream(call_id)
            owner.on_end(None)
        else:
            self._given_up.append(call_id)
            self._to_do.set()

    def drop_stream(self, call_id: int) -> None:
        """The caller does not wait for its end any more."""
        self._streams.pop(call_id, None)
        self._credits.pop(call_id, None)
        self._is_less.set()

    def give_up(self, call_id: int) -> None:
        """Its caller does not wait any more; it may have been answered."""
        if call_id in self._waiting:
            self._give_up(call_id)

    async def close(
        self, grace_ms: float = 0.0, error: errors.HourwheelError | None = None
    ) -> None:
        """End it: calls under way may go on for `grace_ms`, and streams end in order.

        Args:
            grace_ms: so long.
            error: what is left then ends with it; None: with `Cancelled`, for the client is closed.
        """
        self.is_over = True
        if grace_ms:
            await self._settle(grace_ms)
        self._call.cancel()
        error = errors.Cancelled("the client was closed") if error is None else error
        self._fail(Failure(error, is_definite=False))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _settle(self, grace_ms: float) -> None:
        """Wait until nothing is under way, for so long."""
        for call_id in list(self._streams):
            self.close_stream(call_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_ms * _SECONDS):
                while self._waiting or self._streams:
                    self._is_less.clear()
                    await self._is_less.wait()

    def _give_up(self, call_id: int) -> None:
        del self._waiting[call_id]
        self._is_less.set()
        sent_as = self._acks.call_of(call_id)
        if self._acks.leave(call_id) and self._calls.pop(sent_as, None) is None:
            self._given_up.append(sent_as)
            self._to_do.set()

    # --- time -----------------------------------------------------------------------------------

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._look)

    def _look(self) -> None:
        """Give up what is late; end the session when it is idle."""
        now_s = self._loop.time()
        late = [call_id for call_id, it in self._waiting.items() if it.until_s <= now_s]
        for call_id in late:
            future = self._waiting[call_id].future
            if not future.done():
                error = errors.Timeout("no answer came in time")
                future.set_exception(CallFailed(Failure(error, is_definite=False)))
            self._give_up(call_id)
        if not self._waiting and self._streams:
            self._set_timer(now_s + IDLE_S)
        elif self._waiting:
            self._set_timer(min(it.until_s for it in self._waiting.values()))
        elif self._last_id != self._idle_id:
            self._idle_id = self._last_id
            self._set_timer(now_s + IDLE_S)
        else:
            self.is_over = True
            self._call.cancel()
            self._forget()

    # --- sending --------------------------------------------------------------------------------

    def _end_lingering(self) -> None:
        self._is_lingering = False
        if self._calls:
            self._to_do.set()

    async def _write(self) -> None:
        # Who writes to a stream that is being refused does not learn why: gRPC loses the status.
        await self._is_open.wait()
        try:
            while True:
                await self._to_do.wait()
                self._to_do.clear()
                while self._calls or self._given_up or self._credits:
                    await self._stream.write(self._next())
        except StreamBroken:
            return  # the reader tells how it ended

    def _next(self) -> session_pb2.SessionRequest:
        """The next frame."""
        frame = session_pb2.SessionRequest(given_up=self._given_up[:FRAME_CALLS_MAX])
        del self._given_up[:FRAME_CALLS_MAX]
        size = 0
        for call_id, call in list(self._calls.items())[:FRAME_CALLS_MAX]:
            size += call.ByteSize()
            if frame.calls and size > FRAME_BYTES:
                break
            frame.calls.append(call)
            del self._calls[call_id]
        for call_id in list(self._credits)[:FRAME_CALLS_MAX]:
            if call_id not in self._calls:  # else the stream is to be opened before
                frame.credits.append(self._credits.pop(call_id))
        return frame

    # --- answers --------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._stream.read()
                if not self._is_open.is_set():
                    self._is_open.set()
                    self._hello.set_result(frame.offers_receive_streams)
                for answer in frame.answers:
                    self._tell(answer)
        except StreamBroken as broken:
            failure = broken.failure
        self.is_over = True
        if self._is_open.is_set():
            self._fail(failure)
        elif await self._call.code() is grpc.StatusCode.UNIMPLEMENTED:
            self._refuse(NoSession(is_for_good=True))
        elif _is_for_lack_of_room(failure.error):
            self._refuse(NoSession(is_for_good=False))
        else:
            self._fail(failure)

    def _tell(self, answer: session_pb2.SessionAnswer) -> None:
        owner = self._streams.get(answer.call_id)
        if owner is not None:
            self._tell_owner(owner, answer)
            return
        parts = self._acks.take(answer.call_id)
        if not parts or answer.HasField("error"):
            for caller_id, _ in parts or [(answer.call_id, 0)]:
                self._tell_one(caller_id, answer)
            return
        outcomes, first = answer.ack.outcomes, 0
        for caller_id, count in parts:
            part = consumer_pb2.AckResponse(outcomes=outcomes[first : first + count])
            self._tell_one(caller_id, session_pb2.SessionAnswer(ack=part))
            first += count

    def _tell_one(self, caller_id: int, answer: session_pb2.SessionAnswer) -> None:
        waiting = self._waiting.pop(caller_id, None)
        self._is_less.set()
        if waiting is None or waiting.future.done():
            return  # given up
        if answer.HasField("error"):
            waiting.future.set_exception(CallFailed(failure_of(answer.error), answer.error))
        else:
            waiting.future.set_result(getattr(answer, waiting.field))

    def _tell_owner(self, owner: StreamOwner, answer: session_pb2.SessionAnswer) -> None:
        if answer.HasField("receive"):
            owner.on_answer(answer.receive)
            return
        self.drop_stream(answer.call_id)
        if answer.HasField("error"):
            owner.on_end(CallFailed(failure_of(answer.error), answer.error))
        else:
            owner.on_end(None)

    def _end_streams(self, reason: CallFailed | NoSession) -> None:
        streams, self._streams = self._streams, {}
        for owner in streams.values():
            owner.on_end(reason)
        if not self._hello.done():
            self._hello.set_exception(reason)

    def _fail(self, failure: Failure) -> None:
        """The session is over: end all calls so. What was not sent, no node has seen."""
        self._end_streams(CallFailed(failure))
        for call_id, waiting in self._waiting.items():
            if not waiting.future.done():
                is_definite = failure.is_definite or self._acks.call_of(call_id) in self._calls
                waiting.future.set_exception(CallFailed(Failure(failure.error, is_definite)))
        self._forget()

    def _refuse(self, refusal: NoSession) -> None:
        self._end_streams(NoSession(is_for_good=refusal.is_for_good))
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(NoSession(is_for_good=refusal.is_for_good))
        self._forget()

    def _forget(self) -> None:
        self._waiting.clear()
        self._is_less.set()
        self._calls.clear()
        self._acks.clear()
        self._credits.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._tasks[1].cancel()


def _over() -> Failure:
    """Of a call that no node has seen."""
    return Failure(errors.Unavailable("the session is over"), is_definite=True)


def _is_for_lack_of_room(error: errors.HourwheelError) -> bool:
    """A session was refused, and other calls need not be."""
    params = error.params
    return params.get("limit") == _NO_ROOM or params.get("quota") == _NO_SHARE


def _look_at(hello: "asyncio.Future[bool]") -> None:
    """Else asyncio logs it."""
    if not hello.cancelled():
        hello.exception()


def failure_of(detail: broker_pb2.ErrorDetail) -> Failure:
    """What a node answered a call of a session."""
    code = _CODES.get(detail.code, "UNKNOWN")
    error = make_error(code, detail.reason, detail.message, detail.params)
    return Failure(error, is_definite=not is_undecided(error))
