"""No group gets more than its limits allow, and nobody waits where they allow more.

The lives of tests/property/test_waiting_model.py, with limits that change, against what consumers
hold by their own books.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from node.contracts.broker import CatalogUpdate, Delivery, GroupSettings
from tests.property.test_waiting_model import FILTERS, INVISIBLE_MS, Poll, WaitingMachine

_groups = st.sampled_from(sorted(FILTERS))
_limits = st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0, 2, 40, 2_000]))


class GroupLimitsMachine(WaitingMachine):
    """Random lives of limited consumers."""

    limits: dict[str, tuple[int, int]]
    taken: dict[str, list[tuple[int, int, int]]]
    """Group -> (not before, not after, messages) of each delivery since its limits changed."""
    looked_ms = 0
    heard = 0

    @rule(group=_groups, limits=_limits)
    def limit(self, group: str, limits: tuple[int, int]) -> None:
        """An operator sets a group's limits, whoever waits."""
        engine = self.stepped.engine
        if self.stepped.gate.is_lapsed or engine.shard.views.catalog.find_group(group) is None:
            return
        wanted = GroupSettings(in_flight_max=limits[0], per_second_max=limits[1])
        self._books()[0][group] = limits
        changing = self.stepped.begin(engine.update_group(group, CatalogUpdate(), wanted))
        self.stepped.settle()
        assert changing.result().in_flight_max == limits[0]
        self._books()[1][group] = []
        self.look()

    @rule()
    @precondition(lambda self: self.polls and not self.stepped.gate.is_lapsed)
    def have_patience(self) -> None:
        """Whoever waits for a rate alone gets something in time."""
        self.read_all()
        waiting = [
            poll
            for poll in self.polls
            if self._has_room(poll.group) and list(self._visible(poll.group, poll.topic))
        ]
        if not waiting:
            return
        heard = {poll.group: self._count_of(poll.group) for poll in waiting}
        rates = {group: self._books()[0][group][1] for group in heard}
        assert all(rates.values()), "nothing but a rate keeps them waiting"
        slowest = min(rates.values())
        self.advance(-(-max(1, slowest // 50) * 1_000 // slowest) + 1)
        for group, before in heard.items():
            left = [one for one in waiting if one.group == group and one in self.polls]
            assert not left or self._count_of(group) > before or not self._has_room(group)

    # -- their books ------------------------------------------------------------------------------

    def _books(self) -> tuple[dict[str, tuple[int, int]], dict[str, list[tuple[int, int, int]]]]:
        if not hasattr(self, "limits"):
            self.limits, self.taken = {}, {}
        return self.limits, self.taken

    def _count_of(self, group: str) -> int:
        return sum(count for _, _, count in self._books()[1].get(group, ()))

    def _held(self, group: str) -> int:
        def is_held(one: Delivery) -> bool:
            return self.stepped.now_ms < one.receive_ms + INVISIBLE_MS

        return sum(len(one.units) for of, one in self.deliveries if of == group and is_held(one))

    def _has_room(self, group: str) -> bool:
        most = self._books()[0].get(group, (0, 0))[0]
        return not most or self._held(group) < most

    def may_have(self, poll: Poll) -> bool:
        """See there."""
        rate = self._books()[0].get(poll.group, (0, 0))[1]
        return super().may_have(poll) and not rate and self._has_room(poll.group)

    def _hear(self) -> None:
        known = len(self.deliveries)
        super()._hear()
        limits, taken = self._books()
        for group, delivery in self.deliveries[known:]:
            count = len(delivery.units)
            taken.setdefault(group, []).append((self.looked_ms, self.stepped.now_ms, count))
            in_flight_max, rate = limits.get(group, (0, 0))
            assert not in_flight_max or self._held(group) <= in_flight_max
            if rate:
                self._check_rate(taken[group], rate)
        self.looked_ms = self.stepped.now_ms

    def _check_rate(self, taken: list[tuple[int, int, int]], rate: int) -> None:
        total, last_ms = 0, taken[-1][1]
        for begin_ms, _, count in reversed(taken):
            total += count
            allowed = max(1, rate // 10) + rate * (last_ms - begin_ms) / 1_000
            assert total <= allowed, f"{total} came in {last_ms - begin_ms} ms at {rate} a second"


TestGroupLimits = GroupLimitsMachine.TestCase
TestGroupLimits.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
