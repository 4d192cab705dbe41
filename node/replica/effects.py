"""What the control plane assigns to a replica, and the effects that its shell carries out."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from hourwheel.internal.v1.replication_pb2 import LeaseTable, SyncBeat
from hourwheel.types import Epoch, NodeId
from node.replica.mastership import Mastership
from replication.rules.isr import IsrChange, ReplicasChange


class Role(Enum):
    """What a node is to a shard."""

    FOLLOWER = "follower"
    TAKING_OVER = "taking over"
    MASTER = "master"


class Assignment(NamedTuple):
    """What the control plane says of a shard."""

    epoch: Epoch
    master: NodeId
    """Node id; empty before the first election."""
    isr: frozenset[NodeId]
    version: int
    replicas: tuple[NodeId, ...] = ()
    """The replica list; empty: all nodes of the configuration."""
    targets: tuple[NodeId, ...] = ()
    """Who should have a replica; empty: who has one."""
    min_in_sync: int = 0
    """So many have to be in sync; 0: as configured."""


@dataclass(frozen=True)
class OpenStreams:
    """Connect to every node that should follow, and end the streams to others."""


@dataclass(frozen=True)
class CloseStreams:
    """The mastership is over: end all streams to followers, with these as the last messages."""

    leases: LeaseTable
    """What consumers hold."""
    last_heartbeat: SyncBeat
    """It frees them from the lease that they granted."""


@dataclass(frozen=True)
class Serve:
    """Begin to dispatch and to answer."""

    mastership: Mastership


@dataclass(frozen=True)
class StepDown:
    """Serve no more: close the mastership, which answers all that wait."""

    mastership: Mastership
    why: str


@dataclass(frozen=True)
class ProposeIsr:
    """Propose a change of the in-sync set to the control plane."""

    change: IsrChange


@dataclass(frozen=True)
class ProposeReplicas:
    """Propose a change of the replica list to the control plane."""

    change: ReplicasChange


@dataclass(frozen=True)
class RequestSuccessor:
    """Request another master from the control plane."""

    why: str


@dataclass(frozen=True)
class Write:
    """Something was appended, or may be applied: wake the writer."""


Effect: TypeAlias = (
    OpenStreams
    | CloseStreams
    | Serve
    | StepDown
    | ProposeIsr
    | ProposeReplicas
    | RequestSuccessor
    | Write
)


class ReplicaIdentity(NamedTuple):
    """Identities that do not change while the process lives."""

    node_id: NodeId
    boot_id: str
    cluster_id: bytes
    members: tuple[NodeId, ...]
    """All nodes as configured, this one included: the replica list, until there is another."""
    has_control_plane: bool = False
    """Beside it runs a control process, whose state may name more nodes than the configuration."""

    @property
    def is_alone(self) -> bool:
        """Whether no other node can have a copy: what is durable here is committed."""
        return len(self.members) == 1 and not self.has_control_plane
