"""Priorities, held against a naive reading: what a group is given is the first of what waits.

The model knows when each message falls due, which priority it has, and what each lease held. It
knows of no queues: what waits has an order, and an answer is a beginning of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.outcomes import ReceiptOutcome
from node.contracts.broker import Delivery, GroupSettings, Selection
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

INVISIBLE_MS = 2_000
RETRY_MS = 200
KEYS = ("", "", "a")
STEPS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.sampled_from((0, 0, 300, 1_000)),
                st.sampled_from((0, 0, 1, 5, 9)),
                st.booleans(),
            ),
            min_size=1,
            max_size=8,
        ),
    ),
    st.tuples(st.just("receive"), st.sampled_from((1, 3, 32))),
    st.tuples(st.just("ack"), st.integers(0, 40)),
    st.tuples(st.just("nack"), st.integers(0, 40)),
    st.tuples(st.just("wait"), st.sampled_from((100, 400, 1_000, INVISIBLE_MS))),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("new master"), st.none()),
)


@dataclass
class Model:
    """What was published, and what became of it, by label: the sequence."""

    priority: dict[int, int] = field(default_factory=dict)
    """As it counts: of what has an ordering key it is 0."""
    visible_ms: dict[int, int] = field(default_factory=dict)
    """From when on it may be given to the group, unless it is leased."""
    wanted: set[int] = field(default_factory=set)
    live: list[tuple[int, Selection, int]] = field(default_factory=list)
    """(label, how to acknowledge it, until when) of what is leased."""
    acked: list[int] = field(default_factory=list)


class Walk:
    """One life of a group: ordered or not, with a filter or not."""

    def __init__(self, world: EngineWorld, order: GroupOrder, tag: str) -> None:
        """Nothing has happened yet."""
        self.world, self.order, self.tag = world, order, tag
        self.model = Model()
        self.seen: set[int] = set()
        """Labels that were delivered."""
        self.steps: dict[str, Callable[[Any], Awaitable[object]]] = {
            "publish": self.publish,
            "receive": self.receive,
            "ack": self.ack,
            "nack": self.nack,
            "wait": self.wait,
            "restart": lambda _: self.restart(),
            "new master": lambda _: self.new_master(),
        }

    async def begin(self) -> None:
        """The topic and the group."""
        await within(self.world.engine.create_topic("orders", 2))
        wanted = GroupSettings(attempts_max=99, retry_delay_ms=RETRY_MS, order=self.order)
        await within(self.world.engine.put_group("billing", wanted))
        if self.tag:
            await within(
                self.world.engine.put_subscription(
                    "billing", "orders", FilterExpression.tags(self.tag)
                )
            )

    async def publish(self, drafts: list[tuple[str, int, int, bool]]) -> None:
        """In one batch."""
        now_ms = self.world.now_ms
        metas = [
            encode(
                MessageMeta(tags=("x" if is_wanted else "y",), ordering_key=key, priority=priority)
            )
            for key, _, priority, is_wanted in drafts
        ]
        raw = build_publish(
            [now_ms + delay_ms for _, delay_ms, _, _ in drafts],
            [b"body"] * len(drafts),
            metas=[meta.raw for meta in metas],
            tag_genes=[meta.tag_gene for meta in metas],
            key_hashes=[meta.key_hash for meta in metas],
            gene_spec=DEFAULT_SPEC.number,
        )
        published = await within(self.world.engine.publish_batch("orders", RecordBatch(raw)))
        for ordinal, (key, delay_ms, priority, is_wanted) in enumerate(drafts):
            label = published.base_sequence + ordinal
            self.model.priority[label] = 0 if key else priority
            self.model.visible_ms[label] = now_ms + delay_ms
            if is_wanted or not self.tag:
                self.model.wanted.add(label)

    def forget(self) -> None:
        """Leases that have ended by the clock: what they held is given again after a while."""
        now_ms = self.world.now_ms
        for label, _, until_ms in self.model.live:
            if until_ms <= now_ms:
                self.model.visible_ms[label] = until_ms + RETRY_MS
        self.model.live = [one for one in self.model.live if one[2] > now_ms]

    def highest(self) -> int:
        """The highest priority of what has surely been visible for a while."""
        leased, now_ms = {label for label, _, _ in self.model.live}, self.world.now_ms
        waiting = self.model.wanted - leased - set(self.model.acked)
        found = [
            self.model.priority[label]
            for label in waiting
            if self.model.visible_ms[label] + RETRY_MS < now_ms
        ]
        return max(found, default=0)

    async def receive(self, count: int) -> Delivery | None:
        """One answer has one priority, and none higher is left waiting."""
        self.forget()
        highest = self.highest()
        delivery = await self.world.receive(count=count, invisible_ms=INVISIBLE_MS)
        if delivery is None:
            assert not highest, "nothing came although something prioritised waits"
            return None
        labels = delivery.units["sequence"].tolist()
        (priority,) = {self.model.priority[label] for label in labels}
        assert priority >= highest, "a lower priority came first"
        for ordinal, label in enumerate(labels):
            assert self.model.visible_ms[label] <= self.world.now_ms, "early"
            assert label in self.model.wanted
            assert label not in self.model.acked, "delivered although acknowledged"
            one = self.world.select(delivery, ordinal, 1)
            self.model.live.append((label, one, delivery.invisible_until_ms))
        firsts = [label for label in labels if label not in self.seen]
        by_due = sorted(firsts, key=lambda label: (self.model.visible_ms[label], label))
        assert firsts == by_due or not priority, "not in the order of due times"
        self.seen.update(labels)
        return delivery

    async def ack(self, index: int) -> None:
        """Acknowledge one."""
        self.forget()
        if self.model.live:
            label, one, _ = self.model.live.pop(index % len(self.model.live))
            assert await self.world.ack(one) == [ReceiptOutcome.OK]
            self.model.acked.append(label)

    async def nack(self, index: int) -> None:
        """Give something back."""
        self.forget()
        if self.model.live:
            label, one, _ = self.model.live.pop(index % len(self.model.live))
            assert await self.world.nack(one) == [ReceiptOutcome.OK]
            self.model.visible_ms[label] = self.world.now_ms + RETRY_MS

    async def wait(self, by_ms: int) -> None:
        """Time passes."""
        self.world.advance(by_ms)
        await let_others_run()
        await within(self.world.engine.group_commit.drain())
        await let_others_run()

    def _over(self) -> None:
        """All leases are over."""
        self.forget()
        for label, _, _ in self.model.live:
            self.model.visible_ms[label] = self.world.now_ms
        self.model.live = []

    async def restart(self) -> None:
        """Stop and start."""
        await self.world.restart()
        self._over()

    async def new_master(self) -> None:
        """A new mastership: the same, without a start."""
        self.world.step_down()
        self.world.become_master()
        await until(lambda: self.world.engine.service is not None)
        self._over()

    async def finish(self) -> None:
        """Each message is acknowledged once."""
        for _ in range(60):
            await self.wait(INVISIBLE_MS)
            while await self.receive(32) is not None:
                while self.model.live:
                    await self.ack(0)
            if set(self.model.acked) >= self.model.wanted:
                break
        assert sorted(self.model.acked) == sorted(self.model.wanted), "lost, or twice"


@pytest.mark.parametrize("order", [GroupOrder.NONE, GroupOrder.BLOCK])
@pytest.mark.parametrize("tag", ["", "x"])
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_the_highest_priority_comes_first_and_nothing_is_early_or_lost(
    order: GroupOrder, tag: str, steps: list[Any]
) -> None:
    """However messages are acknowledged, given back, forgotten, and masters change."""

    async def play() -> None:
        with TemporaryDirectory() as folder:
            async with EngineWorld(Path(folder)) as world:
                walk = Walk(world, order, tag)
                await walk.begin()
                for name, argument in steps:
                    await walk.steps[name](argument)
                await walk.finish()

    asyncio.run(play())
