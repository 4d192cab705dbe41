"""The cluster as one of its nodes knows it: what control plane, member and replica say, together.

It asks no other node: any node can answer, also without a majority. Only the master knows how far
its followers are. The same facts say whether clients should be sent to this node.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final, Protocol

from hourwheel.internal.v1.control_link_pb2 import NodeReport
from hourwheel.types import NO_NODE, Epoch, NodeId, Offset, ShardId
from hourwheel.v1 import status_pb2
from hourwheel.v1.admin_pb2 import GetStatusResponse
from node.config.checks import NodeAddresses
from node.metrics.family import ClusterFacts
from node.replica.effects import Role
from node.replica.replica import Replica
from replication.control.client import Leader
from replication.control_state.state import ControlState
from replication.rules.master import Master, Phase, Progress

_AGO_MS_MAX: Final = (1 << 32) - 1
_ROLES: Final = {
    Role.FOLLOWER: status_pb2.SHARD_ROLE_FOLLOWER,
    Role.TAKING_OVER: status_pb2.SHARD_ROLE_TAKING_OVER,
    Role.MASTER: status_pb2.SHARD_ROLE_MASTER,
}
_PHASES: Final = {
    Phase.ABSENT: status_pb2.FOLLOWER_PHASE_ABSENT,
    Phase.GREETED: status_pb2.FOLLOWER_PHASE_GREETED,
    Phase.BEGUN: status_pb2.FOLLOWER_PHASE_BEGUN,
    Phase.REPLICATING: status_pb2.FOLLOWER_PHASE_REPLICATING,
    Phase.SNAPSHOT: status_pb2.FOLLOWER_PHASE_SNAPSHOT,
}


class Control(Protocol):
    """What is read of replication's ControlClient."""

    state: ControlState
    leader: Leader
    reports: dict[NodeId, NodeReport]
    heard_ms: dict[NodeId, float]


class ActingMember(Protocol):
    """What is read of node/cluster/member.py."""

    replica: Replica

    @property
    def act_until_ms(self) -> float:
        """Until when this node may act as master."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it could lead."""
        ...


@dataclass(frozen=True)
class ClusterView:
    """See the top of this file. On the event loop's thread."""

    nodes: Mapping[NodeId, NodeAddresses]
    """All nodes, as configured or registered since."""
    control: Control
    member: ActingMember
    monotonic_ms: Callable[[], float]
    silent_ms: float
    """A node whose control process says nothing for so long does not count as alive."""

    def status(self) -> GetStatusResponse:
        """As it is now: see ClusterPort."""
        monotonic_ms = self.monotonic_ms()
        leader, state = self.control.leader, self.control.state
        return GetStatusResponse(
            nodes=[self._node(node, monotonic_ms) for node in self._members(state)],
            shards=[self._shard(monotonic_ms)],
            control=status_pb2.ControlStatus(
                leader_node_id=leader.node_id,
                term=leader.term,
                has_majority=leader.has_majority,
                revision=state.revision,
                generation=state.membership.generation,
            ),
        )

    def _members(self, state: ControlState) -> list[NodeId]:
        """The cluster's nodes; before it says who they are, as configured."""
        return sorted(state.membership.members or self.nodes)

    def is_serving(self, node: NodeId, epoch: Epoch) -> bool:
        """Whether another node says that it acts as master, in this epoch or a later one."""
        report = self.control.reports.get(node)
        return report is not None and any(
            one.is_serving and one.shard == self._shard_id and one.epoch >= epoch
            for one in report.shards
        )

    # -- nodes ------------------------------------------------------------------------------------

    def _node(self, node: NodeId, monotonic_ms: float) -> status_pb2.NodeStatus:
        status = self._as_registered(node)
        if node == self.member.replica.identity.node_id:
            self._add_own(status)
            return status
        report = self.control.reports.get(node)
        if report is None:
            return status
        ago_ms = max(0.0, monotonic_ms - self.control.heard_ms.get(node, monotonic_ms))
        status.heard_ms_ago, status.is_heard = _whole_ms(ago_ms), True
        status.is_alive = report.broker_alive and ago_ms < self.silent_ms
        shard = next((one for one in report.shards if one.shard == self._shard_id), None)
        if shard is not None:
            status.is_ready = status.is_alive and shard.is_ready
            status.epoch, status.log_end_offset = shard.epoch, shard.log_end
        return status

    def _add_own(self, status: status_pb2.NodeStatus) -> None:
        replica = self.member.replica
        status.boot_id = replica.identity.boot_id
        status.is_alive = status.is_heard = True
        status.is_ready = self.member.is_ready
        status.epoch = replica.assignment.epoch
        status.log_end_offset = replica.shard.log.flushed_end_offset

    def _as_registered(self, node: NodeId) -> status_pb2.NodeStatus:
        registered = self.control.state.nodes.get(node)
        if registered is None:
            known = self.nodes.get(node)
            return status_pb2.NodeStatus(node_id=node, address="" if known is None else known.api)
        return status_pb2.NodeStatus(
            node_id=node,
            address=registered.api_address,
            boot_id=registered.boot_id.hex(),
            version=registered.software_version,
            feature_level=registered.feature_level,
        )

    # -- the shard --------------------------------------------------------------------------------

    @property
    def _shard_id(self) -> ShardId:
        return self.member.replica.shard.shard_id

    def _shard(self, monotonic_ms: float) -> status_pb2.ShardStatus:
        replica = self.member.replica
        assigned = replica.assignment
        known = self.control.state.shards.get(self._shard_id)
        master = assigned.master if known is None else NO_NODE
        if known is not None and known.master is not None:
            master = known.master.node_id
        cursor_ms, cursor_sequence = self._append_cursor(replica)
        return status_pb2.ShardStatus(
            shard=self._shard_id,
            epoch=assigned.epoch if known is None else known.epoch,
            master=master,
            in_sync=sorted(assigned.isr if known is None else known.isr_node_ids),
            version=assigned.version if known is None else known.version,
            role=_ROLES[replica.role],
            may_act=monotonic_ms < self.member.act_until_ms,
            lease_left_ms=_lease_left_ms(replica.rules, monotonic_ms),
            followers=self._followers(replica, monotonic_ms),
            append_cursor_ms=cursor_ms,
            append_cursor_sequence=cursor_sequence,
            clock_offset_ms=self._clock_offset_ms(replica.rules, monotonic_ms),
        )

    @staticmethod
    def _append_cursor(replica: Replica) -> tuple[int, int]:
        if replica.mastership is not None:
            due_ms, sequence = replica.mastership.dispatcher.append_cursor
        elif replica.follower.last_heartbeat is not None:
            heartbeat = replica.follower.last_heartbeat
            due_ms, sequence = heartbeat.append_cursor_ms, heartbeat.append_cursor_sequence
        else:
            return 0, 0
        return (due_ms, sequence) if due_ms >= 0 else (0, 0)

    @staticmethod
    def _clock_offset_ms(master: Master | None, monotonic_ms: float) -> float:
        return 0.0 if master is None else master.clock.update(monotonic_ms) or 0.0

    def _followers(self, replica: Replica, monotonic_ms: float) -> list[status_pb2.FollowerStatus]:
        master = replica.rules
        if master is None:
            return []
        offsets = master.clock.offsets(monotonic_ms)
        end = replica.shard.log.end_offset
        return [
            _follower(one, end, offsets.get(node), monotonic_ms)
            for node, one in sorted(master.followers.items())
            if node in master.peers
        ]


