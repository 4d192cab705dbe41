"""SessionService.Session: the calls of one client process, in frames, answered in any order.

    read a frame --> a task for each call --> answers that are ready --> write one frame
         ^             (as a unary one)                                        |
         |_____________ no reading while too much is in flight _______________|

Each call goes through the same steps as a unary one (`Calls.attempt`). What gets ready while a
frame is written goes together with the next one, so frames grow with the load.

A session is read on while the calls in flight and the answers not written yet are within bounds,
in number and in bytes. A poll that waits is no call in flight here: `limits.long_polls` bounds
those of all clients. A client that does not read its answers is not read from, and after
`limits.answer_wait_ms` its session is ended; so is one whose frames make no sense. A shutdown stops
the reading, answers what was read, polls with nothing, then ends.

A receive stream is a call with many answers (node/api/stream_call.py): its task sleeps while it
is open, and answers are pushed from the engine's turns, as long as the writer keeps up.

Messages that the caller may not have any more are not written, though they wait for that: the
permission is revoked, or the login has ended.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from hourwheel import errors
from hourwheel.transport import grpc_status
from hourwheel.v1.broker_pb2 import ErrorDetail
from hourwheel.v1.consumer_pb2 import ReceiveRequest, ReceiveResponse
from hourwheel.v1.session_pb2 import (
    ReceiveStreamEnd,
    SessionAnswer,
    SessionCall,
    SessionRequest,
    SessionResponse,
)
from node.api.calls import CallContext, Calls, Context, Refusal
from node.api.stream_call import RECEIVE_RULE, StreamCall, varint
from node.config.model import LimitsSection
from node.contracts.access import Resource
from node.contracts.answer_budget import HeldAnswer

METHOD: Final = "Session"
FRAME_CALLS_MAX: Final = 1_024
"""Calls of one frame, calls that it gives up, and streams whose credits it sets."""
IN_FLIGHT_MAX: Final = 1_024
"""Calls of a session that are worked on, and answers that are not written."""
FRAME_BYTES: Final = 1 << 20
"""Answers are put into one frame up to this size; a larger one goes alone."""
UNWRITTEN_BYTES: Final = 4 << 20
"""Answers of a session that wait to be written: with more than that, nothing is read."""
_SECONDS: Final = 0.001
_PARTING_S: Final = 1.0
_WAITING: Final = "receive"
_STREAM: Final = "receive_stream"
HELLO: Final = SessionResponse(offers_receive_streams=True).SerializeToString()
"""The first frame of a session."""
_ANSWERS: Final = SessionResponse.DESCRIPTOR.fields_by_name["answers"].number
_ANSWERS_TAG: Final = bytes([_ANSWERS << 3 | 2])

Attempt: TypeAlias = Callable[[Any, int, CallContext], Awaitable[Any]]
Implement: TypeAlias = Callable[[Any, CallContext], Coroutine[Any, Any, Any]]


class Sessions:
    """The handler of the method. Its calls count as those of their own methods in the metrics."""

    def __init__(
        self, calls: Calls, methods: Mapping[str, tuple[str, Implement]], allowed: LimitsSection
    ) -> None:
        """`methods`: field of `SessionCall` -> (name in the metrics, what does it)."""
        self._calls = calls
        self._allowed = allowed
        self._attempts = {
            field: calls.attempt(name, implement, grpc_status.to_detail)
            for field, (name, implement) in methods.items()
        }

    async def handle(self, _requests: object, context: Context) -> None:
        """Serve one session."""
        admission = self._calls.admission
        try:
            admission.begin_session()
        except errors.HourwheelError as error:
            _, refusal = self._calls.refuse(METHOD, error, context, grpc_status.to_status)
        else:
            # Only with the call ends what gRPC has of it, and a client may keep it open.
            context.add_done_callback(lambda _: admission.end_session())  # type: ignore[arg-type]
            await context.write(HELLO)  # the session is open
            session = _Session(self._calls, self._attempts, self._allowed, context)
            found: Exception | None
            try:
                found = await session.serve()
            except errors.ShuttingDown as error:  # it began while that was written
                found = error
            if found is None:
                return
            _, refusal = self._calls.refuse(METHOD, found, context, grpc_status.to_status)
        # Behind answers that the client does not read the status does not arrive.
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_S):
                await context.abort_with_status(refusal)


class _Call:
    """The context of one call."""

    __slots__ = ("_loop", "_on_done", "_peer", "_until_s", "is_waiting", "size_bytes")

    def __init__(self, session: "_Session", timeout_ms: int, size_bytes: int) -> None:
        self._loop = session.loop
        self._peer = session.peer
        self._until_s = self._loop.time() + timeout_ms * _SECONDS if timeout_ms else None
        self._on_done: Callable[[Any], None] | None = None
        self.size_bytes = size_bytes
        """Of the request."""
        self.is_waiting = False
        """A poll: it may take its time."""

    def time_remaining(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._on_done = callback

    def peer(self) -> str:
        return self._peer()

    def end(self) -> None:
        """The client has got the answer, or is gone."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)


