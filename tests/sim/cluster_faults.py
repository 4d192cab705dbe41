"""What goes wrong in a simulated cluster, at random: all from the cluster's own seed."""

from collections.abc import Callable
from functools import partial
from random import Random

from tests.sim.cluster import Cluster
from tests.sim.cluster_node import SimNode

HOUR_MS = 3_600_000.0
VIEW_KINDS = (".run", ".cq", ".seq", "sequences/tail", ".tomb", "checkpoint", "epochs")
"""Files of the views, by the end of their names."""


class Faults:
    """Now and then something happens to somebody, and ends some time later.

    Invariant: at most one wall clock is wrong at a time, or the cluster clock could not be right.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._random = cluster, cluster.events.random
        self.is_on = True
        self.counts: dict[str, int] = {}
        self._wrong_clock = ""
        self._pause_ms = self._random.choice((150.0, 400.0, 1_000.0))
        kinds: list[Callable[[SimNode], None]] = [
            *(self._kill, self._kill, self._power_cut, self._power_cut, self._armed_power_cut),
            *(self._freeze, self._isolate, self._one_way, self._lone_link, self._break_streams),
            *(self._leave_control, self._full_disk, self._slow_disk, self._slow_network),
            *(self._lossy_control, self._set_clock, self._resign, self._kill_all, self._wipe),
            *(self._flip_log, self._flip_log, self._flip_delay_log, self._flip_views),
        ]
        # Each life has its own few kinds of trouble: else all lives are alike.
        self._kinds = self._random.sample(kinds, self._random.randint(2, 8))
        cluster.events.later(self._pause_ms, self._strike)

    def stop(self) -> None:
        """No more of it; what is wrong stays so until it is healed."""
        self.is_on = False

    def _strike(self) -> None:
        if not self.is_on:
            return
        pause_ms = self._random.expovariate(1 / self._pause_ms)
        self._cluster.events.later(pause_ms, self._strike)
        kind = self._random.choice(self._kinds)
        name = kind.__name__.strip("_")
        self.counts[name] = self.counts.get(name, 0) + 1
        kind(self._someone(self._random))

    def _someone(self, random: Random) -> SimNode:
        """The master more often than others."""
        master = self._cluster.control.master
        name = master if master and random.random() < 0.4 else random.choice(self._cluster.names)
        return self._cluster.nodes[name]

    def _later(self, action: Callable[[], None]) -> None:
        """End a fault: soon, or only when others are over."""
        delay_ms = self._random.choice((30.0, 300.0, 900.0, 2_500.0)) * self._random.random()
        self._cluster.events.later(delay_ms, lambda: action() if self.is_on else None)

    # -- processes and disks

    def _kill(self, node: SimNode) -> None:
        node.kill()
        self._later(node.start)

    def _kill_all(self, node: SimNode) -> None:
        del node
        for one in self._cluster.nodes.values():
            if self._random.random() < 0.5:
                one.kill()
            else:
                one.power_cut()
            self._later(one.start)

    def _power_cut(self, node: SimNode) -> None:
        node.power_cut()
        self._later(node.start)

    def _armed_power_cut(self, node: SimNode) -> None:
        """At one of the next durability operations, before or after it."""
        node.disk.fail_after(
            self._random.choice((1, 1, 2, 3, 5, 8, 20)), takes_effect=self._random.random() < 0.5
        )
        self._cluster.events.later(1_500, lambda: node.start() if self.is_on else None)

    def _wipe(self, node: SimNode) -> None:
        """The disk is lost: only of who is not needed."""
        control = self._cluster.control
        healthy = [one for one in self._cluster.nodes.values() if one.name in control.isr]
        if len(healthy) == len(self._cluster.names) and self.counts["wipe"] == 1:
            node.wipe()
            self._later(node.start)

    def _full_disk(self, node: SimNode) -> None:
        if node.is_up:
            node.disk.capacity_bytes = node.disk.used_bytes("") + self._random.choice((0, 4096))

    def _slow_disk(self, node: SimNode) -> None:
        node.write_ms = self._random.choice(((5.0, 60.0), (100.0, 400.0), (2_000.0, 4_000.0)))
        self._later(lambda: setattr(node, "write_ms", (0.1, 1.0)))

    def _freeze(self, node: SimNode) -> None:
        node.freeze()
        self._later(node.thaw)

    def _flip_log(self, node: SimNode) -> None:
        """Some bits of what was applied, in one message or in many; the scrubber may come by."""
        random, size = self._random, len(self._cluster.checkers.canon.data)
        if not node.is_up or not size:
            return
        others = [one for one in self._cluster.nodes.values() if one is not node]
        end = min(size, node.applied_offset)
        for _ in range(random.choice((1, 1, 3, 20))):
            begin = max(0, end - 3_000) if random.random() < 0.7 else 0  # what is due is young
            offset = random.randrange(begin, end) if begin < end else 0
            if offset < end and all(one.flips.is_free(offset) for one in others):
                node.flips.flip_log(offset, random.randrange(8))
                if random.random() < 0.3:
                    node.later(random.uniform(1, 2_000), partial(self._scrub, node, offset))

    @staticmethod
    def _scrub(node: SimNode, offset: int) -> None:
        if node.shard.log.start_offset <= offset < node.applied_offset:
            node.damage.on_log_damage(offset)

    def _flip_delay_log(self, node: SimNode) -> None:
        if node.is_up:
            for _ in range(self._random.choice((1, 5, 50))):
                node.flips.flip_delay_log(self._random.getrandbits(32), self._random.randrange(8))

    def _flip_views(self, node: SimNode) -> None:
        """A bit in a file of the views or some; the scrubber may come by, or whoever reads there.

        Of one node at a time: while it builds its views anew, no other should.
        """
        random = self._random
        others = [one for one in self._cluster.nodes.values() if one is not node]
        if not node.is_up or not all(one.is_up for one in others):
            return
        for _ in range(random.choice((1, 1, 4))):
            node.flips.flip_view(
                random.choice(VIEW_KINDS), random.getrandbits(32), random.randrange(8)
            )
        if random.random() < 0.5:
            node.later(random.uniform(1, 2_000), node.damage.scrub_views)

    # -- the network

    def _isolate(self, node: SimNode) -> None:
        others = [name for name in self._cluster.names if name != node.name]
        with_control = self._random.random() < 0.5
        self._cluster.network.isolate(node.name, (*others, *(["control"] * with_control)))
        self._later(self._cluster.network.heal)

    def _one_way(self, node: SimNode) -> None:
        others = [name for name in (*self._cluster.names, "control") if name != node.name]
        for other in self._random.sample(others, self._random.randint(1, len(others))):
            pair = (node.name, other) if self._random.random() < 0.5 else (other, node.name)
            self._cluster.network.cut(*pair)
        self._later(self._cluster.network.heal)

    def _lone_link(self, node: SimNode) -> None:
        other = self._random.choice([name for name in self._cluster.names if name != node.name])
        self._cluster.network.isolate(node.name, (other,))
        self._later(self._cluster.network.heal)

    def _leave_control(self, node: SimNode) -> None:
        self._cluster.network.isolate(node.name, ("control",))
        self._later(self._cluster.network.heal)

    def _break_streams(self, node: SimNode) -> None:
        self._cluster.network.break_streams(node.name)

    def _slow_network(self, node: SimNode) -> None:
        del node
        network = self._cluster.network
        network.delay_ms_max = self._random.choice((0.5, 20.0, 50.0))
        self._later(lambda: setattr(network, "delay_ms_max", 4.0))

    def _lossy_control(self, node: SimNode) -> None:
        del node
        network = self._cluster.network
        network.loss = self._random.choice((0.1, 0.4, 0.7))
        self._later(lambda: setattr(network, "loss", 0.0))

    # -- the rest

    def _set_clock(self, node: SimNode) -> None:
        """Somebody sets a clock wrong; it stays so, for that is when restarts take it up."""
        if self._wrong_clock in {"", node.name}:
            self._wrong_clock = node.name
            node.machine.error_ms += self._random.choice((HOUR_MS, -HOUR_MS, 5_000.0, -700.0))

    def _resign(self, node: SimNode) -> None:
        del node
        self._cluster.control.resign(self._cluster.control.epoch)


def live(cluster: Cluster, duration_ms: float) -> Faults:
    """A cluster's life, good and bad, and its end: everything comes together and is checked."""
    cluster.start()
    faults = Faults(cluster)
    cluster.run(duration_ms)
    faults.stop()
    cluster.settle()
    return faults
