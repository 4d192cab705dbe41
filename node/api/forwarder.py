"""The forwarder: any node answers, for a node that is not the master forwards calls to the master.

    our client        says `hourwheel-redirect`: it gets the master's address, and goes there itself
    any other client  the node forwards its call, byte for byte, and so the answer or the error
    forwarded once    is never forwarded again

It goes to the port on which nodes prove who they are, and with it who the caller is: on that port
the master believes it. What a client sends under such names goes no further than here.

A node answers by itself what is about itself: its status, health and reflection; and what the
control plane has, users, grants and quotas. A forwarded call that got lost on the way ends as
`Timeout`, its outcome being unknown, unless it certainly never left; then as `Unavailable`. Streams
are forwarded as they are opened: where the master steps down, each batch fails with that error, and
the client opens a new stream.

The node reads the answer to a poll from the master when there is room for it (`AnswerRoom`). To
gRPC the call is one whose answers are a stream, which is the same on the wire.

Where the master of a poll steps down or dies, the poll goes on at the next one, as long as its
caller waits: messages that a lost answer leased come again by themselves. An election may take
`_FOLLOW_S` for that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from hourwheel import errors, limits
from hourwheel.transport import grpc_status
from hourwheel.transport.connection import PINGS, REDIRECT
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.transport.reads import begin_read
from hourwheel.types import NodeId
from hourwheel.v1.consumer_pb2 import ReceiveRequest
from node.access.control import login_holds
from node.access.forwarded import caller_metadata
from node.access.permissions import RULES
from node.api.calls import Calls, Context, Encoded, PassedOn, StreamHandler, UnaryHandler
from node.api.publish_stream import METHOD
from node.contracts.answer_budget import ANSWER_BYTES_MIN, AnswerBudget, HeldAnswer
from node.contracts.cluster import WAS_OPEN
from node.telemetry.stats import ApiStats

OWN_ANSWERS: Final = frozenset(
    {
        "GetStatus",
        # The control process beside each node takes these to wherever they are agreed upon.
        *("PutUser", "DeleteUser", "ListUsers", "PutGrant", "DeleteGrant", "ListGrants"),
        *("PutQuota", "DeleteQuota", "ListQuotas"),
    }
)
"""Methods that every node answers for itself."""
_WAITING: Final = "Receive"
_RECEIVE_RULE: Final = RULES["hourwheel.v1.ConsumerService.Receive"]
_HOP_BY_HOP: Final = ("grpc-", ":", "hourwheel-")
_OWN_HOP: Final = frozenset(
    {
        *("authorization", "user-agent", "content-type", "te", "host", "connection"),
        "accept-encoding",
    }
)
DEADLINE_SHARE: Final = 0.98
DEADLINE_MARGIN_S: Final = 0.02
_WAIT_S_MAX: Final = limits.RECEIVE_WAIT_MS_MAX / 1_000 + 10.0
"""For a call without a deadline: longer than any poll."""
_FOLLOW_S: Final = 5.0
"""How long a poll waits for the next master: takeovers take about one second."""
_AGAIN_S: Final = 0.05
_LOOKAHEAD_BYTES: Final = 64 * 1024
"""Of an answer that is not read yet."""
_DETAILS_KEY: Final = "grpc-status-details-bin"
OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.http2.bdp_probe", 0),  # else the window of each call grows, read or not
    ("grpc.http2.lookahead_bytes", _LOOKAHEAD_BYTES),
    *PINGS,  # a master that is stopped says nothing, and a poll would wait in vain
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

Read: TypeAlias = Callable[[Any], Awaitable[bytes]]
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]


class _Waiting(NamedTuple):
    size_bytes: int
    held: HeldAnswer
    future: "asyncio.Future[None]"


class AnswerRoom:
    """Room for answers that are passed on: a call waits for it before it reads one.

    An answer that is not read stays at the master, but for the little that gRPC takes ahead, and
    counts there. So a node holds no more of what it passes on than of what it delivers itself.
    First come, first served. Belongs to one event loop.

    Invariant: if a call waits, there is no room for the first of them.
    """

    def __init__(self, budget: AnswerBudget) -> None:
        """Give room of `budget`."""
        self._budget = budget
        self._waiting: deque[_Waiting] = deque()
        budget.watch(self._serve)

    async def take(self, held: HeldAnswer, size_bytes: int) -> None:
        """Wait until there is room for so much; `held` holds it then."""
        if not self._waiting and self._budget.has_room_for(size_bytes):
            held.hold(size_bytes)
            return
        waiting = _Waiting(size_bytes, held, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.future
        finally:
            if waiting in self._waiting:  # given up: the next one may need less
                self._waiting.remove(waiting)
                self._serve()

    def _serve(self) -> None:
        while self._waiting and self._budget.has_room_for(self._waiting[0].size_bytes):
            first = self._waiting.popleft()
            if not first.future.done():
                first.held.hold(first.size_bytes)
                first.future.set_result(None)


class Link(Protocol):
    """As much of a channel of gRPC as is needed here."""

    def unary_stream(self, method: str) -> Any:
        """What begins a call with one request."""
        ...

    def stream_stream(self, method: str) -> Any:
        """What begins a stream."""
        ...


class Links(Protocol):
    """Connections to other nodes, on which this one can prove what it is."""

    def channel(self, node: NodeId) -> Link:
        """The one to a node."""
        ...

    def proof(self) -> tuple[tuple[str, str], ...]:
        """Metadata for each call."""
        ...

    async def close(self) -> None:
        """End all of them."""
        ...


class MasterOnly:
    """In a forwarder's place on the port for other nodes: nothing is passed on a second time."""

    def __init__(self, check: Callable[[], None]) -> None:
        """`check`: as of `Forwarder`."""
        self._check = check

    def unary(self, path: str, calls: Calls, local: UnaryHandler) -> UnaryHandler:
        """`local`, while this node is the master."""
        check = self._check

        async def refuse(_raw: bytes, _context: Context) -> Encoded:
            check()
            raise errors.NotMaster("this node has just become the master; try again")

        refused = calls.unary(path.rpartition("/")[2], bytes, refuse)

        def handle(raw: bytes, context: Context) -> Awaitable[bytes]:
            try:
                check()
            except errors.NotMaster:
                return refused(raw, context)
            return local(raw, context)

        return handle

    def stream(self, _path: str, _calls: Calls, local: StreamHandler) -> StreamHandler:
        """`local`, which says it in the stream's own words, batch by batch."""
        return local


