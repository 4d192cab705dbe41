"""One life of a consumer group on a real engine, step by step: what tests of groups have in common.

A test says what its messages are like, and checks what comes; to publish, receive, acknowledge and
give back, to wait, restart and change masters is the same. What was published is known by its
label, which is its sequence.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hypothesis import strategies as st

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import TopicQueue
from node.contracts.broker import Delivery, GroupSettings, Selection
from node.contracts.ending import Ending
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

TOPIC: Final = "orders"
GROUP: Final = "billing"
QUEUES: Final = 2
RETRY_MS: Final = 200
Step = tuple[str, Any]


def any_step(drafts: Any, waits_ms: Sequence[int], *more: Any) -> Any:
    """A strategy of steps. `drafts`: of what is published; `more`: other steps."""
    return st.one_of(
        st.tuples(st.just("publish"), st.lists(drafts, min_size=1, max_size=8)),
        st.tuples(st.just("receive"), st.sampled_from((1, 3, 32))),
        st.tuples(st.just("ack"), st.integers(0, 40)),
        st.tuples(st.just("nack"), st.integers(0, 40)),
        st.tuples(st.just("not begun"), st.integers(0, 40)),
        st.tuples(st.just("wait"), st.sampled_from(waits_ms)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("new master"), st.none()),
        *more,
    )


@dataclass
class Leased:
    """A message that was delivered."""

    label: int
    selection: Selection
    until_ms: int
    place: tuple[int, int]
    """(queue, position)."""


class GroupWalk:
    """See the top of this file."""

    invisible_ms = 2_000

    def __init__(self, world: EngineWorld, group: GroupSettings, tag: str) -> None:
        """Nothing has happened yet. The group wants messages with a tag, or, without one, all."""
        self.world, self.group, self.tag = world, group, tag
        self.wanted: set[int] = set()
        self.live: list[Leased] = []
        self.acked: list[int] = []
        self.steps: dict[str, Callable[[Any], Awaitable[object]]] = {
            "publish": self.publish,
            "receive": self.receive,
            "ack": self.ack,
            "nack": self.nack,
            "not begun": self.give_unbegun,
            "wait": self.wait,
            "restart": lambda _: self.restart(),
            "new master": lambda _: self.new_master(),
        }

    async def begin(self) -> None:
        """The topic, the group, and that it reads the topic."""
        engine = self.world.engine
        await within(engine.create_topic(TOPIC, QUEUES))
        await within(engine.put_group(GROUP, self.group))
        if self.tag:
            await within(engine.put_subscription(GROUP, TOPIC, FilterExpression.tags(self.tag)))
        assert await self.world.receive() is None  # it reads the topic from here on

    # -- what a test says -------------------------------------------------------------------------

    async def publish(self, drafts: list[Any]) -> None:
        """What a test draws, by `publish_all`."""
        raise NotImplementedError

    def check(self, delivery: Delivery | None, labels: list[int]) -> None:
        """What has come, before it counts as leased; None: nothing."""

    def on_over(self, one: Leased, at_ms: int) -> None:
        """A lease is over since then: by the clock, or as the message was given back."""

    def on_lost(self, one: Leased) -> None:
        """A lease is over as if it had never been: its master is gone, or nobody has begun."""
        self.on_over(one, self.world.now_ms)

    # -- steps ------------------------------------------------------------------------------------

    async def publish_all(
        self, metas: Sequence[MessageMeta], delays_ms: Sequence[int]
    ) -> list[int]:
        """In one batch. Returns the labels."""
        now_ms, encoded = self.world.now_ms, [encode(meta) for meta in metas]
        raw = build_publish(
            [now_ms + delay_ms for delay_ms in delays_ms],
            [b"body"] * len(metas),
            metas=[meta.raw for meta in encoded],
            tag_genes=[meta.tag_gene for meta in encoded],
            key_hashes=[meta.key_hash for meta in encoded],
            gene_spec=DEFAULT_SPEC.number,
        )
        published = await within(self.world.engine.publish_batch(TOPIC, RecordBatch(raw)))
        labels = [published.base_sequence + ordinal for ordinal in range(len(metas))]
        chosen = zip(labels, metas, strict=True)
        self.wanted.update(label for label, meta in chosen if not self.tag or self.tag in meta.tags)
        return labels

    def forget(self) -> None:
        """Leases that have ended by the clock."""
        now_ms = self.world.now_ms
        ended = [one for one in self.live if one.until_ms <= now_ms]
        self.live = [one for one in self.live if one.until_ms > now_ms]
        for one in ended:
            self.on_over(one, now_ms)  # the node, too, has learned of it just now

    async def receive(self, count: int) -> Delivery | None:
        """What comes is wanted, and was not acknowledged."""
        self.forget()
        delivery = await self.world.receive(count=count, invisible_ms=self.invisible_ms)
        labels = [] if delivery is None else delivery.units["sequence"].tolist()
        assert set(labels) <= self.wanted
        assert not set(labels) & set(self.acked), "delivered although acknowledged"
        self.check(delivery, labels)
        if delivery is None:
            return None
        places = self.places(int(delivery.topic_queue))
        for ordinal, label in enumerate(labels):
            one = self.world.select(delivery, ordinal, 1)
            until_ms = delivery.invisible_until_ms
            self.live.append(Leased(label, one, until_ms, places[label]))
        return delivery

    def places(self, number: int) -> dict[int, tuple[int, int]]:
        """Label -> (queue, position) of all entries of a queue."""
        queue = self.world.engine.shard.views.queues.get(TopicQueue(number))
        positions = range(queue.start_position, queue.end_position)
        return {int(queue.read(at, 1)["sequence"][0]): (number, at) for at in positions}

    def pick(self, index: int) -> Leased | None:
        """One that is leased, and is not any more: it is to be done with. None: none is."""
        self.forget()
        return self.live.pop(index % len(self.live)) if self.live else None

    async def ack(self, index: int) -> None:
        """Acknowledge one: also late in its life."""
        if (one := self.pick(index)) is not None:
            assert await self.world.ack(one.selection) == [ReceiptOutcome.OK]
            self.on_acked(one)

    def on_acked(self, one: Leased) -> None:
        """It is acknowledged."""
        self.acked.append(one.label)

    async def nack(self, index: int) -> None:
        """Give something back."""
        if (one := self.pick(index)) is not None:
            assert await self.world.nack(one.selection) == [ReceiptOutcome.OK]
            self.on_over(one, self.world.now_ms)

    async def give_unbegun(self, index: int) -> None:
        """Give something back that nobody has begun with."""
        if (one := self.pick(index)) is not None:
            ending = Ending(retry_delay_ms=0, is_unbegun=True)
            giving = self.world.engine.resolve(GROUP, [one.selection], ending)
            assert await within(giving) == [ReceiptOutcome.OK]
            self.on_lost(one)

    async def wait(self, by_ms: int) -> None:
        """Time passes."""
        self.world.advance(by_ms)
        self.forget()
        await let_others_run()
        await within(self.world.engine.group_commit.drain())
        await let_others_run()

    async def restart(self) -> None:
        """Stop and start: all leases are over."""
        await self.world.restart()
        self._lose_leases()

    async def new_master(self) -> None:
        """A new mastership: the same, without a start."""
        self.world.step_down()
        self.world.become_master()
        await until(lambda: self.world.engine.service is not None)
        self._lose_leases()

    def _lose_leases(self) -> None:
        self.forget()
        lost, self.live = self.live, []
        for one in lost:
            self.on_lost(one)

    async def consume(self, is_done: Callable[[], bool], rounds: int) -> None:
        """Receive and acknowledge all that comes, until it is done, for so many waits at most."""
        for _ in range(rounds):
            await self.wait(self.invisible_ms)
            while await self.receive(32) is not None:
                while self.live:
                    await self.ack(0)
            if is_done():
                return

    async def finish(self) -> None:
        """The end of a life: what must have become of everything."""
        raise NotImplementedError


def play(make: Callable[[EngineWorld], GroupWalk], steps: Sequence[Step]) -> None:
    """A life, on an engine of its own."""

    async def life() -> None:
        with TemporaryDirectory() as folder:
            async with EngineWorld(Path(folder)) as world:
                walk = make(world)
                await walk.begin()
                for name, argument in steps:
                    await walk.steps[name](argument)
                await walk.finish()

    asyncio.run(life())
