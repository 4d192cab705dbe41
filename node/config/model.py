"""The node's configuration: every key with its default, unit, bounds and description.

docs/CONFIGURATION.md and docs/hourwheel.toml are made from here (node/config/pages.py). An unknown
key, a wrong type or values that do not fit together are refused with a `ConfigError` that names the
key and its value: a typo never becomes a default. Files and the environment:
node/config/sources.py.

Lower rooms take small dataclasses of their own, built in node/process/app.py: none imports this
module.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import ValidationError, model_validator

from hourwheel import limits as hard
from hourwheel.types import NodeId
from node.config import checks
from node.config.access import AccessSection, validate_access
from node.config.authentication import AuthenticationSection, validate_authentication
from node.config.cluster import ClusterSection
from node.config.section import Section
from node.config.section import key_of as _key
from node.config.tls import TlsSection, validate_tls
from storage.views.unit import UNIT_BYTES

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_GIB: Final = 1024 * _MIB
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_HOURS_A_DAY: Final = 24
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")


class NodeSection(Section):
    """Who this node is and where it listens."""

    id: NodeId = _key(
        "node-1", "", "Name of the node, unique in the cluster; kept in the directory."
    )
    data_directory: Path = _key(
        Path("hourwheel-data"), "", "Everything that the node stores. One process at a time."
    )
    listen: str = _key("127.0.0.1:7400", "", "host:port of the gRPC server; port 0 for any free.")
    advertised: str = _key("", "", "host:port that clients connect to; empty: what it listens on.")
    metrics_listen: str = _key(
        "127.0.0.1:7401",
        "",
        "host:port of /metrics for Prometheus and of probes; empty: none; port 0 for any free.",
    )
    event_loop: Literal["auto", "asyncio", "uvloop"] = _key(
        "auto", "", "auto: uvloop where it is installed; it answers a call with less work."
    )
    drain_ms: int = _key(
        10_000, "ms", "At a stop, calls in flight get this long to end.", ge=0, le=600_000
    )


class ConsoleSection(Section):
    """The console: the node's own web pages."""

    listen: str = _key(
        "127.0.0.1:7404",
        "",
        "host:port of the console; empty: none; port 0 for any free. Where the default is taken "
        "already, the node works without a console; an address of yours must be free.",
    )
    hosts: str = _key(
        "",
        "",
        "Names under which browsers may reach it, with spaces between them; localhost and IP "
        "addresses always work. Another Host is refused: it may be a foreign page's.",
    )
    changes: Literal["auto", "always", "never"] = _key(
        "auto",
        "",
        "Whether it may publish, cancel and transfer mastership. auto: where it listens on "
        "loopback. It asks for a login where access.is_on.",
    )
    connections: int = _key(
        128,
        "connections",
        "Open at one time; above that the one that has waited longest is closed.",
        ge=8,
        le=4_096,
    )

    @property
    def is_listen_configured(self) -> bool:
        """Whether somebody chose `listen`, be it the default's value."""
        return "listen" in self.model_fields_set


class LogSection(Section):
    """The commit log: what is durable when, and how long it is kept."""

    segment_bytes: int = _key(
        _GIB, "bytes", "A segment file is closed at about this size.", ge=64 * _KIB, le=4 * _GIB - 1
    )
    index_interval_bytes: int = _key(
        64 * _KIB, "bytes", "One sparse-index entry for so much log.", ge=4 * _KIB, le=16 * _MIB
    )
    durability: Literal["sync", "async"] = _key(
        "sync",
        "",
        "sync: nothing is acknowledged before fdatasync. async: acknowledged when written; a power "
        "failure loses up to async_flush_ms of acknowledged messages.",
    )
    async_flush_ms: int = _key(
        200, "ms", "With async: fdatasync at least this often.", ge=1, le=60_000
    )
    retention_ms: int = _key(
        72 * _HOUR_MS,
        "ms",
        "What was released this long ago is discarded, consumed or not; a topic may say else.",
        ge=60_000,
        le=3_650 * _DAY_MS,
    )
    retention_bytes: int = _key(
        0,
        "bytes",
        "Above this much log the oldest is discarded before its time; 0: no limit.",
        ge=0,
    )
    scrub_bytes_per_s: int = _key(
        2 * _MIB,
        "bytes/s",
        "The scrubber reads old log, views and delay logs at this pace at most; 0: never.",
        ge=0,
    )


