"""The brokers' own gRPC: who may call, how to dial, and the server. Nothing for clients.

What a node passes on to the master for a client goes this way, too, because the master can believe
here who the client is.

With certificates: mutual TLS; one of the cluster's authority that names a node lets it call.
Without: a secret that all nodes share, in the call's metadata; on loopback only, where no one else
listens on the wire (the server checks it by `check_loopback` when it starts).
"""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
from cryptography import x509

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
from hourwheel.types import NodeId
from node.cluster.peer_names import NameCheck
from node.config.checks import split_address
from node.config.cluster import ClusterSection
from node.metrics.family import CertificateEnds

SERVICE: Final = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"]
REPLICATE: Final = f"/{SERVICE.full_name}/Replicate"
FETCH_SNAPSHOT: Final = f"/{SERVICE.full_name}/FetchSnapshot"
FETCH_MESSAGES: Final = f"/{SERVICE.full_name}/FetchMessages"
FETCH_LOG: Final = f"/{SERVICE.full_name}/FetchLog"
_PROOF: Final = "hourwheel-cluster-secret"
"""Key of the call's metadata."""
_SECRET_BYTES_MIN: Final = 16
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


@dataclass(frozen=True)
class Trust:
    """How the nodes of a cluster know each other: a secret, or certificates."""

    secret: str = ""
    certificate: bytes = b""
    key: bytes = b""
    authority: bytes = b""

    @property
    def is_tls(self) -> bool:
        """Whether there are certificates."""
        return bool(self.certificate)

    def read_certificate_ends(self) -> CertificateEnds | None:
        """Until when the certificates are valid; None without them.

        Raises:
            ConfigError: one of the files holds no certificate that can be read.
        """
        if not self.is_tls:
            return None
        chain_ends_s = _ends_s("cluster.tls_certificate_file", self.certificate)
        authority_ends_s = _ends_s("cluster.tls_authority_file", self.authority)
        # All of a chain must be valid. Of several authorities, the new one has already signed.
        return CertificateEnds(min(chain_ends_s), max(authority_ends_s))


def _ends_s(key: str, pem: bytes) -> list[float]:
    """Until when each certificate of a PEM file is valid, in seconds since the Unix epoch."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise errors.ConfigError(f"{key} holds no certificate: {error}", key=key) from error
    return [one.not_valid_after_utc.timestamp() for one in found]


def read_trust(config: ClusterSection) -> Trust:
    """Read the files that the configuration names.

    Raises:
        ConfigError: one cannot be read, or the secret is too short.
    """
    if config.tls_certificate_file:
        return Trust(
            certificate=_read("cluster.tls_certificate_file", config.tls_certificate_file),
            key=_read("cluster.tls_key_file", config.tls_key_file),
            authority=_read("cluster.tls_authority_file", config.tls_authority_file),
        )
    key = "cluster.secret_file"
    secret = _read(key, config.secret_file).decode("ascii", "replace").strip()
    if len(secret) < _SECRET_BYTES_MIN or not secret.isprintable() or not secret.isascii():
        raise errors.ConfigError(
            f"{key}: the secret must have {_SECRET_BYTES_MIN} printable characters or more", key=key
        )
    return Trust(secret=secret)


def _read(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.ConfigError(f"{key} = {path!r}: {error.strerror}", key=key) from error


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


class Dialer:
    """Calls to other brokers; one connection to each."""

    def __init__(
        self,
        trust: Trust,
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
        self._channels: dict[NodeId, grpc.aio.Channel] = {}

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

    def fetch_messages(self, node: NodeId, request: FetchMessagesRequest) -> Any:
        """Begin a FetchMessages call: an awaitable of FetchMessagesResponse."""
        call: Any = self.channel(node).unary_unary(
            FETCH_MESSAGES,
            request_serializer=FetchMessagesRequest.SerializeToString,
            response_deserializer=FetchMessagesResponse.FromString,
        )
        return call(request, metadata=self.proof())

    def fetch_log(self, node: NodeId, request: FetchLogRequest) -> Any:
        """Begin a FetchLog call: an awaitable of FetchLogResponse."""
        call: Any = self.channel(node).unary_unary(
            FETCH_LOG,
            request_serializer=FetchLogRequest.SerializeToString,
            response_deserializer=FetchLogResponse.FromString,
        )
        return call(request, metadata=self.proof())

    def proof(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call, which shows that a node makes it; with certificates none."""
        secret = self._trust.secret
        return ((_PROOF, secret),) if secret else ()

    def channel(self, node: NodeId) -> grpc.aio.Channel:
        """The connection to a node.

        Raises:
            NotFollowed: it has no address any more: it has left, and this node forgot it.
        """
        channel = self._channels.get(node)
        if channel is None:
            address, options = self._addresses.get(node), list(self._options)
            if address is None:
                raise errors.NotFollowed(f"no address of {node} is known", node=node)
            if self._trust.is_tls:
                trust = self._trust
                credentials = grpc.ssl_channel_credentials(
                    trust.authority, trust.key, trust.certificate
                )
                channel = grpc.aio.secure_channel(address, credentials, options=options)
            else:
                channel = grpc.aio.insecure_channel(address, options=options)
            self._channels[node] = channel
        return channel

    async def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()


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
    def __init__(self, secret: str) -> None:
        self._secret = secret

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        given = dict(handler_call_details.invocation_metadata or ()).get(_PROOF, "")
        if isinstance(given, str) and hmac.compare_digest(given.encode(), self._secret.encode()):
            return await continuation(handler_call_details)
        # On the wire all kinds of calls are the same; of a stream gRPC reads nothing unasked.
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(_: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the cluster's secret is wrong")


class DataServer:
    """The data plane's listener."""

    def __init__(
        self,
        trust: Trust,
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
            node_ids: with certificates, one whom they must name, as it is at the time of each
                call; None: the authority alone decides.
        """
        self._trust, self._listen = trust, listen
        self._added = _Added()
        checks: list[grpc.aio.ServerInterceptor] = []
        if trust.secret:
            checks.append(_SecretCheck(trust.secret))
        elif trust.is_tls and node_ids is not None:
            checks.append(NameCheck(node_ids))
        options = [
            *_SERVER_OPTIONS,
            *(_SECRET_OPTIONS if trust.secret else ()),
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
        trust, key = self._trust, "cluster.data_listen"
        try:
            if trust.is_tls:
                credentials = grpc.ssl_server_credentials(
                    [(trust.key, trust.certificate)], trust.authority, require_client_auth=True
                )
                port = self._server.add_secure_port(self._listen, credentials)
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

    async def stop(self) -> None:
        """Cut all streams."""
        await self._server.stop(0)
