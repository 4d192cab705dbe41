"""Never do two masters hold their leases at once, however replica lists change meanwhile.

The real lists, leases and promises; a control plane that is one linearizable object; messages that
are lost or late. Time is the same for all: that clocks differ is the subject of
tests/unit/replication/rules/test_master_lease.py.
"""

import random
from dataclasses import dataclass, field

import pytest

from hourwheel.types import NodeId
from replication.rules.isr import ReplicaList, ReplicasChange
from replication.rules.master_lease import LeaseConfig, LeaseGrant, MastershipLease

NODES = tuple(map(NodeId, "abcdefg"))
CONFIG = LeaseConfig(lease_ms=600.0)
_STEPS = 1_500


@dataclass
class Voter:
    """A node that follows one master, and promises to."""

    epoch: int = 0
    grant: LeaseGrant = field(default_factory=lambda: LeaseGrant(0, 0))


@dataclass
class Master:
    """As one epoch's master sees the world."""

    me: NodeId
    epoch: int
    replicas: ReplicaList
    lease: MastershipLease
    asked: ReplicasChange | None = None


class World:
    """See the top of this file."""

    def __init__(self, seed: int, wait_ms: float = CONFIG.lease_ms) -> None:
        self.rng, self.now_ms, self.wait_ms = random.Random(seed), 0.0, wait_ms
        self.voters = {node: Voter() for node in NODES}
        self.members, self.version, self.epoch = frozenset(NODES[:3]), 1, 0
        self.targets = self.members
        self.masters: list[Master] = []
        self.changes = self.both = 0

    def elect(self) -> None:
        self.epoch += 1
        self.version += 1
        me = self.rng.choice(sorted((self.members & self.targets) or self.members))
        replicas = ReplicaList(self.epoch, self.members, self.version, self.now_ms)  # type: ignore[arg-type]
        lease = MastershipLease(CONFIG, self.members, me)
        self.masters = [*self.masters, Master(me, self.epoch, replicas, lease)][-3:]

    def beat(self) -> None:
        """A heartbeat of any master that thinks it is one, to any node, and its echo."""
        master = self.rng.choice(self.masters)
        node = self.rng.choice(NODES)
        voter = self.voters[node]
        if node == master.me or master.epoch < voter.epoch:
            return
        if voter.grant.left_ms(master.epoch, master.me, self.now_ms) > 0:
            return
        voter.epoch = master.epoch
        voter.grant.renew(master.epoch, master.me, "", self.now_ms + CONFIG.lease_ms)
        if self.rng.random() < 0.8:
            master.lease.on_echo(node, self.now_ms)

    def hear(self) -> None:
        """A node is told by the control plane that an epoch has begun."""
        self.voters[self.rng.choice(NODES)].epoch = self.epoch

    def own_word(self) -> None:
        """A master follows nobody else while it has been elected: its own promise."""
        for master in self.masters:
            voter = self.voters[master.me]
            if master.epoch > voter.epoch:
                left_ms = voter.grant.left_ms(master.epoch, master.me, self.now_ms)
                if left_ms <= 0:
                    voter.epoch = master.epoch
            if voter.epoch > master.epoch:
                master.lease.release()

    def plan(self) -> None:
        master = self.rng.choice(self.masters)
        if not self.holds(master):
            master.replicas.on_lease_lost(self.now_ms)
            return
        outside = frozenset(NODES) - master.replicas.members
        change = master.replicas.plan(
            self.targets | {master.me},
            frozenset({master.me}),
            frozenset(one for one in outside if self.rng.random() < 0.5),
            self.now_ms,
            self.wait_ms,
        )
        if change is not None:
            master.asked = change
        master.lease.set_lists(master.replicas.in_force)

    def decide(self) -> None:
        """The control plane gets to a proposal, and its answer is lost."""
        master = self.rng.choice(self.masters)
        asked = master.asked
        if asked is None or self.rng.random() < 0.3:
            return
        master.asked = None
        if (asked.epoch, asked.version) != (self.epoch, self.version):
            master.replicas.on_refused(asked)
            master.lease.set_lists(master.replicas.in_force)
            return
        assert len(self.members ^ frozenset(asked.members)) == 1
        self.members, self.version = frozenset(asked.members), self.version + 1
        self.changes += 1

    def tell(self) -> None:
        """The newest master hears of the state; earlier ones hear that they are none."""
        master = self.rng.choice(self.masters)
        if master.epoch == self.epoch:
            master.replicas.on_state(self.members, self.version, self.now_ms)
            master.lease.set_lists(master.replicas.in_force)

    def choose(self) -> None:
        """An administrator has another idea."""
        if self.members == self.targets:
            self.targets = frozenset(self.rng.sample(NODES, self.rng.choice((3, 3, 5))))

    def holds(self, master: Master) -> bool:
        is_own = self.voters[master.me].epoch == master.epoch
        return is_own and master.lease.is_valid(self.now_ms)

    def run(self) -> None:
        self.elect()
        for _ in range(_STEPS):
            self.now_ms += self.rng.choice((0.0, 1.0, 5.0, 20.0))
            events = (*(self.beat,) * 6, self.plan, self.decide, self.tell, self.hear)
            for _ in range(20):
                self.own_word()
                self.rng.choice(events)()
            if self.rng.random() < 0.006:
                self.elect()
            if self.rng.random() < 0.2:
                self.choose()
            self.both += sum(map(self.holds, self.masters)) > 1


@pytest.mark.parametrize("seed", range(12))
def test_I4_two_masters_never_hold_their_leases_at_once(seed: int) -> None:  # noqa: N802
    world = World(seed)
    world.run()
    assert world.both == 0
    assert world.changes > 2, "lists did change"