class WheelSection(Section):
    """The time wheel: how far it reaches and what it may use."""

    horizon_days: int = _key(
        1_100, "days", "How far ahead a message may be scheduled.", ge=731, le=36_500
    )
    memtable_units: int = _key(
        262_144,
        "messages",
        "Scheduled messages held in memory before they are written to runs (64 bytes each).",
        ge=1_024,
        le=1 << 24,
    )
    memtable_span_bytes: int = _key(
        64 * _MIB,
        "bytes",
        "They are written out, too, when the log since the last checkpoint is this long: the more, "
        "the longer a restart after a crash.",
        ge=64 * _KIB,
        le=16 * _GIB,
    )
    near_bytes: int = _key(
        32 * _MIB, "bytes", "Memory for what is due next.", ge=4 * _MIB, le=4 * _GIB
    )
    near_ahead_ms: int = _key(
        10_000, "ms", "What is due so soon is loaded ahead, if it fits.", ge=1_000, le=600_000
    )
    load_units: int = _key(
        8_192, "messages", "It is loaded about so many at a time.", ge=64, le=1 << 20
    )
    hour_level_hours: int = _key(
        48,
        "hours",
        "Due times so near are kept by the hour, later ones by the day; a multiple of 24.",
        ge=24,
        le=24 * 31,
    )
    merge_run_count: int = _key(
        8, "runs", "So many neighbouring runs of like size become one.", ge=2, le=64
    )
    job_units_per_slice: int = _key(
        65_536,
        "messages",
        "Merging and cascading move so many messages between two pauses.",
        ge=1_024,
        le=1 << 20,
    )


class DispatchSection(Section):
    """Releasing what is due."""

    units_max: int = _key(
        4_096, "messages", "One DISPATCH record releases at most so many.", ge=1, le=1 << 20
    )
    lead_ms_min: int = _key(
        3, "ms", "A dispatch is logged at least this long before its due time.", ge=0, le=1_000
    )
    lead_ms_max: int = _key(
        20,
        "ms",
        "And at most this long; in between the measured time of a commit decides. A message cannot "
        "be cancelled any more within the lead.",
        ge=0,
        le=1_000,
    )
    interval_ms: int = _key(
        8,
        "ms",
        "Dispatches are at least so far apart, unless more is due than one may release.",
        ge=0,
        le=1_000,
    )


class TopicsSection(Section):
    """Topics that are made by themselves."""

    auto_create: bool = _key(True, "", "Publishing to an unknown topic makes it.")
    auto_create_by_receiving: bool = _key(
        False, "", "Receiving from an unknown topic makes it, too; else it is UNKNOWN_TOPIC."
    )
    queue_count: int = _key(1, "queues", "Queues of a topic made so.", ge=1, le=256)


class GroupsSection(Section):
    """Consumer groups: defaults where a group does not say otherwise."""

    auto_create: bool = _key(True, "", "Receiving for an unknown group makes it.")
    attempts_max: int = _key(
        16, "deliveries", "After so many, a message becomes a dead letter.", ge=1, le=1_000
    )
    invisible_ms: int = _key(
        30_000,
        "ms",
        "A received message is hidden from its group for this long.",
        ge=hard.INVISIBLE_MS_MIN,
        le=hard.INVISIBLE_MS_MAX,
    )
    retry_delay_ms: int = _key(
        1_000,
        "ms",
        "Delay of the second delivery; it doubles with each one.",
        ge=1,
        le=hard.NACK_DELAY_MS_MAX,
    )
    retry_delay_ms_max: int = _key(
        600_000, "ms", "Where the doubling ends.", ge=1, le=hard.NACK_DELAY_MS_MAX
    )


