"""Priorities, held against a naive reading: what a group is given is the first of what waits.

The model knows when each message falls due, which priority it has, and what each lease held. It
knows of no queues: what waits has an order, and an answer is a beginning of it.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.formats.meta import MessageMeta
from node.contracts.broker import Delivery, GroupSettings
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld
from tests.support.group_walk import RETRY_MS, GroupWalk, Leased, any_step, play

DRAFTS = st.tuples(
    st.sampled_from(("", "", "a")),
    st.sampled_from((0, 0, 300, 1_000)),
    st.sampled_from((0, 0, 1, 5, 9)),
    st.booleans(),
)
STEPS = any_step(DRAFTS, (100, 400, 1_000, GroupWalk.invisible_ms))


class Walk(GroupWalk):
    """One life of a group: ordered or not, with a filter or not."""

    def __init__(self, world: EngineWorld, order: GroupOrder, tag: str) -> None:
        """Nothing has happened yet."""
        group = GroupSettings(attempts_max=99, retry_delay_ms=RETRY_MS, order=order)
        super().__init__(world, group, tag)
        self.priority: dict[int, int] = {}
        """As it counts: of what has an ordering key it is 0."""
        self.visible_ms: dict[int, int] = {}
        """From when on it may be given to the group, unless it is leased."""
        self.seen: set[int] = set()
        """Labels that were delivered."""

    async def publish(self, drafts: list[tuple[str, int, int, bool]]) -> None:
        """In one batch."""
        now_ms = self.world.now_ms
        metas = [
            MessageMeta(tags=("x" if is_wanted else "y",), ordering_key=key, priority=priority)
            for key, _, priority, is_wanted in drafts
        ]
        labels = await self.publish_all(metas, [delay_ms for _, delay_ms, _, _ in drafts])
        for label, (key, delay_ms, priority, _) in zip(labels, drafts, strict=True):
            self.priority[label] = 0 if key else priority
            self.visible_ms[label] = now_ms + delay_ms

    def on_over(self, one: Leased, at_ms: int) -> None:
        """It is given again after a while."""
        self.visible_ms[one.label] = at_ms + RETRY_MS

    def on_lost(self, one: Leased) -> None:
        """It is given again at once."""
        self.visible_ms[one.label] = self.world.now_ms

    def highest(self) -> int:
        """The highest priority of what has surely been visible for a while."""
        waiting = self.wanted - {one.label for one in self.live} - set(self.acked)
        found = [
            self.priority[label]
            for label in waiting
            if self.visible_ms[label] + RETRY_MS < self.world.now_ms
        ]
        return max(found, default=0)

    def check(self, delivery: Delivery | None, labels: list[int]) -> None:
        """One answer has one priority, and none higher is left waiting."""
        highest = self.highest()
        if delivery is None:
            assert not highest, "nothing came although something prioritised waits"
            return
        (priority,) = {self.priority[label] for label in labels}
        assert priority >= highest, "a lower priority came first"
        assert all(self.visible_ms[label] <= self.world.now_ms for label in labels), "early"
        firsts = [label for label in labels if label not in self.seen]
        by_due = sorted(firsts, key=lambda label: (self.visible_ms[label], label))
        assert firsts == by_due or not priority, "not in the order of due times"
        self.seen.update(labels)

    async def finish(self) -> None:
        """Each message is acknowledged once."""
        await self.consume(lambda: set(self.acked) >= self.wanted, 60)
        assert sorted(self.acked) == sorted(self.wanted), "lost, or twice"


@pytest.mark.parametrize("order", [GroupOrder.NONE, GroupOrder.BLOCK])
@pytest.mark.parametrize("tag", ["", "x"])
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_the_highest_priority_comes_first_and_nothing_is_early_or_lost(
    order: GroupOrder, tag: str, steps: list[Any]
) -> None:
    """However messages are acknowledged, given back, forgotten, and masters change."""
    play(lambda world: Walk(world, order, tag), steps)
