"""One node's part in one shard: its log and views, and the rules of whoever it is. Pure but files.

    assignment (control plane) --> follower or taking over
    taking over   promise over, nothing being written -> EPOCH_START -> followers agree ->
                  all inherited is committed and applied -> lease and clock -> master
    master        its lease or its clock gone: it says nothing until they are back
                  another epoch named, its disk full, its lease gone for long: follower

The shell (node/cluster/member.py) moves the messages, runs the writes and performs the effects.
Times called `mono_ms` are of the node's monotonic clock.
"""

from collections.abc import Callable

from hourwheel import errors
from hourwheel.errors import NotFollowed
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    FollowerAck,
    FollowerHello,
    LeaseTable,
    LogPart,
    MasterHello,
    Refused,
    SyncBeat,
)
from node.replica.effects import (
    AskIsr,
    Assignment,
    CloseStreams,
    Effect,
    OpenStreams,
    Resign,
    Retire,
    Role,
    Serve,
    Who,
    Write,
)
from node.shard.shard import Shard
from node.shard.views import FEATURE_LEVEL
from node.telemetry.epoch_stats import EpochStats
from replication.rules.follower import Follower, LogFacts
from replication.rules.isr import InSyncReplicas
from replication.rules.master import EpochStart, Master, ReplicationConfig
from storage.log.epoch_file import EpochFile
from storage.log.flushed_mark import FlushedMark
from storage.log.recent_batches import read_piece

_PART_BYTES = 1 << 20
_UNACKED_BYTES_MAX = 16 << 20
_LEASE_LOST = "no majority has answered: another epoch may have begun"