class _Answer(NamedTuple):
    raw: bytes
    call: _Call | HeldAnswer | StreamCall
    """Called when the client has got it, or is gone."""
    since_s: float
    """When it was there, by the loop's clock."""
    call_id: int = 0
    reads: tuple[Resource, ...] = ()
    """What the caller must still be allowed to read as it is written; it has messages of that."""
    stream: StreamCall | None = None
    """Of which it is one answer of many."""


class _Session:
    """One session.

    Invariant: a call in `_tasks` is not answered yet, one in `_answers` is, and not written.
    """

    def __init__(
        self,
        calls: Calls,
        attempts: Mapping[str, Attempt],
        allowed: LimitsSection,
        context: Context,
    ) -> None:
        """Nothing is read yet."""
        self.loop = asyncio.get_running_loop()
        self.peer = context.peer
        self._calls = calls
        self._admission = calls.admission
        self._access, self._policy = calls.access, calls.access.policy
        """By this one all that waits to be written was allowed."""
        self._stats = calls.stats
        self._attempts = attempts
        self._context = context
        self._answer_wait_ms = allowed.answer_wait_ms
        self._bytes_max = allowed.stream_bytes_in_flight
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[int, StreamCall] = {}
        """Those of the tasks that are receive streams."""
        self._stalled = False
        """Streams have stopped, for too much was not written."""
        self._answers = deque[_Answer]()
        self._writing: list[_Answer] = []
        self._dropped: set[StreamCall] = set()
        """Streams whose answers in `_answers` are not written any more."""
        self._is_closing = False
        """Nothing is read any more."""
        self._is_ended = False
        """Nothing is written any more."""
        self._in_flight = 0
        self._bytes_in_flight = 0
        self._unwritten_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._to_do = asyncio.Event()
        """For the writer."""
        self._is_written = asyncio.Event()
        """Something was, since the first of the polls below has looked."""
        self._next_poll = asyncio.Lock()
        """Polls wait in turn until less is unwritten: one frame may have a thousand."""

    async def serve(self) -> Exception | None:
        """Read and answer until the client ends the session: None; or why it is ended."""
        # A read is never cancelled: see `hourwheel.transport.reads`. It ends with the call.
        reading = self.loop.create_task(self._read())
        writing = self.loop.create_task(self._write())
        writing.add_done_callback(_look)
        reading.add_done_callback(_look)
        error: errors.HourwheelError | None = None
        try:
            with self._admission.until_drain():
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                found = reading.result()
                if found is not None:
                    return found
            self._is_closing = True
            self._to_do.set()
            self._end_streams()
            error = await writing
        finally:
            self._end(writing)
        return self._calls.find_parting() if error is None else error

    def _end(self, writing: "asyncio.Task[Any]") -> None:
        self._is_closing = self._is_ended = True
        self._has_room.set()
        writing.cancel()
        for stream in self._streams.values():
            stream.cut()
        for task in self._tasks.values():
            task.cancel()
        for answer in (*self._writing, *self._answers):
            answer.call.end()
        self._answers.clear()

    def _end_streams(self) -> None:
        """The client gives them no credits any more: they end behind what is there.

        Where the login has ended, without it.
        """
        if self._calls.find_login_end() is not None:
            self.drop(self._streams.values())
        for call_id, stream in self._streams.items():
            stream.is_ending = True
            self._tasks[call_id].cancel()

    # -- reading ----------------------------------------------------------------------------------

    async def _read(self) -> Exception | None:
        """Read until there is no more: None; or what is wrong with a frame."""
        while True:
            await self._has_room.wait()
            if self._is_closing:
                return None
            raw: Any = await self._context.read()  # it raises where the client is gone
            if isinstance(raw, bytes):
                await self._admission.turns.take(len(raw))
            if self._is_ended or not isinstance(raw, bytes):  # the end: grpc.aio.EOF
                return None
            try:
                self._take(raw)
            except errors.HourwheelError as error:
                return error.with_traceback(None)
            except Exception as error:  # noqa: BLE001 - a bug must not look like a client that left
                return error
            del raw  # while the next one is awaited

    def _take(self, raw: bytes) -> None:
        """Begin all calls of a frame.

        Raises:
            InvalidArgument, TooManyItems: it makes no sense; the session is over.
        """
        try:
            frame = SessionRequest.FromString(raw)
        except DecodeError:
            raise errors.InvalidArgument("this is no frame of a session") from None
        self._stats.session_frames += 1
        count = max(len(frame.calls), len(frame.given_up), len(frame.credits))
        if count > FRAME_CALLS_MAX:
            raise errors.TooManyItems(
                f"{count} calls in a frame; at most {FRAME_CALLS_MAX} are allowed",
                count=count,
                count_max=FRAME_CALLS_MAX,
            )
        for call_id in frame.given_up:
            task, stream = self._tasks.get(call_id), self._streams.get(call_id)
            if stream is not None:
                stream.cut(is_given_up=True)
                self.drop([stream])
            if task is not None:
                task.cancel()
        for call in frame.calls:
            # A batch of megabytes is not measured by being written once more.
            self._begin(call, len(raw) if len(frame.calls) == 1 else call.ByteSize())
        for one in frame.credits:
            stream = self._streams.get(one.call_id)
            if stream is not None:
                stream.grant(one.received_count, one.credits)

    def _begin(self, call: SessionCall, size_bytes: int) -> None:
        call_id = call.call_id
        if not call_id or call_id in self._tasks:
            raise errors.InvalidArgument(
                f"call_id {call_id} is 0, or of a call that is not answered", field="call_id"
            )
        field = call.WhichOneof("request")
        attempt = self._refuse_unknown if field is None else self._attempts[field]
        request: Any = None if field is None else getattr(call, field)
        one: _Call | StreamCall
        if field == _STREAM:
            one = self._streams[call_id] = StreamCall(call_id, request, self, self.peer)
            request = request.receive
        else:
            one = _Call(self, call.timeout_ms, size_bytes)
        if one.is_waiting or (field == _WAITING and request.wait_ms):
            one.is_waiting = True
            # What belongs to the frame keeps it in memory, all of it, as long as a poll may last.
            kept = ReceiveRequest()
            kept.CopyFrom(request)
            request = kept
        else:
            self._change(1, one.size_bytes)
        # Tasks start in the order they are made, so batches reach the engine in theirs.
        task = self.loop.create_task(self._run(call_id, field or "", attempt, request, one))
        self._tasks[call_id] = task

    async def _refuse_unknown(self, _request: None, _size: int, _call: CallContext) -> Any:
        error = errors.InvalidArgument("a call without a request, or one that is unknown here")
        return Refusal(grpc_status.to_detail(error))

    async def _run(
        self, call_id: int, field: str, attempt: Attempt, request: Any, call: _Call | StreamCall
    ) -> None:
        raw, reads = b"", tuple[Resource, ...]()
        try:
            if field == _WAITING and self._unwritten_bytes >= UNWRITTEN_BYTES:
                await self._wait_for_writer()
            answer = await attempt(request, call.size_bytes, call)
            raw = _encode(call_id, field, answer)
            if isinstance(answer, ReceiveResponse) and answer.receipt:
                reads = RECEIVE_RULE.resources(request)
        except asyncio.CancelledError:
            if not (isinstance(call, StreamCall) and call.is_ending):
                raise
            raw = _encode(call_id, field, ReceiveStreamEnd())
        finally:
            del self._tasks[call_id]
            self._streams.pop(call_id, None)
            if not call.is_waiting:
                self._change(-1, -call.size_bytes)
            if raw and not self._is_ended:  # it may have ended while this was awaited
                self._answers.append(_Answer(raw, call, self.loop.time(), call_id, reads))
                self._unwritten_bytes += len(raw)
                self._change(1, 0)
            else:
                call.end()
            self._to_do.set()

    def drop(self, streams: Collection[StreamCall]) -> None:
        """Nothing more is sent of these streams."""
        for stream in streams:
            stream.cut()
        if not self._dropped:  # of a thousand streams that end together one pass has all
            self.loop.call_soon(self._drop_answers)
        self._dropped.update(streams)

    def _drop_answers(self) -> None:
        if self._dropped:
            gone, self._dropped = self._dropped, set()
            self._replace_answers(lambda answer: None if answer.stream in gone else answer)

    def _replace_answers(self, replace: Callable[[_Answer], _Answer | None]) -> None:
        """Have other answers written, or None, than those that wait for it."""
        kept = deque[_Answer]()
        for answer in self._answers:
            instead = replace(answer)
            self._unwritten_bytes -= len(answer.raw)
            if instead is None:
                answer.call.end()
                self._change(-1, 0)
            else:
                self._unwritten_bytes += len(instead.raw)
                kept.append(instead)
        self._answers = kept
        self._is_written.set()
        self._change(0, 0)
        self._on_room()

    def _withdraw(self) -> None:
        """Write no messages that the caller may not have any more: say so instead.

        Of those of polls the leases last; those of streams are given back, or kept for who opens
        the stream again.
        """
        self._drop_answers()
        policy, ended = self._access.policy, self._calls.find_login_end()
        if policy is self._policy and ended is None:
            return
        self._policy = policy
        refused: dict[tuple[Resource, ...], errors.HourwheelError | None] = {}
        for reads in {answer.reads for answer in self._answers if answer.reads}:
            refused[reads] = ended or self._access.find_refusal(RECEIVE_RULE, reads)

        def instead_of(answer: _Answer) -> _Answer | None:
            refusal = refused.get(answer.reads)
            if refusal is None:
                return answer
            if answer.stream is not None:
                answer.stream.cut()
                return None
            shown = self._calls.refuse("Receive", refusal, self._context, grpc_status.to_detail)[1]
            return answer._replace(raw=_encode(answer.call_id, "", Refusal(shown)), reads=())

        if any(refused.values()):
            self._replace_answers(instead_of)

    @property
    def has_room(self) -> bool:
        """Whether the client reads what it is sent, as far as is known."""
        if self._is_ended or self._unwritten_bytes >= UNWRITTEN_BYTES:
            self._stalled = True
            return False
        return True

    def push(self, raw: bytes, held: HeldAnswer, call: StreamCall) -> None:
        """Write an answer of a stream, in its turn."""
        if self._is_ended:
            held.end()
            return
        self._answers.append(_Answer(raw, held, self.loop.time(), reads=call.reads, stream=call))
        self._unwritten_bytes += len(raw)
        self._change(1, 0)
        self._to_do.set()

    def _on_room(self) -> None:
        if self._stalled and self._unwritten_bytes < UNWRITTEN_BYTES and not self._is_ended:
            self._stalled = False
            for stream in list(self._streams.values()):
                stream.look()

    async def _wait_for_writer(self) -> None:
        """Else all polls of a frame that need not wait would be answered before one write."""
        async with self._next_poll:
            while self._unwritten_bytes >= UNWRITTEN_BYTES:
                self._is_written.clear()
                await self._is_written.wait()

    def _change(self, count: int, size_bytes: int) -> None:
        self._in_flight += count
        self._bytes_in_flight += size_bytes
        if (
            self._in_flight < IN_FLIGHT_MAX
            and self._bytes_in_flight < self._bytes_max
            and self._unwritten_bytes < UNWRITTEN_BYTES
        ):
            self._has_room.set()
        else:
            self._has_room.clear()

    # -- writing ----------------------------------------------------------------------------------

    async def _write(self) -> errors.HourwheelError | None:
        """Write what is ready until all is answered and nothing is read any more."""
        while True:
            self._withdraw()
            if not self._answers:
                if self._is_closing and not self._tasks:
                    return None
                self._to_do.clear()
                await self._to_do.wait()
                continue
            answers = self._writing = self._next()
            self._stats.session_frames += 1
            try:
                async with asyncio.timeout(self._answer_wait_ms * _SECONDS):
                    await self._context.write(_frame(answers, self.loop.time()))
            except TimeoutError:
                self._leave()
                return errors.Overloaded(
                    f"the answers of this session were not read for {self._answer_wait_ms} ms",
                    limit="limits.answer_wait_ms",
                    limit_value=self._answer_wait_ms,
                )
            self._writing = []
            for answer in answers:
                answer.call.end()
                self._unwritten_bytes -= len(answer.raw)
            self._is_written.set()
            self._change(-len(answers), 0)
            self._on_room()

    def _leave(self) -> None:
        """gRPC has what is being written, unread: it takes room until the call ends."""
        calls = [answer.call for answer in self._writing]
        self._writing = []

        def end(_: object) -> None:
            for call in calls:
                call.end()

        self._context.add_done_callback(end)  # type: ignore[arg-type]

    def _next(self) -> list[_Answer]:
        """What goes into the next frame."""
        found = [self._answers.popleft()]
        size = len(found[0].raw)
        while self._answers and (size := size + len(self._answers[0].raw)) <= FRAME_BYTES:
            found.append(self._answers.popleft())
        for answer in found:
            if answer.stream is not None:
                answer.stream.note_sent()
        return found


def _look(task: "asyncio.Task[Any]") -> None:
    """Else asyncio logs its error as not looked at: the client went away."""
    if not task.cancelled():
        task.exception()


def _encode(call_id: int, field: str, answer: Any) -> bytes:
    if isinstance(answer, Refusal):
        detail: ErrorDetail = answer.form
        return SessionAnswer(call_id=call_id, error=detail).SerializeToString()
    fields = {"call_id": call_id, field: answer}
    return SessionAnswer(**fields).SerializeToString()


def _frame(answers: list[_Answer], now_s: float) -> bytes:
    """A SessionResponse of answers that are in bytes already; with how long messages waited."""
    parts: list[bytes] = []
    for answer in answers:
        raw = answer.raw
        queued_ms = int((now_s - answer.since_s) / _SECONDS) if answer.reads else 0
        if queued_ms:  # a message that comes in pieces is put together
            raw += SessionAnswer(receive=ReceiveResponse(queued_ms=queued_ms)).SerializeToString()
        parts += (_ANSWERS_TAG, varint(len(raw)), raw)
    return b"".join(parts)
