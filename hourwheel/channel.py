"""The way to a node: gRPC calls with deadlines, whose failures are our own errors.

A node's error is a gRPC status with a google.rpc.ErrorInfo in its details; its `reason` names the
class in `hourwheel.errors`. Everything decided about failures is decided in `hourwheel.session`.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from hourwheel import errors, limits
from hourwheel.clock import Clock, SystemClock
from hourwheel.methods import Method, Request, Response
from hourwheel.session import Backoff, CallSession, Failure, final_error, is_undecided

SERVER_DEFAULT: Final = "127.0.0.1:7400"
CALL_TIMEOUT_MS: Final = 10_000.0
ERROR_DOMAIN: Final = "hourwheel"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_UNSEEN_CODES: Final = ("UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""What gRPC itself answers before anything of the request is looked at."""
_LOST_STATUS: Final = "Internal error from Core"
"""What grpc.aio says when it writes to a stream that has just ended, instead of how it ended."""
_CANCELLED_HERE: Final = "Locally cancelled by application!"
"""What grpc.aio says of a call that this process has cancelled."""
_NEVER_SENT: Final = "failed to connect to all addresses"
"""What gRPC says where there never was a connection. Should it ever say it in other words, calls
that must not be repeated fail where they could have been tried again: the safe side."""
_OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    # A node that restarts is back within a second or so; the defaults wait for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # One connection a client: what breaks one does not break the others of the process.
    ("grpc.use_local_subchannel_pool", 1),
    # The environment's HTTP proxy is meant for other things, and would be asked for 127.0.0.1, too.
    ("grpc.enable_http_proxy", 0),
)

MultiCallable: TypeAlias = Any
"""What grpc.aio makes of a method; its own types are not public."""


def make_error(
    code: str, reason: str, message: str, params: Mapping[str, str]
) -> errors.HourwheelError:
    """The exception for an error on the wire.

    Args:
        code: name of the gRPC status code.
        reason: typed reason; an unknown one (of a newer node) falls back on the code's class.
        message: for people.
        params: facts for programs.
    """
    kind = errors.BY_REASON.get(reason)
    if kind is None:
        kind = errors.Timeout if code == errors.Timeout.code else errors.BY_REASON.get(code)
    error = (kind or errors.HourwheelError)(message or f"the node answered {code}")
    error.params.update(params)
    return error


def failure_of(status: grpc.aio.AioRpcError, *, is_stream: bool = False) -> Failure:
    """Our failure for one of gRPC.

    Args:
        status: how the call ended.
        is_stream: the call was a stream; then its end says nothing of the requests in it, unless
            no node ever saw it.
    """
    code, message = status.code().name, status.details() or ""
    info = _find_error_info(status)
    if info is not None:
        error = make_error(code, info.reason, message, info.metadata)
        return Failure(error, not is_stream and not is_undecided(error))
    if code == errors.Internal.code and message == _LOST_STATUS:
        return Failure(errors.Unavailable("the connection was cut"), is_definite=False)
    if code == errors.HourwheelError.code:  # what a node's handler raised was not even typed
        return Failure(errors.Internal(message), is_definite=False)
    if code == errors.Cancelled.code and message != _CANCELLED_HERE:
        # So gRPC answers what reaches a node that has just begun to stop.
        return Failure(errors.Unavailable("the node dropped the call"), is_definite=False)
    is_unseen = code in _UNSEEN_CODES or (code == "UNAVAILABLE" and _NEVER_SENT in message)
    return Failure(make_error(code, "", message, {}), is_unseen)


def _find_error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo | None:
    metadata: Sequence[tuple[str, str | bytes]] = tuple(error.trailing_metadata() or ())
    for key, value in metadata:
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            details = status_pb2.Status.FromString(value).details
            for detail in details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                    return info
        except DecodeError:
            return None  # not ours: the status code still says what there is to say
    return None


class Stream(Generic[Request, Response]):
    """One open stream of requests and answers. Ends with a `StreamBroken`."""

    def __init__(self, call: Any) -> None:
        """Wrap a call of grpc.aio."""
        self._call = call

    async def write(self, request: Request) -> None:
        """Send one request; waits while the connection takes no more. Raises as `read`."""
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise StreamBroken(failure_of(error, is_stream=True)) from error
        except asyncio.InvalidStateError as error:
            raise StreamBroken(await self._failure()) from error

    async def read(self) -> Response:
        """The next answer.

        Raises:
            StreamBroken: the stream is over, for whatever reason.
        """
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise StreamBroken(failure_of(error, is_stream=True)) from error
        if answer is grpc.aio.EOF:
            raise StreamBroken(await self._failure())
        response: Response = answer
        return response

    async def _failure(self) -> Failure:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return Failure(errors.Unavailable("the node ended the stream"), is_definite=False)
        message = await self._call.details() or ""
        status = grpc.aio.AioRpcError(
            code,
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            details=message,
        )
        return failure_of(status, is_stream=True)

    def cancel(self) -> None:
        """End the stream at once."""
        self._call.cancel()


