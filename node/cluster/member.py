"""A node as a member of a cluster: moves messages, keeps time, performs what the rules ask for.

    control plane --on_state--> Replica.on_assignment --+
    streams ------on_response, ReplicationServer -------+--> effects --> streams, engine, control
    50 ms tick ---step, beats, report ------------------+

It is also the gate before the engine: nothing is done or told in the master's name without the
lease, which is looked at when something is asked and again when it is answered.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import ReplicateResponse
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.cluster.cluster_time import ClusterTime
from node.cluster.follower_stream import FollowerStream
from node.cluster.isr_updater import ask_isr
from node.cluster.redirect import not_master
from node.cluster.replication_server import ReplicationServer
from node.cluster.shard_report import report_of
from node.cluster.snapshot_receiver import SnapshotTaking
from node.cluster.snapshot_sender import SnapshotGiver
from node.contracts.broker import Failure
from node.contracts.control import ControlPort
from node.repair.peer_reads import PeerReads
from node.repair.peers import PeerCalls, Peers
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
    Write,
)
from node.replica.replica import Replica
from node.telemetry import logs
from replication.control_state.state import ControlState

_EAGER_S: Final = 0.005
_GOODBYE_S: Final = 1.0
_BEATS_A_REPORT: Final = 4
_NEVER: Final = float("-inf")
_log = logs.get(__name__)


class ClusterMember:
    """See the top of this file. All on the event loop's thread."""

    def __init__(
        self,
        replica: Replica,
        cluster_time: ClusterTime,
        control: ControlPort,
        *,
        mono_ms: Callable[[], float],
        dial: Callable[[str], Any],
        sync_interval_ms: int,
        failure: Failure,
        is_sound: bool,
        guard: DiskGuard,
        is_registered: Callable[[], bool] = lambda: True,
        giver: SnapshotGiver | None = None,
        taking: SnapshotTaking | None = None,
        calls: PeerCalls | None = None,
    ) -> None:
        """`dial` begins a Replicate call to a node.

        `is_sound`: the log may lead as it is; `guard`: of the disk's room. `giver` and `taking`: of
        snapshots, for nodes that are too far behind. `calls`: to other nodes, for what this one has
        lost.
        """
        self._calls = calls
        self._giver, self._taking = giver, taking
        self._guard, self._is_registered = guard, is_registered
        self.replica = replica
        self._time, self._control, self._mono_ms = cluster_time, control, mono_ms
        self._dial, self._sync_s = dial, sync_interval_ms / 1_000
        self._failure, self._is_sound = failure, is_sound
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        self.server: ReplicationServer | None = None
        self._streams: dict[str, FollowerStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next_beat_s = 0.0
        self._beats = 0
        self._act_until_ms = _NEVER
        self._commit: tuple[int, float] | None = None
        self._has_begun = False
        """The cluster clock was set for this reign."""
        self._state: ControlState | None = None
        self._is_stale = False
        """The rules have not heard of `_state` yet."""
        self._has_no_room = False
        """Not even for noting its epoch."""
        self._resigns = False
        self._hand_over_to = ""
        self._is_performing = False
        self._is_closed = False
        self.on_log_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Told where the log could not be read for a follower: to have it repaired."""
        self.on_view_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Told of a view that is damaged on the disk: to have somebody else lead."""
        if giver is not None:
            giver.on_damage = self._tell_damage
        self.is_damaged = False
        """Its log is, somewhere: it should not lead."""

    def start(self, engine: Engine) -> None:
        """Take part. The engine writes and applies already."""
        self._engine = engine
        identity = engine.place.identity
        if self._calls is not None:
            engine.damage.files.peers = Peers(self._calls, identity, self._others)
        self.server = ReplicationServer(
            self.replica,
            engine.writer,
            self._time,
            mono_ms=self._mono_ms,
            perform=self.perform,
            failure=self._failure,
            is_full=lambda: self._guard.is_low,
            is_registered=self._is_registered,
            wait_for_checkpoint=engine.background.wait_for_checkpoint,
            on_snapshot_needed=self._on_snapshot_needed,
            giver=self._giver,
            reads=PeerReads(engine.shard, identity),
        )
        engine.writer.replication = self
        self._tick()

    def _others(self) -> list[str]:
        """The other nodes that live: first the master, then those in sync."""
        who, assignment = self.replica.who, self.replica.assignment
        others = [one for one in who.members if one != who.me and not self._control.is_dead(one)]
        return sorted(others, key=lambda one: (one != assignment.master, one not in assignment.isr))

    async def close(self) -> None:
        """Take part no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.replica.retire("the node stops")
        self.perform()
        if self._taking is not None:
            await self._taking.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_GOODBYE_S)
            for task in late:
                task.cancel()

    # -- the gate ---------------------------------------------------------------------------------

    def may_act(self) -> bool:
        """Whether this node is the master, now."""
        return self._mono_ms() < self._act_until_ms

    def check(self) -> None:
        """Raises NotMaster."""
        if not self.may_act():
            raise self._redirect()

    def confirm(self) -> None:
        """Raises Timeout."""
        if not self.may_act():
            raise errors.Timeout("the node ceased to be master: the outcome is unknown")

    def _redirect(self) -> errors.NotMaster:
        return not_master(self._state, self.replica.shard.shard_id, self.replica.who.me)

    def _refresh(self) -> None:
        """How long this node may act, as of what it has heard by now."""
        master, mono_ms = self.replica.master, self._mono_ms()
        was_acting, self._act_until_ms = self.may_act(), _NEVER
        if master is None or self.replica.role is not Role.MASTER:
            return
        offset_ms = master.clock.update(mono_ms)
        if offset_ms is not None:
            if self._has_begun:
                self._time.set_offset(offset_ms)
            else:
                self._time.begin(offset_ms)
                self._has_begun = True
            self._act_until_ms = master.lease.until_ms()
        if self._engine is not None and not was_acting and self.may_act():
            self._engine.begin_serving()

    # -- time -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_closed or self._failure.found.done():
            return
        with self._failure.catching():
            self._step()
        now_s = self._loop.time()
        is_eager = self.replica.role is Role.TAKING_OVER or self.replica.is_to_reign
        wait_s = _EAGER_S if is_eager else max(0.0, self._next_beat_s - now_s)
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _step(self) -> None:
        master = self.replica.master
        if master is not None:
            for node in master.followers:
                if self._control.is_dead(node):
                    master.on_unreachable(node)
        self._guard.note_others(frozenset() if master is None else master.low_members)
        try:
            if self._is_stale and self._state is not None:
                self._take(self._state)
            self.replica.step(self._mono_ms())
        except errors.DiskFull:  # its epoch cannot even be noted: somebody else should be master
            self._has_no_room = True
        else:
            self._has_no_room = False
        now_s = self._loop.time()
        if now_s >= self._next_beat_s:
            self._next_beat_s = max(self._next_beat_s + self._sync_s, now_s)
            for stream in self._streams.values():
                stream.beat()
            self._beats += 1
            if self._beats % _BEATS_A_REPORT == 0:
                self._report()
        self._refresh()
        self.perform()

    def _report(self) -> None:
        report = report_of(self.replica, self._guard, resigns=self._resigns)
        if self._has_no_room and self._state is not None:
            report.epoch = self._state.shards[report.shard].epoch
            report.is_resigning = True
        report.is_ready, report.hand_over_to = self.is_ready, self._hand_over_to
        report.is_serving = self.may_act()
        self._control.report([report])

    @property
    def is_ready(self) -> bool:
        """Whether this node could lead, were it elected."""
        has_log = self._is_sound or self.replica.follower.has_followed
        has_room = not self._guard.is_exhausted and not self.replica.shard.is_stalled
        return has_log and has_room and not self.is_damaged and not self._is_closed

    # -- from the control plane -------------------------------------------------------------------

    def on_state(self, state: ControlState) -> None:
        """The control plane's state has changed."""
        self._state, self._is_stale = state, True
        with self._failure.catching():
            self._step()

    def _take(self, state: ControlState) -> None:
        """Raises DiskFull where a new epoch cannot be noted; it is to be tried again."""
        shard = state.shards.get(self.replica.shard.shard_id)
        if shard is None or shard.master is None or self._is_closed:
            return
        who = self.replica.who
        master = shard.master.node_id
        if master == who.me and shard.master.boot_id.hex() != who.boot_id:
            return  # an epoch of this node's former life: another one will begin
        isr = frozenset(one.node_id for one in shard.isr)
        self.replica.level_max = state.feature_level
        if shard.epoch > self.replica.assignment.epoch:
            self._resigns, self._hand_over_to = False, ""
        self.replica.on_assignment(
            Assignment(shard.epoch, master, isr, shard.version), self._mono_ms()
        )
        self._is_stale = False
        if self.replica.is_to_reign:
            self.replica.stats.on_elected(self._mono_ms())

    def hand_over(self, to: str) -> None:
        """Ask for another master: `to`, or whoever is best."""
        self._resigns, self._hand_over_to = not to, to
        self._report()

    def stay(self) -> None:
        """Take back the wish of `hand_over`: nobody came."""
        self._resigns, self._hand_over_to = False, ""
        self._report()

    @property
    def act_until_ms(self) -> float:
        """Until when this node may act as master, if it hears of nobody more; monotonic."""
        return self._act_until_ms

    # -- from the writer --------------------------------------------------------------------------

    def on_appended(self) -> None:
        """See node.broker.writer.Replication."""
        master, end = self.replica.master, self.replica.shard.log.end_offset
        if master is None:
            return
        master.on_appended(end)
        if self._commit is None:
            self._commit = (end, self._mono_ms())
        for stream in self._streams.values():
            stream.wake()

    def on_flushed(self) -> None:
        """See node.broker.writer.Replication."""
        self.replica.on_flushed(self._mono_ms())
        if self.server is not None and self.replica.master is None:
            self.server.wake()
        self.perform()

    def on_applied(self) -> None:
        """See node.broker.writer.Replication."""
        self.replica.on_applied(self._mono_ms())
        if self._commit is not None and self.replica.shard.high_watermark >= self._commit[0]:
            self.replica.shard.dispatcher.observe_commit(self._mono_ms() - self._commit[1])
            self._commit = None
        self.replica.stats.on_applied(self.replica.shard.views)
        self.perform()

    def on_full_disk(self) -> None:
        """See node.broker.writer.Replication."""
        self.replica.on_full_disk()
        self.perform()

    def on_stalled(self) -> None:
        """See node.broker.writer.Replication."""
        self.replica.on_stalled()
        self.perform()

    # -- from followers ---------------------------------------------------------------------------

    def _on_response(self, node: str, response: ReplicateResponse) -> None:
        if response.HasField("ack"):
            self.replica.on_ack(node, response.ack, self._mono_ms(), self._time.own_ms())
            self._refresh()
            stream = self._streams.get(node)
            if stream is not None:
                stream.wake()
        elif response.HasField("refused"):
            self.replica.on_refused(response.refused)
        self.perform()

    def _on_snapshot_needed(self, master: str, epoch: int) -> None:
        if self._taking is None:
            _log.error("snapshot_unavailable")
        else:
            self._taking.need(master, epoch)

    # -- effects ----------------------------------------------------------------------------------

    def perform(self) -> None:
        """Do what the replica asks for, in its order; what that asks for, too."""
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while effects := self.replica.take_effects():
                for effect in effects:
                    self._perform_one(effect)
        finally:
            self._is_performing = False

    def _perform_one(self, effect: Effect) -> None:
        engine = self._engine
        if engine is None:
            return
        if isinstance(effect, Write):
            engine.writer.wake()
            engine.writer.apply_soon()
        elif isinstance(effect, OpenStreams):
            _log.info("takeover_started", epoch=self.replica.assignment.epoch)
            self._open_streams()
        elif isinstance(effect, Serve):
            self._refresh()
            stats, views = self.replica.stats, self.replica.shard.views
            stats.on_serving(self._mono_ms(), self._time.now_ms(), views)
            _log.info(
                "mastership_started",
                epoch=self.replica.assignment.epoch,
                takeover_ms=round(stats.takeover_ms),
            )
            self._report()
        elif isinstance(effect, CloseStreams):
            for stream in self._streams.values():
                self._spawn(stream.close(effect.leases, effect.last_beat))
            self._streams.clear()
        elif isinstance(effect, Retire):
            _log.info("mastership_ended", reason=effect.why)
            self.replica.stats.on_stepped_down()
            self._act_until_ms, self._commit, self._has_begun = _NEVER, None, False
            engine.writer.answer(list(effect.answers))
            engine.end_serving(self._redirect())
        elif isinstance(effect, AskIsr):
            self._spawn(ask_isr(effect.change, self.replica, self._control, lambda: self._state))
        elif isinstance(effect, Resign):
            _log.warning("step_down_requested", reason=effect.why)
            self.replica.stats.step_down_requests += 1
            self.hand_over("")

    def _open_streams(self) -> None:
        who = self.replica.who
        for node in who.members:
            if node != who.me:
                self._streams[node] = FollowerStream(
                    node,
                    self.replica,
                    lambda node=node: self._dial(node),  # type: ignore[misc]
                    mono_ms=self._mono_ms,
                    clock_ms=self._time.now_ms,
                    on_response=self._on_response,
                    perform=self.perform,
                    on_damage=self._tell_damage,
                    failure=self._failure,
                )

    def _tell_damage(self, error: errors.DataLoss) -> None:
        tell = self.on_log_damage if isinstance(error, errors.CorruptLog) else self.on_view_damage
        tell(error)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(self._run_or_fail(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_or_fail(self, work: Any) -> None:
        """A bug in what nobody waits for must not look like an answer that is still to come."""
        with self._failure.catching():
            await work
