"""A simulated cluster whose members change while it lives: nodes come, and go for good.

Who changes them looks at what an administrator's node looks at (node/cluster/members.py): who
lives. Whether the change may be is said by the real rules, which the control plane applies as one
object: how voters agree on it is another subject (tests/unit/replication/raft/test_generations.py).
"""

from typing import Any, Final

from hourwheel.types import NodeId
from replication.control_state.membership import Membership
from replication.raft.admission import words_needed
from tests.sim.cluster import Cluster

LOOK_MS: Final = 250.0
SIZES: Final = (3, 3, 5)


def address_of(name: NodeId) -> str:
    return f"{name}:7403"


class ChangingCluster(Cluster):
    """See the top of this file."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        control = self.control
        control.membership = Membership(members={name: address_of(name) for name in self.names})
        control.replicas = self.names
        self.changes: list[tuple[frozenset[NodeId], frozenset[NodeId]]] = []
        """Who came, and who went."""
        self.is_changing_members = True
        self._number = 1
        self.events.later(LOOK_MS, self._look)

    def _look(self) -> None:
        self.events.later(LOOK_MS * self.events.random.uniform(0.5, 2.0), self._look)
        if self.is_changing_members and self.control.epoch:
            self._change()

    def _change(self) -> None:
        """Ask for other members, some of which may be new."""
        random, control = self.events.random, self.control
        current = list(self.names)
        leaving = random.sample(current, random.choice((0, 1, 1, 2)))
        if control.master in leaving and random.random() < 0.8:
            leaving.remove(control.master)  # else it was elected in the moment of the change
        staying = [one for one in current if one not in leaving]
        self.change(staying, coming=max(0, random.choice(SIZES) - len(staying)))

    def change(self, staying: list[NodeId], *, coming: int) -> bool:
        """These are to stay, and so many to come. Whether they will."""
        control, before = self.control, frozenset(self.names)
        new = [NodeId(f"n{self._number + number:03}") for number in range(coming)]
        after = [*staying, *new]
        living = [one for one in after if one in new or control.is_alive(one)]
        replicas = [one for one in control.replicas if one in living]
        may_be = (
            2 * len(living) > len(after)
            and not (new and len(living) - 1 < words_needed(len(after)))
            and 2 * len(replicas) > len(control.replicas)
        )
        if not may_be or not control.change_members({one: address_of(one) for one in after}):
            return False
        self._number += coming
        self.changes.append((frozenset(new), before - frozenset(after)))
        self.names = tuple(sorted(after))
        for name in new:
            self.nodes[name] = self.make_node(name)
            self.nodes[name].start()
        return True

    def heal(self) -> None:
        """Nobody comes or goes any more, either."""
        self.is_changing_members = False
        super().heal()

    def settle(self) -> None:
        """Whatever has happened, members can be changed again; then as every cluster."""
        self.heal()
        self.is_changing_members, count = True, len(self.changes)
        done = self.events.run_until(lambda: len(self.changes) > count, self.times.settle_ms)
        assert done, f"members cannot be changed any more: {self.describe()}"
        super().settle()
