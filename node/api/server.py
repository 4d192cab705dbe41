"""The gRPC server: our services, health, reflection, and bounds of what strangers may open."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

import hourwheel
from hourwheel import errors, limits
from hourwheel.clock import Clock
from hourwheel.transport import grpc_status
from hourwheel.v1 import (
    access_pb2,
    admin_pb2,
    broker_pb2,
    consumer_pb2,
    lookup_pb2,
    recurrence_pb2,
    session_pb2,
    transaction_pb2,
)
from node.access.administration import Administration
from node.access.audit import AuditLog
from node.access.control import AccessControl, Identify
from node.access.forwarded import forwarded_caller
from node.access.quotas import Quotas, Work
from node.access.server_tls import ServerTls
from node.api import standard_services
from node.api.access import Access
from node.api.admin import Admin
from node.api.admission import Admission
from node.api.calls import Calls, Context, StreamHandler, UnaryHandler
from node.api.consumer import Consumer
from node.api.forwarder import Forwarder, MasterOnly
from node.api.lookup import Lookup
from node.api.message_access import MessageAccess
from node.api.producer import Producer
from node.api.publish_stream import METHOD as PUBLISH_STREAM
from node.api.publish_stream import PublishStreams
from node.api.quota_gate import QuotaGate
from node.api.recurring.service import Recurring
from node.api.request_gate import RequestGate
from node.api.session import METHOD as SESSION_METHOD
from node.api.session import Implement, Sessions
from node.api.status_answer import NodeIdentity
from node.api.transactions.service import Transactions
from node.config.checks import split_address
from node.config.model import LimitsSection, NodeConfig
from node.contracts.broker import EnginePort
from node.contracts.cluster import ClusterPort, StandaloneCluster
from node.telemetry.failure import Failure
from node.telemetry.stats import ApiStats

_DAY_MS: Final = 86_400_000
_METADATA_BYTES_MAX: Final = 16 * 1024
_KEEPALIVE_MS: Final = 60_000
_KEEPALIVE_TIMEOUT_MS: Final = 20_000
PING_INTERVAL_MS_MIN: Final = 1_000
"""Who pings more often while nothing is sent is thrown out. Our client pings while a call is under
way: a node that is stopped is found out (`hourwheel.transport.connection.PING_MS`)."""
_SPARE_CALLS: Final = 256
"""Health and reflection calls, and those that are about to be refused, beside those that admission
counts."""
_PENDING_MAX: Final = 1_024
"""Calls that have come and are not begun yet; gRPC drops more (CANCELLED), which our
client tries again. It would hold 3,000, each with its lookahead."""
LOOKAHEAD_BYTES: Final = 1024 * 1024
"""What gRPC takes from the network of a call before anybody reads it. Left to itself it probes for
bandwidth and takes up to 16 MiB. A larger message is taken whole once the call is read; where the
way is long, a batch above this costs a round trip more."""
REQUEST_SPARE_BYTES: Final = 2 * 1024 * 1024
"""What a request may be larger than the largest batch and still get a typed error; what
is larger than that is refused by gRPC itself, unread."""
_REQUEST_BYTES_MIN: Final = 4 * 1024 * 1024
"""The largest acknowledgements and cancels are smaller."""

PRODUCER: Final = broker_pb2.DESCRIPTOR.services_by_name["ProducerService"]
CONSUMER: Final = consumer_pb2.DESCRIPTOR.services_by_name["ConsumerService"]
ADMIN: Final = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
ACCESS: Final = access_pb2.DESCRIPTOR.services_by_name["AccessService"]
LOOKUP: Final = lookup_pb2.DESCRIPTOR.services_by_name["LookupService"]
RECURRENCE: Final = recurrence_pb2.DESCRIPTOR.services_by_name["RecurrenceService"]
SESSION: Final = session_pb2.DESCRIPTOR.services_by_name["SessionService"]
TRANSACTION: Final = transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"]
SERVICES: Final = (*(PRODUCER, CONSUMER, ADMIN, ACCESS, LOOKUP, SESSION, TRANSACTION, RECURRENCE),)


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What a server is put together from."""

    config: NodeConfig
    engine: EnginePort
    stats: ApiStats
    clock: Clock
    failure: Failure
    started_ms: int
    administration: Administration
    """Of users and grants."""
    forwarder: Forwarder | None = None
    """One of several nodes: what is the master's to answer is passed on."""
    cluster: ClusterPort | None = None
    """None: the node is alone."""
    access: AccessControl = field(default_factory=AccessControl)
    """Who may do what."""
    identify: Identify | None = None
    """Says who calls; None: all are anonymous."""
    tls: ServerTls | None = None
    """None: clients are served in the clear."""
    audit: AuditLog | None = None
    """Gets who did what; None: the log does."""
    quotas: Quotas = field(default_factory=Quotas)
    """How much each caller may use."""