class Forwarder:
    """The way to the master. Belongs to one event loop.

    Invariant: at most `in_flight_max` calls and streams are passed on at one time.
    """

    def __init__(
        self,
        check: Callable[[], None],
        links: Links,
        stats: ApiStats,
        answers: AnswerBudget,
        *,
        in_flight_max: int,
    ) -> None:
        """Connects when there is something to pass on.

        Args:
            check: raises NotMaster, with the master's name, where this node is not the master.
            links: the way to it.
            stats: where it counts.
            answers: room for messages that are passed on to clients and not read yet.
            in_flight_max: more calls than that at one time are Overloaded.
        """
        self._check, self._links, self._stats = check, links, stats
        self._answers, self._room = answers, AnswerRoom(answers)
        self._in_flight_max = in_flight_max

    def for_peers(self) -> MasterOnly:
        """What answers other nodes in its place."""
        return MasterOnly(self._check)

    async def close(self) -> None:
        """End all connections; what is under way is cancelled."""
        await self._links.close()

    def unary(self, path: str, calls: Calls, local: UnaryHandler) -> UnaryHandler:
        """The handler of a unary method: `local`'s while this node is the master."""
        method = path.rpartition("/")[2]
        if method in OWN_ANSWERS:
            return local
        check = self._check

        async def pass_on(raw: bytes, context: Context) -> Encoded:
            return Encoded(await self._pass_on(path, calls, raw, context))

        forwarded = calls.unary(method, bytes, pass_on)

        def handle(raw: bytes, context: Context) -> Awaitable[bytes]:
            """No coroutine: its frame would keep the request when the call is aborted."""
            try:
                check()
            except errors.NotMaster:
                return forwarded(raw, context)
            return local(raw, context)

        return handle

    def stream(self, path: str, calls: Calls, local: StreamHandler) -> StreamHandler:
        """The handler of a method with streams in both directions."""

        async def handle(requests: Any, context: Context) -> None:
            try:
                channel = self._find(context)
            except errors.NotMaster:  # in the stream's own words, batch by batch
                channel = None
            if channel is None:
                await local(requests, context)
            else:
                await self._pipe(path, channel, calls, context)

        return handle

    # -- where to ---------------------------------------------------------------------------------

    def _find(self, context: Context) -> Link | None:
        """The way to the master; None: this node is it.

        Raises:
            NotMaster: the caller finds the master by itself, or no master is known.
        """
        try:
            self._check()
        except errors.NotMaster as error:
            master = NodeId(error.params.get("master", ""))
            if not master or _is_marked(context):
                raise
            return self._links.channel(master)
        return None

    def _enter(self) -> None:
        if self._stats.forwarded_in_flight >= self._in_flight_max:
            raise errors.Overloaded(
                "too many calls are passed on to the master",
                limit="limits.forwarded_calls",
                limit_value=self._in_flight_max,
            )
        self._stats.forwarded_in_flight += 1
        self._stats.forwarded += 1

    # -- one call ---------------------------------------------------------------------------------

    async def _pass_on(self, path: str, calls: Calls, raw: bytes, context: Context) -> bytes:
        if not path.endswith(_WAITING):
            return await self._try(path, raw, context, _answer)
        try:
            request = ReceiveRequest.FromString(raw)
        except DecodeError:  # the master will say so
            return await self._try(path, raw, context, _answer)
        with calls.access.until_revoked_elsewhere(_RECEIVE_RULE, request):
            return await self._follow(path, calls, raw, context)

    async def _follow(self, path: str, calls: Calls, raw: bytes, context: Context) -> bytes:
        """A poll's answer, from one master or the next."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _timeout_of(context)
        failing_since_s: float | None = None
        poll = _Poll(calls, self._room, self._held(context), _answer_bytes(raw), until_s)
        while True:
            begun_s = loop.time()
            try:
                return await self._try(path, raw, context, poll.answer)
            except (PassedOn, errors.Unavailable, errors.Timeout) as error:
                now_s = loop.time()
                if failing_since_s is None or now_s - begun_s > _FOLLOW_S / 2:
                    failing_since_s = now_s
                is_late = now_s + _AGAIN_S >= min(until_s, failing_since_s + _FOLLOW_S)
                if is_late or _is_marked(context) or not _may_pass(error):
                    raise
            await asyncio.sleep(_AGAIN_S)
            if calls.admission.is_draining:
                raise errors.ShuttingDown

    async def _try(self, path: str, raw: bytes, context: Context, read: Read) -> bytes:
        channel = self._find(context)
        if channel is None:
            raise errors.NotMaster("this node has just become the master; try again")
        self._enter()
        try:
            begin = channel.unary_stream(path)
            call = begin(raw, timeout=_timeout_s(context), metadata=self._onward(context))
            try:
                return await read(call)
            finally:
                call.cancel()
        finally:
            self._stats.forwarded_in_flight -= 1

    def _held(self, context: Context) -> HeldAnswer:
        """Counts an answer until the client has read it, or is gone."""
        held = HeldAnswer(self._answers)
        # The stub has a class where a Protocol is meant.
        context.add_done_callback(lambda _: held.end())  # type: ignore[arg-type]
        return held

    def _onward(self, context: Context) -> Metadata:
        kept = [
            (key, value)
            for key, value in _metadata(context)
            if key not in _OWN_HOP and not key.startswith(_HOP_BY_HOP)
        ]
        return (*kept, *self._links.proof(), *caller_metadata())

    # -- a stream ---------------------------------------------------------------------------------

    async def _pipe(self, path: str, channel: Link, calls: Calls, context: Context) -> None:
        """Bytes to the master and back. As slow as the slower end: nothing piles up here."""
        stats, code = calls.stats.method(path.rpartition("/")[2]), "CANCELLED"
        begun_ms = calls.clock.monotonic_ms()
        is_counted = False
        refusal: grpc.Status | None = None
        try:
            calls.admission.begin_stream()
            is_counted = True
            self._enter()
            try:
                call: Any = channel.stream_stream(path)(
                    timeout=_timeout_s(context, longest_s=None), metadata=self._onward(context)
                )
                await _copy(calls, call, context)
            finally:
                self._stats.forwarded_in_flight -= 1
            if (parting := calls.find_parting()) is not None:
                raise parting
            code = "OK"
        except PassedOn as passed:
            code, refusal = passed.status.code.name, passed.status
        except errors.HourwheelError as error:
            code, refusal = calls.refuse(METHOD, error, context, grpc_status.to_status)
        finally:
            if is_counted:
                calls.admission.end_stream()
            stats.count(code, (calls.clock.monotonic_ms() - begun_ms) / 1_000)
        if refusal is not None:  # behind `except`: see `Calls.unary`
            await context.abort_with_status(refusal)


async def _answer(call: Any) -> bytes:
    """The one answer of a call.

    Raises:
        PassedOn, Timeout, Unavailable: see `_error_of`.
    """
    try:
        answer = await begin_read(call)
        if isinstance(answer, bytes):
            await call.read()  # how it ended
            return answer
    except grpc.aio.AioRpcError as error:
        raise _error_of(error) from None
    raise errors.Unavailable("the master answered nothing")


class _Poll(NamedTuple):
    """A poll that is passed on."""

    calls: Calls
    room: AnswerRoom
    held: HeldAnswer
    size_bytes: int
    """Its answer at most, as far as is known."""
    until_s: float
    """By the loop's clock."""

    async def answer(self, call: Any) -> bytes:
        """The answer, when there is room for it.

        Raises:
            PassedOn, Timeout, Unavailable: see `_error_of`.
            Overloaded: the caller's time is over before there is room.
            ShuttingDown: the node begins to stop.
            LoginEnded: the caller's.
        """
        admission, answers = self.calls.admission, list[bytes]()
        admission.begin_poll()
        try:
            with admission.until_drain():
                await call.initial_metadata()
                if not call.done():
                    await self._wait_for_room()
                answers.append(await _answer(call))
                self.held.hold(len(answers[0]))
        finally:
            admission.end_poll()
            if not answers:
                self.held.hold(0)
        if not answers:
            raise self.calls.find_parting() or errors.ShuttingDown()
        return answers[0]

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout_at(self.until_s):
                await self.room.take(self.held, self.size_bytes)
        except TimeoutError:
            raise errors.Overloaded(
                "too many bytes of answers are not read", limit="limits.answer_bytes"
            ) from None


