"""The brokers' own gRPC: who may call, how to dial, and the server. Nothing for clients.

What a node passes on to the master for a client goes this way, too, because the master can believe
here who the client is.

With certificates: mutual TLS; one of the cluster's authority that names a node lets it call. When
they are renewed, connections that stand go on, and the next ones have the new certificate.
Without: a secret that all nodes share, in the call's metadata; on loopback only, where no one else
listens on the wire (the server checks it by `check_loopback` when it starts).
"""

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterable, Awaitable, Callable, Container, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from hourwheel import errors, limits
from hourwheel.internal.v1 import replication_pb2
from hourwheel.internal.v1.replication_pb2 import (
    FetchLogRequest,
    FetchLogResponse,
    FetchMessagesRequest,
    FetchMessagesResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReplicateRequest,
    ReplicateResponse,
)
from hourwheel.transport.grpc_status import to_status
from hourwheel.types import NodeId
from node.cluster.peer_trust import Trust, Trusted
from node.config.checks import split_address
from node.contracts.cluster import WAS_OPEN
from node.telemetry import logs
from replication.refusals import Refusals

SERVICE: Final = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"]
REPLICATE: Final = f"/{SERVICE.full_name}/Replicate"
FETCH_SNAPSHOT: Final = f"/{SERVICE.full_name}/FetchSnapshot"
FETCH_MESSAGES: Final = f"/{SERVICE.full_name}/FetchMessages"
FETCH_LOG: Final = f"/{SERVICE.full_name}/FetchLog"
_WRONG_SECRET: Final = "the cluster's secret is wrong"  # noqa: S105 - says so
_PROOF: Final = "hourwheel-cluster-secret"
"""Key of the call's metadata."""
CONNECTION_COUNT_MAX: Final = 128
CALLS_PER_CONNECTION_MAX: Final = 32
HANDSHAKE_MS: Final = 5_000
"""TLS included. gRPC's own is two minutes, of a place for each stranger."""
LOOKAHEAD_BYTES: Final = 64 * 1024
"""What gRPC takes from the network of a call that is not read, as a stranger's is not."""
_OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # So gRPC calls how long one try may take, TLS and a busy peer included.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    # As often as a peer pings: it is one of us.
    ("grpc.http2.max_ping_strikes", 0),
)
_SERVER_OPTIONS: Final = (
    *_OPTIONS,
    # Before a peer has proved its identity. The cluster's nodes have one connection each.
    ("grpc.max_allowed_incoming_connections", CONNECTION_COUNT_MAX),
    ("grpc.max_connection_idle_ms", 60_000),
)
_SECRET_OPTIONS: Final = (
    # Without certificates calls of strangers are heard before they are refused. On loopback nothing
    # is gained by windows larger than these.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
)
PING_MS: Final = 2_000
"""A connection on which nothing comes for so long is pinged, and cut after as long again. After a
partition TCP retries as late as the partition was long: without pings a follower would be away for
as long once more."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_log = logs.get(__name__)

_CERTIFICATES_MAX: Final = 1_024
_PEM: Final = "x509_pem_cert"
_NO_NODE: Final = "the certificate names no node of this cluster"
_HAS_LEFT: Final = "the node has left the cluster"


def check_loopback(key: str, address: str) -> None:
    """Raises ConfigError where others than this machine could reach an address in the clear."""
    host, _ = split_address(key, address)
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise errors.ConfigError(
            f"{key} = {address!r}: without TLS, brokers talk on loopback addresses only", key=key
        )


class Connection:
    """A connection to a node, and how many calls are under way on it."""

    def __init__(self, channel: grpc.aio.Channel, trust: Trust) -> None:
        """`trust`: what it was made with."""
        self.trust = trust
        self._channel = channel
        self._calls = 0
        self._closing: asyncio.Task[None] | None = None
        self._on_closed: Callable[[Connection], None] | None = None

    def unary_unary(self, method: str, **codec: Any) -> Any:
        """As of a channel of gRPC."""
        return self._counted(self._channel.unary_unary(method, **codec))

    def unary_stream(self, method: str, **codec: Any) -> Any:
        """As of a channel of gRPC."""
        return self._counted(self._channel.unary_stream(method, **codec))

    def stream_stream(self, method: str, **codec: Any) -> Any:
        """As of a channel of gRPC."""
        return self._counted(self._channel.stream_stream(method, **codec))

    def _counted(self, begin: Any) -> Callable[..., Any]:
        def call(*request: Any, **options: Any) -> Any:
            begun = begin(*request, **options)
            self._calls += 1
            begun.add_done_callback(self._on_end)
            return begun

        return call

    def _on_end(self, _: Any) -> None:
        self._calls -= 1
        self._close_if_unused()

    def close_unused(self, on_closed: "Callable[[Connection], None]") -> None:
        """No more calls begin: close it behind the last one. `on_closed` is called then."""
        self._on_closed = on_closed
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._on_closed is not None and not self._calls and self._closing is None:
            self._closing = asyncio.ensure_future(self._channel.close())
            self._closing.add_done_callback(lambda _: self._tell_closed())

    def _tell_closed(self) -> None:
        if self._on_closed is not None:
            self._on_closed(self)

    async def close(self) -> None:
        """End it, and all calls on it."""
        self._on_closed = None
        await (self._closing or self._channel.close())


class Dialer:
    """Calls to other brokers; one connection to each."""

    def __init__(
        self,
        trust: Trusted,
        addresses: Mapping[NodeId, str],
        *,
        ping_ms: int = PING_MS,
        options: tuple[tuple[str, int], ...] = (),
    ) -> None:
        """Connects when there is something to call for.

        Args:
            trust: how peers know each other.
            addresses: node id -> host:port of its data plane.
            ping_ms: see `PING_MS`.
            options: of gRPC, in place of those that are usual between brokers.
        """
        self._trust, self._addresses = trust, addresses
        self._options = options or (
            *_OPTIONS,
            ("grpc.keepalive_time_ms", ping_ms),
            ("grpc.keepalive_timeout_ms", ping_ms),
            ("grpc.http2.ping_timeout_ms", ping_ms),  # without it a minute
            ("grpc.http2.max_pings_without_data", 0),
        )
        self._connections: dict[NodeId, Connection] = {}
        self._former: set[Connection] = set()
        """Made with a former certificate: calls on them go on."""

    def replicate(self, node: NodeId) -> Any:
        """Begin a Replicate call."""
        call: Any = self.channel(node).stream_stream(
            REPLICATE,
            request_serializer=ReplicateRequest.SerializeToString,
            response_deserializer=ReplicateResponse.FromString,
        )
        return call(metadata=self.proof())

    def fetch_snapshot(self, node: NodeId, request: FetchSnapshotRequest) -> Any:
        """Begin a FetchSnapshot call: an asynchronous iterator of FetchSnapshotResponse."""
        call: Any = self.channel(node).unary_stream(
            FETCH_SNAPSHOT,
            request_serializer=FetchSnapshotRequest.SerializeToString,
            response_deserializer=FetchSnapshotResponse.FromString,
        )
        return call(request, metadata=self.proof())

    def fetch_messages(
        self, node: NodeId, request: FetchMessagesRequest
    ) -> Awaitable[FetchMessagesResponse]:
        """Begin a FetchMessages call: an awaitable of FetchMessagesResponse."""
        call: Callable[..., Awaitable[FetchMessagesResponse]] = self.channel(node).unary_unary(
            FETCH_MESSAGES,
            request_serializer=FetchMessagesRequest.SerializeToString,
            response_deserializer=FetchMessagesResponse.FromString,
        )
        return call(request, metadata=self.proof())

    def fetch_log(self, node: NodeId, request: FetchLogRequest) -> Awaitable[FetchLogResponse]:
        """Begin a FetchLog call: an awaitable of FetchLogResponse."""
        call: Callable[..., Awaitable[FetchLogResponse]] = self.channel(node).unary_unary(
            FETCH_LOG,
            request_serializer=FetchLogRequest.SerializeToString,
            response_deserializer=FetchLogResponse.FromString,
        )
        return call(request, metadata=self.proof())

    def proof(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call, which shows that a node makes it; with certificates none."""
        secret = self._trust.now.secret
        return ((_PROOF, secret),) if secret else ()

    def channel(self, node: NodeId) -> Connection:
        """The connection to a node; another one than before when there is another certificate.

        Raises:
            NotFollowed: it has no address any more: it has left, and this node forgot it.
        """
        trust, former = self._trust.now, self._connections.get(node)
        if former is not None and former.trust is trust:
            return former
        address = self._addresses.get(node)
        if address is None:
            raise errors.NotFollowed(f"no address of {node} is known", node=node)
        made = self._connections[node] = Connection(self._open(address, trust), trust)
        if former is not None:
            self._former.add(former)
            former.close_unused(self._former.discard)
        return made

    def _open(self, address: str, trust: Trust) -> grpc.aio.Channel:
        options = list(self._options)
        if not trust.is_tls:
            return grpc.aio.insecure_channel(address, options=options)
        credentials = grpc.ssl_channel_credentials(trust.authority, trust.key, trust.certificate)
        return grpc.aio.secure_channel(address, credentials, options=options)

    async def close(self) -> None:
        """End all connections."""
        connections = [*self._former, *self._connections.values()]
        self._former.clear()
        self._connections.clear()
        for one in connections:
            await one.close()


