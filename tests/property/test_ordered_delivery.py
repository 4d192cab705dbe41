"""What an ordered group is given, held against a naive reading of its queues, whatever happens.

The model knows which key each message has and reads the queues from the first entry on. It has no
lines, no windows and no leases but those that it was told of.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.formats.meta import MessageMeta
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import topic_queue
from node.contracts.broker import Delivery, GroupSettings
from node.contracts.dead_letters import DeadLetterQuery
from node.contracts.ending import Ending
from node.shard.shard import Shard
from storage.queues.ack_state import BLOCKED_MS
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.group_walk import (
    GROUP,
    QUEUES,
    RETRY_MS,
    TOPIC,
    GroupWalk,
    Leased,
    any_step,
    play,
)

INVISIBLE_MS = 5_000
ALL = DeadLetterQuery(GROUP)

DRAFTS = st.tuples(
    st.sampled_from(("", "a", "b", "c")), st.sampled_from((0, 0, 300, 900)), st.booleans()
)
STALLED = st.one_of(
    st.tuples(st.just("receive"), st.sampled_from((1, 32))),
    st.tuples(st.sampled_from(("ack", "nack")), st.integers(0, 40)),
    st.tuples(st.just("wait"), st.sampled_from((100, 400, INVISIBLE_MS))),
)
STEPS = any_step(
    DRAFTS,
    (100, 400, 1_000, INVISIBLE_MS),
    st.tuples(st.just("ack late"), st.integers(0, 40)),
    st.tuples(st.just("reject"), st.integers(0, 40)),
    st.tuples(st.just("redrive"), st.none()),
    st.tuples(st.just("stall"), st.lists(STALLED, min_size=2, max_size=8)),
)


class Walk(GroupWalk):
    """One life of an ordered group."""

    invisible_ms = INVISIBLE_MS

    def __init__(self, world: EngineWorld, order: GroupOrder, tag: str) -> None:
        """The group wants messages with a tag, or all."""
        group = GroupSettings(attempts_max=3, retry_delay_ms=RETRY_MS, order=order)
        super().__init__(world, group, tag)
        self.order = order
        self.keys: dict[int, str] = {}
        """By label."""
        self.over: list[Leased] = []
        self.finished: set[tuple[int, int]] = set()
        """(queue, position) of what was acknowledged."""
        self.busy: list[Leased] = []
        """While nothing is written: what was leased since that began, however it has ended."""
        self.steps |= {
            "ack late": self.ack_late,
            "reject": self.reject,
            "redrive": lambda _: self.redrive(),
            "stall": self.stall,
        }

    @property
    def shard(self) -> Shard:
        """Of the latest start."""
        return self.world.engine.shard

    def entries(self, number: int) -> Iterator[tuple[int, int, str]]:
        """(position, label, key) of each entry of a queue, from the first on."""
        queue = self.shard.views.queues.get(topic_queue(self.topic_id, number))
        for position in range(queue.start_position, queue.end_position):
            sequence = int(queue.read(position, 1)["sequence"][0])
            yield position, sequence, self.keys[sequence]

    @property
    def topic_id(self) -> Any:
        """Of the topic."""
        return self.shard.views.catalog.get_topic(TOPIC).topic_id

    async def publish(self, drafts: list[tuple[str, int, bool]]) -> None:
        """In one batch."""
        metas = [
            MessageMeta(tags=("x",) if is_wanted else ("y",), ordering_key=key)
            for key, _, is_wanted in drafts
        ]
        labels = await self.publish_all(metas, [delay_ms for _, delay_ms, _ in drafts])
        self.keys.update(zip(labels, (key for key, _, _ in drafts), strict=True))

    def on_over(self, one: Leased, at_ms: int) -> None:
        """Nobody can end it once more."""
        self.over.append(one)

    def on_acked(self, one: Leased) -> None:
        """What stands behind it may come."""
        super().on_acked(one)
        self.finished.add(one.place)

    def check(self, delivery: Delivery | None, labels: list[int]) -> None:
        """One of a key at a time, in order."""
        if delivery is None:
            return
        places, leased = self.places(int(delivery.topic_queue)), [*self.live, *self.busy]
        assert not set(labels) & {one.label for one in self.busy}, "given back, says no log"
        keys = [self.keys[label] for label in labels if self.keys[label]]
        assert len(set(keys)) == len(keys), "two of one key in one answer"
        for label in labels:
            if key := self.keys[label]:
                rivals = [one for one in leased if self.keys[one.label] == key]
                assert rivals == [], "two live leases of one key"
                self.check_first(key, places[label])

    def check_first(self, key: str, place: tuple[int, int]) -> None:
        """Nothing of the key stands before it and is not finished."""
        if place[0] >> 8 != self.topic_id:
            return  # a dead letter that was given again has lost its place
        window = self.shard.views.acks.get(self.group_id, place[0])
        for position, label, other in self.entries(place[0] & 0xFF):
            if position >= place[1]:
                break
            is_unfinished = other == key and label in self.wanted
            if is_unfinished and (place[0], position) not in self.finished:
                assert window.is_resolved(position), "out of order"
                assert self.order == GroupOrder.DEAD_LETTER

    @property
    def group_id(self) -> int:
        """Of the group."""
        return int(self.shard.views.catalog.get_group(GROUP).group_id)

    async def stall(self, steps: list[tuple[str, Any]]) -> None:
        """Nothing is written for a while, and so nothing that is asked for takes effect."""
        await let_others_run()
        self.forget()
        asked: list[tuple[str, Leased, asyncio.Task[list[ReceiptOutcome]]]] = []
        async with self.world.engine.group_commit.turn:
            self.busy = [*self.live]
            for name, argument in steps:
                if name == "wait":
                    self.world.advance(argument)
                elif name == "receive":
                    before = len(self.live)
                    await self.receive(argument)
                    self.busy += self.live[before:]
                elif (one := self.pick(argument)) is not None:
                    how = self.world.ack if name == "ack" else self.world.nack
                    asked.append((name, one, asyncio.ensure_future(how(one.selection))))
                await let_others_run()
        for name, one, task in asked:
            assert await within(task) == [ReceiptOutcome.OK]
            if name == "ack":
                self.on_acked(one)
            else:
                self.on_over(one, self.world.now_ms)
        await within(self.world.engine.group_commit.drain())
        await let_others_run()
        self.busy = []

    async def ack_late(self, index: int) -> None:
        """A lease that is over is fenced."""
        await let_others_run()
        if self.over:
            one = self.over[index % len(self.over)]
            assert await self.world.ack(one.selection) == [ReceiptOutcome.STALE]

    async def reject(self, index: int) -> None:
        """Say of something that no attempt is of any use: its key is blocked, or goes on."""
        if (one := self.pick(index)) is not None:
            resolving = self.world.engine.resolve(GROUP, [one.selection], Ending(rejection="x"))
            assert await within(resolving) == [ReceiptOutcome.OK]
            self.over.append(one)
            window = self.shard.views.acks.get(self.group_id, one.place[0])
            if self.order == GroupOrder.BLOCK:
                assert window.held[one.place[1]].until_ms == BLOCKED_MS
            else:
                assert window.is_resolved(one.place[1])

    async def redrive(self) -> None:
        """Dead letters come again."""
        group = self.shard.views.catalog.get_group(GROUP)
        if group.dead_letter_topic_id:
            await within(self.world.engine.redrive(ALL, b""))

    async def finish(self) -> None:
        """Consume to the end: nothing is lost, whatever was blocked is freed."""
        await self.consume(lambda: set(self.acked) >= self.wanted - self.lost(), 200)
        assert set(self.acked) == self.wanted - self.lost()
        assert len(self.acked) == len(set(self.acked)), "finished twice"

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
        letters = catalog.get_group(GROUP).dead_letter_topic_id
        queue = self.shard.views.queues.get(topic_queue(letters, 0))
        for position in range(queue.start_position, queue.end_position):
            found.add(int(queue.read(position, 1)["sequence"][0]))
        return found - set(self.acked)


@pytest.mark.parametrize("order", [GroupOrder.BLOCK, GroupOrder.DEAD_LETTER])
@pytest.mark.parametrize("tag", ["", "x"])
@settings(max_examples=12, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=50))
def test_I10_one_lease_of_a_key_in_order(  # noqa: N802
    order: GroupOrder, tag: str, steps: list[Any]
) -> None:
    """However messages are acknowledged, given back, forgotten, and masters change."""
    play(lambda world: Walk(world, order, tag), steps)