def _answer_bytes(raw: bytes) -> int:
    """What the answer to a poll has at most: so much as it asks for, or one message."""
    try:
        wanted_bytes = ReceiveRequest.FromString(raw).max_bytes
    except DecodeError:  # the master will say so
        return ANSWER_BYTES_MIN
    return max(wanted_bytes, ANSWER_BYTES_MIN)


async def _copy(calls: Calls, call: Any, context: Context) -> None:
    sending = asyncio.ensure_future(_send(calls, call, context))
    try:
        while isinstance(raw := await begin_read(call), bytes):
            await context.write(raw)
    except grpc.aio.AioRpcError as error:
        raise _error_of(error) from None
    finally:
        sending.cancel()
        call.cancel()
        # How the stream ended, the reading side knows.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            await sending


async def _send(calls: Calls, call: Any, context: Context) -> None:
    """What the client sends; a shutdown, or the end of its login, ends it.

    What was sent is still answered. The master knows the caller's name, and nothing of the login.
    """
    with suppress(errors.ShuttingDown):
        while isinstance(raw := await _read(calls, context), bytes) and login_holds():
            await call.write(raw)  # not to be given up: that would end the whole call
    await call.done_writing()


async def _read(calls: Calls, context: Context) -> object:
    """The client's next message; else there is none, the node stops, or the login has ended."""
    raw: object = None
    with calls.admission.until_drain():
        raw = await begin_read(context)
    return raw  # noqa: RET504 - what is awaited above may be given up