class TransactionsSection(Section):
    """Transactions: defaults where a prepare does not say otherwise."""

    check_interval_ms: int = _key(
        60_000,
        "ms",
        "A transaction without an outcome is asked about after this long, and again each time.",
        ge=1_000,
        le=hard.TRANSACTION_CHECK_INTERVAL_MS_MAX,
    )
    checks_max: int = _key(
        15,
        "checks",
        "After so many without an answer it is rolled back.",
        ge=1,
        le=hard.TRANSACTION_CHECKS_MAX,
    )
    age_ms: int = _key(
        3_600_000,
        "ms",
        "After this long it is rolled back, whether anybody could be asked or not.",
        ge=1_000,
        le=hard.TRANSACTION_AGE_MS_MAX,
    )


class LimitsSection(Section):
    """What clients may ask for. Stricter than the formats' limits (docs/LIMITS.md), never laxer."""

    message_body_bytes: int = _key(
        hard.MESSAGE_BODY_BYTES_DEFAULT,
        "bytes",
        "Body of one message. Above the default it cannot be received by gRPC clients with their "
        "own default limit of 4 MiB.",
        ge=1,
        le=hard.MESSAGE_BODY_BYTES_MAX,
    )
    batch_bytes: int = _key(
        hard.BATCH_BYTES_MAX,
        "bytes",
        "One publish call or record batch.",
        ge=4 * _KIB,
        le=hard.BATCH_BYTES_MAX,
    )
    batch_messages: int = _key(
        hard.BATCH_MESSAGE_COUNT_MAX,
        "messages",
        "Messages of one record batch.",
        ge=1,
        le=hard.BATCH_MESSAGE_COUNT_MAX,
    )
    requests_in_flight: int = _key(
        512, "calls", "Calls answered at one time; more are Overloaded.", ge=1, le=65_536
    )
    bytes_in_flight: int = _key(
        128 * _MIB,
        "bytes",
        "Requests being worked on, all clients together; more are Overloaded.",
        ge=64 * _KIB,
        le=64 * _GIB,
    )
    answer_bytes: int = _key(
        128 * _MIB,
        "bytes",
        "Answers that no client has read yet, all together; polls wait for room, and who does not"
        " wait is Overloaded, as is a list that finds more than a quarter of it taken by such.",
        ge=64 * _KIB,
        le=64 * _GIB,
    )
    long_polls: int = _key(
        2_048, "calls", "Receive calls waiting for a message at one time.", ge=1, le=65_536
    )
    forwarded_calls: int = _key(
        1_024, "calls", "Calls passed on to the master; more are Overloaded.", ge=1, le=65_536
    )
    stream_batches_in_flight: int = _key(
        16, "batches", "Batches that one publish stream is read ahead.", ge=1, le=1_024
    )
    stream_bytes_in_flight: int = _key(
        16 * _MIB, "bytes", "And their size together.", ge=64 * _KIB, le=_GIB
    )
    publish_streams: int = _key(
        64, "streams", "Publish streams open at one time; more are Overloaded.", ge=1, le=65_536
    )
    sessions: int = _key(
        64,
        "sessions",
        "Sessions open at one time, of one client process each; more are Overloaded, and their "
        "clients make single calls.",
        ge=1,
        le=65_536,
    )
    answer_wait_ms: int = _key(
        60_000,
        "ms",
        "A publish stream or session whose next answer the client has no room for, for so long, is "
        "ended.",
        ge=100,
        le=_DAY_MS,
    )
    request_wait_ms: int = _key(
        10_000,
        "ms",
        "A request that has not arrived whole for so long is refused.",
        ge=100,
        le=_DAY_MS,
    )
    connections: int = _key(
        8_192, "connections", "Connections of clients; more are closed at once.", ge=1, le=1 << 20
    )
    calls_per_connection: int = _key(
        1_024, "calls", "Calls and streams that one connection may have open.", ge=1, le=65_536
    )
    connection_idle_ms: int = _key(
        60_000, "ms", "A connection without a call for this long is closed.", ge=1_000, le=_DAY_MS
    )
    topics: int = _key(10_000, "topics", "Topics, the cluster's own not counted.", ge=1, le=1 << 20)
    groups: int = _key(10_000, "groups", "Consumer groups.", ge=1, le=1 << 20)
    broadcast_members: int = _key(
        1_000,
        "groups",
        "Members of broadcasts, all together; each is one of limits.groups as well.",
        ge=0,
        le=1 << 20,
    )
    members_per_broadcast: int = _key(
        900,
        "groups",
        "Members of one broadcast, so that none has the places of all others.",
        ge=0,
        le=1 << 20,
    )
    subscriptions: int = _key(
        20_000, "subscriptions", "Of groups to topics, all together.", ge=1, le=1 << 20
    )
    producer_idle_ms: int = _key(
        _DAY_MS,
        "ms",
        "A producer that is silent for this long is forgotten: its idempotence ends.",
        ge=hard.PRODUCER_IDLE_MS_MIN,
        le=365 * _DAY_MS,
    )
    group_idle_ms: int = _key(
        7 * _DAY_MS,
        "ms",
        "A group that receiving made, that no client has used for this long, and that would get the"
        " same if it were made again, is deleted; 0: never.",
        ge=0,
        le=365 * _DAY_MS,
    )
    topic_idle_ms: int = _key(
        7 * _DAY_MS,
        "ms",
        "A topic that publishing made, that got no message for this long, in which nothing"
        " is pending or retained, and from which only unused groups receive, is deleted; 0: never.",
        ge=0,
        le=365 * _DAY_MS,
    )


