"""A simulated cluster: three nodes, a network, a control plane, clients, and the checkers.

    with small_sizes(16):
        cluster = Cluster(seed=7)
        cluster.start()
        cluster.run(2_000)
        cluster.master().kill()
        cluster.settle()               # everything heals, comes together, and is checked

Everything happens in one thread and by one seeded random: a seed replays exactly.
"""

from dataclasses import dataclass
from functools import partial

from hourwheel.filter_language.text import FilterExpression
from hourwheel.internal.v1.replication_pb2 import FollowerHello
from hourwheel.types import NodeId
from node.delivery.resolve_rows import unresolved_of
from node.shard.dispatcher import DispatchConfig
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import Opened, ShardConfig
from replication.rules.master import ReplicationConfig
from storage.log.commit_log import LogConfig
from tests.sim.catalog_control import OwnedCatalog
from tests.sim.checkers import Checkers
from tests.sim.cluster_clients import (
    Administrator,
    Call,
    Canceller,
    Clockmaker,
    Consumer,
    Mover,
    Producer,
    Proposer,
    Trader,
    resolve_filtered,
)
from tests.sim.cluster_names import Visitor
from tests.sim.cluster_node import SimNode
from tests.sim.control import ControlPlane
from tests.sim.events import Events, MachineClock
from tests.sim.network import Network
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=6_000, index_interval_bytes=1_024),
    wheel=WheelConfig(
        near_bytes_max=256 * 48,
        load_units=64,
        memtable_units_max=60,
        merge_run_count=3,
        job_units_per_slice=32,
    ),
    dispatch=DispatchConfig(units_max=16, interval_ms=4),
    retention=RetentionConfig(retention_ms=1 << 50),
    has_peers=True,
)
_RATE_ERROR = 0.025
"""Two clocks differ in speed by 5 % at most: what the lease's margin allows for."""
_CLOCK_ERROR_MS = 10.0


@dataclass(frozen=True)
class Lives:
    """What becomes of messages beside being published, moved, cancelled and consumed."""

    expires_after_ms: int = 0
    """When every third message expires, after the due time that it is published with; 0: none
    does. Half of what has expired becomes dead letters."""
    has_priorities: bool = False
    """Messages have tags and keys, and some a priority."""
    has_recurrences: bool = False
    """There are recurrences, which change, and their occurrences."""
    has_consumer: bool = True
    """Somebody receives; else only the sweep looks for what has expired."""


@dataclass(frozen=True)
class Times:
    """How long a cluster may take to come together, in true milliseconds."""

    start_ms: float = 5_000.0
    settle_ms: float = 30_000.0


