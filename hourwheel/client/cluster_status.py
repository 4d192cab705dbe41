"""What a cluster reports of itself: values named as in admin.proto."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from hourwheel.v1 import admin_pb2, status_pb2


class Role(StrEnum):
    """What a node is to a shard."""

    UNKNOWN = "unknown"
    FOLLOWER = "follower"
    TAKING_OVER = "taking over"
    MASTER = "master"


class Phase(StrEnum):
    """How a master's stream to a follower stands."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    GREETED = "greeted"
    BEGUN = "begun"
    REPLICATING = "replicating"
    SNAPSHOT = "snapshot"


class Mastership(NamedTuple):
    """The master of a shard, and the epoch of its mastership."""

    master: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node. Field by field: NodeStatus in proto/hourwheel/v1/admin.proto."""

    node_id: str
    address: str
    started_ms: int
    clock_ms: int
    read_only_reason: str
    boot_id: str = ""
    is_alive: bool = False
    is_ready: bool = False
    version: str = ""
    epoch: int = 0
    log_end_offset: int = 0
    heard_ms_ago: int = 0
    is_heard: bool = False
    feature_level: int = 0


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """One follower, as the master sees it. Field by field: FollowerStatus in admin.proto."""

    node_id: str
    phase: Phase
    acked_end_offset: int
    lag_bytes: int
    applied_offset: int
    heard_ms_ago: int | None
    """None: never."""
    clock_offset_ms: float | None
    """None: unknown."""
    is_full: bool


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """What the answering node has handed out since its process started.

    Field by field: DeliveryStatus in proto/hourwheel/v1/status.proto.
    """

    delivered_count: int
    acknowledged_count: int
    redelivered_count: int
    dead_lettered_count: int
    early_count: int
    """Visible before they were due. Must be 0."""
    lateness_bounds_ms: tuple[float, ...]
    """Upper bounds, ascending."""
    lateness_counts: tuple[int, ...]
    """Released messages by lateness; one more than bounds, for what is above the last."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard. Field by field: ShardStatus in proto/hourwheel/v1/admin.proto."""

    shard: int
    epoch: int
    master: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    applied_offset: int
    checkpoint_offset: int
    published_count: int
    pending_count: int
    released_count: int
    cancelled_count: int
    tick: int
    local_index: int
    next_due_ms: int
    run_count: int
    disk_bytes: int
    in_sync: tuple[str, ...] = ()
    version: int = 0
    role: Role = Role.UNKNOWN
    may_act: bool = False
    lease_left_ms: int | None = None
    """None: there is none, or it does not end."""
    followers: tuple[FollowerStatus, ...] = ()
    """Empty unless the master answered."""
    append_cursor_ms: int = 0
    append_cursor_sequence: int = 0
    clock_offset_ms: float = 0.0
    feature_level: int = 0
    delivery: DeliveryStatus | None = None
    """None: an older node answered."""


@dataclass(frozen=True, slots=True)
class ControlStatus:
    """The control plane. Field by field: ControlStatus in proto/hourwheel/v1/admin.proto."""

    leader_node_id: str
    term: int
    has_majority: bool
    revision: int
    generation: int = 0
    """Of the voters: counts changes of the members. 0 also where an older node answered."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster, as one node sees it."""

    cluster_id: str
    version: str
    """Of the node that answered."""
    nodes: tuple[NodeStatus, ...]
    shards: tuple[ShardStatus, ...]
    answered_by: str = ""
    """Id of the node that answered; empty: an older one."""
    control: ControlStatus | None = None
    """None: the node is alone."""

    def address_of(self, node_id: str) -> str:
        """Where clients reach a node, host:port; empty: there is no such node."""
        return next((node.address for node in self.nodes if node.node_id == node_id), "")


Kind = TypeVar("Kind", NodeStatus, ShardStatus, FollowerStatus, ControlStatus, DeliveryStatus)

_ROLES: Final = {
    status_pb2.SHARD_ROLE_FOLLOWER: Role.FOLLOWER,
    status_pb2.SHARD_ROLE_TAKING_OVER: Role.TAKING_OVER,
    status_pb2.SHARD_ROLE_MASTER: Role.MASTER,
}
_PHASES: Final = {
    status_pb2.FOLLOWER_PHASE_ABSENT: Phase.ABSENT,
    status_pb2.FOLLOWER_PHASE_GREETED: Phase.GREETED,
    status_pb2.FOLLOWER_PHASE_BEGUN: Phase.BEGUN,
    status_pb2.FOLLOWER_PHASE_REPLICATING: Phase.REPLICATING,
    status_pb2.FOLLOWER_PHASE_SNAPSHOT: Phase.SNAPSHOT,
}


def find_master(statuses: Mapping[str, ClusterStatus]) -> tuple[str, ShardStatus] | None:
    """Which of several nodes is master and may act; of two that say so, that of the later epoch.

    Args:
        statuses: what each node says, by its id.

    Returns:
        (node, the shard as it says); None: there is none among these.
    """
    found = [
        (shard.epoch, node_id, shard)
        for node_id, status in statuses.items()
        for shard in status.shards[:1]
        if shard.may_act
    ]
    if not found:
        return None
    _, node_id, shard = max(found, key=lambda one: one[0])
    return node_id, shard


def cluster_status(answer: admin_pb2.GetStatusResponse) -> ClusterStatus:
    """What a node has answered. Roles and phases that a newer node may know are UNKNOWN."""
    return ClusterStatus(
        answer.cluster_id,
        answer.version,
        tuple(_copy(NodeStatus, node) for node in answer.nodes),
        tuple(map(_shard, answer.shards)),
        answer.answered_by,
        _copy(ControlStatus, answer.control) if answer.HasField("control") else None,
    )


def _shard(shard: status_pb2.ShardStatus) -> ShardStatus:
    return _copy(
        ShardStatus,
        shard,
        in_sync=tuple(shard.in_sync),
        role=_ROLES.get(shard.role, Role.UNKNOWN),
        lease_left_ms=shard.lease_left_ms if shard.HasField("lease_left_ms") else None,
        followers=tuple(map(_follower, shard.followers)),
        delivery=_delivery(shard.delivery) if shard.HasField("delivery") else None,
    )


def _delivery(status: status_pb2.DeliveryStatus) -> DeliveryStatus:
    return _copy(
        DeliveryStatus,
        status,
        lateness_bounds_ms=tuple(status.lateness_bounds_ms),
        lateness_counts=tuple(status.lateness_counts),
    )


def _follower(one: status_pb2.FollowerStatus) -> FollowerStatus:
    return _copy(
        FollowerStatus,
        one,
        phase=_PHASES.get(one.phase, Phase.UNKNOWN),
        heard_ms_ago=one.heard_ms_ago if one.HasField("heard_ms_ago") else None,
        clock_offset_ms=one.clock_offset_ms if one.HasField("clock_offset_ms") else None,
    )


def _copy(kind: type[Kind], message: Any, **known: Any) -> Kind:
    """A dataclass whose fields are named as those of a protobuf message, but for `known` ones."""
    names = [field.name for field in fields(kind) if field.name not in known]
    return kind(**{name: getattr(message, name) for name in names}, **known)