class DiskSection(Section):
    """What must stay free on the disk of the data directory."""

    free_bytes_min: int = _key(
        512 * _MIB,
        "bytes",
        "With less free, publishing is refused (DISK_FULL); deliveries go on.",
        ge=0,
    )
    reserve_bytes: int = _key(
        64 * _MIB,
        "bytes",
        "Size of a file that is given up when a write finds no room at all, for dispatches, "
        "acknowledgements and checkpoints; 0: none.",
        ge=0,
    )


class ClockSection(Section):
    """How the node's clock follows the machine's wall clock (node/broker/slewed_clock.py)."""

    slew_percent_max: float = _key(
        5.0, "percent", "It runs at most so much faster or slower.", gt=0, le=50
    )
    step_ms_max: int = _key(
        1_000, "ms", "A larger jump of the wall clock is not believed at once.", ge=1, le=_DAY_MS
    )
    step_settle_ms: int = _key(
        60_000, "ms", "It is followed after it has lasted this long.", ge=0, le=_DAY_MS
    )


class TelemetrySection(Section):
    """What the node says of itself."""

    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info", "", "Least level logged."
    )
    log_format: Literal["auto", "json", "console"] = _key(
        "auto", "", "auto: for people on a terminal, else JSON, one object a line."
    )
    lag_series: int = _key(
        500,
        "series",
        "Lag is exported for so many groups and topics, those most behind; others together.",
        ge=1,
        le=5_000,
    )
    stall_ms: int = _key(
        5,
        "ms",
        "What keeps the event loop busy for longer is a stall: counted, and kept with what ran.",
        ge=1,
        le=10_000,
    )


class NodeConfig(Section):
    """The whole configuration."""

    node: NodeSection = NodeSection()
    console: ConsoleSection = ConsoleSection()
    access: AccessSection = AccessSection()
    tls: TlsSection = TlsSection()
    authentication: AuthenticationSection = AuthenticationSection()
    log: LogSection = LogSection()
    wheel: WheelSection = WheelSection()
    dispatch: DispatchSection = DispatchSection()
    topics: TopicsSection = TopicsSection()
    groups: GroupsSection = GroupsSection()
    transactions: TransactionsSection = TransactionsSection()
    limits: LimitsSection = LimitsSection()
    disk: DiskSection = DiskSection()
    clock: ClockSection = ClockSection()
    cluster: ClusterSection = ClusterSection()
    telemetry: TelemetrySection = TelemetrySection()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _validate(self)
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None) -> Self:
        """A configuration from sections as mappings; what is not named has its default.

        Raises:
            ConfigError: naming the first key that is wrong, and its value.
        """
        try:
            return cls.model_validate(dict(values or {}))
        except ValidationError as error:
            raise checks.error_of(error, NodeConfig) from None


