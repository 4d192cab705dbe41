"""A group that begins anew again and again, while it works, and masters come and go.

The model knows what each message may still do to the group since it began anew last: it is
delivered again after that or not, and with which attempt. Restarts forget leases, and nothing else.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.outcomes import ReceiptOutcome
from node.contracts.broker import Delivery
from node.contracts.group_positions import ResetTarget
from tests.support.engine_world import EngineWorld, let_others_run, within

LONG_MS = 700_000
"""Behind it every lease has ended, and every retry is due."""
STEPS = st.sampled_from(
    [
        *("publish", "receive", "receive", "ack", "ack", "nack", "reset", "reset", "stale"),
        *("restart", "take over", "wait"),
    ]
)


class Life:
    """One world and what must be true of it."""

    def __init__(self, world: EngineWorld) -> None:
        self.world = world
        self.count = self.begin = 0
        """Messages released, and the first of them that the group gets."""
        self.done: set[int] = set()
        self.held: list[Delivery] = []
        self.stale: list[Delivery] = []

    async def step(self, what: str, number: int) -> None:
        world = self.world
        if what == "publish":
            await world.publish(world.now_ms)
            world.advance(1_000)
            self.count += 1
        elif what == "receive":
            await self.receive(1 + number % 3)
        elif what in {"ack", "nack"} and self.held:
            await self.finish(self.held.pop(number % len(self.held)), is_ack=what == "ack")
        elif what == "reset" and self.count:
            await self.reset(number % (self.count + 1))
        elif what in {"restart", "take over"}:
            await self.change_master(is_restart=what == "restart")
        elif what == "wait":
            world.advance(LONG_MS)
            self.held.clear()
            await self.settle()
        elif what == "stale":
            for one in self.stale:
                assert await world.ack(world.select(one)) == [ReceiptOutcome.STALE]

    async def settle(self) -> None:
        await let_others_run()
        await within(self.world.engine.group_commit.drain())

    async def receive(self, count: int) -> None:
        delivery = await self.world.receive(count=count)
        if delivery is None:
            return
        for one in delivery.units["sequence"].tolist():
            assert self.begin <= one < self.count, "of before the group began anew"
            assert one not in self.done, "delivered again without a reset"
        self.held.append(delivery)

    async def finish(self, delivery: Delivery, *, is_ack: bool) -> None:
        selection = self.world.select(delivery)
        if is_ack:
            (outcome,) = await self.world.ack(selection)
        else:
            (outcome,) = await self.world.nack(selection, delay_ms=1_000)
        assert outcome == ReceiptOutcome.OK
        if is_ack:
            self.done.update(delivery.units["sequence"].tolist())

    async def reset(self, position: int) -> None:
        target = ResetTarget(None, (position,))
        resetting = self.world.engine.reset_group("billing", "orders", target, count_only=False)
        info = await within(resetting)
        again = sum(one >= position for one in range(self.begin)) + len(
            [one for one in self.done if one >= position]
        )
        assert info.unresolved_count == self.count - position
        assert info.again_count >= again, "also what was given back"
        self.begin, self.done = position, set()
        self.stale += self.held
        self.held = []

    async def change_master(self, *, is_restart: bool) -> None:
        if is_restart:
            await self.world.restart()
        else:
            self.world.step_down()
            self.world.become_master()
        self.held.clear()
        await self.settle()

    async def end(self) -> None:
        """Each message comes, and once; what was held at a reset is nothing any more."""
        await self.step("stale", 0)
        found: list[int] = []
        for _ in range(4):
            self.world.advance(LONG_MS)
            await self.settle()
            while (delivery := await self.world.receive(count=9)) is not None:
                assert await self.world.ack(self.world.select(delivery)) == [ReceiptOutcome.OK]
                found += delivery.units["sequence"].tolist()
        assert sorted(found) == sorted(set(range(self.begin, self.count)) - self.done)


async def _live(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with EngineWorld(Path(folder)) as world:
            await world.receive()
            life = Life(world)
            for _ in range(4):
                await life.step("publish", 0)
            for what in ("receive", "ack", "receive"):
                await life.step(what, 2)
            for what, number in steps:
                await life.step(what, number)
            await life.end()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 20)), min_size=3, max_size=30))
def test_group_gets_all_from_where_it_began_anew_and_nothing_twice(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(_live(steps))
