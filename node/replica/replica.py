"""One node's replica of one shard: log, views, and the rules of its role. Pure, but for files.

    assignment (control plane) --> follower, or elected
    elected       the former master's lease over, nothing being written --> a `Mastership`
    taking over   EPOCH_START -> followers agree -> all inherited is committed and applied
                  -> lease and clock -> it serves
    serving       without lease or clock it answers nothing until they are back
                  another epoch begun, its disk full, its lease gone for long: it steps down

A node alone is a replica list of one: its own majority, for each lease and for each commit.
The shell (node/cluster/member.py) moves the messages, runs the writes and performs the effects.
Times called `monotonic_ms` are of the node's monotonic clock.
"""

from collections.abc import Callable

from hourwheel import errors
from hourwheel.errors import NotFollowed, invariant
from hourwheel.formats.record_batch import RecordBatch
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
from hourwheel.types import NO_NODE, Epoch, NodeId, Offset
from node.replica.effects import (
    Assignment,
    CloseStreams,
    Effect,
    OpenStreams,
    ProposeIsr,
    ProposeReplicas,
    ReplicaIdentity,
    RequestSuccessor,
    Role,
    Serve,
    StepDown,
    Write,
)
from node.replica.mastership import Mastership, opening_records
from node.shard.recovery import Opened
from node.shard.shard import Applied
from node.shard.views import FEATURE_LEVEL
from node.telemetry.epoch_stats import EpochStats
from replication.rules.follower import Follower, LogFacts
from replication.rules.isr import InSyncReplicas
from replication.rules.master import EpochStart, Master, ReplicationConfig
from storage.log.recent_batches import read_piece

_PART_BYTES = 1 << 20
_UNACKED_BYTES_MAX = 16 << 20
_KEEP_ROOM_MS = 1_000.0
"""So long after an epoch was noted there is room made for the next: while a takeover lasts, clients
wait for each sync."""
_LEASE_LOST = "no majority has answered: another epoch may have begun"
_FULL_DISK = "the disk is full"
_NOT_BEGUN = "elected, and an own write does not end: the epoch cannot begin"