def _validate(config: NodeConfig) -> None:
    """Check what no key can check alone.

    Raises:
        ConfigError: naming a key, its value and what it does not fit to.
    """
    _validate_node(config.node)
    _validate_console(config.console, config.node)
    validate_access(config.access, config.node.metrics_listen, config.console.listen, config.tls)
    validate_tls(config.tls)
    validate_authentication(config.authentication)
    for key, other in (
        ("dispatch.lead_ms_min", "dispatch.lead_ms_max"),
        ("groups.retry_delay_ms", "groups.retry_delay_ms_max"),
        ("limits.batch_bytes", "limits.stream_bytes_in_flight"),
        ("limits.stream_bytes_in_flight", "limits.bytes_in_flight"),
    ):
        value, bound = _value(config, key), _value(config, other)
        if value > bound:
            checks.refuse(key, value, f"more than {other} = {bound}")
    retained, segment = config.log.retention_bytes, config.log.segment_bytes
    if retained and retained < 2 * segment:
        checks.refuse(
            "log.retention_bytes", retained, f"less than two of log.segment_bytes = {segment}"
        )
    load_units, near_bytes = config.wheel.load_units, config.wheel.near_bytes
    if load_units * UNIT_BYTES > near_bytes:
        checks.refuse(
            "wheel.load_units", load_units, f"more than wheel.near_bytes = {near_bytes} holds"
        )
    _validate_cluster(config)
    hours = config.wheel.hour_level_hours
    if hours % _HOURS_A_DAY:
        checks.refuse("wheel.hour_level_hours", hours, "not a multiple of 24")


def _validate_node(node: NodeSection) -> None:
    if not checks.NODE_ID.fullmatch(node.id):
        checks.refuse(
            "node.id", node.id, "1 to 63 of A-Z a-z 0-9 _ . -, the first a letter or digit"
        )
    _, port = checks.split_address("node.listen", node.listen)
    if node.metrics_listen:
        checks.split_address("node.metrics_listen", node.metrics_listen)
        if port and node.metrics_listen == node.listen:
            checks.refuse("node.metrics_listen", node.metrics_listen, "the same as node.listen")
    if node.advertised and checks.split_address("node.advertised", node.advertised)[1] == 0:
        checks.refuse("node.advertised", node.advertised, "a client cannot connect to port 0")


def _validate_console(console: ConsoleSection, node: NodeSection) -> None:
    if console.listen:
        _, port = checks.split_address("console.listen", console.listen)
        for key in ("listen", "metrics_listen"):
            if port and console.listen == getattr(node, key):
                checks.refuse("console.listen", console.listen, f"the same as node.{key}")
    for name in console.hosts.split():
        if not _HOST_NAME.fullmatch(name):
            checks.refuse("console.hosts", console.hosts, f"{name} is no name of a host")


def _validate_cluster(config: NodeConfig) -> None:
    cluster = config.cluster
    nodes = checks.cluster_nodes(cluster.nodes)
    if not nodes:
        return
    if cluster.id and not re.fullmatch(r"[0-9a-f]{32}", cluster.id):
        checks.refuse("cluster.id", cluster.id, "not 32 hexadecimal digits")
    if config.node.id not in nodes:
        checks.refuse(
            "cluster.nodes", cluster.nodes, f"node.id = {config.node.id} is not among them"
        )
    if not cluster.min_in_sync <= len(nodes):
        checks.refuse(
            "cluster.min_in_sync", cluster.min_in_sync, f"more than the {len(nodes)} nodes"
        )
    if cluster.lease_ms < 2 * cluster.sync_interval_ms:  # it would end between two heartbeats
        checks.refuse(
            "cluster.lease_ms",
            cluster.lease_ms,
            f"less than two of cluster.sync_interval_ms = {cluster.sync_interval_ms}",
        )
    if config.log.durability != "sync":
        checks.refuse("log.durability", config.log.durability, "a cluster is always durable")
    files = (cluster.tls_certificate_file, cluster.tls_key_file, cluster.tls_authority_file)
    if any(files) and not all(files):
        checks.refuse(
            "cluster.tls_certificate_file", files[0], "TLS needs certificate, key, authority"
        )
    if len(nodes) > 1 and not any(files) and not cluster.secret_file:
        checks.refuse("cluster.secret_file", "", "a cluster needs a secret or TLS")


def _value(config: NodeConfig, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)