class _Moved(PassedOn):
    """The other node says that it is not the master, or stops: another one will be."""


def _may_pass(error: Exception) -> bool:
    """Whether asking again, maybe somewhere else, may help a poll."""
    return isinstance(error, _Moved) or not isinstance(
        error, PassedOn | errors.ShuttingDown | errors.Overloaded
    )


def _error_of(error: grpc.aio.AioRpcError) -> Exception:
    """The error for the caller: another node's as it is, else what is known of the outcome."""
    trailing = tuple(error.trailing_metadata() or ())
    if any(key == _DETAILS_KEY for key, _ in trailing):
        refused = failure_of(error).error
        if isinstance(refused, errors.PeerRefused):  # of this node, and not of the client
            kind_of = errors.Timeout if WAS_OPEN in refused.params else errors.Unavailable
            return kind_of(f"the master does not serve this node: {refused.message}")
        is_moved = isinstance(failure_of(error).error, errors.NotMaster | errors.ShuttingDown)
        kind = _Moved if is_moved else PassedOn
        return kind(error.code(), error.details() or "", trailing)
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return errors.Unavailable("the master is of a version to which nothing is passed on")
    failure = failure_of(error)
    if not isinstance(failure.error, errors.Unavailable | errors.Cancelled):
        return PassedOn(error.code(), error.details() or "", trailing)
    if failure.is_definite:
        return errors.Unavailable("the master cannot be reached")
    return errors.Timeout("the way to the master was cut: the outcome is unknown")


def _metadata(context: Context) -> Iterable[tuple[str, str | bytes]]:
    found: Any = context.invocation_metadata()
    return found or ()


def _is_marked(context: Context) -> bool:
    """Whether the call is not to be passed on: its caller follows by itself."""
    return REDIRECT in {key for key, _ in _metadata(context)}


def _timeout_of(context: Context) -> float:
    left_s = _timeout_s(context)
    return _WAIT_S_MAX if left_s is None else left_s


def _timeout_s(context: Context, longest_s: float | None = _WAIT_S_MAX) -> float | None:
    """What is left of the caller's time, less what the way back takes."""
    left_s: float | None = context.time_remaining()
    if left_s is None:
        return longest_s
    return max(0.0, left_s * DEADLINE_SHARE - DEADLINE_MARGIN_S)