class Replica:
    """See the top of this file.

    Invariants: there is a `mastership` exactly while the role is not FOLLOWER;
    `shard.committed_offset` never falls; what is applied is below it.
    """

    def __init__(
        self,
        opened: Opened,
        follower: Follower,
        identity: ReplicaIdentity,
        config: ReplicationConfig,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Begin as a follower without a master. `now_ms` is the clock that stamps batches."""
        self.shard, self.follower = opened.shard, follower
        self.identity, self.config = identity, config
        self.mastership: Mastership | None = None
        self.is_sound = opened.is_sound
        """The log had at the start all that it is known to have had: else it must not lead."""
        self.assignment = Assignment(Epoch(0), NO_NODE, frozenset(), 0)
        self._epochs, self._watermark = opened.epochs, opened.watermark
        self._dispatch, self._now_ms = opened.config.dispatch, now_ms
        self._predecessor: LeaseTable | None = None
        """What the last master left, if it ended in order."""
        self._is_elected = False
        self._elected_ms = 0.0
        """When it was last elected, by the monotonic clock."""
        self._has_requested_successor = False
        """In this epoch."""
        self._lacks_room_since_ms: float | None = None
        self._effects: list[Effect] = []
        self.stats = EpochStats()
        self.level_max = FEATURE_LEVEL
        """The highest feature level of the log that all nodes know."""

    @property
    def role(self) -> Role:
        """What this node is to the shard."""
        if self.mastership is None:
            return Role.FOLLOWER
        return Role.MASTER if self.mastership.is_serving else Role.TAKING_OVER

    @property
    def rules(self) -> Master | None:
        """The rules of replication in its mastership; None: it is not the master."""
        return None if self.mastership is None else self.mastership.rules

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The replica list, as far as this node knows."""
        return self.assignment.replicas or self.identity.members

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
    def is_elected(self) -> bool:
        """Elected, and waiting for a former lease to end or a write to be done."""
        return self._is_elected

    def last_epoch_before(self, epoch: Epoch) -> Epoch:
        """The one that the log had before `epoch`; 0 for none."""
        before = [one.epoch for one in self._epochs.entries if one.epoch < epoch]
        return max(before, default=Epoch(0))

    @property
    def last_epoch(self) -> Epoch:
        """Of the last batch in the log; 0 for none."""
        latest = self._epochs.latest
        return Epoch(0) if latest is None else latest.epoch

    # -- who is master ----------------------------------------------------------------------------

    def on_assignment(self, assignment: Assignment, monotonic_ms: float) -> None:
        """An assignment of the control plane, maybe an old one."""
        mastership = self.mastership
        is_newer = (assignment.epoch, assignment.version) >= (
            self.assignment.epoch,
            self.assignment.version,
        )
        if mastership is not None and assignment.epoch == mastership.epoch:
            if is_newer:
                self.assignment = assignment
            rules = mastership.rules
            rules.isr.min_in_sync = max(rules.isr.min_in_sync, self._min_in_sync)
            if rules.on_isr(assignment.isr, assignment.version, monotonic_ms):
                self._commit(rules.high_watermark)
            members, targets = self.members, self.assignment.targets or self.members
            if rules.on_replicas(members, targets, self.assignment.version, monotonic_ms):
                self._effects.append(OpenStreams())
            return
        is_news = self.follower.on_epoch(assignment.epoch, assignment.master)
        if is_newer:
            self.assignment = assignment
        if is_news:
            self.step_down("another epoch has begun")
            self._is_elected = assignment.master == self.identity.node_id
            self._elected_ms, self._has_requested_successor = monotonic_ms, False

    @property
    def _min_in_sync(self) -> int:
        """The control plane's word; before it has one, the configuration's."""
        return self.assignment.min_in_sync or self.config.min_in_sync

    def on_ended(self, boot_ids: frozenset[str]) -> None:
        """The control plane says that these incarnations' processes have ended."""
        invariant(
            self.identity.boot_id not in boot_ids,
            "a process that runs has not ended",
            boot_id=self.identity.boot_id,
        )
        self.follower.note_ended(boot_ids)

    def _take_over(self, monotonic_ms: float) -> None:
        """Become the master, step by step; goes on each time that something has happened.

        Raises DiskFull where the epoch cannot be noted; nothing has changed then.
        """
        # 1. The epoch is on disk: `on_assignment` noted it before anything was done in it.
        if self._is_elected:
            # 2. The log's tail is whole: a start has cut what was torn, and nothing is being
            #    written now.
            if self.shard.has_appended:
                return
            # 3. The lease that this node granted to the former master is over, or the process that
            #    had it.
            if (
                self.follower.grant_left_ms(
                    self.assignment.epoch, self.identity.node_id, monotonic_ms
                )
                > 0
            ):
                return
            # 4. The epoch begins where the log ends, and EPOCH_START is its first record.
            self._begin_epoch(monotonic_ms)
        mastership = self.mastership
        if mastership is None or mastership.is_serving:
            return
        # 5. Followers have cut what is not the master's and acknowledged in this epoch: the high
        #    watermark is behind EPOCH_START.
        if not mastership.rules.is_begun:
            return
        self.stats.on_committed(monotonic_ms)
        # 6. The views have everything up to it.
        if self.shard.views.applied_offset < mastership.rules.start.start_end:
            return
        # 7. A majority has granted the lease, and a majority's clocks are known.
        lease, clock = mastership.rules.lease, mastership.rules.clock
        if not lease.is_valid(monotonic_ms) or clock.update(monotonic_ms) is None:
            return
        # 8. Only now is anything dispatched, leased or answered.
        mastership.is_serving = True
        self._effects.append(Serve(mastership))

    def _begin_epoch(self, monotonic_ms: float) -> None:
        """Raises DiskFull where it cannot be noted; nothing has changed then."""
        epoch, shard, identity = self.assignment.epoch, self.shard, self.identity
        self.stats.on_begun(monotonic_ms)
        start = shard.log.end_offset
        self._epochs.truncate(start)  # what was noted as it came, and then was not written
        self._epochs.append(epoch, start, log_start_offset=shard.log.start_offset)
        self._is_elected = self._has_requested_successor = False
        self.follower.end()
        records = opening_records(
            self.shard.views, identity.node_id, identity.boot_id, self.level_max
        )
        start_of_epoch = EpochStart(
            epoch,
            identity.node_id,
            identity.boot_id,
            identity.cluster_id,
            shard.shard_id,
            self.members,
            start_offset=start,
            start_end=Offset(start + sum(one.header.total_bytes for one in records)),
            high_watermark=shard.committed_offset,
            targets=self.assignment.targets or self.members,
        )
        isr = InSyncReplicas(epoch, self.assignment.isr, self.assignment.version, self._min_in_sync)
        rules = Master(start_of_epoch, isr, self.config, monotonic_ms)
        mastership = self.mastership = Mastership(shard, rules, self._dispatch)
        if self._predecessor is not None and self._predecessor.epoch == self.last_epoch_before(
            epoch
        ):
            mastership.receiver.restore(self._predecessor, self._now_ms())
        self._predecessor = None
        self._effects.append(OpenStreams())
        self._open_epoch(mastership, records)

    def _open_epoch(self, mastership: Mastership, records: list[RecordBatch]) -> None:
        """A majority's clocks come with the acknowledgements of these, so the time is unknown.

        This node's own clock may be a year ahead, and the log would be kept for a year longer: so
        it counts only where no other is, or no record before these says that it is later.
        """
        store_ms = 0 if self.identity.is_alone else self.shard.newest_store_ms
        mastership.open_epoch(records, store_ms or self._now_ms())
        mastership.rules.on_appended(self.shard.log.end_offset)
        self._effects.append(Write())

    def step_down(self, why: str) -> None:
        """Not the master any more, nor to become it in this epoch."""
        self._is_elected = False
        if self.mastership is None:
            return
        leases = self.mastership.receiver.table()
        mastership, self.mastership = self.mastership, None
        self._predecessor = None
        mastership.release()
        last_heartbeat = SyncBeat(epoch=mastership.epoch, releases_lease=True)
        self._effects += [StepDown(mastership, why), CloseStreams(leases, last_heartbeat)]

    def _step_down_for(self, why: str) -> None:
        """The same, and request a successor: no other node knows of it yet."""
        self.step_down(why)
        self._effects.append(RequestSuccessor(why))

    # -- time -------------------------------------------------------------------------------------

    def step(self, monotonic_ms: float) -> None:
        """Do what time and the state ask for. To be called often, at least every 50 ms.

        Raises:
            DiskFull: a new epoch cannot be noted.
            FsyncFailed, DiskFailed: stop the process.
        """
        self._keep_room(monotonic_ms)
        mastership = self.mastership
        if mastership is not None and not self.identity.is_alone:
            rules = mastership.rules
            if mastership.is_serving and rules.is_lease_lost(monotonic_ms):
                self._step_down_for(_LEASE_LOST)
                return
            change = rules.plan_isr(monotonic_ms)
            if change is not None:
                self._effects.append(ProposeIsr(change))
            replicas = rules.plan_replicas(monotonic_ms)
            if replicas is not None:
                self._effects.append(ProposeReplicas(replicas))
            why = rules.find_reason_to_step_down(monotonic_ms)
            if why is not None and not self._has_requested_successor:
                self._has_requested_successor = True
                self._effects.append(RequestSuccessor(why))
        self._take_over(monotonic_ms)
        if self._is_stuck(monotonic_ms):
            self._has_requested_successor = True
            self._effects.append(RequestSuccessor(_NOT_BEGUN))

    def _keep_room(self, monotonic_ms: float) -> None:
        """See that the next epochs can be noted on a full disk, while no call waits here."""
        lacking = [one for one in (self._epochs, self.follower) if one.lacks_room]
        if not lacking:
            self._lacks_room_since_ms = None
        elif self._lacks_room_since_ms is None:
            self._lacks_room_since_ms = monotonic_ms
        elif monotonic_ms - self._lacks_room_since_ms >= _KEEP_ROOM_MS:
            for one in lacking:
                one.keep_room()

    def _is_stuck(self, monotonic_ms: float) -> bool:
        """Whether it was elected so long ago that not even the former lease is what it waits for.

        A write that hangs, then; while it does, no rule of a mastership can give up the epoch.
        """
        patience_ms = self.config.lease.lease_ms + self.config.stalled_ms_max
        return (
            self._is_elected
            and not self.identity.is_alone
            and not self._has_requested_successor
            and monotonic_ms - self._elected_ms >= patience_ms
        )

    def may_act(self, monotonic_ms: float) -> bool:
        """Whether to dispatch and to answer as master, at this instant."""
        return self.mastership is not None and self.mastership.may_act(monotonic_ms)

    # -- the log ----------------------------------------------------------------------------------

    def on_flushed(self, monotonic_ms: float) -> None:
        """A write has become durable."""
        rules = self.rules
        if rules is not None and rules.on_flushed(self.shard.log.flushed_end_offset, monotonic_ms):
            self._commit(rules.high_watermark)

    def on_applied(self, applied: list[Applied], monotonic_ms: float) -> None:
        """Records were applied."""
        if self.mastership is not None:
            self.mastership.on_applied(applied)
            self._take_over(monotonic_ms)

    def on_abandoned(self, dropped: list[RecordBatch], error: errors.DiskFull) -> None:
        """A write found no room, and these were dropped."""
        mastership = self.mastership
        if mastership is None:
            self.follower.end()
        elif self.identity.is_alone:
            mastership.on_abandoned(dropped, error)
            if self.shard.log.end_offset <= mastership.rules.start.start_offset:
                self._open_epoch(mastership, dropped)  # until there is room
        else:
            # Followers may have what was dropped, and its offsets must not be used again in this
            # epoch: the next master settles with each node, first of all, what counts.
            unknown = errors.Timeout("the disk is full: the outcome is unknown")
            mastership.on_abandoned(dropped, unknown)
            self._step_down_for(_FULL_DISK)

    def on_stalled(self) -> None:
        """Nothing more can be applied, for want of room: another node should be master."""
        if self.mastership is not None and not self.identity.is_alone:
            self._step_down_for(_FULL_DISK)

    def _commit(self, offset: Offset) -> None:
        shard = self.shard
        if offset > shard.committed_offset:
            shard.committed_offset = offset
            self._watermark.store(Offset(offset))
            self._effects.append(Write())

    # -- to followers -----------------------------------------------------------------------------

    def on_connected(self, node: NodeId) -> MasterHello:
        """The first message to a follower. Raises NotFollowed where this node is not the master."""
        hello = self._own.rules.on_connected(node)
        hello.ended_boot_ids.extend(sorted(self.follower.ended_boot_ids))
        return hello

    @property
    def _own(self) -> Mastership:
        if self.mastership is None:
            raise NotFollowed("the mastership is over")
        return self.mastership

    def answer_hello(self, node: NodeId, hello: FollowerHello) -> BeginFrom:
        """The second."""
        return self._own.rules.on_hello(
            node, hello, self._epochs.entries, self.shard.log.start_offset
        )

    def find_part(self, node: NodeId) -> LogPart | None:
        """More of the log for a follower that may get any; reads files where it is far behind."""
        master = self._own.rules
        progress = master.followers[node]
        start, log = progress.sent_end, self.shard.log
        is_open = progress.phase.may_send and start - progress.acked_end <= _UNACKED_BYTES_MAX
        if not is_open or start >= log.end_offset:
            return None
        if start < log.start_offset:
            raise NotFollowed("what is next for a follower is deleted: it needs a snapshot")
        piece = self.shard.recent.find(start, _PART_BYTES) or read_piece(log, start, _PART_BYTES)
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

    def make_heartbeat(self, monotonic_ms: float, clock_ms: int) -> SyncBeat:
        """The 50 ms sync, as of now."""
        mastership, views = self._own, self.shard.views
        master, cursor = mastership.rules, mastership.dispatcher.append_cursor
        return SyncBeat(
            epoch=master.start.epoch,
            tick=views.cursor.tick,
            local_index=views.cursor.local_index,
            append_cursor_ms=cursor.due_ms,
            append_cursor_sequence=cursor.sequence,
            log_end_offset=self.shard.log.end_offset,
            high_watermark=master.high_watermark,
            clock_ms=clock_ms,
            sent_us=int(monotonic_ms * 1_000),
            lease_ms=int(self.config.lease.lease_ms),
        )

    def on_ack(self, node: NodeId, ack: FollowerAck, monotonic_ms: float, own_ms: float) -> None:
        """A follower's acknowledgement."""
        master = self.rules
        if master is None or ack.epoch != master.start.epoch:
            return
        self._compare(node, ack)
        if master.on_ack(node, ack, monotonic_ms, own_ms):
            self._commit(master.high_watermark)
        self._take_over(monotonic_ms)

    def _compare(self, node: NodeId, ack: FollowerAck) -> None:
        """Both have applied the log up to there: have both released the same?"""
        mine = self.shard.views.find_check(Offset(ack.applied_offset))
        if mine is not None and mine != (ack.released_count, ack.released_mix):
            why = f"node {node} has released something else"
            self._effects.append(RequestSuccessor(why))

    def on_refused(self, refused: Refused) -> None:
        """A node follows another master: if its epoch is higher, this one is over."""
        if self.rules is not None and refused.epoch > self.rules.start.epoch:
            self.step_down(f"epoch {refused.epoch} has begun")

    # -- from the master --------------------------------------------------------------------------

    def on_hello(self, hello: MasterHello, monotonic_ms: float) -> FollowerHello | Refused:
        """A master introduces itself. Nothing is being written."""
        answer = self.follower.on_hello(hello, self.facts, self._epochs, monotonic_ms)
        if isinstance(answer, FollowerHello) and hello.node_id != self.identity.node_id:
            self.step_down(f"epoch {hello.epoch} has begun")
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
        offset = Offset(begin.offset)
        self.shard.truncate(offset)
        self._epochs.truncate(offset)
        log_start = self.shard.log.start_offset
        known = {one for one, _ in self._epochs.entries}
        for mark in begin.epochs:
            if mark.epoch not in known and (
                self._epochs.latest is None or mark.epoch > self._epochs.latest.epoch
            ):
                self._epochs.append(
                    Epoch(mark.epoch), Offset(mark.start_offset), log_start_offset=log_start
                )

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
            epoch, start = Epoch(part.batch_epoch), Offset(part.offset)
            self._epochs.append(epoch, start, log_start_offset=shard.log.start_offset)
        shard.append_copies(part.batches)
        self._commit(min(self.follower.high_watermark, shard.log.end_offset))
        self._effects.append(Write())

    def on_heartbeat(self, heartbeat: SyncBeat, monotonic_ms: float) -> None:
        """The 50 ms sync. Raises NotFollowed."""
        self.follower.on_heartbeat(heartbeat, monotonic_ms)
        self._commit(min(self.follower.high_watermark, self.shard.log.end_offset))

    def on_leases(self, table: LeaseTable) -> None:
        """What a master leaves that steps down; also where a later epoch is known already."""
        self._predecessor = table

    def acknowledge(self, monotonic_ms: float, clock_ms: float) -> FollowerAck:
        """How far this node is."""
        released = self.shard.views.released
        return self.follower.acknowledge(self.facts, released, monotonic_ms, clock_ms)
