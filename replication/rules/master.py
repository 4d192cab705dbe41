"""The master's rules: what to send, what is committed, who is in sync, when to step down. Pure.

    log grows ------> on_appended --+
    log is durable -> on_flushed  --+--> high_watermark --> apply, answer
    acknowledgement > on_ack  ------+--> lease, cluster clock
    time -----------> plan_isr, find_reason_to_step_down

Only acknowledgements given in this epoch count, and inherited records are committed only together
with this epoch's own EPOCH_START (Raft 5.4.2): until that is on all in-sync replicas the high
watermark stays what it was known to be.

Of each follower it knows a `Phase`, which says what may be sent, and a `Progress`, which says how
far the follower is and whether it keeps up (the shape is that of etcd's raft `tracker.Progress`):

    ABSENT ----connected----> GREETED ----its hello----> BEGUN ----its ack----> REPLICATING
       ^                         |                          |                       |
       +-------lost, refused-----+--------------------------+-----------------------+
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hourwheel.errors import invariant
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    EpochMark,
    FollowerAck,
    FollowerHello,
    MasterHello,
)
from hourwheel.types import FIRST_OFFSET, Epoch, NodeId, Offset, ShardId
from replication.rules.cluster_clock import ClockConfig, ClusterClock
from replication.rules.isr import InSyncReplicas, IsrChange, ReplicaList, ReplicasChange
from replication.rules.master_lease import LeaseConfig, MastershipLease
from storage.log.epochs import EpochEntry, find_divergence

PROTOCOL = 1


@dataclass(frozen=True)
class ReplicationConfig:
    """The rules' numbers, in milliseconds where they are times."""

    min_in_sync: int = 2
    absent_ms: float = 300.0
    """A follower without a stream by which it follows for so long is no longer in sync."""
    lag_ms: float = 1_500.0
    """Neither is one that has not had all of the log of so long ago."""
    stalled_ms_max: float = 3_000.0
    """A master that commits nothing for so long, although there is something, asks for a successor.
    So does one that has no lease for so long, for it could not commit anything, and one that does
    not know the cluster clock for so long, for it may not release anything."""
    lease_lost_ms_max: float = 1_000.0
    """A master that has served and has had no lease for so long steps down by itself: another one
    may have taken over long ago, and callers that wait for an answer should ask that one."""
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    clock: ClockConfig = field(default_factory=ClockConfig)


class Phase(Enum):
    """What the master may send."""

    ABSENT = "absent"
    """Nothing: there is no stream."""
    GREETED = "greeted"
    """Nothing more: it has not said where its log stands."""
    BEGUN = "begun"
    """The log from where the two part; its ends do not count yet."""
    REPLICATING = "replicating"
    """It follows in this epoch: its acknowledgements count."""
    SNAPSHOT = "snapshot"
    """Nothing: it fetches a snapshot, and comes back with another stream."""

    @property
    def may_send(self) -> bool:
        """Whether the log is sent."""
        return self in {Phase.BEGUN, Phase.REPLICATING}


@dataclass(slots=True)
class Progress:
    """One follower.

    Invariants: `acked_end <= sent_end`, and both count only in the current stream; `acked_end` is 0
    unless REPLICATING.
    """

    node: NodeId
    phase: Phase = Phase.ABSENT
    boot_id: str = ""
    sent_end: Offset = FIRST_OFFSET
    """Behind the last batch that was handed to the stream."""
    acked_end: Offset = FIRST_OFFSET
    """Its log is durable up to here."""
    applied_offset: Offset = FIRST_OFFSET
    is_full: bool = False
    """Its disk is low or full: it should not have to take messages."""
    absent_since_ms: float = 0.0
    """Since when there is no stream by which it follows; only while there is none. A stream whose
    hello is not answered yet does not count."""
    heard_ms: float = float("-inf")
    """When its last acknowledgement came."""
    caught_up_ms: float = 0.0
    """The latest instant of which it is known that it had then all that the master had."""
    _mark_ms: float = 0.0
    _mark_end: Offset = FIRST_OFFSET

    def connect(self) -> None:
        """A stream was opened; the master's hello is on its way."""
        self.phase = Phase.GREETED
        self.sent_end = self.acked_end = FIRST_OFFSET

    def begin(self, offset: Offset, boot_id: str) -> None:
        """Its log is the master's below `offset`."""
        self.phase = Phase.BEGUN
        self.sent_end, self.boot_id = offset, boot_id

    def lose(self, monotonic_ms: float, phase: Phase = Phase.ABSENT) -> None:
        """The stream is over. One that never got beyond its hello was none: it ends no absence.

        (Else a node that refuses each hello at once would always have been away for a moment only,
        and the in-sync set would wait for it as long as it goes on.)
        """
        if self.phase.may_send:
            self.absent_since_ms = monotonic_ms
        self.phase = phase
        self.sent_end = self.acked_end = FIRST_OFFSET

    def acknowledge(self, flushed_end: Offset, log_end: Offset, monotonic_ms: float) -> None:
        """It says how far it is. What it says counts no further than what it was sent.

        Args:
            flushed_end: its durable end.
            log_end: of the master's log, now.
            monotonic_ms: now.
        """
        if self.phase is Phase.BEGUN:
            self.phase = Phase.REPLICATING
            self._mark_ms, self._mark_end = monotonic_ms, log_end
        self.acked_end = max(self.acked_end, min(flushed_end, self.sent_end))
        self.heard_ms = monotonic_ms
        if self.acked_end >= log_end:
            self.caught_up_ms = monotonic_ms
        elif self.acked_end >= self._mark_end:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        else:
            return
        self._mark_ms, self._mark_end = monotonic_ms, log_end


