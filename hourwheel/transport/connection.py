"""One endpoint's gRPC channel, made when it is first used, and shared by the clients of a loop.

connection = share(address, access)         # one for all clients of this event loop
await connection.call(method, request, timeout_ms)
await connection.leave()                    # the last one closes it
"""

import asyncio
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakSet, WeakValueDictionary

import grpc
import grpc.aio

from hourwheel import errors, limits
from hourwheel.transport.access import PLAIN, Access, Metadata
from hourwheel.transport.connect_errors import explain, find_tls_cause, may_hide_tls
from hourwheel.transport.endpoints import Move
from hourwheel.transport.fork_guard import note_channel
from hourwheel.transport.grpc_errors import NO_STREAM, failure_of
from hourwheel.transport.methods import (
    GET_STATUS,
    OPEN_SESSION,
    PUBLISH_STREAM,
    Method,
    Request,
    Response,
)
from hourwheel.transport.session_lane import SessionLane
from hourwheel.transport.session_stream import CallFailed, NoSession, SessionStream
from hourwheel.transport.stream import OnFailure, Stream
from hourwheel.transport.tls_probe import find_cause
from hourwheel.v1 import admin_pb2, broker_pb2

MultiCallable: TypeAlias = Any
"""What grpc.aio makes of a method; its own types are not public."""

REDIRECT: Final = "hourwheel-redirect"
"""Key of each call's metadata: a node that is not the master is to say who is, instead of passing
the call on."""
_METADATA: Final = ((REDIRECT, "1"),)
_OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    # A node that restarts is back within a second or so; the defaults wait for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # One connection for each event loop: what breaks one does not break those of other threads.
    ("grpc.use_local_subchannel_pool", 1),
    # The environment's HTTP proxy is meant for other things, and would be asked for 127.0.0.1, too.
    ("grpc.enable_http_proxy", 0),
)
PING_MS: Final = 1_100
"""A connection on which nothing comes for so long is asked for a sign of life. More than a second:
nodes throw out who pings more often (`node.api.server`)."""
PING_TIMEOUT_MS: Final = 800
"""How long the answer may take: longer than a lease. A node that is silent for so long is no master
any more, so nothing is lost by asking another node."""
PINGS: Final = (
    ("grpc.keepalive_time_ms", PING_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),  # without it a minute
    ("grpc.http2.max_pings_without_data", 0),
)
"""Options of a connection that is watched."""


OLD_SESSION_MS: Final = 60_000.0
"""So long the calls of a session may go on whose token was followed by another: longer than a
poll."""
NO_SESSION_S: Final = 10.0
"""A node where there are too many sessions, or streams, is not asked for one for so long."""
STREAMS_MAX: Final = 4
"""So many producers have a stream each, which is quickest for one batch after the other; the
batches of more share the session's frames."""
_SECONDS: Final = 0.001
_WHY_S: Final = 0.1
"""Where a connection has failed, gRPC says why at once; where it is being made, not at all."""


PublishStream: TypeAlias = Stream[broker_pb2.PublishStreamRequest, broker_pb2.PublishStreamResponse]
_Key: TypeAlias = tuple[int, str, Access, bool]


