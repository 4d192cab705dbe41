"""A node as a member of a cluster: moves messages, keeps time, carries out what rules decide.

    control plane --on_state--> Replica.on_assignment --+
    streams ------on_response, ReplicationServer -------+--> effects --> streams, engine, control
    50 ms tick ---step, heartbeats, report ------------------+

It also guards the engine: a master acts and answers only while it has the lease, which is checked
when a request comes and again before its answer goes.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.internal.v1.replication_pb2 import ReplicateResponse
from hourwheel.types import NO_NODE, NodeId
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.cluster.cluster_time import ClusterTime
from node.cluster.isr_updater import propose_isr, propose_replicas
from node.cluster.replication_stream import FollowerStream, PeerLinks, ReplicationServer
from node.cluster.snapshot_receiver import SnapshotReceiver, Snapshots, log_received
from node.cluster.snapshot_sender import SnapshotSender
from node.contracts.control import ControlPort
from node.repair.peers import Peers
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
from node.replica.mastership import NEVER
from node.replica.replica import Replica
from node.shard.recovery import Opened
from node.shard.shard import Applied
from node.telemetry import logs
from node.telemetry.failure import Failure
from replication.control_state.state import ControlState, ShardInfo
from replication.rules.follower import Follower, FollowerPhase
from replication.rules.master import Master, ReplicationConfig
from replication.rules.master_lease import LeaseGrant
from storage.log.epochs import EpochStore

_EAGER_S: Final = 0.005
_FORMER_LEASE_MS: Final = 600.0
"""A node that starts may have granted as long a lease before, to a master of an older version."""
_CLOSE_S: Final = 1.0
_HEARTBEATS_A_REPORT: Final = 4
_SYNC_S: Final = 0.05
TAKEOVER_WAIT_MS_MAX: Final = 1_000
"""A takeover that lasts longer may not succeed: a poll that waits for its end is sent on."""
TAKEOVER_POLLS_MAX: Final = 1_000
"""More polls are sent on at once."""
_log = logs.get(__name__)


@dataclass(frozen=True)
class MemberPorts:
    """What a member of the cluster works with, beside its replica."""

    time: ClusterTime
    control: ControlPort
    links: PeerLinks
    """Calls to the other nodes."""
    guard: DiskGuard
    """Watches the room on the disk."""
    failure: Failure
    """Collects bugs."""


class TakeoverWait:
    """Polls that come to a node which takes over: they wait until it serves.

    A client whose master has died asks one node after the other, and would hear from the next
    master that it is none yet. What it looks for is there, so it may as well wait there.
    """

    def __init__(self) -> None:
        """Let no poll wait yet."""
        self._over = asyncio.Event()
        self.waiting_count = 0

    def end(self) -> None:
        """The takeover is over, one way or the other: all that wait go on, in their order."""
        self._over.set()
        self._over = asyncio.Event()

    async def wait(self, wait_ms: int) -> None:
        """Return when the takeover is over, or after `wait_ms`, or `TAKEOVER_WAIT_MS_MAX`."""
        if self.waiting_count >= TAKEOVER_POLLS_MAX:
            return
        self.waiting_count += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, min(wait_ms, TAKEOVER_WAIT_MS_MAX)) / 1_000):
                    await self._over.wait()
        finally:
            self.waiting_count -= 1


class ClusterMember:
    """See the top of this file. All on the event loop's thread."""

    def __init__(self, replica: Replica, snapshots: Snapshots, ports: MemberPorts) -> None:
        """Take no part yet."""
        self.replica, self._snapshots = replica, snapshots
        self.time, self._control, self.links = ports.time, ports.control, ports.links
        self._guard, self.failure = ports.guard, ports.failure
        self._monotonic_ms = ports.time.monotonic_ms
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        """From `start` on."""
        self.server: ReplicationServer | None = None
        self._streams: dict[NodeId, FollowerStream] = {}
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
        """The replica has not taken `_state` up yet."""
        self._has_no_room = False
        """The disk has no room even for the epoch."""
        self._requests_step_down = False
        self._transfer_to = ""
        self._takeover = TakeoverWait()
        self.has_served = asyncio.Event()
        """Set when it serves for the first time."""
        self._is_performing = False
        self._is_closed = False
        self.on_log_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Starts the repair of the log where it could not be read for a follower."""
        self.on_view_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Gives a view up that is damaged on the disk: another node should lead."""
        snapshots.sender.on_damage = self.report_damage
        self.is_damaged = False
        """Its log is, somewhere: it should not lead."""

    def start(self, engine: Engine, sync_interval_ms: int) -> None:
        """Take part. The engine writes and applies already."""
        self._engine, self._sync_s = engine, sync_interval_ms / 1_000
        identity = engine.place.identity
        engine.damage.files.peers = Peers(self.links, identity, self._others)
        self.server = ReplicationServer(
            replica=self.replica,
            engine=engine,
            control=self._control,
            time=self.time,
            perform=self.perform,
            failure=self.failure,
            snapshots=self._snapshots,
        )
        self._tick()

    def _others(self) -> list[NodeId]:
        """The other nodes that live: first the master, then those in sync."""
        identity, assignment = self.replica.identity, self.replica.assignment
        others = [
            one
            for one in self.replica.members
            if one != identity.node_id and not self._control.is_dead(one)
        ]
        return sorted(others, key=lambda one: (one != assignment.master, one not in assignment.isr))

    async def close(self) -> None:
        """Take part no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.replica.identity.is_alone:  # alone, it still answers those who wait
            self.replica.step_down("the node stops")
            self.perform()
        await self._snapshots.receiver.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_S)
            for task in late:
                task.cancel()

    # -- what the engine calls --------------------------------------------------------------------

    def may_act(self) -> bool:
        """Whether this node is the master, now."""
        return self._monotonic_ms() < self.act_until_ms

    @property
    def is_taking_over(self) -> bool:
        """Whether this node is to be the master, and does not serve yet."""
        return self.replica.is_elected or self.replica.role is Role.TAKING_OVER

    async def wait_for_takeover(self, wait_ms: int) -> None:
        """While this node takes over, return when that is over: see `TakeoverWait`."""
        if self.is_taking_over:
            await self._takeover.wait(wait_ms)

    @property
    def act_until_ms(self) -> float:
        """Until when this node may act as master if no more answers come; monotonic, in ms."""
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
        state, me = self._state, self.replica.identity.node_id
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
        mastership, monotonic_ms = self.replica.mastership, self._monotonic_ms()
        if mastership is None:
            return
        was_acting = monotonic_ms < mastership.act_until_ms
        offset_ms = mastership.renew(monotonic_ms)
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
        wait_s = _EAGER_S if self.is_taking_over else max(0.0, self._next_heartbeat_s - now_s)
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _step(self) -> None:
        master = self._note_dead()
        self._guard.note_others(frozenset() if master is None else master.low_members)
        try:
            if self._is_stale and self._state is not None:
                self._apply_state(self._state)
            self.replica.step(self._monotonic_ms())
            if self._note_dead() is not master:  # an epoch has begun: it need not wait for them
                self.replica.step(self._monotonic_ms())
        except errors.DiskFull:  # it cannot even note the epoch: another node should be master
            self._has_no_room = not (
                self.replica.identity.is_alone and self._guard.give_up_reserve()
            )
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

    def _note_dead(self) -> Master | None:
        """The rules of this node's mastership, if there is one: they know who is dead."""
        master = self.replica.rules
        if master is not None:
            for node in master.followers:
                if self._control.is_dead(node):
                    master.on_unreachable(node)
        return master

    def _report(self) -> None:
        report = report_of(self.replica, self._guard, requests_step_down=self._requests_step_down)
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

    def _apply_state(self, state: ControlState) -> None:
        """Raises DiskFull where a new epoch cannot be noted; the next tick tries again."""
        self.replica.on_ended(frozenset(one.hex() for one in state.ended_boot_ids))
        if self.server is not None:
            self.server.look_again()
        shard = state.shards.get(self.replica.shard.shard_id)
        if shard is None or shard.master is None or self._is_closed:
            return
        identity = self.replica.identity
        master = shard.master.node_id
        if master == identity.node_id and shard.master.boot_id.hex() != identity.boot_id:
            return  # an epoch of this node's former life: the next is on its way
        self.replica.level_max = state.feature_level
        is_new = shard.epoch > self.replica.assignment.epoch
        if is_new:
            self._requests_step_down, self._transfer_to = False, ""
        assigned = Assignment(
            epoch=shard.epoch,
            master=master,
            isr=frozenset(one.node_id for one in shard.isr),
            version=shard.version,
            replicas=shard.replicas,
            targets=targets_of(state, shard),
            min_in_sync=min_in_sync_of(state, self.replica.config.min_in_sync),
        )
        self.replica.on_assignment(assigned, self._monotonic_ms())
        self._is_stale = False
        if is_new and master == identity.node_id:
            _log.info("mastership_assigned", epoch=shard.epoch)
        if self.replica.is_elected:
            self.replica.stats.on_elected(self._monotonic_ms())

    def transfer_mastership(self, to: NodeId) -> None:
        """Request another master: `to`, or the best one."""
        self._requests_step_down, self._transfer_to = not to, to
        self._report()

    def cancel_transfer(self) -> None:
        """Take the request of `transfer_mastership` back: no node took over."""
        self._requests_step_down, self._transfer_to = False, ""
        self._report()

    # -- from the group commit --------------------------------------------------------------------

    def on_appended(self) -> None:
        """See node.broker.group_commit.Replication."""
        master, end = self.replica.rules, self.replica.shard.log.end_offset
        if master is None:
            return
        master.on_appended(end)
        if self._commit is None:
            self._commit = (end, self._monotonic_ms())
        for stream in self._streams.values():
            stream.wake()

    def on_flushed(self) -> None:
        """See node.broker.group_commit.Replication."""
        self.replica.on_flushed(self._monotonic_ms())
        if self.server is not None and self.replica.mastership is None:
            self.server.wake()
        self.perform()

    def _observe_commit(self) -> None:
        """Report to the dispatcher how long a commit took."""
        mastership = self.replica.mastership
        if mastership is None or self._commit is None:
            return
        end, begun_ms = self._commit
        if self.replica.shard.high_watermark >= end:
            mastership.dispatcher.observe_commit(self._monotonic_ms() - begun_ms)
            self._commit = None

    def on_applied(self, applied: list[Applied]) -> None:
        """See node.broker.group_commit.Replication."""
        self.replica.on_applied(applied, self._monotonic_ms())
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

    def on_response(self, node: NodeId, response: ReplicateResponse) -> None:
        """A follower says something on its stream."""
        if response.HasField("ack"):
            self.replica.on_ack(node, response.ack, self._monotonic_ms(), self.time.own_ms())
            self._refresh()
            stream = self._streams.get(node)
            if stream is not None:
                stream.wake()
        elif response.HasField("refused"):
            self.replica.on_refused(response.refused)
        self.perform()

    # -- effects ----------------------------------------------------------------------------------

    def perform(self) -> None:
        """Carry out the replica's effects in order, and those that they cause."""
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
            if not self._streams:
                _log.info("takeover_started", epoch=self.replica.assignment.epoch)
            self._open_streams()
        elif isinstance(effect, Serve):
            engine.serve(effect.mastership)
            self._takeover.end()
            self._refresh()
            stats, views = self.replica.stats, self.replica.shard.views
            stats.on_serving(self._monotonic_ms(), self.time.now_ms(), views)
            _log.info(
                "mastership_started",
                epoch=self.replica.assignment.epoch,
                takeover_ms=round(stats.takeover_ms),
                begun_ms=round(stats.begun_ms),
                committed_ms=round(stats.committed_ms),
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
            self._takeover.end()
        elif isinstance(effect, ProposeIsr):
            self._spawn(
                propose_isr(effect.change, self.replica, self._control, lambda: self._state)
            )
        elif isinstance(effect, ProposeReplicas):
            self._spawn(propose_replicas(effect.change, self.replica, self._control))
        elif isinstance(effect, RequestSuccessor):
            _log.warning("step_down_requested", reason=effect.why)
            self.replica.stats.step_down_requests += 1
            self.transfer_mastership(NO_NODE)

    def _open_streams(self) -> None:
        rules = self.replica.rules
        peers = frozenset[NodeId]() if rules is None else rules.peers
        for node in sorted(peers - frozenset(self._streams)):
            self._streams[node] = FollowerStream(node, self)
        for node in sorted(frozenset(self._streams) - peers):
            self._streams.pop(node).cut()

    def report_damage(self, error: errors.DataLoss) -> None:
        """What was to be sent to a follower is damaged here."""
        tell = self.on_log_damage if isinstance(error, errors.CorruptLog) else self.on_view_damage
        tell(error)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(self._run_or_fail(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_or_fail(self, work: Any) -> None:
        """A bug in a task that no caller awaits must not look like an answer on its way."""
        with self.failure.catching():
            await work


def targets_of(state: ControlState, shard: ShardInfo) -> tuple[NodeId, ...]:
    """Members that have a replica, and those that can be reached: they said where, registering."""
    known = state.nodes.keys() | set(shard.replicas)
    return tuple(sorted(state.membership.members.keys() & known))


def min_in_sync_of(state: ControlState, configured: int) -> int:
    """How many have to be in sync: as configured or agreed upon, whichever is more.

    A cluster that has grown from one node has what is agreed upon: until it has copies, one node
    is enough, whatever the others are configured for.
    """
    return state.min_in_sync if state.min_in_sync_goal else max(configured, state.min_in_sync)


def report_of(replica: Replica, guard: DiskGuard, *, requests_step_down: bool) -> ShardReport:
    """How a replica stands, for the control plane: epoch, log and disk. Pure.

    `requests_step_down`: it wants another node to be master. Once it has stepped down, that counts
    only as long as it cannot write: maybe no other node can lead.
    """
    shard, assignment = replica.shard, replica.assignment
    last = shard.views.epochs[-1].epoch if shard.views.epochs else 0
    is_master = replica.mastership is not None or replica.is_elected
    return ShardReport(
        shard=shard.shard_id,
        epoch=assignment.epoch,
        last_epoch=max(last, replica.last_epoch),
        log_end=shard.log.flushed_end_offset,
        high_watermark=shard.high_watermark,
        is_resigning=requests_step_down and (is_master or guard.is_exhausted),
        is_low=guard.is_low,
        has_retired=assignment.master == replica.identity.node_id and not is_master,
    )


def build_member(
    opened: Opened,
    seen: EpochStore,
    identity: ReplicaIdentity,
    rules: ReplicationConfig,
    ports: MemberPorts,
    *,
    on_snapshot_received: Callable[[], None] = log_received,
) -> ClusterMember:
    """A member of the cluster, be it of one node, that takes part when it is started.

    `on_snapshot_received` is called when one is complete: the next start installs it.
    """
    place = opened.maintenance.place
    # No lease was granted before the first epoch, nor where there is no other node.
    longest_ms = max(rules.lease.lease_ms, _FORMER_LEASE_MS)
    granted_ms = longest_ms if seen.epoch and not identity.is_alone else 0.0
    follower = Follower(
        me=identity.node_id,
        boot_id=identity.boot_id,
        cluster_id=identity.cluster_id,
        shard=place.identity.shard,
        seen=seen,
        grant=LeaseGrant(ports.time.monotonic_ms(), granted_ms, lease_ms_max=longest_ms),
    )
    replica = Replica(opened, follower, identity, rules, now_ms=ports.time.now_ms)
    sender = SnapshotSender(
        place,
        opened.shard,
        opened.epochs,
        epoch=lambda: replica.assignment.epoch,
        # With or without a lease, serving or not yet: what is committed is the same for ever, and
        # the receiver may be the replica that a majority needs to commit more, or grant a lease.
        may_send=lambda: replica.mastership is not None,
        stats=replica.stats,
    )
    receiver = SnapshotReceiver(
        place,
        ports.links.fetch_snapshot,
        log_end=lambda: replica.facts.end_offset,
        is_needed=lambda: (
            replica.mastership is None and follower.phase is not FollowerPhase.FOLLOWING
        ),
        on_received=on_snapshot_received,
        on_failure=ports.failure.report,
        stats=replica.stats,
    )
    return ClusterMember(replica, Snapshots(sender, receiver), ports)