@dataclass(frozen=True)
class EpochStart:
    """What a master starts its epoch with."""

    epoch: Epoch
    me: NodeId
    boot_id: str
    cluster_id: bytes
    shard: ShardId
    members: tuple[NodeId, ...]
    """The replica list: in sync or not."""
    start_offset: Offset
    """Of its EPOCH_START."""
    start_end: Offset
    """Behind it."""
    high_watermark: Offset
    """As it was known before."""
    targets: tuple[NodeId, ...] | None = None
    """Who should have a replica; None: the list is never changed."""


class Master:
    """The rules of one epoch of one shard, on its master.

    Invariants: `high_watermark` never falls; it is at most the master's own durable end.
    """

    def __init__(
        self, start: EpochStart, isr: InSyncReplicas, config: ReplicationConfig, monotonic_ms: float
    ) -> None:
        """Begin; `isr` is the set that the control plane named with the epoch."""
        self.start = start
        self.isr = isr
        self._config = config
        self.replicas = ReplicaList(start.epoch, start.members, isr.version, monotonic_ms)
        self._targets = frozenset(start.members if start.targets is None else start.targets)
        self.followers = {
            node: Progress(node, absent_since_ms=monotonic_ms, caught_up_ms=monotonic_ms)
            for node in sorted(self.peers)
        }
        self.lease = MastershipLease(config.lease, start.members, start.me)
        self.clock = ClusterClock(config.clock, start.members, start.me)
        self.high_watermark = start.high_watermark
        self._log_end = self._flushed_end = start.start_offset
        self._begun_ms = monotonic_ms
        self._moved_ms = monotonic_ms
        """When the high watermark last moved, or had no need to."""
        self._clock_known_ms = monotonic_ms
        """When the cluster clock was last seen to be known; at first, when the epoch began."""

    @property
    def peers(self) -> frozenset[NodeId]:
        """Other nodes that have a replica or should have one."""
        lists = frozenset[NodeId]().union(*self.replicas.in_force)
        return (lists | self._targets) - {self.start.me}

    @property
    def is_begun(self) -> bool:
        """Everything inherited is committed: what the master says from now on is true."""
        return self.high_watermark >= self.start.start_end

    # -- the own log ------------------------------------------------------------------------------

    def on_appended(self, log_end: Offset) -> None:
        """The log ends there now, durable or not; after a full disk also further back."""
        self._log_end = log_end

    def on_flushed(self, flushed_end: Offset, monotonic_ms: float) -> bool:
        """The log is durable up to there. Returns whether the high watermark has moved."""
        self._flushed_end = flushed_end
        self._log_end = max(self._log_end, flushed_end)
        return self._advance(monotonic_ms)

    def _advance(self, monotonic_ms: float) -> bool:
        ends = {node: one.acked_end for node, one in self.followers.items()}
        ends[self.start.me] = self._flushed_end
        end = self.isr.high_watermark(ends)
        has_moved = end >= self.start.start_end and end > self.high_watermark
        if has_moved:
            self.high_watermark = end
        if has_moved or self.high_watermark >= self._log_end:
            self._moved_ms = monotonic_ms
        invariant(
            self.high_watermark <= max(self._flushed_end, self.start.high_watermark),
            "committed means durable here, too",
        )
        return has_moved

    # -- followers --------------------------------------------------------------------------------

    def on_connected(self, node: NodeId) -> MasterHello:
        """A stream to `node` was opened: the hello to send on it."""
        self.followers[node].connect()
        start = self.start
        return MasterHello(
            protocol=PROTOCOL,
            cluster_id=start.cluster_id,
            shard=start.shard,
            epoch=start.epoch,
            node_id=start.me,
            boot_id=start.boot_id,
            follower_id=node,
        )

    def on_hello(
        self, node: NodeId, hello: FollowerHello, epochs: Sequence[EpochEntry], log_start: Offset
    ) -> BeginFrom:
        """A follower says where its log stands: where to go on from.

        Args:
            node: who.
            hello: what it said.
            epochs: this log's, oldest first.
            log_start: where this log begins.
        """
        divergence = find_divergence(
            epochs,
            (log_start, self._log_end),
            [EpochEntry(Epoch(one.epoch), Offset(one.start_offset)) for one in hello.epochs],
            (Offset(hello.log_start_offset), Offset(hello.log_end_offset)),
        )
        progress = self.followers[node]
        if divergence is None or divergence < hello.applied_offset:
            progress.lose(progress.absent_since_ms, Phase.SNAPSHOT)
            return BeginFrom(epoch=self.start.epoch, take_snapshot=True)
        progress.begin(divergence, hello.boot_id)
        return BeginFrom(
            epoch=self.start.epoch,
            offset=divergence,
            epochs=[
                EpochMark(epoch=epoch, start_offset=start)
                for epoch, start in epochs
                if start < divergence
            ],
        )

    def on_sent(self, node: NodeId, end: Offset) -> None:
        """The log up to `end` was handed to the stream."""
        self.followers[node].sent_end = end

    def on_ack(self, node: NodeId, ack: FollowerAck, monotonic_ms: float, own_ms: float) -> bool:
        """A follower says how far it is. Returns whether the high watermark has moved.

        Args:
            node: who.
            ack: of this epoch.
            monotonic_ms: now, monotonic.
            own_ms: now, by this node's own clock.
        """
        progress = self.followers[node]
        if progress.phase not in {Phase.BEGUN, Phase.REPLICATING}:
            return False
        progress.acknowledge(Offset(ack.flushed_end_offset), self._log_end, monotonic_ms)
        progress.applied_offset, progress.is_full = Offset(ack.applied_offset), ack.is_full
        if ack.echo_us:
            sent_ms = ack.echo_us / 1_000
            self.lease.on_echo(node, sent_ms)
            waited_ms = ack.echo_age_us / 1_000
            self.clock.on_answer(node, sent_ms + waited_ms, monotonic_ms, own_ms, ack.clock_ms)
        return self._advance(monotonic_ms)

    def on_lost(self, node: NodeId, monotonic_ms: float) -> None:
        """The stream to `node` is over."""
        progress = self.followers[node]
        keeps = progress.phase is Phase.SNAPSHOT
        progress.lose(monotonic_ms, Phase.SNAPSHOT if keeps else Phase.ABSENT)

    def on_unreachable(self, node: NodeId) -> None:
        """No process listens at the address of `node`: the in-sync set need not wait for it."""
        progress = self.followers[node]
        if progress.phase is Phase.ABSENT:
            progress.absent_since_ms = float("-inf")

    # -- the in-sync set --------------------------------------------------------------------------

    def plan_isr(self, monotonic_ms: float) -> IsrChange | None:
        """A change to ask the control plane for, if one is needed."""
        members, followers = self.isr.members, self.followers
        lost = {node for node in members if self._is_lost(node, monotonic_ms)}
        caught_up = {
            node
            for node in followers
            if node not in members
            and node in self.replicas.members
            and node in self._targets
            and self._has_caught_up(node, monotonic_ms)
        }
        low = {node for node in (members - lost) | caught_up if self._is_low(node)}
        return self.isr.plan(frozenset(lost), frozenset(caught_up - low), frozenset(low))

    def _has_caught_up(self, node: NodeId, monotonic_ms: float) -> bool:
        one = self.followers[node]
        return (
            one.phase is Phase.REPLICATING
            and one.acked_end >= max(self.start.start_end, self.high_watermark)
            and monotonic_ms - one.caught_up_ms <= self._config.lag_ms
        )

    def _is_low(self, node: NodeId) -> bool:
        return node in self.followers and self.followers[node].is_full

    @property
    def low_members(self) -> frozenset[NodeId]:
        """Other nodes whose disks are low, and without which too few would be in sync."""
        low = frozenset(node for node in self.isr.members if self._is_low(node))
        return low if len(self.isr.members - low) < self.isr.min_in_sync else frozenset()

    def _is_lost(self, node: NodeId, monotonic_ms: float) -> bool:
        progress = self.followers.get(node)
        if progress is None:
            return False
        # Also one that is connected and says nothing: its process may be stopped, not its kernel.
        is_away = not progress.phase.may_send
        if is_away and monotonic_ms - progress.absent_since_ms >= self._config.absent_ms:
            return True
        # Also one that is away: its streams may begin and break again and again.
        return monotonic_ms - progress.caught_up_ms >= self._config.lag_ms

    def on_isr(self, members: Collection[NodeId], version: int, monotonic_ms: float) -> bool:
        """The control plane's set. Returns whether the high watermark has moved."""
        self.isr.on_state(frozenset(members), version)
        return self._advance(monotonic_ms)

    # -- the replica list -------------------------------------------------------------------------

    def plan_replicas(self, monotonic_ms: float) -> ReplicasChange | None:
        """A change of the replica list to ask the control plane for, if one is needed."""
        if not self.is_begun or not self.lease.is_valid(monotonic_ms):
            self.replicas.on_lease_lost(monotonic_ms)
            return None
        outside = self._targets - self.replicas.members - {self.start.me}
        change = self.replicas.plan(
            self._targets | {self.start.me},
            self.isr.union,
            frozenset(one for one in outside if self._has_caught_up(one, monotonic_ms)),
            monotonic_ms,
            self._config.lease.lease_ms,
        )
        self.lease.set_lists(self.replicas.in_force)
        return change

    def on_replicas(
        self,
        members: Collection[NodeId],
        targets: Collection[NodeId],
        version: int,
        monotonic_ms: float,
    ) -> bool:
        """The list, and who should have a replica. Returns whether others than before follow."""
        before = self.peers
        self.replicas.on_state(members, version, monotonic_ms)
        self._targets = frozenset(targets)
        self.lease.set_lists(self.replicas.in_force)
        self.clock.set_members(self.replicas.members)
        for node in self.peers - frozenset(self.followers):
            self.followers[node] = Progress(
                node, absent_since_ms=monotonic_ms, caught_up_ms=monotonic_ms
            )
        return self.peers != before

    def on_replicas_refused(self, change: ReplicasChange) -> None:
        """The control plane said for certain that the change did not happen, nor will."""
        self.replicas.on_refused(change)
        self.lease.set_lists(self.replicas.in_force)

    # -- stepping down ---------------------------------------------------------------------------

    def find_reason_to_step_down(self, monotonic_ms: float) -> str | None:
        """Why another node should be master, or None. To be asked often, as `Replica.step` is."""
        stuck_ms = monotonic_ms - self._moved_ms
        if self.high_watermark < self._log_end and stuck_ms >= self._config.stalled_ms_max:
            return "nothing was committed for too long"
        if monotonic_ms - max(self.lease.until_ms(), self._begun_ms) >= self._config.stalled_ms_max:
            return "no majority has answered for too long"
        # Round trips may be short enough for the lease, and too long to tell clocks by.
        if self.clock.update(monotonic_ms) is not None:
            self._clock_known_ms = monotonic_ms
        elif monotonic_ms - self._clock_known_ms >= self._config.stalled_ms_max:
            return "the cluster clock has not been known for too long"
        return None

    def is_lease_lost(self, monotonic_ms: float) -> bool:
        """Whether the lease ended so long ago that the master must step down."""
        since_ms = max(self.lease.until_ms(), self._begun_ms)
        return monotonic_ms - since_ms >= self._config.lease_lost_ms_max

    def check(self) -> None:
        """Assert the invariants."""
        for one in self.followers.values():
            invariant(one.acked_end <= one.sent_end, "acknowledged more than was sent", node=one)
        invariant(
            self.high_watermark <= max(self._flushed_end, self.start.high_watermark),
            "committed means durable here, too",
        )
