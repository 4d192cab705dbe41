"""The master's rules: whom to send what, what is committed, who is in sync, when to give up. Pure.

    log grows ------> on_appended --+
    log is durable -> on_flushed  --+--> high_watermark --> apply, answer
    acknowledgement > on_ack  ------+--> lease, cluster clock
    time -----------> plan_isr, find_reason_to_resign

Only acknowledgements given in this epoch count, and inherited records are committed only together
with this epoch's own EPOCH_START (Raft 5.4.2): until that is on all in-sync replicas the high
watermark stays what it was known to be.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hourwheel.errors import invariant
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    EpochMark,
    FollowerAck,
    FollowerHello,
    MasterHello,
)
from replication.rules.cluster_clock import ClockConfig, ClusterClock
from replication.rules.epoch_history import find_parting
from replication.rules.isr import InSyncReplicas, IsrChange
from replication.rules.master_lease import HeldLease, LeaseConfig
from replication.rules.progress import Phase, Progress
from storage.log.epoch_file import EpochEntry

PROTOCOL = 1


@dataclass(frozen=True)
class ReplicationConfig:
    """The rules' numbers, in milliseconds where they are times."""

    min_in_sync: int = 2
    absent_ms: float = 300.0
    """A follower without a stream by which it follows for so long is no longer in sync."""
    lag_ms: float = 1_500.0
    """Neither is one that has not had all of the log of so long ago."""
    resign_ms: float = 3_000.0
    """A master that commits nothing for so long, although there is something, gives up. So does one
    that has no lease for so long: nobody can then give it anything to commit."""
    retire_ms: float = 1_000.0
    """A master that has served and has had no lease for so long ends its reign by itself: another
    one may have begun long ago, and whoever waits for an answer is to ask there."""
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    clock: ClockConfig = field(default_factory=ClockConfig)


@dataclass(frozen=True)
class Reign:
    """What a master begins with."""

    epoch: int
    me: str
    boot_id: str
    cluster_id: bytes
    shard: int
    members: tuple[str, ...]
    """All nodes, in sync or not."""
    start_offset: int
    """Of its EPOCH_START."""
    start_end: int
    """Behind it."""
    high_watermark: int
    """As it was known before."""


