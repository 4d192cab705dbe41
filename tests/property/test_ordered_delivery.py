"""What an ordered group is given, held against a naive reading of its queues, whatever happens.

The model knows which key each message has and reads the queues from the first entry on. It has no
lines, no windows and no leases but those that it was told of.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
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
from hourwheel.types import topic_queue
from node.contracts.broker import Delivery, GroupSettings, Selection
from node.contracts.dead_letters import DeadLetterQuery
from node.contracts.ending import Ending
from node.shard.shard import Shard
from storage.queues.ack_state import BLOCKED_MS
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

QUEUES = 2
INVISIBLE_MS = 5_000
ALL = DeadLetterQuery("billing")
KEYS = ("", "a", "b", "c")

STEPS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from((0, 0, 300, 900)), st.booleans()),
            min_size=1,
            max_size=8,
        ),
    ),
    st.tuples(st.just("receive"), st.sampled_from((1, 3, 32))),
    st.tuples(st.just("ack"), st.integers(0, 40)),
    st.tuples(st.just("ack late"), st.integers(0, 40)),
    st.tuples(st.just("nack"), st.integers(0, 40)),
    st.tuples(st.just("reject"), st.integers(0, 40)),
    st.tuples(st.just("wait"), st.sampled_from((100, 400, 1_000, INVISIBLE_MS))),
    st.tuples(st.just("redrive"), st.none()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("new master"), st.none()),
)


@dataclass
class Held:
    """A message in a delivery."""

    label: int
    selection: Selection
    until_ms: int
    place: tuple[int, int]
    """(queue, position)."""


@dataclass
class Model:
    """What was published, and what became of it."""

    keys: dict[int, str] = field(default_factory=dict)
    """By label, which is the body."""
    wanted: set[int] = field(default_factory=set)
    live: list[Held] = field(default_factory=list)
    over: list[Held] = field(default_factory=list)
    finished: set[tuple[int, int]] = field(default_factory=set)
    """(queue, position) of what was acknowledged."""
    acked: list[int] = field(default_factory=list)


class Walk:
    """One life of an ordered group."""

    def __init__(self, world: EngineWorld, order: GroupOrder, tag: str) -> None:
        """The group wants messages with a tag, or all."""
        self.world, self.order, self.tag = world, order, tag
        self.model = Model()

        self.steps: dict[str, Callable[[Any], Awaitable[object]]] = {
            "publish": self.publish,
            "receive": self.receive,
            "ack": self.ack,
            "ack late": self.ack_late,
            "nack": self.nack,
            "reject": self.reject,
            "wait": self.wait,
            "redrive": lambda _: self.redrive(),
            "restart": lambda _: self.restart(),
            "new master": lambda _: self.new_master(),
        }

    async def begin(self) -> None:
        """The topic and the group."""
        engine = self.world.engine
        await within(engine.create_topic("orders", QUEUES))
        wanted = GroupSettings(attempts_max=3, retry_delay_ms=200, order=self.order)
        await within(engine.put_group("billing", wanted))
        if self.tag:
            await within(engine.put_subscription("billing", "orders", FilterExpression.tags("x")))

    @property
    def shard(self) -> Shard:
        """Of the latest start."""
        return self.world.engine.shard

    def entries(self, number: int) -> Iterator[tuple[int, int, str]]:
        """(position, label, key) of each entry of a queue, from the first on."""
        queue = self.shard.views.queues.get(topic_queue(self.topic_id, number))
        for position in range(queue.start_position, queue.end_position):
            sequence = int(queue.read(position, 1)["sequence"][0])
            yield position, sequence, self.model.keys[sequence]

    @property
    def topic_id(self) -> Any:
        """Of the topic."""
        return self.shard.views.catalog.get_topic("orders").topic_id

    async def publish(self, drafts: list[tuple[str, int, bool]]) -> None:
        """In one batch."""
        metas = [
            encode(MessageMeta(tags=("x",) if is_wanted else ("y",), ordering_key=key))
            for key, _, is_wanted in drafts
        ]
        raw = build_publish(
            [self.world.now_ms + delay_ms for _, delay_ms, _ in drafts],
            [b"body"] * len(drafts),
            metas=[meta.raw for meta in metas],
            tag_genes=[meta.tag_gene for meta in metas],
            key_hashes=[meta.key_hash for meta in metas],
            gene_spec=DEFAULT_SPEC.number,
        )
        published = await within(self.world.engine.publish_batch("orders", RecordBatch(raw)))
        for ordinal, (key, _, is_wanted) in enumerate(drafts):
            self.model.keys[published.base_sequence + ordinal] = key
            if is_wanted or not self.tag:
                self.model.wanted.add(published.base_sequence + ordinal)

    def forget(self) -> None:
        """Leases that have ended by the clock."""
        ended = [one for one in self.model.live if one.until_ms <= self.world.now_ms]
        self.model.over += ended
        self.model.live = [one for one in self.model.live if one not in ended]

    async def receive(self, count: int) -> Delivery | None:
        """Receive, and check what came."""
        self.forget()
        delivery = await self.world.receive(count=count, invisible_ms=INVISIBLE_MS)
        if delivery is None:
            return None
        labels = [int(one) for one in delivery.units["sequence"]]
        queue = self.shard.views.queues.get(delivery.topic_queue)  # type: ignore[arg-type]
        places = {
            int(queue.read(at, 1)["sequence"][0]): (int(delivery.topic_queue), at)
            for at in range(queue.start_position, queue.end_position)
        }
        for ordinal, label in enumerate(labels):
            assert label in self.model.wanted
            key, place = self.model.keys[label], places[label]
            if key:
                rivals = [one for one in self.model.live if self.model.keys[one.label] == key]
                assert rivals == [], "two live leases of one key"
                self.check_first(key, place)
            one = self.world.select(delivery, ordinal, 1)
            self.model.live.append(Held(label, one, delivery.invisible_until_ms, place))
        return delivery

    def check_first(self, key: str, place: tuple[int, int]) -> None:
        """Nothing of the key stands before it and is not finished."""
        if place[0] >> 8 != self.topic_id:
            return  # a dead letter that was given again has lost its place
        window = self.shard.views.acks.get(self.group_id, place[0])
        for position, label, other in self.entries(place[0] & 0xFF):
            if position >= place[1]:
                break
            is_unfinished = other == key and label in self.model.wanted
            if is_unfinished and (place[0], position) not in self.model.finished:
                assert window.is_resolved(position), "out of order"
                assert self.order == GroupOrder.DEAD_LETTER

    @property
    def group_id(self) -> int:
        """Of the group."""
        return int(self.shard.views.catalog.get_group("billing").group_id)

    async def ack(self, index: int) -> None:
        """Acknowledge something that is leased."""
        self.forget()
        if self.model.live:
            one = self.model.live.pop(index % len(self.model.live))
            assert await self.world.ack(one.selection) == [ReceiptOutcome.OK]
            self.model.finished.add(one.place)
            self.model.acked.append(one.label)

    async def ack_late(self, index: int) -> None:
        """A lease that is over is fenced."""
        await let_others_run()
        if self.model.over:
            one = self.model.over[index % len(self.model.over)]
            assert await self.world.ack(one.selection) == [ReceiptOutcome.STALE]

    async def nack(self, index: int) -> None:
        """Give something back."""
        self.forget()
        if self.model.live:
            one = self.model.live.pop(index % len(self.model.live))
            assert await self.world.nack(one.selection) == [ReceiptOutcome.OK]
            self.model.over.append(one)

    async def reject(self, index: int) -> None:
        """Say of something that no attempt is of any use: its key is blocked, or goes on."""
        self.forget()
        if self.model.live:
            one = self.model.live.pop(index % len(self.model.live))
            resolving = self.world.engine.resolve("billing", [one.selection], Ending(rejection="x"))
            assert await within(resolving) == [ReceiptOutcome.OK]
            self.model.over.append(one)
            window = self.shard.views.acks.get(self.group_id, one.place[0])
            if self.order == GroupOrder.BLOCK:
                assert window.held[one.place[1]].until_ms == BLOCKED_MS
            else:
                assert window.is_resolved(one.place[1])

    async def wait(self, by_ms: int) -> None:
        """Time passes."""
        self.world.advance(by_ms)
        await let_others_run()
        await within(self.world.engine.group_commit.drain())

    async def redrive(self) -> None:
        """Dead letters come again."""
        group = self.shard.views.catalog.get_group("billing")
        if group.dead_letter_topic_id:
            await within(self.world.engine.redrive(ALL, b""))

    async def restart(self) -> None:
        """Stop and start: all leases are over."""
        await self.world.restart()
        self.model.over, self.model.live = self.model.over + self.model.live, []

    async def new_master(self) -> None:
        """A new mastership: the same, without a start."""
        self.world.step_down()
        self.world.become_master()
        await until(lambda: self.world.engine.service is not None)
        self.model.over, self.model.live = self.model.over + self.model.live, []

    async def finish(self) -> None:
        """Consume to the end: nothing is lost, whatever was blocked is freed."""
        for _ in range(200):
            await self.wait(INVISIBLE_MS)
            while await self.receive(32) is not None:
                while self.model.live:
                    await self.ack(0)
            if set(self.model.acked) >= self.model.wanted - self.lost():
                break
        assert set(self.model.acked) == self.model.wanted - self.lost()
        assert len(self.model.acked) == len(set(self.model.acked)), "finished twice"

    def lost(self) -> set[int]:
        """What is blocked, and what stands behind it; and dead letters."""
        found: set[int] = set()
        acks, catalog = self.shard.views.acks, self.shard.views.catalog
        for number in range(QUEUES):
            window = acks.get(self.group_id, topic_queue(self.topic_id, number))
            blocked: set[str] = set()
            for position, label, key in self.entries(number):
                held = window.held.get(position)
                is_blocked = held is not None and held.until_ms > self.world.now_ms + 1_000_000
                if key in blocked or is_blocked:
                    found.add(label)
                    blocked |= {key} - {""}
        letters = catalog.get_group("billing").dead_letter_topic_id
        queue = self.shard.views.queues.get(topic_queue(letters, 0))
        for position in range(queue.start_position, queue.end_position):
            found.add(int(queue.read(position, 1)["sequence"][0]))
        return found - set(self.model.acked)


@pytest.mark.parametrize("order", [GroupOrder.BLOCK, GroupOrder.DEAD_LETTER])
@pytest.mark.parametrize("tag", ["", "x"])
@settings(max_examples=12, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=50))
def test_I10_one_lease_of_a_key_in_order(  # noqa: N802
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