class StreamBroken(Exception):
    """A stream is over; carries an error of ours, and never reaches a user itself."""

    def __init__(self, failure: Failure) -> None:
        """`failure` says why."""
        super().__init__(failure.error.message)
        self.failure = failure


class Channel:
    """The connection to one node, made when first used; several clients may share one.

    Belongs to the event loop that first uses it.
    """

    def __init__(
        self,
        server: str = SERVER_DEFAULT,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare a connection.

        Args:
            server: host:port of a node.
            credentials: for TLS; without them the connection is in the clear.
            call_timeout_ms: how long a call is tried, unless it says otherwise.
            clock: for tests.
            backoff: waits between tries.
        """
        self.server = server
        self.clock = clock or SystemClock()
        self.backoff = backoff or Backoff()
        self.random = random.Random().random
        self._credentials = credentials
        self._call_timeout_ms = call_timeout_ms
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, MultiCallable] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; what is under way is cancelled."""
        self._is_closed = True
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
            self._calls.clear()

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_ms: float | None = None,
        is_retried: bool = True,
    ) -> Response:
        """Make one unary call, tried again where that is safe and may help.

        Args:
            method: which.
            request: what to send.
            timeout_ms: for all tries together; None: as the channel is set up.
            is_retried: False for a caller that has its own rules.

        Raises:
            HourwheelError: the node's own error, or `Unavailable`, `Timeout`.
        """
        session = CallSession(
            is_repeatable=method.is_repeatable,
            now_ms=self.clock.monotonic_ms(),
            timeout_ms=self._call_timeout_ms if timeout_ms is None else timeout_ms,
            backoff=self.backoff,
            random=self.random,
        )
        connect_ms = min(self._call_timeout_ms, session.left_ms(self.clock.monotonic_ms()))
        while True:
            await self.connect(connect_ms)
            now_ms = self.clock.monotonic_ms()
            try:
                answer: Response = await self._unary(method)(
                    request, timeout=session.left_ms(now_ms) / 1_000
                )
            except grpc.aio.AioRpcError as error:
                failure = failure_of(error)
            else:
                return answer
            wait_ms = session.find_wait_ms(self.clock.monotonic_ms(), failure)
            if wait_ms is None or not is_retried:
                raise final_error(failure, is_repeatable=method.is_repeatable)
            await asyncio.sleep(wait_ms / 1_000)
            connect_ms = session.left_ms(self.clock.monotonic_ms())

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now; asking begins to make one."""
        state = self._open().get_state(try_to_connect=True)
        return bool(state is grpc.ChannelConnectivity.READY)

    async def connect(self, timeout_ms: float | None = None) -> None:
        """Wait until there is a connection.

        What is sent without one may or may not have been sent when time runs out; so nothing is.

        Args:
            timeout_ms: how long to wait; None: for ever.

        Raises:
            Unavailable: there is still none; nothing was sent.
        """
        if self.is_connected:
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                await self._open().channel_ready()
        except TimeoutError:
            raise errors.Unavailable(f"no connection to {self.server}") from None
        except grpc.aio.UsageError:
            raise errors.Cancelled("the client was closed") from None

    def stream(self, method: Method[Request, Response]) -> Stream[Request, Response]:
        """Open a stream in both directions, without a deadline."""
        return Stream(self._stream(method)())

    def _unary(self, method: Method[Any, Any]) -> MultiCallable:
        return self._calls.get(method.path) or self._make(method, "unary_unary")

    def _stream(self, method: Method[Any, Any]) -> MultiCallable:
        return self._calls.get(method.path) or self._make(method, "stream_stream")

    def _make(self, method: Method[Any, Any], shape: str) -> MultiCallable:
        self._calls[method.path] = call = getattr(self._open(), shape)(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call

    def _open(self) -> grpc.aio.Channel:
        if self._is_closed:
            raise errors.Cancelled("the client is closed")
        if self._channel is None:
            options = list(_OPTIONS)
            self._channel = (
                grpc.aio.insecure_channel(self.server, options=options)
                if self._credentials is None
                else grpc.aio.secure_channel(self.server, self._credentials, options=options)
            )
        return self._channel
