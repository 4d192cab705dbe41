"""One metric of the table, and what is read of a node to fill it in. Pure."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.status_pb2 import ShardStatus
from node.broker.consumer_lag import LagReading
from node.broker.due_reading import DueWithin
from node.contracts.broker import ShardGauges
from node.telemetry.epoch_stats import EpochStats
from node.telemetry.histogram import Histogram
from node.telemetry.process_watch import ProcessStats
from node.telemetry.stats import ApiStats, EngineStats

SECONDS: Final = 0.001


class ProcessFacts(NamedTuple):
    """How the process does, and how the one before it ended."""

    stats: ProcessStats = ProcessStats()
    last_exit: str = "FIRST_START"
    """See node/process/last_exit.py."""


class NodeFacts(NamedTuple):
    """What does not come from the engine."""

    version: str
    python: str
    started_ms: int
    clock_error_ms: float
    """Wall clock minus the node's clock."""
    clock_step_pending: bool
    process: ProcessFacts = ProcessFacts()


class ControlFacts(NamedTuple):
    """How the control process beside the node does."""

    stall_count: int = 0
    stall_ms_max: float = 0.0
    ends: int = 0
    """How often it has ended by itself, over the node's lives."""
    last_exit_code: int = 0
    """0: it never has."""
    leader_changes: int = 0
    """How often this node has seen another leader of Raft than the one before."""
    commands: Histogram | None = None
    """How long commands took that this node proposed and that were answered, in seconds."""
    commands_failed: int = 0
    """Commands that were not carried out, or whose outcome is unknown."""


class CertificateEnds(NamedTuple):
    """Until when certificates are valid, in seconds since the Unix epoch."""

    node_s: float
    """The first to end of the node's chain."""
    authority_s: float
    """The last to end of the authorities."""


class ClusterFacts(NamedTuple):
    """What a node of several tells beside."""

    status: GetStatusResponse
    """See ClusterPort."""
    epoch_stats: EpochStats
    is_clock_unsure: bool
    """It would be master, but too few clocks are known."""
    heartbeat_age_ms: float
    """Since the master's last sync; of a master 0."""
    min_in_sync: int = 1
    control: ControlFacts = ControlFacts()
    certificate_ends: CertificateEnds | None = None
    """Of those in use; None without TLS."""
    are_certificates_refused: bool = False
    """The files have changed and cannot be used: the former certificates are."""

    @property
    def shard(self) -> ShardStatus:
        """What it knows of the shard's mastership."""
        return self.status.shards[0]


class Scrape(NamedTuple):
    """What is read of a node at one moment."""

    stats: EngineStats
    status: ShardStatus
    gauges: ShardGauges
    lag: LagReading
    api: ApiStats
    facts: NodeFacts
    now_ms: int
    cluster: ClusterFacts | None = None
    """None: a node alone."""
    answer_bytes: int = 0
    """Of messages that were handed out and not read yet."""
    due: tuple[DueWithin, ...] = ()


Sample: TypeAlias = tuple[tuple[str, ...], float | Histogram]
"""Values of the labels, and the value."""
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str
    read: Callable[[Scrape], Iterable[Sample]]
    is_settled: bool = False
    """`read` looks only at what does not change any more: it need not be called on the loop."""


def _shard(kind: Kind, name: str, text: str, read: Callable[[Scrape], float | Histogram]) -> Family:
    return Family(name, kind, ("shard",), text, lambda it: [((str(it.status.shard),), read(it))])


def node_gauge(name: str, text: str, read: Callable[[Scrape], float]) -> Family:
    """A gauge that the node has one of."""
    return Family(name, "gauge", (), text, lambda it: [((), read(it))])


shard_counter: Final = partial(_shard, "counter")
"""Counters, gauges and histograms that each shard has one of."""
shard_gauge: Final = partial(_shard, "gauge")
shard_histogram: Final = partial(_shard, "histogram")
