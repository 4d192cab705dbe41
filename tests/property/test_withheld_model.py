"""Leases with damaged positions against sets: nothing is lost, nothing is stalled, lag is true."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.delivery import leases as module
from node.delivery.leases import Leases
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow

HELD = GroupQueue(1, 256)
WINDOW = 3
"""Instead of 65,536."""
DRAWS = st.integers(0, 1 << 30)


class Withheld(RuleBasedStateMachine):
    """One group's deliveries of one queue, in which some messages cannot be read now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.real_window, module.WINDOW_POSITIONS = module.WINDOW_POSITIONS, WINDOW
        self.leases, self.window = Leases(), AckWindow()
        self.end = 0
        self.damaged: set[int] = set()
        """Cannot be read now."""
        self.once_withheld: set[int] = set()
        self.withheld: set[int] = set()
        self.leased: set[int] = set()
        self.resolved: set[int] = set()

    def teardown(self) -> None:
        module.WINDOW_POSITIONS = self.real_window

    def waiting(self) -> set[int]:
        """Neither resolved, nor leased, nor known to be damaged."""
        return set(range(self.end)) - self.resolved - self.leased - self.withheld

    def counted(self) -> list[int]:
        """Unresolved positions that count in the window, ascending."""
        return sorted(set(range(self.end)) - self.resolved - self.once_withheld)

    @rule(count=st.integers(1, 30))
    def release(self, count: int) -> None:
        self.end += count

    @rule(draw=DRAWS, count=st.integers(1, 4))
    def damage(self, draw: int, count: int) -> None:
        if self.end:
            first = draw % self.end
            self.damaged |= set(range(first, min(self.end, first + count)))

    @rule(count_max=st.integers(1, 8))
    def receive(self, count_max: int) -> None:
        while True:
            first, end = self.leases.find_range(HELD, self.window, (0, self.end), count_max)
            if first >= end:
                break
            assert set(range(first, end)) <= self.waiting()
            assert first == min(self.waiting()), "the first comes first"
            bad = next((at for at in range(first, end) if at in self.damaged), None)
            if bad is None or bad > first:
                end = end if bad is None else bad
                self.leases.grant(HELD, first, end, 1_000)
                self.leased |= set(range(first, end))
                return
            assert self.leases.withhold(HELD, first)
            self.withheld.add(first)
            self.once_withheld.add(first)
        # Nothing is delivered only where there is nothing, or where the window is full of
        # positions that are not, and never were, withheld.
        if self.waiting():
            counted = self.counted()
            assert min(self.waiting()) >= counted[0] + WINDOW
            assert self.leases.is_blocked(HELD, self.window, (0, self.end))

    @precondition(lambda self: self.leased)
    @rule(draw=DRAWS)
    def acknowledge(self, draw: int) -> None:
        at = sorted(self.leased)[draw % len(self.leased)]
        self.window.resolve(at, 1)
        self.leased.discard(at)
        self.resolved.add(at)
        for lease_id in [one for one, lease in self.leases._by_id.items() if lease.first == at]:
            lease = self.leases.get(lease_id)
            assert lease is not None
            if lease.count == 1:
                self.leases.end(lease_id)

    @precondition(lambda self: self.withheld)
    @rule(draw=DRAWS)
    def heal(self, draw: int) -> None:
        at = sorted(self.withheld)[draw % len(self.withheld)]
        self.damaged.discard(at)
        self.leases.offer_again(HELD, at, at + 1)
        self.withheld.discard(at)

    @precondition(lambda self: self.withheld)
    @rule(draw=DRAWS)
    def discard(self, draw: int) -> None:
        at = sorted(self.withheld)[draw % len(self.withheld)]
        self.window.resolve(at, 1)
        self.leases.settle(HELD, at)
        self.withheld.discard(at)
        self.resolved.add(at)

    @rule()
    def hand_over(self) -> None:
        """The successor delivers what was withheld here; what is leased stays with its holders."""
        table = self.leases.table(7)
        self.leases = Leases()
        self.leases.restore(table, 0)
        self.withheld, self.once_withheld = set(), set()

    @invariant()
    def lag_is_true(self) -> None:
        bounds = 0, self.end
        found = self.leases.count_unresolved(HELD, self.window, bounds, 0)
        assert found == (len(self.leased), len(self.waiting()) + len(self.withheld))
        assert self.leases.withheld_count(HELD, self.window, bounds) == len(self.withheld)

    @invariant()
    def window_begins_at_what_is_worked_on(self) -> None:
        floor = self.leases.window_floor(HELD, self.window)
        counted = self.counted()
        assert floor == (counted[0] if counted else floor)
        assert floor >= self.window.floor


TestWithheld: Any = Withheld.TestCase
TestWithheld.settings = settings(max_examples=60, stateful_step_count=50)
