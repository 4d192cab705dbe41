"""What expires, held against a naive reading: no group gets it afterwards, and none is lost.

The model knows when each message expires and what each lease held. It has no sweep, no ranges and
no memory of what was passed over.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.formats.meta import MessageMeta
from hourwheel.formats.record_batch import Kind, Outcome
from hourwheel.types import topic_queue
from node.contracts.broker import Delivery, GroupSettings
from node.delivery.expiry_sweep import PASS_MS
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld
from tests.support.group_walk import RETRY_MS, GroupWalk, any_step, play

DRAFTS = st.tuples(
    st.sampled_from(("", "a", "b")),
    st.sampled_from((0, 0, 300)),
    st.sampled_from((0, 0, 1, 200, 1_000, 4_000)),
    st.booleans(),
)
STEPS = any_step(DRAFTS, (100, 400, 1_000, GroupWalk.invisible_ms, PASS_MS))


class Walk(GroupWalk):
    """One life of a group: ordered or not, with a filter or not, with a sweep or with none."""

    def __init__(self, world: EngineWorld, order: GroupOrder, tag: str, *, kept: bool) -> None:
        """`kept`: what expires becomes a dead letter."""
        group = GroupSettings(
            attempts_max=9, retry_delay_ms=RETRY_MS, order=order, keeps_expired=kept
        )
        super().__init__(world, group, tag)
        self.kept = kept
        self.expires_ms: dict[int, int] = {}
        """By label; 0: never."""

    async def publish(self, drafts: list[tuple[str, int, int, bool]]) -> None:
        """In one batch; every other expiry is counted from when the message is stored."""
        now_ms, metas, expires = self.world.now_ms, [], []
        for ordinal, (key, delay_ms, after_ms, is_wanted) in enumerate(drafts):
            at_ms = now_ms + delay_ms + after_ms if after_ms else 0
            stated = now_ms - at_ms if at_ms and ordinal % 2 else at_ms
            expires.append(at_ms)
            tag = "x" if is_wanted else "y"
            metas.append(MessageMeta(tags=(tag,), ordering_key=key, expires_ms=stated))
        labels = await self.publish_all(metas, [delay_ms for _, delay_ms, _, _ in drafts])
        self.expires_ms.update(zip(labels, expires, strict=True))

    def check(self, delivery: Delivery | None, labels: list[int]) -> None:
        """Nothing comes that has expired."""
        for label in labels:
            at_ms = self.expires_ms[label]
            assert not at_ms or at_ms > self.world.now_ms, "delivered although expired"

    async def finish(self) -> None:
        """Each message is acknowledged, or was resolved as expired, and none is both."""
        await self.consume(lambda: set(self.acked) | self.expired() >= self.wanted, 60)
        assert set(self.acked) | self.expired() >= self.wanted, "lost"
        assert len(self.acked) == len(set(self.acked)), "acknowledged twice"
        assert not set(self.acked) & self.expired()
        if self.kept:
            assert self.letters() == self.expired()

    def expired(self) -> set[int]:
        """What the log says has expired: not earlier than it had."""
        views, found = self.world.engine.shard.views, set[int]()
        log = self.world.engine.shard.log
        for batch in log.scan(0, views.applied_offset):
            for row in batch.rows if batch.header.kind == Kind.RESOLVE else ():
                if row["outcome"] not in (Outcome.EXPIRED, Outcome.EXPIRED_LETTER):
                    continue
                assert (row["outcome"] == Outcome.EXPIRED_LETTER) == self.kept
                queue = views.queues.get(int(row["topic_queue"]))
                for unit in queue.read(int(row["first_position"]), int(row["count"])):
                    label = int(unit["sequence"])
                    assert 0 < self.expires_ms[label] <= batch.header.store_ms, "too early"
                    found.add(label)
        return found

    def letters(self) -> set[int]:
        """Sequences of the group's dead letters."""
        views = self.world.engine.shard.views
        group = views.catalog.get_group("billing")
        if not group.dead_letter_topic_id:
            return set()
        queue = views.queues.get(topic_queue(group.dead_letter_topic_id, 0))
        return set(queue.read(0, queue.end_position)["sequence"].tolist())


@pytest.mark.parametrize("order", [GroupOrder.NONE, GroupOrder.BLOCK])
@pytest.mark.parametrize("tag", ["", "x"])
@settings(max_examples=10, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=40), kept=st.booleans())
def test_nothing_expired_is_delivered_and_nothing_else_expires(
    order: GroupOrder, tag: str, steps: list[Any], kept: bool
) -> None:
    """However messages are acknowledged, given back, forgotten, and masters change."""
    play(lambda world: Walk(world, order, tag, kept=kept), steps)