class ApiServer:
    """The API on its port, or two. `start`, then `drain` and `stop`."""

    def __init__(self, parts: ServerParts) -> None:
        """Nothing listens yet."""
        self._parts = parts
        self._audit = parts.audit or AuditLog(parts.clock)
        self._quotas = QuotaGate(parts.quotas, parts.access, parts.engine, parts.clock)
        self._messages = MessageAccess(parts.access, parts.engine)
        self._admission = Admission(
            parts.config.limits, parts.stats, parts.engine.answers, parts.clock.wall_ms
        )
        self._server = grpc.aio.server(
            options=_options(parts.config),
            maximum_concurrent_rpcs=calls_max(parts.config.limits),
        )
        self._health = standard_services.Health(
            [service.full_name for service in SERVICES],
            parts.config.limits.request_wait_ms,
        )

    async def start(self) -> str:
        """Listen; the address that clients get, host:port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        config = self._parts.config.node
        host, _ = split_address("node.listen", config.listen)
        tls, plain = self._parts.tls, self._parts.config.tls.plain_listen
        credentials = None if tls is None else tls.credentials()
        port = self._listen("node.listen", config.listen, credentials)
        if plain:
            self._listen("tls.plain_listen", plain, None)
        shown = f"[{host}]" if ":" in host else host
        address = config.advertised or f"{shown}:{port}"
        self._add_services(address)
        await self._health.add_to(self._server)
        services = [service.full_name for service in SERVICES]
        names = [*services, standard_services.HEALTH_SERVICE, standard_services.REFLECTION_SERVICE]
        standard_services.Reflection(names).add_to(self._server)
        await self._server.start()
        await self._health.serve()
        return address

    def _listen(self, key: str, at: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is not None:
                return self._server.add_secure_port(at, credentials)
            return self._server.add_insecure_port(at)
        except RuntimeError as error:
            raise errors.ConfigError(
                f"{key} = {at!r}: cannot listen there: another process does, or "
                "the address is not one of this machine",
                key=key,
                value=at,
            ) from error

    def peer_handlers(self) -> Iterable[grpc.GenericRpcHandler]:
        """For the port on which nodes prove who they are: calls that they pass on, from `start` on.

        Who calls is what they say; nothing is passed on once more.
        """
        parts, gate = self._parts, RequestGate(self._parts.config.limits.request_wait_ms)
        calls = self._make_calls(forwarded_caller, is_first_hand=False)
        forwarder = None if parts.forwarder is None else parts.forwarder.for_peers()
        for service, servicer in self._servicers:
            yield _handlers(
                service,
                servicer,
                calls,
                self._streams,
                gate,
                forwarder,
                self._quotas,
                self._messages,
            )

    def _make_calls(self, identify: Identify | None, *, is_first_hand: bool = True) -> Calls:
        parts = self._parts
        return Calls(
            self._admission,
            parts.clock,
            parts.failure,
            parts.access,
            identify,
            audit=self._audit,
            quotas=parts.quotas,
            is_first_hand=is_first_hand,
        )

    def _add_services(self, address: str) -> None:
        parts = self._parts
        allowed, horizon_ms = parts.config.limits, parts.config.wheel.horizon_days * _DAY_MS
        access = parts.access
        calls = self._make_calls(parts.identify)
        identity = NodeIdentity(parts.config.node.id, address, parts.started_ms)
        cluster = parts.cluster or StandaloneCluster(
            identity.node_id, address, hourwheel.__version__
        )
        gate = RequestGate(allowed.request_wait_ms)
        streams = self._streams = PublishStreams(
            calls, parts.engine, access, allowed, horizon_ms, self._quotas
        )
        producer = Producer(parts.engine, access, allowed, horizon_ms, self._quotas)
        consumer = Consumer(parts.engine, self._admission, access)
        self._add_sessions(calls, producer, consumer, streams)
        self._servicers: tuple[tuple[ServiceDescriptor, object], ...] = (
            (PRODUCER, producer),
            (CONSUMER, consumer),
            (ADMIN, Admin(parts.engine, identity, cluster, access, self._quotas)),
            (ACCESS, Access(parts.administration)),
            (LOOKUP, Lookup(parts.engine, access)),
            (
                TRANSACTION,
                Transactions(parts.engine, producer, self._admission, access, self._quotas),
            ),
            (RECURRENCE, Recurring(parts.engine, self._quotas)),
        )
        for service, servicer in self._servicers:
            handlers = _handlers(
                service,
                servicer,
                calls,
                streams,
                gate,
                parts.forwarder,
                self._quotas,
                self._messages,
            )
            self._server.add_generic_rpc_handlers((handlers,))

    def _add_sessions(
        self, calls: Calls, producer: Producer, consumer: Consumer, streams: PublishStreams
    ) -> None:
        implements: dict[str, tuple[ServiceDescriptor, str, Implement]] = {
            "receive": (CONSUMER, "Receive", consumer.receive),
            "receive_stream": (CONSUMER, "Receive", consumer.receive_stream),
            "ack": (CONSUMER, "Ack", consumer.ack),
            "nack": (CONSUMER, "Nack", consumer.nack),
            "change_invisible": (CONSUMER, "ChangeInvisible", consumer.change_invisible),
            "cancel": (PRODUCER, "Cancel", producer.cancel),
            "reschedule": (PRODUCER, "Reschedule", producer.reschedule),
            "publish": (PRODUCER, PUBLISH_STREAM, streams.publish),
        }
        methods = {
            field: (name, self._checked(calls, f"{service.full_name}.{name}", implement))
            for field, (service, name, implement) in implements.items()
        }
        sessions = Sessions(calls, methods, self._parts.config.limits)
        found: dict[str, grpc.RpcMethodHandler[Any, Any]]
        # Opening one needs nothing but a known caller; each call in it is checked by itself.
        name = f"{SESSION.full_name}.{SESSION_METHOD}"
        handle = calls.checked_stream(name, sessions.handle)
        served = identified(name, calls, handle, Work.SESSION)
        found = {SESSION_METHOD: grpc.stream_stream_rpc_method_handler(served)}
        handlers = grpc.method_handlers_generic_handler(SESSION.full_name, found)
        self._server.add_generic_rpc_handlers((handlers,))

    def _checked(self, calls: Calls, method: str, implement: Implement) -> Implement:
        return calls.checked(method, self._quotas.limited(method, implement), self._messages)

    async def drain(self) -> None:
        """Tell health watchers, refuse what is new, end what only waits."""
        await self._health.drain()
        self._admission.drain()

    async def stop(self, grace_ms: int) -> None:
        """Stop listening; calls in flight get so long to end, then they are cancelled."""
        await self._server.stop(grace_ms / 1_000)


def _handlers(
    service: ServiceDescriptor,
    servicer: object,
    calls: Calls,
    streams: PublishStreams,
    gate: RequestGate,
    forwarder: Forwarder | MasterOnly | None,
    quotas: QuotaGate,
    messages: MessageAccess,
) -> grpc.GenericRpcHandler:
    """Handlers for all methods of a service; a method without an implementation is an error."""
    found: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in service.methods:
        path = f"/{service.full_name}/{method.name}"
        if method.client_streaming or method.server_streaming:
            stream: Any = streams.handle
            if forwarder is not None:
                stream = forwarder.stream(path, calls, stream)
            stream = identified(method.full_name, calls, stream)
            found[method.name] = grpc.stream_stream_rpc_method_handler(stream)
        else:
            own = quotas.limited(method.full_name, getattr(servicer, _snake(method.name)))
            implement = calls.checked(method.full_name, own, messages)
            unary = calls.unary(method.name, _parser(method), implement)
            if forwarder is not None:
                unary = forwarder.unary(path, calls, unary)
            found[method.name] = received(method.full_name, calls, gate, unary)
    return grpc.method_handlers_generic_handler(service.full_name, found)


def received(
    method: str, calls: Calls, gate: RequestGate, handle: UnaryHandler
) -> "grpc.RpcMethodHandler[Any, Any]":
    """A unary method for gRPC, which is not to read requests before the gate lets it.

    `method`: its full name.
    """

    async def read(context: Context) -> bytes:
        stranger = await calls.find_refusal(method, context)
        if stranger is not None:
            return await context.abort_with_status(stranger)
        try:
            return await gate.read(context)
        except errors.HourwheelError as error:
            _, refusal = calls.refuse(method, error, context, grpc_status.to_status)
        return await context.abort_with_status(refusal)

    async def read_and_handle(_requests: object, context: Context) -> bytes:
        # Nowhere in a variable: see `Calls.unary`.
        return await handle(await read(context), context)

    handler: grpc.RpcMethodHandler[Any, Any]
    handler = grpc.stream_unary_rpc_method_handler(read_and_handle)
    return handler


def identified(
    method: str, calls: Calls, serve: StreamHandler, opens: Work = Work.STREAM
) -> StreamHandler:
    """A method (its full name) with streams in both directions, for callers who may be let in.

    `opens`: what an open one counts as, of their quotas.
    """

    async def handle(requests: Any, context: Context) -> None:
        stranger = await calls.find_refusal(method, context, opens)
        if stranger is not None:
            await context.abort_with_status(stranger)
        await serve(requests, context)

    return handle


def _parser(method: MethodDescriptor) -> Callable[[bytes], Any]:
    parser: Callable[[bytes], Any] = GetMessageClass(method.input_type).FromString
    return parser


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def calls_max(allowed: LimitsSection) -> int:
    """Calls that gRPC lets in at all: what is above gets no typed reason."""
    streams = allowed.publish_streams + allowed.sessions
    return allowed.requests_in_flight + allowed.long_polls + streams + _SPARE_CALLS


def pending_max(calls_max: int) -> int:
    """Calls that gRPC holds before anybody looks at them."""
    return min(calls_max, _PENDING_MAX)


def request_bytes_max(allowed: LimitsSection) -> int:
    """The largest request that is read from the network at all."""
    return max(allowed.batch_bytes, _REQUEST_BYTES_MIN) + REQUEST_SPARE_BYTES


def _options(config: NodeConfig) -> list[tuple[str, Any]]:
    pending = pending_max(calls_max(config.limits))
    return [
        ("grpc.max_receive_message_length", request_bytes_max(config.limits)),
        ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", 2 * _METADATA_BYTES_MAX),
        # Bounds of what gRPC itself holds: docs/LIMITS.md, "Memory".
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
        ("grpc.server.max_pending_requests", pending),
        ("grpc.server.max_pending_requests_hard_limit", pending),
        ("grpc.max_allowed_incoming_connections", config.limits.connections),
        ("grpc.server_handshake_timeout_ms", config.limits.request_wait_ms),
        ("grpc.max_concurrent_streams", config.limits.calls_per_connection),
        ("grpc.max_connection_idle_ms", config.limits.connection_idle_ms),
        # A dead peer is noticed, and one that pings without pause is thrown out.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
        # Two nodes on one port would share its calls by chance.
        ("grpc.so_reuseport", 0),
    ]