class Master:
    """One reign of one shard.

    Invariants: `high_watermark` never falls; it is at most the master's own durable end.
    """

    def __init__(
        self, reign: Reign, isr: InSyncReplicas, config: ReplicationConfig, mono_ms: float
    ) -> None:
        """Begin; `isr` is the set that the control plane named with the epoch."""
        self.reign = reign
        self.isr = isr
        self._config = config
        self.followers = {
            node: Progress(node, absent_since_ms=mono_ms, caught_up_ms=mono_ms)
            for node in reign.members
            if node != reign.me
        }
        self.lease = HeldLease(config.lease, reign.members, reign.me)
        self.clock = ClusterClock(config.clock, reign.members, reign.me)
        self.high_watermark = reign.high_watermark
        self._log_end = self._flushed_end = reign.start_offset
        self._begun_ms = mono_ms
        self._moved_ms = mono_ms
        """When the high watermark last moved, or had no need to."""

    @property
    def is_begun(self) -> bool:
        """Everything inherited is committed: what the master says from now on is true."""
        return self.high_watermark >= self.reign.start_end

    # -- the own log ------------------------------------------------------------------------------

    def on_appended(self, log_end: int) -> None:
        """The log ends there now, durable or not; after a full disk also further back."""
        self._log_end = log_end

    def on_flushed(self, flushed_end: int, mono_ms: float) -> bool:
        """The log is durable up to there. Returns whether the high watermark has moved."""
        self._flushed_end = flushed_end
        self._log_end = max(self._log_end, flushed_end)
        return self._advance(mono_ms)

    def _advance(self, mono_ms: float) -> bool:
        ends = {node: one.acked_end for node, one in self.followers.items()}
        ends[self.reign.me] = self._flushed_end
        end = self.isr.high_watermark(ends)
        has_moved = end >= self.reign.start_end and end > self.high_watermark
        if has_moved:
            self.high_watermark = end
        if has_moved or self.high_watermark >= self._log_end:
            self._moved_ms = mono_ms
        invariant(
            self.high_watermark <= max(self._flushed_end, self.reign.high_watermark),
            "committed means durable here, too",
        )
        return has_moved

    # -- followers --------------------------------------------------------------------------------

    def greet(self, node: str) -> MasterHello:
        """A stream to `node` was opened: what to say first."""
        self.followers[node].connect()
        reign = self.reign
        return MasterHello(
            protocol=PROTOCOL,
            cluster_id=reign.cluster_id,
            shard=reign.shard,
            epoch=reign.epoch,
            node_id=reign.me,
            boot_id=reign.boot_id,
            follower_id=node,
        )

    def on_hello(
        self, node: str, hello: FollowerHello, epochs: Sequence[EpochEntry], log_start: int
    ) -> BeginFrom:
        """A follower says where its log stands: where to go on from.

        Args:
            node: who.
            hello: what it said.
            epochs: this log's, oldest first.
            log_start: where this log begins.
        """
        parting = find_parting(
            epochs,
            (log_start, self._log_end),
            [EpochEntry(*_pair(one)) for one in hello.epochs],  # type: ignore[arg-type]
            (hello.log_start_offset, hello.log_end_offset),
        )
        progress = self.followers[node]
        if parting is None or parting < hello.applied_offset:
            progress.lose(progress.absent_since_ms, Phase.SNAPSHOT)
            return BeginFrom(epoch=self.reign.epoch, take_snapshot=True)
        progress.begin(parting, hello.boot_id)
        return BeginFrom(
            epoch=self.reign.epoch,
            offset=parting,
            epochs=[
                EpochMark(epoch=epoch, start_offset=start)
                for epoch, start in epochs
                if start < parting
            ],
        )

    def on_sent(self, node: str, end: int) -> None:
        """The log up to `end` was handed to the stream."""
        self.followers[node].sent_end = end

    def on_ack(self, node: str, ack: FollowerAck, mono_ms: float, own_ms: float) -> bool:
        """A follower says how far it is. Returns whether the high watermark has moved.

        Args:
            node: who.
            ack: of this epoch.
            mono_ms: now, monotonic.
            own_ms: now, by this node's own clock.
        """
        progress = self.followers[node]
        if progress.phase not in {Phase.BEGUN, Phase.REPLICATING}:
            return False
        progress.acknowledge(ack.flushed_end_offset, self._log_end, mono_ms)
        progress.applied_offset, progress.is_full = ack.applied_offset, ack.is_full
        if ack.echo_us:
            sent_ms = ack.echo_us / 1_000
            self.lease.on_echo(node, sent_ms)
            waited_ms = ack.echo_age_us / 1_000
            self.clock.on_answer(node, sent_ms + waited_ms, mono_ms, own_ms, ack.clock_ms)
        return self._advance(mono_ms)

    def on_lost(self, node: str, mono_ms: float) -> None:
        """The stream to `node` is over."""
        progress = self.followers[node]
        keeps = progress.phase is Phase.SNAPSHOT
        progress.lose(mono_ms, Phase.SNAPSHOT if keeps else Phase.ABSENT)

    def on_unreachable(self, node: str) -> None:
        """Nobody listens where `node` should be: it need not be waited for."""
        progress = self.followers[node]
        if progress.phase is Phase.ABSENT:
            progress.absent_since_ms = float("-inf")

    # -- the in-sync set --------------------------------------------------------------------------

    def plan_isr(self, mono_ms: float) -> IsrChange | None:
        """A change to ask the control plane for, if one is needed."""
        members, followers = self.isr.members, self.followers
        lost = {node for node in members if self._is_lost(node, mono_ms)}
        caught_up = {
            node
            for node, one in followers.items()
            if node not in members
            and one.phase is Phase.REPLICATING
            and one.acked_end >= max(self.reign.start_end, self.high_watermark)
            and mono_ms - one.caught_up_ms <= self._config.lag_ms
        }
        low = {node for node in (members - lost) | caught_up if self._is_low(node)}
        return self.isr.plan(frozenset(lost), frozenset(caught_up - low), frozenset(low))

    def _is_low(self, node: str) -> bool:
        return node in self.followers and self.followers[node].is_full

    @property
    def low_members(self) -> frozenset[str]:
        """Other nodes whose disks are low, and without which too few would be in sync."""
        low = frozenset(node for node in self.isr.members if self._is_low(node))
        return low if len(self.isr.members - low) < self._config.min_in_sync else frozenset()

    def _is_lost(self, node: str, mono_ms: float) -> bool:
        progress = self.followers.get(node)
        if progress is None:
            return False
        # Also one that was greeted and says nothing: its process may be stopped, not its kernel.
        is_away = not progress.phase.may_send
        if is_away and mono_ms - progress.absent_since_ms >= self._config.absent_ms:
            return True
        # Also one that is away: its streams may begin and break again and again.
        return mono_ms - progress.caught_up_ms >= self._config.lag_ms

    def on_isr(self, members: Collection[str], version: int, mono_ms: float) -> bool:
        """The control plane's set. Returns whether the high watermark has moved."""
        self.isr.on_state(frozenset(members), version)
        return self._advance(mono_ms)

    # -- giving up --------------------------------------------------------------------------------

    def find_reason_to_resign(self, mono_ms: float) -> str | None:
        """Why somebody else should be master, or None."""
        stuck_ms = mono_ms - self._moved_ms
        if self.high_watermark < self._log_end and stuck_ms >= self._config.resign_ms:
            return "nothing was committed for too long"
        if mono_ms - max(self.lease.until_ms(), self._begun_ms) >= self._config.resign_ms:
            return "no majority has answered for too long"
        return None

    def is_forsaken(self, mono_ms: float) -> bool:
        """Whether the lease has been over for so long that it is no use to wait for it."""
        since_ms = max(self.lease.until_ms(), self._begun_ms)
        return mono_ms - since_ms >= self._config.retire_ms

    def check(self) -> None:
        """Assert the invariants."""
        for one in self.followers.values():
            invariant(one.acked_end <= one.sent_end, "acknowledged more than was sent", node=one)
        invariant(
            self.high_watermark <= max(self._flushed_end, self.reign.high_watermark),
            "committed means durable here, too",
        )


def _pair(mark: EpochMark) -> tuple[int, int]:
    return mark.epoch, mark.start_offset