class Replica:
    """See the top of this file.

    Invariants: `master` is set exactly while `role` is not FOLLOWER; `shard.committed_offset` never
    falls; what is applied is below it.
    """

    def __init__(
        self,
        shard: Shard,
        epochs: EpochFile,
        watermark: FlushedMark,
        follower: Follower,
        who: Who,
        config: ReplicationConfig,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Begin as a follower of nobody. `now_ms` is the clock that batches are stamped with."""
        self.shard, self.follower, self.who, self.config = shard, follower, who, config
        self.role = Role.FOLLOWER
        self.master: Master | None = None
        self.assignment = Assignment(0, "", frozenset(), 0)
        self._epochs, self._watermark, self._now_ms = epochs, watermark, now_ms
        self._predecessor: LeaseTable | None = None
        """What the last master left, if it ended in order."""
        self._is_to_reign = False
        self._is_resigned = False
        self._effects: list[Effect] = []
        self.stats = EpochStats()
        self.level_max = FEATURE_LEVEL
        """The highest feature level of the log that all nodes know."""

    def take_effects(self) -> list[Effect]:
        """What is to be done, in this order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def facts(self) -> LogFacts:
        """Where the log stands, as far as it is durable."""
        log, applied = self.shard.log, self.shard.views.applied_offset
        return LogFacts(log.start_offset, log.flushed_end_offset, applied)

    @property
    def is_to_reign(self) -> bool:
        """Named master, and waiting for a promise to end or a write to be done."""
        return self._is_to_reign

    def last_epoch_before(self, epoch: int) -> int:
        """The one that the log had before `epoch`; 0 for none."""
        return max((int(one.epoch) for one in self._epochs.entries if one.epoch < epoch), default=0)

    @property
    def last_epoch(self) -> int:
        """Of the last batch in the log; 0 for none."""
        latest = self._epochs.latest
        return 0 if latest is None else int(latest.epoch)

    # -- who is master ----------------------------------------------------------------------------

    def on_assignment(self, assignment: Assignment, mono_ms: float) -> None:
        """The control plane's word, maybe an old one."""
        master = self.master
        is_newer = (assignment.epoch, assignment.version) >= (
            self.assignment.epoch,
            self.assignment.version,
        )
        if master is not None and assignment.epoch == master.start.epoch:
            if is_newer:
                self.assignment = assignment
            if master.on_isr(assignment.isr, assignment.version, mono_ms):
                self._commit(master.high_watermark)
            return
        is_news = self.follower.on_epoch(assignment.epoch, assignment.master)
        if is_newer:
            self.assignment = assignment
        if is_news:
            self.retire("another epoch has begun")
            self._is_to_reign = assignment.master == self.who.me

    def retire(self, why: str) -> None:
        """Not the master any more, nor to become it in this epoch."""
        self._is_to_reign = False
        if self.master is None:
            return
        epoch, self._predecessor = self.master.start.epoch, None
        self.master.lease.release()
        leases = self.shard.receiver.table(epoch)
        last_beat = SyncBeat(epoch=epoch, releases_lease=True)
        self.master, self.role = None, Role.FOLLOWER
        lost = errors.Timeout("the node ceased to be master: the outcome is unknown")
        answers = tuple(self.shard.end_reign(lost))
        self._effects += [Retire(answers, why), CloseStreams(leases, last_beat)]

    def _begin_reign(self, mono_ms: float) -> None:
        """Raises DiskFull where the epoch cannot be noted; nothing has changed then."""
        epoch, shard, who = self.assignment.epoch, self.shard, self.who
        start = shard.log.end_offset
        self._epochs.truncate(start)  # what was noted as it came, and then was not written
        self._epochs.append(epoch, start, log_start_offset=shard.log.start_offset)
        self._is_to_reign = self._is_resigned = False
        self.follower.end()
        former_epoch = self.last_epoch_before(epoch)
        shard.begin_reign(epoch)
        if self._predecessor is not None and self._predecessor.epoch == former_epoch:
            shard.receiver.restore(self._predecessor, self._now_ms())
        self._predecessor = None
        shard.begin_epoch(who.me, who.boot_id, self._now_ms(), level_max=self.level_max)
        reign = EpochStart(
            epoch,
            who.me,
            who.boot_id,
            who.cluster_id,
            shard.shard_id,
            who.members,
            start_offset=start,
            start_end=shard.log.end_offset,
            high_watermark=shard.committed_offset or 0,
        )
        isr = InSyncReplicas(
            epoch, self.assignment.isr, self.assignment.version, self.config.min_in_sync
        )
        self.master, self.role = Master(reign, isr, self.config, mono_ms), Role.TAKING_OVER
        self.master.on_appended(shard.log.end_offset)
        self._effects += [OpenStreams(), Write()]

    # -- time -------------------------------------------------------------------------------------

    def step(self, mono_ms: float) -> None:
        """Do what time and the state ask for. To be called often, at least every 50 ms."""
        if self._is_to_reign and not self.shard.has_appended:
            left_ms = self.follower.grant_left_ms(self.assignment.epoch, self.who.me, mono_ms)
            if left_ms <= 0:
                self._begin_reign(mono_ms)
        master = self.master
        if self.role is Role.MASTER and master is not None and master.is_lease_lost(mono_ms):
            self.retire(_LEASE_LOST)
            self._effects.append(Resign(_LEASE_LOST))
            return
        if master is None:
            return
        change = master.plan_isr(mono_ms)
        if change is not None:
            self._effects.append(AskIsr(change))
        why = master.find_reason_to_step_down(mono_ms)
        if why is not None and not self._is_resigned:
            self._is_resigned = True
            self._effects.append(Resign(why))
        self._serve_if_ready(mono_ms)

    def _serve_if_ready(self, mono_ms: float) -> None:
        master = self.master
        if master is None or self.role is not Role.TAKING_OVER or not master.is_begun:
            return
        if self.shard.views.applied_offset < master.start.start_end:
            return
        if master.lease.is_valid(mono_ms) and master.clock.update(mono_ms) is not None:
            self.role = Role.MASTER
            self._effects.append(Serve())

    def may_act(self, mono_ms: float) -> bool:
        """Whether to dispatch and to answer as master, at this instant."""
        master = self.master
        return (
            master is not None
            and self.role is Role.MASTER
            and master.lease.is_valid(mono_ms)
            and master.clock.update(mono_ms) is not None
        )

    # -- the log ----------------------------------------------------------------------------------

    def on_flushed(self, mono_ms: float) -> None:
        """A write has become durable."""
        if self.master is not None and self.master.on_flushed(
            self.shard.log.flushed_end_offset, mono_ms
        ):
            self._commit(self.master.high_watermark)

    def on_applied(self, mono_ms: float) -> None:
        """Records were applied."""
        self._serve_if_ready(mono_ms)

    def on_full_disk(self) -> None:
        """A write found no room, and was dropped.

        Followers may have what was dropped, and its offsets must not be used again in this epoch:
        the next master's first words to each node settle what counts.
        """
        if self.master is not None:
            self.retire("the disk is full")
            self._effects.append(Resign("the disk is full"))
        else:
            self.follower.end()

    def on_stalled(self) -> None:
        """Nothing more can be applied, for want of room: somebody else should be master."""
        if self.master is not None:
            self.retire("the disk is full")
            self._effects.append(Resign("the disk is full"))

    def _commit(self, offset: int) -> None:
        shard = self.shard
        if offset > (shard.committed_offset or 0):
            shard.committed_offset = offset
            self._watermark.store(offset)  # type: ignore[arg-type]
            self._effects.append(Write())

    # -- to followers -----------------------------------------------------------------------------

    def greet(self, node: str) -> MasterHello:
        """The first message to a follower. Only while there is a reign."""
        return self._reigning.on_connected(node)

    @property
    def _reigning(self) -> Master:
        if self.master is None:
            raise NotFollowed("the reign is over")
        return self.master

    def answer_hello(self, node: str, hello: FollowerHello) -> BeginFrom:
        """The second."""
        return self._reigning.on_hello(
            node, hello, self._epochs.entries, self.shard.log.start_offset
        )

    def find_part(self, node: str) -> LogPart | None:
        """More of the log for a follower, if it may be sent any; reads files for who is behind."""
        master = self._reigning
        progress = master.followers[node]
        start, log = progress.sent_end, self.shard.log
        is_open = progress.phase.may_send and start - progress.acked_end <= _UNACKED_BYTES_MAX
        if not is_open or start >= log.end_offset:
            return None
        if start < log.start_offset:
            raise NotFollowed("what is next for a follower is deleted: it needs a snapshot")
        piece = self.shard.recent.find(start, _PART_BYTES) if self.shard.recent else None
        if piece is None:
            piece = read_piece(log, start, _PART_BYTES)
        if piece is None:
            return None
        master.on_sent(node, piece.end_offset)
        return LogPart(
            epoch=master.start.epoch,
            offset=piece.offset,
            batch_epoch=piece.epoch,
            batches=piece.raw,
            high_watermark=master.high_watermark,
        )

    def make_beat(self, mono_ms: float, clock_ms: int) -> SyncBeat:
        """The 50 ms sync, as of now."""
        master, views = self._reigning, self.shard.views
        cursor = self.shard.dispatcher.append_cursor
        return SyncBeat(
            epoch=master.start.epoch,
            tick=views.cursor.tick,
            local_index=views.cursor.local_index,
            append_cursor_ms=cursor.due_ms,
            append_cursor_sequence=cursor.sequence,
            log_end_offset=self.shard.log.end_offset,
            high_watermark=master.high_watermark,
            clock_ms=clock_ms,
            sent_us=int(mono_ms * 1_000),
            lease_ms=int(self.config.lease.lease_ms),
        )

    def on_ack(self, node: str, ack: FollowerAck, mono_ms: float, own_ms: float) -> None:
        """A follower's acknowledgement."""
        master = self.master
        if master is None or ack.epoch != master.start.epoch:
            return
        self._compare(node, ack)
        if master.on_ack(node, ack, mono_ms, own_ms):
            self._commit(master.high_watermark)
        self._serve_if_ready(mono_ms)

    def _compare(self, node: str, ack: FollowerAck) -> None:
        """Both have applied the log up to there: have both released the same?"""
        mine = self.shard.views.find_check(ack.applied_offset)
        if mine is not None and mine != (ack.released_count, ack.released_mix):
            self._effects.append(Resign(f"node {node} has released something else"))

    def on_refused(self, refused: Refused) -> None:
        """A node follows somebody else: if its epoch is higher, this reign is over."""
        if self.master is not None and refused.epoch > self.master.start.epoch:
            self.retire(f"epoch {refused.epoch} has begun")

    # -- from the master --------------------------------------------------------------------------

    def on_hello(self, hello: MasterHello, mono_ms: float) -> FollowerHello | Refused:
        """A master introduces itself. Nothing is being written."""
        answer = self.follower.on_hello(hello, self.facts, self._epochs, mono_ms)
        if isinstance(answer, FollowerHello) and hello.node_id != self.who.me:
            self.retire(f"epoch {hello.epoch} has begun")
        if isinstance(answer, FollowerHello):
            # What is appended and not written is not in the answer: it must not be written, and
            # even applied, before the master has said where to cut.
            self.shard.truncate(self.shard.log.flushed_end_offset)
        return answer

    def begin_following(self, begin: BeginFrom) -> None:
        """Cut the log where it parts from the master's. Nothing is being written or checkpointed.

        Raises:
            NotFollowed: it was another stream's.
            FsyncFailed, DiskFailed: stop the process. DiskFull: the stream is to be ended.
        """
        self.follower.on_begin(begin)
        self.shard.truncate(begin.offset)
        self._epochs.truncate(begin.offset)
        log_start = self.shard.log.start_offset
        known = {one for one, _ in self._epochs.entries}
        for mark in begin.epochs:
            if mark.epoch not in known and (
                self._epochs.latest is None or mark.epoch > self._epochs.latest.epoch
            ):
                self._epochs.append(mark.epoch, mark.start_offset, log_start_offset=log_start)

    def on_log(self, part: LogPart) -> None:
        """More of the master's log.

        Raises:
            NotFollowed: it is not the next part, or not of the master that is followed.
            InvalidBatch: it is damaged.
        """
        shard = self.shard
        self.follower.check_log(part, shard.log.end_offset)
        latest = self._epochs.latest
        if latest is None or part.batch_epoch > latest.epoch:
            self._epochs.append(
                part.batch_epoch, part.offset, log_start_offset=shard.log.start_offset
            )
        shard.append_copies(part.batches)
        self._commit(min(self.follower.high_watermark, shard.log.end_offset))
        self._effects.append(Write())

    def on_heartbeat(self, beat: SyncBeat, mono_ms: float) -> None:
        """The 50 ms sync. Raises NotFollowed."""
        self.follower.on_heartbeat(beat, mono_ms)
        self._commit(min(self.follower.high_watermark, self.shard.log.end_offset))

    def on_leases(self, table: LeaseTable) -> None:
        """What a master leaves that ends its reign; also where a later epoch is known already."""
        self._predecessor = table

    def acknowledge(self, mono_ms: float, clock_ms: float) -> FollowerAck:
        """How far this node is."""
        released = self.shard.views.released
        return self.follower.acknowledge(self.facts, released, mono_ms, clock_ms)