def _follower(
    one: Progress, log_end: Offset, offset_ms: float | None, monotonic_ms: float
) -> status_pb2.FollowerStatus:
    ago_ms = monotonic_ms - one.heard_ms
    return status_pb2.FollowerStatus(
        node_id=one.node,
        phase=_PHASES[one.phase],
        acked_end_offset=one.acked_end,
        lag_bytes=max(0, log_end - one.acked_end),
        applied_offset=one.applied_offset,
        heard_ms_ago=_whole_ms(ago_ms) if isfinite(ago_ms) else None,
        clock_offset_ms=None if offset_ms is None else round(offset_ms, 3),
        is_full=one.is_full,
    )


def _whole_ms(ago_ms: float) -> int:
    """At most what its field can hold, some 50 days: a node may have been away for longer."""
    return min(max(0, int(ago_ms)), _AGO_MS_MAX)


def _lease_left_ms(master: Master | None, monotonic_ms: float) -> int | None:
    """None: no master, or a lease without end."""
    if master is None:
        return None
    left_ms = master.lease.until_ms() - monotonic_ms
    if left_ms == float("inf"):
        return None
    return int(left_ms) if left_ms > 0 else 0


def why_not_ready(facts: ClusterFacts, me: NodeId, silent_ms: float) -> str:
    """The reason against sending clients to this node, as it knows itself; empty where none is.

    It is ready when it is in sync, and serves or follows the node that does. An orchestrator sends
    clients to nodes that are ready, and restarts the next node when the one before is ready again:
    so a node is ready only when another one may go.

    Args:
        facts: what the node knows of its cluster.
        me: its id.
        silent_ms: a master that sends no heartbeat for so long is not followed.
    """
    shard = facts.shard
    if not facts.status.control.has_majority:
        return "its control process does not hear from a majority"
    if not shard.master:
        return "there is no master"
    if me not in shard.in_sync:
        return "it is not in sync"
    if shard.master == me:
        return "" if shard.may_act else "it is the master, and may not act"
    if not 0 <= facts.heartbeat_age_ms <= silent_ms:
        return f"it does not hear from the master, {shard.master}"
    return ""
