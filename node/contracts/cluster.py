"""What the API needs to know of the cluster, and the one thing that it asks of it.

The port is `ClusterPort`: node/cluster/transfer.py implements it, and `StandaloneCluster` here for
a node that has no others. The values have the names and meanings of proto/hourwheel/v1/admin.proto.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.types import NO_EPOCH, NO_NODE, Epoch, NodeId
from hourwheel.v1.status_pb2 import SHARD_ROLE_MASTER, SHARD_ROLE_UNSPECIFIED

_ALONE: Final = "this node is alone: it is no cluster that has members"


@dataclass(frozen=True, slots=True)
class NodeStatusData:
    """One node, as the answering one knows it."""

    node_id: NodeId
    address: str
    boot_id: str = ""
    is_alive: bool = False
    is_ready: bool = False
    version: str = ""
    epoch: Epoch = NO_EPOCH
    log_end_offset: int = 0
    heard_ms_ago: int = 0
    is_heard: bool = False
    feature_level: int = 0


@dataclass(frozen=True, slots=True)
class ControlStatusData:
    """The control plane."""

    leader_node_id: NodeId = NO_NODE
    term: int = 0
    has_majority: bool = False
    revision: int = 0
    generation: int = 0
    """Of the voters: counts changes of the members."""


@dataclass(frozen=True, slots=True)
class FollowerStatusData:
    """One follower, as the master sees it."""

    node_id: NodeId
    phase: int
    """A value of status_pb2.FollowerPhase."""
    acked_end_offset: int = 0
    lag_bytes: int = 0
    applied_offset: int = 0
    heard_ms_ago: int | None = None
    clock_offset_ms: float | None = None
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class MastershipData:
    """Who has the shard, and what the answering node is to it."""

    shard: int = 0
    epoch: Epoch = NO_EPOCH
    """0 for a node alone: the shard itself tells it."""
    master: NodeId = NO_NODE
    in_sync: tuple[NodeId, ...] = ()
    version: int = 0
    role: int = SHARD_ROLE_UNSPECIFIED
    """A value of status_pb2.ShardRole."""
    may_act: bool = False
    lease_left_ms: int | None = None
    followers: tuple[FollowerStatusData, ...] = ()
    append_cursor_ms: int = 0
    append_cursor_sequence: int = 0
    clock_offset_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterStatusData:
    """All of it, at one moment."""

    nodes: tuple[NodeStatusData, ...]
    shard: MastershipData = field(default_factory=MastershipData)
    control: ControlStatusData | None = None
    """None: there is none, for a node alone."""


@dataclass(frozen=True, slots=True)
class MemberData:
    """A member of the cluster, as the answering node knows it."""

    node_id: NodeId
    control_address: str
    is_alive: bool
    has_replica: bool
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class MembersData:
    """All of them."""

    generation: int
    members: tuple[MemberData, ...]
    former_node_ids: tuple[NodeId, ...]
    is_changing: bool
    """Copies still follow the last change."""


class ClusterPort(Protocol):
    """The cluster, from one of its nodes. On the event loop's thread."""

    def status(self) -> ClusterStatusData:
        """As it is now; needs neither a majority nor mastership."""
        ...

    async def transfer_master(self, shard: int, to: NodeId) -> tuple[NodeId, int]:
        """Make `to` the master, or the best node if it is empty: (master, epoch) from then on.

        Raises:
            NotMaster: this node is not the one to ask.
            InvalidArgument: there is no such shard.
            FailedPrecondition: `to` is not known or not in sync, or nobody took over in time.
        """
        ...

    def members(self) -> MembersData:
        """Who votes and has copies. Raises FailedPrecondition: it is not known, or nobody."""
        ...

    async def change_members(
        self,
        add: Mapping[NodeId, str],
        remove: Collection[NodeId],
        expected_generation: int | None,
    ) -> int:
        """Change the members; the generation that is in force then.

        Raises:
            FailedPrecondition: why it is not done.
            InvalidArgument: nobody comes and nobody goes, or an address is none.
            Timeout: nobody knows.
        """
        ...


class StandaloneCluster:
    """A cluster of one."""

    def __init__(self, node_id: NodeId, address: str, version: str) -> None:
        """Of the node: its id, where clients reach it, and its version."""
        self._node = NodeStatusData(
            node_id, address, is_alive=True, is_ready=True, version=version, is_heard=True
        )

    def status(self) -> ClusterStatusData:
        """See ClusterPort."""
        me = self._node.node_id
        return ClusterStatusData(
            nodes=(self._node,),
            shard=MastershipData(master=me, in_sync=(me,), role=SHARD_ROLE_MASTER, may_act=True),
        )

    async def transfer_master(self, shard: int, to: NodeId) -> tuple[NodeId, int]:
        """See ClusterPort: there is nobody else."""
        check_shard(shard)
        if to == self._node.node_id:
            return to, 0
        raise errors.FailedPrecondition("this node is alone: nobody can take over", node=to)

    def members(self) -> MembersData:
        """See ClusterPort."""
        raise errors.FailedPrecondition(_ALONE)

    async def change_members(
        self, add: Mapping[NodeId, str], remove: Collection[NodeId], expected_generation: int | None
    ) -> int:
        """See ClusterPort."""
        del add, remove, expected_generation
        raise errors.FailedPrecondition(_ALONE)


def check_shard(shard: int) -> None:
    """Raises InvalidArgument where there is no such shard."""
    if shard != 0:
        raise errors.InvalidArgument(f"there is no shard {shard}", shard=shard)