class _Added(grpc.GenericRpcHandler):
    """Handlers that come when the server runs: gRPC itself takes them before only."""

    def __init__(self) -> None:
        self.handlers: list[grpc.GenericRpcHandler] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        found: Handler = None
        for each in self.handlers:
            found = found or each.service(handler_call_details)
        return found


class _SecretCheck(grpc.aio.ServerInterceptor):
    def __init__(self, secret: str, note: Callable[[str, str], None]) -> None:
        self._secret, self._note = secret, note

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        given = dict(handler_call_details.invocation_metadata or ()).get(_PROOF, "")
        if isinstance(given, str) and hmac.compare_digest(given.encode(), self._secret.encode()):
            return await continuation(handler_call_details)
        # On the wire all kinds of calls are the same; of a stream gRPC reads nothing unasked.
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, _: Any, context: Any) -> None:
        self._note(_WRONG_SECRET, context.peer())
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, _WRONG_SECRET)


def _say_refused(reason: str, peer: str, unlogged: int) -> None:
    _log.warning("peer_call_refused", reason=reason, peer=peer, unlogged=unlogged)


def _server_credentials(trusted: Trusted) -> grpc.ServerCredentials:
    given = trusted.now

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC before each handshake, in a thread of its own. None: as before."""
        nonlocal given
        if given is trusted.now:
            return None
        given = trusted.now
        return _certificates_of(given)

    return grpc.dynamic_ssl_server_credentials(
        _certificates_of(given),
        fetch,  # type: ignore[arg-type]  # None is allowed, says gRPC
        require_client_authentication=True,
    )


def _certificates_of(trust: Trust) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(trust.key, trust.certificate)], trust.authority
    )


class DataServer:
    """The data plane's listener."""

    def __init__(
        self,
        trust: Trusted,
        listen: str,
        *,
        handshake_ms: int = HANDSHAKE_MS,
        forwarded_calls: int = 0,
        node_ids: Container[str] | None = None,
    ) -> None:
        """Nothing listens yet.

        Args:
            trust: how peers know each other.
            listen: host:port.
            handshake_ms: how long a peer may take to begin HTTP/2.
            forwarded_calls: how many calls of clients a peer may pass on at one time.
            node_ids: with certificates, one that they must name, as it is at the time of each
                call; None: the authority alone decides.
        """
        self._trust, self._listen = trust, listen
        self._added = _Added()
        refusals = Refusals(lambda: asyncio.get_running_loop().time(), _say_refused)
        checks: list[grpc.aio.ServerInterceptor] = []
        secret = trust.now.secret
        if secret:
            checks.append(_SecretCheck(secret, refusals.note))
        self._names: NameCheck | None = None
        if not secret and trust.now.is_tls and node_ids is not None:
            self._names = NameCheck(node_ids, refusals.note)
            checks.append(self._names)
        options = [
            *_SERVER_OPTIONS,
            *(_SECRET_OPTIONS if secret else ()),
            ("grpc.server_handshake_timeout_ms", handshake_ms),
            ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION_MAX + forwarded_calls),
        ]
        self._server = grpc.aio.server(options=options, interceptors=checks)

    async def start(self, handlers: grpc.GenericRpcHandler) -> int:
        """Listen; the port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        self._server.add_generic_rpc_handlers((handlers, self._added))
        key = "cluster.data_listen"
        try:
            if self._trust.now.is_tls:
                port = self._server.add_secure_port(self._listen, _server_credentials(self._trust))
            else:
                check_loopback(key, self._listen)
                port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise errors.ConfigError(
                f"{key} = {self._listen!r}: cannot listen there", key=key, value=self._listen
            ) from error
        await self._server.start()
        return int(port)

    def add(self, handlers: grpc.GenericRpcHandler) -> None:
        """Answer more kinds of calls from now on."""
        self._added.handlers.append(handlers)

    def end_calls_of_former(self) -> None:
        """Members have left: end what they have open.

        With a secret it is not known whose a call is.
        """
        if self._names is not None:
            self._names.end_calls_of_former()

    async def stop(self) -> None:
        """Cut all streams."""
        await self._server.stop(0)


class NameCheck(grpc.aio.ServerInterceptor):
    """Of calls, those of nodes: whose certificate names one of the cluster.

    The authority that signs the nodes' certificates may sign others as well, of clients, or of
    another cluster's nodes. It refuses a caller whose certificate names no node before it reads
    anything of a call, as the control plane does. A call that is open ends when its node leaves.
    """

    def __init__(self, node_ids: Container[str], note: Callable[[str, str], None]) -> None:
        """`node_ids`: those of the cluster. Each call asks anew: members come and leave.

        `note` gets why a call is refused, and where it came from.
        """
        self._node_ids, self._note = node_ids, note
        self._open: dict[asyncio.Task[None], frozenset[str]] = {}
        """Serves a call -> the names of its caller's certificate."""
        self._ended: set[asyncio.Task[None]] = set()
        """Of those, the ones whose caller has left."""

    def end_calls_of_former(self) -> None:
        """End each open call whose caller is no node of the cluster any more."""
        for task, names in self._open.items():
            if not self._is_node(names) and task not in self._ended:
                self._ended.add(task)
                task.cancel()

    def _is_node(self, names: Iterable[str]) -> bool:
        return any(name in self._node_ids for name in names)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call, which looks at its caller's certificate first."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        # On the wire all kinds of calls are the same; of a stream gRPC reads nothing unasked.
        made: Handler = grpc.stream_stream_rpc_method_handler(
            self._checked(handler), handler.request_deserializer, handler.response_serializer
        )
        return made

    def _checked(self, handler: Any) -> Any:
        serve = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )

        async def serve_named(requests: Any, context: Any) -> None:
            found = context.auth_context().get(_PEM, ())
            names = names_of(found[0]) if found else frozenset[str]()
            if not self._is_node(names):
                self._note(_NO_NODE, context.peer())
                await context.abort_with_status(to_status(errors.PeerRefused(_NO_NODE)))
            task = errors.required(asyncio.current_task(), "gRPC serves each call in a task")
            self._open[task] = names
            try:
                request = requests if handler.request_streaming else await _only(requests, context)
                is_one = not handler.response_streaming
                await _answer(serve(request, context), context, is_one=is_one)
            except asyncio.CancelledError:
                if task not in self._ended:
                    raise
                task.uncancel()
            finally:
                del self._open[task]
                has_left = task in self._ended
                self._ended.discard(task)
            if has_left:
                self._note(_HAS_LEFT, context.peer())
                error = errors.PeerRefused(_HAS_LEFT, **{WAS_OPEN: 1})
                await context.abort_with_status(to_status(error))

        return serve_named


async def _answer(
    answered: AsyncIterable[object] | Awaitable[object], context: Any, *, is_one: bool
) -> None:
    """Send what a handler gives: answers one after the other, one, or none where it sends them."""
    if isinstance(answered, AsyncIterable):
        async for one in answered:
            await context.write(one)
        return
    answer = await answered
    if is_one:
        await context.write(answer)


async def _only(requests: Any, context: Any) -> Any:
    """The request of a call that has one."""
    async for request in requests:
        return request
    return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")


@lru_cache(_CERTIFICATES_MAX)
def names_of(pem: bytes) -> frozenset[str]:
    """The holder of a certificate: its DNS names; the common name where there are none."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        hosts = found.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        hosts = []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return frozenset()
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return frozenset(hosts or (str(one.value) for one in common))
