"""The control plane's Raft under everything at once: kills, power cuts, partitions, old messages,
full disks.

What was acknowledged is applied, once and in the same order on every node, whatever happened; logs
agree wherever two nodes have committed. Each seed is one life of a group of three.
"""

import random
from itertools import pairwise

import pytest
from pysyncobj import FAIL_REASON

from hourwheel import errors
from hourwheel.types import NodeId
from replication.raft.codec import parse
from replication.raft.raft_node import RaftTimings
from tests.sim.disk import SimulatedCrash
from tests.support.raft_world import NODE_IDS, RaftWorld

SEED_COUNT = 24
_EVENTS = 60


class Chaos:
    """Random events; `world` is whole again after `heal`."""

    def __init__(self, world: RaftWorld, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.submitted = 0
        self.kept: list[tuple[NodeId, NodeId, bytes]] = []

    def some_time(self) -> None:
        """Ticks, with messages delivered, delayed to the next tick, lost with a connection."""
        world, rng = self.world, self.rng
        for _ in range(rng.randint(1, 40)):
            try:
                world.tick()
                while world.queue and rng.random() < 0.9:
                    if rng.random() < 0.02 and not parse(world.queue[0][2]).HasField(
                        "apply_command"  # coming twice, they are applied twice: ids are not Raft's
                    ):
                        self.kept.append(world.queue[0])
                    world.deliver()
            except SimulatedCrash:
                self.reap()

    def reap(self) -> None:
        """A node whose disk has failed is dead."""
        for node_id in list(self.world.lives):
            if self.world.disks[node_id].is_down:
                self.world.lose_power(node_id, self.rng)

    def submit(self) -> None:
        for _ in range(self.rng.randint(1, 12)):
            living = sorted(self.world.lives)
            if living:
                self.submitted += 1
                self.world.submit(self.rng.choice(living), b"%d" % self.submitted)

    def kill(self) -> None:
        self.end(self.world.kill)

    def lose_power(self) -> None:
        self.end(lambda node_id: self.world.lose_power(node_id, self.rng))

    def end(self, how) -> None:  # type: ignore[no-untyped-def]
        living = sorted(self.world.lives)
        count = self.rng.choice((1, 1, 1, 2, len(living)))
        for node_id in self.rng.sample(living, min(count, len(living))):
            how(node_id)

    def crash_soon(self) -> None:
        """Power goes at one of the next syncs or renames."""
        living = sorted(self.world.lives)
        if living:
            disk = self.world.disks[self.rng.choice(living)]
            disk.fail_after(self.rng.randint(1, 12), takes_effect=self.rng.random() < 0.5)

    def fill(self) -> None:
        """A disk is full to the last block."""
        disk = self.world.disks[self.rng.choice(NODE_IDS)]
        if not disk.is_down:
            disk.capacity_bytes = disk.used_bytes("")

    def make_room(self) -> None:
        for disk in self.world.disks.values():
            disk.capacity_bytes = 1 << 40

    def restart(self) -> None:
        for node_id in NODE_IDS:
            if node_id not in self.world.lives and self.rng.random() < 0.7:
                self.start(node_id)

    def start(self, node_id: NodeId) -> None:
        while True:
            try:
                self.world.start(node_id)
            except SimulatedCrash:
                self.world.disks[node_id].crash(self.rng)
            except errors.DiskFull:  # it mends what a crash has left, and has no room for that
                return
            else:
                return

    def cut(self) -> None:
        self.world.cut(self.rng.choice(NODE_IDS))

    def heal(self) -> None:
        self.world.heal()

    def repeat(self) -> None:
        """A message comes again, late."""
        if self.kept:
            from_, to, raw = self.kept.pop(self.rng.randrange(len(self.kept)))
            self.world.post(from_, to, raw)

    def all_well(self) -> None:
        for disk in self.world.disks.values():
            disk.disarm()
        self.make_room()
        self.reap()
        self.world.heal()
        for node_id in NODE_IDS:
            if node_id not in self.world.lives:
                self.start(node_id)
        self.world.settle()


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_acknowledged_commands_survive_everything(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    timings = RaftTimings(compaction_entries=rng.choice((12, 30, 100)))
    world = RaftWorld(monkeypatch, timings=timings, seed=seed)
    chaos = Chaos(world, rng)
    events = (
        *(chaos.submit, chaos.submit, chaos.submit, chaos.kill, chaos.lose_power),
        *(chaos.crash_soon, chaos.restart, chaos.restart, chaos.cut, chaos.heal, chaos.heal),
        *(chaos.repeat, chaos.repeat, chaos.fill, chaos.fill, chaos.make_room),
    )
    world.elect()
    chaos.submit()
    for _ in range(_EVENTS):
        rng.choice(events)()
        chaos.some_time()
    chaos.all_well()
    applied = world.applied(NODE_IDS[0])
    acknowledged = [command for command, _, why in world.answers if why == FAIL_REASON.SUCCESS]
    assert chaos.submitted, "nothing was put to the test"
    assert len(set(applied)) == len(applied), "applied twice"
    assert set(acknowledged) <= set(applied), "an acknowledged command is lost"
    denied = (
        FAIL_REASON.MISSING_LEADER,
        FAIL_REASON.NOT_LEADER,
        FAIL_REASON.QUEUE_FULL,
        FAIL_REASON.REQUEST_DENIED,
    )
    refused = {command for command, _, why in world.answers if why in denied}
    assert refused.isdisjoint(applied), "a refused command was applied"
    journals = [list(world.lives[node_id].journal[:]) for node_id in NODE_IDS]
    for one, other in pairwise(journals):
        first, last = max(one[0].index, other[0].index), min(one[-1].index, other[-1].index)
        agreed = [
            [entry for entry in each if first <= entry.index <= last] for each in (one, other)
        ]
        assert agreed[0] == agreed[1]
