"""One node of a simulated cluster: a real shard and replica, and the shell around them by hand.

The shell's part is what node/cluster/member.py and node/broker/group_commit.py do: streams, writes
that take their time, effects, the control plane, background jobs. All of it may stop at any time:
`kill`, `power_cut`, `freeze`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hourwheel import errors
from hourwheel.types import FIRST_OFFSET, FIRST_SHARD, Epoch, NodeId, Offset
from node.broker.slewed_clock import SlewedClock
from node.delivery.expiry_sweep import ExpirySweep
from node.replica.effects import (
    CloseStreams,
    OpenStreams,
    ProposeIsr,
    ProposeReplicas,
    ReplicaIdentity,
    RequestSuccessor,
    Serve,
    StepDown,
)
from node.replica.mastership import Mastership
from node.replica.replica import Replica
from node.shard.checkpoint import ShardPlace
from node.shard.job_planner import Job, Work
from node.shard.recovery import Opened, open_shard
from node.shard.shard import Shard
from replication.rules.follower import Follower
from replication.rules.master_lease import LeaseGrant
from storage.log.commit_log import LogWrite
from storage.log.epochs import EpochStore
from tests.sim.cluster_damage import Flips, NodeDamage
from tests.sim.cluster_names import NodeNames
from tests.sim.cluster_streams import FollowerSide, MasterSide
from tests.sim.control_link import ControlLink
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.sim.event_loop import SimLoop
from tests.sim.events import MachineClock
from tests.sim.network import Stream
from tests.support.shard_world import IDENTITY

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

STEP_MS = 10.0
ROOM_BYTES = 512 * 1024
_RESTART_MS = 100.0


class ProcessEnded(BaseException):
    """The process has ended in the middle of something."""


class SimNode:
    """See the top of this file."""

    def __init__(self, cluster: "Cluster", name: NodeId, machine: MachineClock) -> None:
        self.cluster, self.name, self.machine = cluster, name, machine
        self.disk = SimulatedDisk()
        self.flips = Flips(self)
        self.life = 0
        self.boots = 0
        self._loop: SimLoop | None = None
        self.damaged_view_count = 0
        """How often it has ended because of a damaged view."""
        self.is_up = False
        self.is_frozen = False
        self.has_left = False
        """It was a member, and has heard that it is none any more."""
        self.write_ms = (0.1, 1.0)
        """Duration of a write, from and to."""
        self._backlog: list[Callable[[], None]] = []
        self.replica: Replica
        self.shard: Shard

    # -- time -------------------------------------------------------------------------------------

    def monotonic_ms(self) -> float:
        return self.machine.monotonic_ms()

    def cluster_ms(self) -> int:
        """The cluster clock as a master knows it; else the own clock."""
        master = self.replica.rules
        offset = master.clock.update(self.monotonic_ms()) if master is not None else None
        return int(self.clock.exact_ms() + (offset or 0.0))

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do `action` in this life; when the node is frozen then, as soon as it goes on."""
        life = self.life

        def fire() -> None:
            if self.life != life or not self.is_up:
                return
            if self.is_frozen:
                self._backlog.append(fire)
                return
            self.guarded(action)

        self.cluster.events.later(delay_ms, fire)

    def guarded(self, action: Callable[[], None]) -> None:
        """Do `action`; the process may end in it."""
        try:
            action()
        except SimulatedCrash:
            self.power_cut()
        except errors.FsyncFailed:
            self.kill()
        except errors.CorruptFile as error:
            self.on_view_damage(error)
        except ProcessEnded:
            pass

    def on_view_damage(self, error: errors.CorruptFile) -> None:
        """Somebody read a damaged view: the process ends, and the next one builds them anew."""
        if self.is_up:
            self.note(f"ends: {error.message}")
            self.damaged_view_count += 1
            assert self.maintenance.distrust(), "its log is whole"
            self.kill()
            self.cluster.events.later(_RESTART_MS, self.start)

    # -- life -------------------------------------------------------------------------------------

    def log_until(self, offset: int) -> bytes:
        """The log up to there, as it would be without flipped bits."""
        return self.flips.seen_through(
            self.shard.log.read(FIRST_OFFSET, offset), 0, self.cluster.checkers.canon.data
        )

    def start(self) -> None:
        """Start the process, if it is not up; the power may fail meanwhile."""
        if self.is_up or self.has_left:
            return
        self.life += 1
        self.boots += 1
        self.is_up, self.is_frozen = True, False
        self.cluster.network.break_streams(self.name)
        try:
            self._open()
        except SimulatedCrash:
            self.power_cut()
            return
        except errors.DiskFull:
            self.make_room()
            self.kill()
            return
        except errors.CorruptFile as error:  # by who compares what was opened
            self.on_view_damage(error)
            return
        self.note(f"starts, log {self.shard.log.end_offset} applied {self.applied_offset}")
        self.control_link.start()
        self.later(0, self._tick)
        self.later(self.cluster.events.random.uniform(50, 400), self._begin_job)

    def _open(self) -> None:
        cluster = self.cluster
        self.write: LogWrite | None = None
        self.job: Job | None = None
        self.incoming: FollowerSide | None = None
        self.outgoing: dict[NodeId, MasterSide] = {}
        self._sides: list[FollowerSide] = []
        self._removals: list[Work] = []
        self.is_save_asked = False
        self.clock = SlewedClock(self.machine)
        self.boot_id = f"{self.name}/{self.boots}"
        place = self.place = ShardPlace(self.disk, "shard-0", IDENTITY)
        opened = self._open_shard()
        self.shard, self.maintenance = opened.shard, opened.maintenance
        self.epochs = opened.epochs
        cluster.check_opened(self, opened)
        self.shard.applier.make_room = self.make_room
        is_blank = self.shard.log.end_offset == 0
        self.control_link = ControlLink(self, is_sound=opened.is_sound and not is_blank)
        self.damage = NodeDamage(self)
        self._loop = self.damage.loop
        self.names: NodeNames | None = None
        self.sweep: ExpirySweep | None = None
        self.seen = EpochStore.open(self.disk, place.under("epoch_seen"), IDENTITY)
        self.seen.keep_room()
        is_new = is_blank and self.boots == 1
        lease_ms = 0.0 if is_new else cluster.rules.lease.lease_ms
        follower = Follower(
            me=self.name,
            boot_id=self.boot_id,
            cluster_id=IDENTITY.cluster_id,
            shard=FIRST_SHARD,
            seen=self.seen,
            grant=LeaseGrant(self.monotonic_ms(), lease_ms),
        )
        identity = ReplicaIdentity(self.name, self.boot_id, IDENTITY.cluster_id, cluster.names)
        self.replica = Replica(
            opened,
            follower,
            identity,
            cluster.rules,
            now_ms=self.cluster_ms,
        )

    def _open_shard(self) -> Opened:
        """Damage that a start reads is another subject (test_corruption.py): it is put right."""
        self.flips.undo_at_start()
        self.flips.undo_views("/epochs")
        try:
            opened = open_shard(self.place, self.cluster.config)
        except errors.CorruptLog:
            self.flips.undo()
            opened = open_shard(self.place, self.cluster.config)
        self.flips.undo(opened.shard.views.applied_offset)
        return opened

    def kill(self) -> None:
        """kill -9: the page cache lives, and peers see their streams reset."""
        if self.is_up:
            self.note("is killed")
            self._end_life()
            self.control_link.on_process_ended()
            self.disk.kill()
            self.cluster.network.break_streams(self.name)

    def leave(self) -> None:
        """It ends for good, as who is no member does."""
        self.note("has left")
        self.has_left = True
        self.kill()

    def power_cut(self) -> None:
        """Power is lost: a random part of what was not synced with it. Peers see nothing."""
        if self.is_up:
            self.note("loses power")
            self._end_life()
        self.disk.crash(self.cluster.events.random)

    def _end_life(self) -> None:
        self.life += 1
        self.is_up = self.is_frozen = False
        self._backlog.clear()
        if self._loop is not None:
            self._loop.end()
        self.cluster.on_death(self)

    def wipe(self) -> None:
        """The disk is replaced by a blank one."""
        self.power_cut()
        self.disk = SimulatedDisk()
        self.flips.forget()
        self.cluster.on_wiped(self)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.note("is stopped")
        self.is_frozen = self.is_up

    def thaw(self) -> None:
        """SIGCONT: everything that came meanwhile happens now."""
        if self.is_frozen:
            self.note("goes on")
            self.is_frozen = False
            backlog, self._backlog = self._backlog, []
            for fire in backlog:
                self.cluster.events.later(0, fire)

    def note(self, what: str) -> None:
        self.cluster.events.note(f"{self.name}: {what}")

    def make_room(self) -> bool:
        """The disk gets more room, some time after it was full."""
        self.disk.capacity_bytes += ROOM_BYTES
        return True

    # -- the rules' shell -------------------------------------------------------------------------

    @property
    def may_act(self) -> bool:
        return self.is_up and self.replica.may_act(self.monotonic_ms())

    @property
    def mastership(self) -> Mastership:
        """Of the master."""
        assert self.replica.mastership is not None
        return self.replica.mastership

    @property
    def is_quiet(self) -> bool:
        """Nothing is being written."""
        return self.write is None and self.job is None

    @property
    def applied_offset(self) -> Offset:
        return self.shard.views.applied_offset

    def _tick(self) -> None:
        self.later(STEP_MS * self.cluster.events.random.uniform(0.5, 1.0), self._tick)
        try:
            self.replica.step(self.monotonic_ms())
        except errors.DiskFull:
            self.make_room()
        if self.may_act:
            self.cluster.dispatch(self)
        self.act()

    def act(self) -> None:
        """Perform what the rules ask for, then write, send and apply."""
        while effects := self.replica.take_effects():
            for effect in effects:
                self._perform(effect)
        self.apply()
        self.begin_write()
        for side in list(self.outgoing.values()):
            side.pump()

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, OpenStreams):
            master = self.replica.rules
            peers = frozenset[NodeId]() if master is None else master.peers
            for name in [one for one in self.outgoing if one not in peers]:
                self.outgoing.pop(name).close()
            for name in sorted(peers - frozenset(self.outgoing)):
                self.dial(name, self.replica.assignment.epoch)
        elif isinstance(effect, CloseStreams):
            for side in self.outgoing.values():
                side.say_last(effect.leases, effect.last_heartbeat)
            self.outgoing.clear()
        elif isinstance(effect, StepDown):
            effect.mastership.close(errors.NotMaster("ask another node"))
            self.names = self.sweep = None
        elif isinstance(effect, ProposeIsr):
            self.control_link.propose_isr(effect.change)
        elif isinstance(effect, ProposeReplicas):
            self.control_link.propose_replicas(effect.change)
        elif isinstance(effect, RequestSuccessor):
            self.note(f"resigns: {effect.why}")
            self.control_link.resigned_epoch = self.replica.assignment.epoch
        elif isinstance(effect, Serve):
            self.damage.attend(effect.mastership)
            self.names = NodeNames(self, effect.mastership)
            receiver = effect.mastership.receiver
            self.sweep = ExpirySweep(self.shard.views, receiver, self.shard.bodies)
            self.note(f"serves epoch {self.replica.assignment.epoch}")

    def dial(self, name: NodeId, epoch: Epoch) -> None:
        """Open a stream, while the epoch lasts."""
        master = self.replica.rules
        if master is not None and master.start.epoch == epoch and name in master.peers:
            self.outgoing[name] = MasterSide(self, name, epoch)

    def accept(self, stream: Stream) -> None:
        """A stream comes in. Who is not registered follows nobody.

        Else a blank disk could fill, and its node die and come again as a member of the set that it
        was in before, with a log that looks whole.
        """
        if not self.control_link.is_registered:
            stream.end()
            return
        side = FollowerSide(self, stream)
        self._sides = [one for one in self._sides if not one.is_over]
        self._sides.append(side)
        stream.server = side

    def follow(self, side: FollowerSide) -> None:
        """`side` is the stream that counts from now on."""
        if self.incoming is not None and self.incoming is not side:
            self.incoming.close(is_followed=False)
        self.incoming = side

    # -- writing and applying ---------------------------------------------------------------------

    def begin_write(self) -> None:
        if self.write is None and not any(side.is_waiting for side in self._sides):
            self.write = self.shard.take_write()
            if self.write is not None:
                if self.replica.rules is not None:
                    self.replica.rules.on_appended(self.shard.log.end_offset)
                duration = self.cluster.events.random.uniform(*self.write_ms)
                self.later(duration / 2, self._run_write)

    def _run_write(self) -> None:
        write = self.write
        assert write is not None
        try:
            self.run_write(write)
        except errors.DiskFull as error:
            self.note("has no room")
            self.replica.on_abandoned(self.shard.abandon_write(write), error)
            self.write = None
            self.later(50, self.begin_write)
            self._on_quiet()
            return
        self.later(self.cluster.events.random.uniform(*self.write_ms) / 2, self._finish_write)

    def run_write(self, write: LogWrite) -> None:
        write.run(durable=True)

    def _finish_write(self) -> None:
        assert self.write is not None
        self.shard.finish_write(self.write)
        self.write = None
        self.replica.on_flushed(self.monotonic_ms())
        if self.incoming is not None:
            self.incoming.acknowledge()
        self._on_quiet()

    def _on_quiet(self) -> None:
        for side in list(self._sides):
            side.work()
        self.act()

    def apply(self) -> None:
        """Apply what is committed."""
        while self.shard.has_committed:
            try:
                applied = self.shard.apply_some(8)
            except errors.DiskFull:
                self.make_room()
                self.kill()
                raise ProcessEnded from None
            self.cluster.on_applied(self)
            self.replica.on_applied(applied, self.monotonic_ms())

    # -- background jobs --------------------------------------------------------------------------

    def _begin_job(self) -> None:
        random = self.cluster.events.random
        self.later(random.uniform(50, 400), self._begin_job)
        if self.job is not None or any(side.is_waiting for side in self._sides):
            return
        for remove in self._removals:
            remove()
        self._removals = []
        try:
            force = self.is_save_asked or random.random() < 0.2
            self.is_save_asked = False
            while not self.maintenance.settle(self.cluster_ms()):
                pass
            self.job = self.maintenance.plan(self.cluster_ms(), force_checkpoint=force)
        except errors.DiskFull:
            self.make_room()
        if self.job is not None:
            self.later(random.uniform(0.1, 30), self._run_job)

    def _run_job(self) -> None:
        assert self.job is not None
        try:
            self.job.run(lambda: None)
        except errors.DiskFull:
            self.maintenance.fail(self.job)
            self.make_room()
        else:
            self._removals += self.maintenance.finish(self.job, self.cluster_ms())
        self.job = None
        self._on_quiet()
