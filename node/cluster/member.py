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
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.internal.v1.replication_pb2 import ReplicateResponse
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.cluster.cluster_time import ClusterTime
from node.cluster.follower_stream import FollowerStream
from node.cluster.isr_updater import ask_isr
from node.cluster.peer_links import PeerLinks
from node.cluster.replication_server import ReplicationServer
from node.cluster.shard_report import report_of
from node.cluster.snapshot_receiver import Snapshots
from node.contracts.broker import Failure
from node.contracts.control import ControlPort
from node.repair.peers import Peers
from node.replica.effects import (
    AskForSuccessor,
    AskIsr,
    Assignment,
    CloseStreams,
    Effect,
    OpenStreams,
    Role,
    Serve,
    StepDown,
    Write,
)
from node.replica.mastership import NEVER
from node.replica.replica import Replica
from node.shard.shard import Applied
from node.telemetry import logs
from replication.control_state.state import ControlState

_EAGER_S: Final = 0.005
_LAST_WORD_S: Final = 1.0
_HEARTBEATS_A_REPORT: Final = 4
_SYNC_S: Final = 0.05
_log = logs.get(__name__)


class ClusterMember:
    """See the top of this file. All on the event loop's thread."""

    def __init__(
        self,
        replica: Replica,
        time: ClusterTime,
        control: ControlPort,
        links: PeerLinks,
        snapshots: Snapshots,
        guard: DiskGuard,
        failure: Failure,
    ) -> None:
        """Take no part yet. `guard`: of the disk's room; `failure` is told of bugs."""
        self.replica = replica
        self.time, self._control, self.links = time, control, links
        self._snapshots, self._guard, self.failure = snapshots, guard, failure
        self._mono_ms = time.mono_ms
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        """From `start` on."""
        self.server: ReplicationServer | None = None
        self._streams: dict[str, FollowerStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._sync_s = _SYNC_S
        self._next_heartbeat_s = 0.0
        self._heartbeats = 0
        self._commit: tuple[int, float] | None = None
        """(end of a group commit, when it began): the first that is not committed yet."""
        self._has_begun = False
        """The cluster clock was set for this mastership."""
        self._state: ControlState | None = None
        self._is_stale = False
        """The rules have not heard of `_state` yet."""
        self._has_no_room = False
        """Not even for noting its epoch."""
        self._resigns = False
        self._transfer_to = ""
        self.has_served = asyncio.Event()
        """Set when it serves for the first time."""
        self._is_performing = False
        self._is_closed = False
        self.on_log_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Told where the log could not be read for a follower: to have it repaired."""
        self.on_view_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Told of a view that is damaged on the disk: to have somebody else lead."""
        snapshots.sender.on_damage = self.tell_damage
        self.is_damaged = False
        """Its log is, somewhere: it should not lead."""

    def start(self, engine: Engine, sync_interval_ms: int) -> None:
        """Take part. The engine writes and applies already."""
        self._engine, self._sync_s = engine, sync_interval_ms / 1_000
        identity = engine.place.identity
        engine.damage.files.peers = Peers(self.links, identity, self._others)
        self.server = ReplicationServer(
            self.replica,
            engine,
            self._control,
            self.time,
            self.perform,
            self.failure,
            self._snapshots,
        )
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
        if not self.replica.who.is_alone:  # alone, whoever waits is still answered
            self.replica.step_down("the node stops")
            self.perform()
        await self._snapshots.receiver.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_LAST_WORD_S)
            for task in late:
                task.cancel()

    # -- what the engine asks ---------------------------------------------------------------------

    def may_act(self) -> bool:
        """Whether this node is the master, now."""
        return self._mono_ms() < self.act_until_ms

    @property
    def act_until_ms(self) -> float:
        """Until when this node may act as master, if it hears of nobody more; monotonic."""
        mastership = self.replica.mastership
        return NEVER if mastership is None else mastership.act_until_ms

    def check(self) -> None:
        """Raises NotMaster."""
        if not self.may_act():
            raise self.redirect()

    def redirect(self) -> errors.NotMaster:
        """Where to go instead of this node, which does not serve, whatever the control plane says.

        The master's address and epoch, where the control plane names another node.
        """
        state, me = self._state, self.replica.who.me
        shard = None if state is None else state.shards.get(self.replica.shard.shard_id)
        if state is None or shard is None or shard.master is None or shard.master.node_id == me:
            return errors.NotMaster("no node is the master now; try again")
        master = shard.master.node_id
        address = state.nodes[master].api_address if master in state.nodes else ""
        return errors.NotMaster(
            f"node {master} is the master", master=master, master_address=address, epoch=shard.epoch
        )

    def _refresh(self) -> None:
        """How long this node may act, as of what it has heard by now."""
        mastership, mono_ms = self.replica.mastership, self._mono_ms()
        if mastership is None:
            return
        was_acting = mono_ms < mastership.act_until_ms
        offset_ms = mastership.renew(mono_ms)
        if offset_ms is not None:
            if self._has_begun:
                self.time.set_offset(offset_ms)
            else:
                self.time.begin(offset_ms)
                self._has_begun = True
        if self._engine is not None and not was_acting and self.may_act():
            self._engine.resume()

    # -- time -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_closed or self.failure.found.done():
            return
        with self.failure.catching():
            self._step()
        now_s = self._loop.time()
        is_eager = self.replica.role is Role.TAKING_OVER or self.replica.is_elected
        wait_s = _EAGER_S if is_eager else max(0.0, self._next_heartbeat_s - now_s)
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
            self._has_no_room = not (self.replica.who.is_alone and self._guard.give_up_reserve())
        else:
            self._has_no_room = False
        now_s = self._loop.time()
        if now_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = max(self._next_heartbeat_s + self._sync_s, now_s)
            for stream in self._streams.values():
                stream.heartbeat()
            self._heartbeats += 1
            if self._heartbeats % _HEARTBEATS_A_REPORT == 0:
                self._report()
        self._refresh()
        self.perform()

    def _report(self) -> None:
        report = report_of(self.replica, self._guard, resigns=self._resigns)
        if self._has_no_room and self._state is not None:
            report.epoch = self._state.shards[report.shard].epoch
            report.is_resigning = True
        report.is_ready, report.hand_over_to = self.is_ready, self._transfer_to
        report.is_serving = self.may_act()
        self._control.report([report])

    @property
    def is_ready(self) -> bool:
        """Whether this node could lead, were it elected."""
        has_log = self.replica.is_sound or self.replica.follower.has_followed
        has_room = not self._guard.is_exhausted and not self.replica.shard.is_stalled
        return has_log and has_room and not self.is_damaged and not self._is_closed

    # -- from the control plane -------------------------------------------------------------------

    def on_state(self, state: ControlState) -> None:
        """The control plane's state has changed."""
        self._state, self._is_stale = state, True
        if self._engine is not None:
            with self.failure.catching():
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
            self._resigns, self._transfer_to = False, ""
        self.replica.on_assignment(
            Assignment(shard.epoch, master, isr, shard.version), self._mono_ms()
        )
        self._is_stale = False
        if self.replica.is_elected:
            self.replica.stats.on_elected(self._mono_ms())

    def transfer_mastership(self, to: str) -> None:
        """Ask for another master: `to`, or whoever is best."""
        self._resigns, self._transfer_to = not to, to
        self._report()

    def cancel_transfer(self) -> None:
        """Take back the wish of `transfer_mastership`: nobody came."""
        self._resigns, self._transfer_to = False, ""
        self._report()

    # -- from the group commit --------------------------------------------------------------------

    def on_appended(self) -> None:
        """See node.broker.group_commit.Replication."""
        master, end = self.replica.master, self.replica.shard.log.end_offset
        if master is None:
            return
        master.on_appended(end)
        if self._commit is None:
            self._commit = (end, self._mono_ms())
        for stream in self._streams.values():
            stream.wake()

    def on_flushed(self) -> None:
        """See node.broker.group_commit.Replication."""
        self.replica.on_flushed(self._mono_ms())
        if self.server is not None and self.replica.mastership is None:
            self.server.wake()
        self.perform()

    def _observe_commit(self) -> None:
        """Tell the dispatcher how long a commit takes."""
        mastership = self.replica.mastership
        if mastership is None or self._commit is None:
            return
        end, begun_ms = self._commit
        if self.replica.shard.high_watermark >= end:
            mastership.dispatcher.observe_commit(self._mono_ms() - begun_ms)
            self._commit = None

    def on_applied(self, applied: list[Applied]) -> None:
        """See node.broker.group_commit.Replication."""
        self.replica.on_applied(applied, self._mono_ms())
        self._observe_commit()
        self.replica.stats.on_applied(self.replica.shard.views)
        self.perform()

    def on_abandoned(self, dropped: list[RecordBatch], error: errors.DiskFull) -> None:
        """See node.broker.group_commit.Replication."""
        if self.replica.role is Role.TAKING_OVER:
            _log.error("shard_waits_for_room", **logs.fields_of(error))
        self._commit = None
        self.replica.on_abandoned(dropped, error)
        self.perform()

    def on_stalled(self) -> None:
        """See node.broker.group_commit.Replication."""
        self.replica.on_stalled()
        self.perform()

    # -- from followers ---------------------------------------------------------------------------

    def on_response(self, node: str, response: ReplicateResponse) -> None:
        """A follower says something on its stream."""
        if response.HasField("ack"):
            self.replica.on_ack(node, response.ack, self._mono_ms(), self.time.own_ms())
            self._refresh()
            stream = self._streams.get(node)
            if stream is not None:
                stream.wake()
        elif response.HasField("refused"):
            self.replica.on_refused(response.refused)
        self.perform()

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
            engine.group_commit.wake()
            engine.group_commit.apply_soon()
        elif isinstance(effect, OpenStreams):
            _log.info("takeover_started", epoch=self.replica.assignment.epoch)
            self._open_streams()
        elif isinstance(effect, Serve):
            engine.serve(effect.mastership)
            self._refresh()
            stats, views = self.replica.stats, self.replica.shard.views
            stats.on_serving(self._mono_ms(), self.time.now_ms(), views)
            _log.info(
                "mastership_started",
                epoch=self.replica.assignment.epoch,
                takeover_ms=round(stats.takeover_ms),
            )
            self.has_served.set()
            self._report()
        elif isinstance(effect, CloseStreams):
            for stream in self._streams.values():
                self._spawn(stream.close(effect.leases, effect.last_heartbeat))
            self._streams.clear()
        elif isinstance(effect, StepDown):
            _log.info("mastership_ended", reason=effect.why)
            self.replica.stats.on_stepped_down()
            self._commit, self._has_begun = None, False
            engine.step_down(effect.mastership)
        elif isinstance(effect, AskIsr):
            self._spawn(ask_isr(effect.change, self.replica, self._control, lambda: self._state))
        elif isinstance(effect, AskForSuccessor):
            _log.warning("step_down_requested", reason=effect.why)
            self.replica.stats.step_down_requests += 1
            self.transfer_mastership("")

    def _open_streams(self) -> None:
        who = self.replica.who
        for node in who.members:
            if node != who.me:
                self._streams[node] = FollowerStream(node, self)

    def tell_damage(self, error: errors.DataLoss) -> None:
        """Something is damaged that was to be sent to a follower."""
        tell = self.on_log_damage if isinstance(error, errors.CorruptLog) else self.on_view_damage
        tell(error)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(self._run_or_fail(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_or_fail(self, work: Any) -> None:
        """A bug in what nobody waits for must not look like an answer that is still to come."""
        with self.failure.catching():
            await work