class Connection:
    """The way to one endpoint. Belongs to one event loop."""

    def __init__(self, address: str, access: Access = PLAIN, *, is_watched: bool = False) -> None:
        """Begins to connect when it is first asked for something.

        Args:
            address: host:port.
            access: how it knows the node, and how it shows who it is.
            is_watched: cut the connection when the node answers no ping (`PINGS`) while a call is
                under way. A node that is stopped says nothing, and a long poll would wait in vain:
                worth it where another node may have taken over, else it is better to wait.

        Raises:
            Unprotected: a secret would be sent in the clear.
            InvalidArgument: a file of `access` cannot be read.
        """
        access.check(address)
        credentials = access.channel_credentials()
        self.address = address
        self.user_count = 0
        """Clients that share it."""
        self.trouble = ""
        """Why there was no connection when that was last asked; empty: not known."""
        self.tls_cause = ""
        """Likewise, where TLS is why: see `errors.TlsFailed`."""
        self._is_probed = False
        """Since the last connection the node was asked why it hangs up."""
        options = [*_OPTIONS, *access.options, *(PINGS if is_watched else ())]
        self._channel = (
            grpc.aio.insecure_channel(address, options=options)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=options)
        )
        note_channel()
        self._loop = asyncio.get_running_loop()
        self._access = access
        self._calls: dict[str, MultiCallable] = {}
        self._session: SessionStream | None = None
        self._session_metadata: Metadata = ()
        """What it was opened with."""
        self._closing: set[asyncio.Task[None]] = set()
        self._no_session_until_s = 0.0
        """By the loop's clock: calls are single ones until then."""
        self._no_stream_until_s = 0.0
        """By the loop's clock: producers get lanes until then."""
        self._publishing: WeakSet[Stream[Any, Any]] = WeakSet()
        """Streams and lanes that producers have open."""

    @property
    def is_ready(self) -> bool:
        """Whether it is connected now; asking begins to connect."""
        return self._state() is grpc.ChannelConnectivity.READY

    async def wait_until_ready(
        self, timeout_ms: float | None, *, is_patient: bool, ends_without_tls: bool = False
    ) -> bool:
        """Wait until it is connected; gives whether it is.

        Args:
            timeout_ms: how long to wait; None: for ever.
            is_patient: a try to connect that fails is followed by others; else it is the last one.
            ends_without_tls: one that fails for TLS is the last one, and `tls_cause` says why.

        Raises:
            Cancelled: the client was closed meanwhile.
        """
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                while (state := self._state()) is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.SHUTDOWN:
                        raise errors.Cancelled("the client was closed")
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        if is_patient or ends_without_tls:
                            await self.find_trouble()
                        if not is_patient or (ends_without_tls and self.tls_cause):
                            return False
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            return False
        except grpc.aio.UsageError:
            raise errors.Cancelled("the client was closed") from None
        self._note_trouble("", "")
        return True

    def _note_trouble(self, words: str, tls_cause: str) -> None:
        self.trouble, self.tls_cause = words, tls_cause
        self._is_probed &= bool(words)

    async def find_trouble(self) -> str:
        """Ask gRPC why there is no connection; gives `trouble`.

        Only a call gets the reason, so one that changes nothing is made: it might even succeed.
        """
        request = admin_pb2.GetStatusRequest()
        try:
            await self.unary(GET_STATUS)(request, timeout=_WHY_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await self._find_cause(error.details() or "")
        except (grpc.aio.UsageError, errors.Unauthenticated):
            pass  # the client was closed, or has no token: the waiting call gets it
        else:
            self._note_trouble("", "")
        return self.trouble

    async def _find_cause(self, details: str) -> None:
        """Why there is no connection, of which gRPC says `details`."""
        if not may_hide_tls(details):
            self._note_trouble(explain(details), find_tls_cause(details))
        elif not self._is_probed:  # else it is known what the node says
            self._is_probed = True
            found = await find_cause(self.address, self._access.tls)
            self._note_trouble(found.words or explain(details), found.name)

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        timeout_ms: float,
        *,
        is_urgent: bool = True,
    ) -> Response:
        """Make one call, over the session where the method and the node have it.

        Args:
            method: which.
            request: what to send.
            timeout_ms: how long to wait for the answer.
            is_urgent: see `SessionStream.ask`.

        Raises:
            CallFailed: it was refused, or there is no answer.
        """
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        timeout_s = timeout_ms * _SECONDS
        if method.session_field and begun_s >= self._no_session_until_s:
            try:
                answer: Response = await self._find_session().ask(
                    method.session_field, request, timeout_ms, is_urgent=is_urgent
                )
            except NoSession as none:
                self._on_no_session(none)
                timeout_s -= loop.time() - begun_s
            else:
                return answer
        try:
            answer = await self.unary(method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise CallFailed(failure_of(error)) from None
        return answer

    async def find_stream_session(self) -> SessionStream | None:
        """The session, where the node has receive streams for it; else None.

        Raises:
            CallFailed: the connection broke.
        """
        if self._loop.time() < self._no_session_until_s:
            return None
        session = self._find_session()
        try:
            return session if await session.offers_streams() else None
        except NoSession as none:
            self._on_no_session(none)
            return None

    def publish_stream(
        self, on_failure: OnFailure, timeout_ms: float, *, is_bulk: bool
    ) -> PublishStream:
        """For one producer: a stream of its own, or a lane of the session where it has company.

        Args:
            on_failure: see `Stream`.
            timeout_ms: how long an answer may take.
            is_bulk: its batches are large: they would be in the way of others.
        """
        now_s = asyncio.get_running_loop().time()
        has_company = len(self._publishing) >= STREAMS_MAX or now_s < self._no_stream_until_s
        found: PublishStream
        if is_bulk or not has_company or now_s < self._no_session_until_s:
            call = self.stream(PUBLISH_STREAM)()
            on_end = partial(self._on_stream_failure, on_failure)
            found = Stream(call, address=self.address, on_failure=on_end)
        else:
            found = SessionLane(
                self._find_session(),
                timeout_ms,
                address=self.address,
                on_failure=on_failure,
                on_refused=self._on_no_session,
            )
        self._publishing.add(found)
        return found

    def _on_stream_failure(
        self, on_failure: OnFailure, error: errors.HourwheelError, waited_ms: float
    ) -> Move:
        if error.params.get("limit") == NO_STREAM:
            self._no_stream_until_s = self._loop.time() + NO_SESSION_S
        return on_failure(error, waited_ms)

    def _on_no_session(self, refusal: NoSession) -> None:
        wait_s = float("inf") if refusal.is_for_good else NO_SESSION_S
        self._no_session_until_s = asyncio.get_running_loop().time() + wait_s

    def _find_session(self) -> SessionStream:
        metadata = self._access.metadata()
        session = self._session
        if session is not None and metadata != self._session_metadata:
            # Another token: what is under way may end, what comes goes with the new one.
            error = errors.Unavailable("the session of another token is over")
            closing = self._loop.create_task(session.close(OLD_SESSION_MS, error))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            session = None
        if session is None or session.is_over:
            session = self._session = SessionStream(self.stream(OPEN_SESSION)())
            self._session_metadata = metadata
        return session

    def unary(self, method: Method[Any, Any]) -> MultiCallable:
        """A call with one request and one answer."""
        return self._calls.get(method.path) or self._make(method, "unary_unary")

    def stream(self, method: Method[Any, Any]) -> MultiCallable:
        """A call with streams in both directions."""
        return self._calls.get(method.path) or self._make(method, "stream_stream")

    async def close(
        self, grace_ms: float | None = None, error: errors.HourwheelError | None = None
    ) -> None:
        """End it, after `grace_ms` or at once, as `SessionStream.close`."""
        for closing in self._closing:
            closing.cancel()
        session, self._session = self._session, None
        if session is not None:
            await session.close(grace_ms or 0.0, error)
        await self._channel.close(None if grace_ms is None else grace_ms / 1_000)

    async def leave(
        self, grace_ms: float | None = None, error: errors.HourwheelError | None = None
    ) -> None:
        """A client that shares it needs it no more. The last one closes it: see `close`."""
        self.user_count -= 1
        if not self.user_count:
            for key, one in list(_shared.items()):
                if one is self:
                    del _shared[key]
            await self.close(grace_ms, error)

    def _state(self) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect=True)

    def _make(self, method: Method[Any, Any], shape: str) -> MultiCallable:
        make = getattr(self._channel, shape)(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        access = self._access
        if not access.metadata_changes:
            metadata = (*_METADATA, *access.metadata())
            self._calls[method.path] = call = partial(make, metadata=metadata)
            return call

        def begin(*arguments: Any, **settings: Any) -> Any:
            return make(*arguments, metadata=(*_METADATA, *access.metadata()), **settings)

        self._calls[method.path] = begin
        return begin


_shared: Final[WeakValueDictionary[_Key, Connection]] = WeakValueDictionary()
"""By loop, address, access and whether it is watched. A connection keeps its loop, so its id is of
no other while it is here; a loop that was closed with clients takes its connections along."""


def share(address: str, access: Access = PLAIN, *, is_watched: bool = False) -> Connection:
    """The connection of this event loop; `leave` must follow. Arguments: see `Connection`."""
    key = (id(asyncio.get_running_loop()), address, access, is_watched)
    connection = _shared.get(key)
    if connection is None:
        connection = Connection(address, access, is_watched=is_watched)
        _shared[key] = connection
    connection.user_count += 1
    return connection
