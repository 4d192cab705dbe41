"""What expires, held against a naive reading: no group gets it afterwards, and none is lost.

The model knows when each message expires and what each lease held. It has no sweep, no ranges and
no memory of what was passed over.
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
from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import topic_queue
from node.contracts.broker import Delivery, GroupSettings, Selection
from node.delivery.expiry_sweep import PASS_MS
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

INVISIBLE_MS = 2_000
KEYS = ("", "a", "b")
STEPS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.sampled_from((0, 0, 300)),
                st.sampled_from((0, 0, 1, 200, 1_000, 4_000)),
                st.booleans(),
            ),
            min_size=1,
            max_size=8,
        ),
    ),
    st.tuples(st.just("receive"), st.sampled_from((1, 3, 32))),
    st.tuples(st.just("ack"), st.integers(0, 40)),
    st.tuples(st.just("nack"), st.integers(0, 40)),
    st.tuples(st.just("wait"), st.sampled_from((100, 400, 1_000, INVISIBLE_MS, PASS_MS))),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("new master"), st.none()),
)


@dataclass
class Model:
    """What was published, and what became of it, by label: the sequence."""

    expires_ms: dict[int, int] = field(default_factory=dict)
    """0: never."""
    wanted: set[int] = field(default_factory=set)
    live: list[tuple[int, Selection, int]] = field(default_factory=list)
    """(label, how to acknowledge it, until when) of what is leased."""
    acked: list[int] = field(default_factory=list)


class Walk:
    """One life of a group: ordered or not, with a filter or not, with a sweep or with none."""

    def __init__(self, world: EngineWorld, order: GroupOrder, tag: str, *, kept: bool) -> None:
        """`kept`: what expires becomes a dead letter."""
        self.world, self.order, self.tag, self.kept = world, order, tag, kept
        self.model = Model()
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
        wanted = GroupSettings(
            attempts_max=9, retry_delay_ms=200, order=self.order, keeps_expired=self.kept
        )
        await within(self.world.engine.put_group("billing", wanted))
        if self.tag:
            await within(
                self.world.engine.put_subscription(
                    "billing", "orders", FilterExpression.tags(self.tag)
                )
            )

    async def publish(self, drafts: list[tuple[str, int, int, bool]]) -> None:
        """In one batch; every other expiry is counted from when the message is stored."""
        now_ms, metas, expires = self.world.now_ms, [], []
        for ordinal, (key, delay_ms, after_ms, is_wanted) in enumerate(drafts):
            at_ms = now_ms + delay_ms + after_ms if after_ms else 0
            stated = now_ms - at_ms if at_ms and ordinal % 2 else at_ms
            expires.append(at_ms)
            tag = "x" if is_wanted else "y"
            metas.append(encode(MessageMeta(tags=(tag,), ordering_key=key, expires_ms=stated)))
        raw = build_publish(
            [now_ms + delay_ms for _, delay_ms, _, _ in drafts],
            [b"body"] * len(drafts),
            metas=[meta.raw for meta in metas],
            tag_genes=[meta.tag_gene for meta in metas],
            key_hashes=[meta.key_hash for meta in metas],
            gene_spec=DEFAULT_SPEC.number,
        )
        published = await within(self.world.engine.publish_batch("orders", RecordBatch(raw)))
        for ordinal, (_, _, _, is_wanted) in enumerate(drafts):
            self.model.expires_ms[published.base_sequence + ordinal] = expires[ordinal]
            if is_wanted or not self.tag:
                self.model.wanted.add(published.base_sequence + ordinal)

    def forget(self) -> None:
        """Leases that have ended by the clock."""
        now_ms = self.world.now_ms
        self.model.live = [one for one in self.model.live if one[2] > now_ms]

    async def receive(self, count: int) -> Delivery | None:
        """Nothing comes that has expired."""
        self.forget()
        delivery = await self.world.receive(count=count, invisible_ms=INVISIBLE_MS)
        if delivery is None:
            return None
        for ordinal, label in enumerate(delivery.units["sequence"].tolist()):
            at_ms = self.model.expires_ms[label]
            assert not at_ms or at_ms > self.world.now_ms, "delivered although expired"
            assert label in self.model.wanted
            assert label not in self.model.acked, "delivered although acknowledged"
            one = self.world.select(delivery, ordinal, 1)
            self.model.live.append((label, one, delivery.invisible_until_ms))
        return delivery

    async def ack(self, index: int) -> None:
        """What was leased in time may be acknowledged, also after it has expired."""
        self.forget()
        if self.model.live:
            label, one, _ = self.model.live.pop(index % len(self.model.live))
            assert await self.world.ack(one) == [ReceiptOutcome.OK]
            self.model.acked.append(label)

    async def nack(self, index: int) -> None:
        """Give something back."""
        self.forget()
        if self.model.live:
            _, one, _ = self.model.live.pop(index % len(self.model.live))
            assert await self.world.nack(one) == [ReceiptOutcome.OK]

    async def wait(self, by_ms: int) -> None:
        """Time passes."""
        self.world.advance(by_ms)
        await let_others_run()
        await within(self.world.engine.group_commit.drain())

    async def restart(self) -> None:
        """Stop and start: all leases are over."""
        await self.world.restart()
        self.model.live = []

    async def new_master(self) -> None:
        """A new mastership: the same, without a start."""
        self.world.step_down()
        self.world.become_master()
        await until(lambda: self.world.engine.service is not None)
        self.model.live = []

    async def finish(self) -> None:
        """Each message is acknowledged, or was resolved as expired, and none is both."""
        for _ in range(60):
            await self.wait(INVISIBLE_MS)
            while await self.receive(32) is not None:
                while self.model.live:
                    await self.ack(0)
            if set(self.model.acked) | self.expired() >= self.model.wanted:
                break
        assert set(self.model.acked) | self.expired() >= self.model.wanted, "lost"
        assert len(self.model.acked) == len(set(self.model.acked)), "acknowledged twice"
        assert not set(self.model.acked) & self.expired()
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
                    assert 0 < self.model.expires_ms[label] <= batch.header.store_ms, "too early"
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

    async def play() -> None:
        with TemporaryDirectory() as folder:
            async with EngineWorld(Path(folder)) as world:
                walk = Walk(world, order, tag, kept=kept)
                await walk.begin()
                for name, argument in steps:
                    await walk.steps[name](argument)
                await walk.finish()

    asyncio.run(play())