class Cluster:
    """See the top of this file."""

    names: tuple[NodeId, ...] = (NodeId("a"), NodeId("b"), NodeId("c"))
    clock_bound_ms = 2 * _CLOCK_ERROR_MS + 120.0
    """I2: errors of right clocks, and a round trip of a slow network, of a few tries the best."""

    def __init__(
        self,
        seed: int,
        *,
        producers: int = 3,
        rules: ReplicationConfig | None = None,
        wanted: FilterExpression | None = None,
        is_changing: bool = False,
        visitors: int = 0,
        is_controlled: bool = False,
        lives: Lives | None = None,
    ) -> None:
        self.seed = seed
        self.wanted = wanted
        """What the consumers want; messages have tags then."""
        self.is_changing = is_changing
        """Other topics and groups come and go, by command."""
        self.visitors = visitors
        """Who uses other topics and groups, which go by themselves; then nobody deletes any."""
        self.is_controlled = is_controlled
        """With visitors: topics and groups come from the control state, some time after a start."""
        self.lives = lives or Lives()
        self.events = Events(seed)
        self.network = Network(self.events)
        owned = OwnedCatalog() if is_controlled else None
        self.control = ControlPlane(self.events, self.names, owned=owned)
        self.config = CONFIG
        self.rules = rules or ReplicationConfig()
        self.times = Times()
        self.think_ms = 120.0
        """Longest time between two requests of a producer."""
        self.is_publishing = True
        self.is_refusing = True
        """A node that is down refuses streams; else it says nothing."""
        self.checkers = Checkers(self)
        self._wiped: set[str] = set()
        self.nodes = {name: self.make_node(name) for name in self.names}
        self.events.after_each.append(self.checkers.after_event)
        self._producer_count = producers
        self.producers: list[Producer] = []

    def make_node(self, name: NodeId) -> SimNode:
        """It is not up yet."""
        return SimNode(self, name, self._machine())

    @property
    def members(self) -> list[SimNode]:
        """Those that have a replica, or are to have one."""
        return [self.nodes[name] for name in self.names]

    def _machine(self) -> MachineClock:
        random = self.events.random
        rate = 1 + random.uniform(-_RATE_ERROR, _RATE_ERROR)
        return MachineClock(self.events, rate, random.uniform(-_CLOCK_ERROR_MS, _CLOCK_ERROR_MS))

    # -- running ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes, and the clients when there is a master."""
        for node in self.nodes.values():
            node.start()
        assert self.await_master(), "no first master"
        self.master().guarded(lambda: Proposer(self.master()).configure(self.wanted))
        self.producers = [Producer(self, number + 1) for number in range(self._producer_count)]
        Canceller(self)
        Mover(self)
        for number in (1, 2):
            Trader(self, number)
        if self.lives.has_consumer:
            Consumer(self)
        if self.lives.has_recurrences:
            Clockmaker(self)
        if self.control.owned is not None:
            self.events.later(
                self.events.random.uniform(200, 1_500), self.control.owned.raise_rules
            )
        if self.is_changing:
            Administrator(self)
        for number in range(self.visitors):
            Visitor(self, number + 1)
        self.run(50)

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        self.events.run(duration_ms)

    def find_master(self) -> SimNode | None:
        """The node that may act as master now."""
        found = [one for one in self.nodes.values() if not one.is_frozen and one.may_act]
        return found[0] if found else None

    def master(self) -> SimNode:
        """The same; there is one."""
        found = self.find_master()
        assert found is not None, "no master"
        return found

    def others(self) -> list[SimNode]:
        """All nodes but the master."""
        master = self.master()
        return [one for one in self.nodes.values() if one is not master]

    def await_master(self, *, not_: str = "") -> bool:
        """Let time pass until there is a master (another one than `not_`)."""

        def is_there() -> bool:
            found = self.find_master()
            return found is not None and found.name != not_

        return self.events.run_until(is_there, self.times.start_ms)

    def await_commit(self, count: int = 1) -> None:
        """Let time pass until so many more publishes are acknowledged."""
        aim = self.acked_count + count
        done = self.events.run_until(lambda: self.acked_count >= aim, self.times.start_ms)
        assert done, "nothing is acknowledged any more"

    @property
    def acked_count(self) -> int:
        return sum(one.acked_count for one in self.producers)

    def resume(self) -> None:
        """Publish again."""
        self.is_publishing = True
        for one in self.producers:
            one.retry()

    # -- healing ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """No fault from now on."""
        self.network.heal()
        self.network.loss = 0.0
        self.network.delay_ms_max = 4.0
        self.control.is_electing = True
        for node in self.nodes.values():
            node.disk.capacity_bytes = 1 << 40
            node.disk.disarm()
            node.write_ms = (0.1, 1.0)
            node.thaw()
            node.start()

    def settle(self) -> None:
        """Heal, wait until all nodes have everything, and check all."""
        self.heal()
        self.await_commit(3)
        self.is_publishing = False
        self.run(3_000)  # what is due in these seconds is released
        done = self.events.run_until(self.is_at_rest, self.times.settle_ms)
        assert done, f"the cluster does not come together: {self.describe()}"
        for node in self.members:
            node.guarded(node.damage.scrub_views)
        self.run(100)
        done = self.events.run_until(self.is_at_rest, self.times.settle_ms)
        assert done, f"the cluster does not come together: {self.describe()}"
        for node in self.nodes.values():
            node.flips.undo()  # what nobody has come by
            node.flips.undo_views()
        self.checkers.check_at_rest()
        if self.control.owned is not None:
            self._check_owned(self.control.owned)

    def _check_owned(self, owned: OwnedCatalog) -> None:
        """The log has just the topics and groups that the control state has."""
        catalog, state = self.master().shard.views.catalog, owned.state
        assert state.catalog_import.is_done == catalog.is_controlled == True  # noqa: E712
        topics = {one.name: one.topic_id for one in catalog.topics() if not one.internal}
        assert topics == {one.name: one.object_id for one in state.topics.values()}
        groups = {one.name: one.group_id for one in catalog.groups()}
        assert groups == {one.name: one.object_id for one in state.groups.values()}

    def is_at_rest(self) -> bool:
        """All nodes are in sync, have applied one log to its end, and write nothing."""
        if self.find_master() is None or set(self.control.isr) != set(self.names):
            return False
        if set(self.control.replicas or self.names) != set(self.names):
            return False
        nodes = self.members
        ends = {one.shard.log.end_offset for one in nodes} | {one.applied_offset for one in nodes}
        is_healed = self.master().damage.is_healed
        is_healed &= all(one.is_up and one.is_quiet for one in nodes)
        return len(ends) == 1 and is_healed

    def describe(self) -> str:
        """Where everything stands, for people."""
        lines = [
            f"seed {self.seed} at {self.events.now_ms:.0f} ms, control {self.control.assignment}"
        ]
        for node in self.nodes.values():
            if not node.is_up:
                lines.append(f"{node.name}: down")
                continue
            log, master = node.shard.log, node.replica.rules
            lines.append(
                f"{node.name}: {node.replica.role.value}, log {log.flushed_end_offset} of"
                f" {log.end_offset}, applied {node.applied_offset}, seen {node.seen.epoch} of"
                f" {node.seen.master!r}, phase {node.replica.follower.phase.value},"
                f" quiet {node.is_quiet}"
            )
            if master is not None:
                lines += [f"    {one}" for one in master.followers.values()]
                lines.append(f"    {master.isr.members} union {master.isr.union}")
        return "\n".join(lines)

    # -- what nodes tell --------------------------------------------------------------------------

    def dispatch(self, node: SimNode) -> None:
        """The master's timer: dispatch what is due, give back what leases held too long."""
        shard, mastership = node.shard, node.mastership
        while mastership.may_dispatch_more and mastership.dispatch_due(node.cluster_ms()):
            self.checkers.on_dispatched(node)
        if node.sweep is not None:
            node.sweep.step(node.cluster_ms())
        if self.visitors and node.names is not None:
            node.names.look()
            resolve_filtered(node)
            return
        for held, part in mastership.receiver.leases.take_ended(node.cluster_ms(), 100):
            if unresolved_of(shard.views, held, part):
                Proposer(node).give_back(held, part)
        resolve_filtered(node)

    def on_applied(self, node: SimNode) -> None:
        self.checkers.on_applied(node)

    def on_answered(self, node: SimNode, call: Call) -> None:
        """An answer leaves a little later, if the node may still act then."""
        node.later(self.events.random.random(), partial(self._tell, node, call))

    def _tell(self, node: SimNode, call: Call) -> None:
        if node.may_act:
            self.checkers.on_answer(node, call)
            if call.then is not None:
                then, result = call.then, call.result
                self.network.call(node.name, "client", lambda: then(result))

    def check_opened(self, node: SimNode, opened: Opened) -> None:
        self.checkers.on_opened(node, opened)

    def on_death(self, node: SimNode) -> None:
        """Its process is gone."""

    def on_wiped(self, node: SimNode) -> None:
        """Its disk is blank, and the control plane does not know yet."""
        self._wiped.add(node.name)
        self._watch_wiped(node.name)

    def _watch_wiped(self, name: str) -> None:
        if name in self.control.isr:
            self.events.later(5, lambda: self._watch_wiped(name))
        else:
            self._wiped.discard(name)

    def is_wiped(self, node: SimNode) -> bool:
        """Whether its disk was lost, and the control plane does not know yet."""
        return node.name in self._wiped

    def on_snapshot_asked(self, master: SimNode, follower: str, hello: FollowerHello) -> None:
        """No log is ever deleted here: nobody needs one."""
        raise AssertionError(f"{master.name} sends {follower} for a snapshot: {hello}")
