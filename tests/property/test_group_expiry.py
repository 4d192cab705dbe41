"""Deleting unused groups, held against the same life in which none is deleted.

Whoever comes back gets just what it would have got, and whoever is in use is not deleted.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from node.broker.engine import EngineConfig
from node.catalog.changes import DefaultsConfig
from node.contracts.broker import Delivery, GroupSettings
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.small_sizes import small_sizes
from tests.support.unsynced import unsynced

IDLE_MS: Final = 100_000
INVISIBLE_MS: Final = 30_000
GROUPS: Final = ("billing", "audit", "mail")
CHUNK_ENTRIES: Final = 4
Step = tuple[str, Any]
group = st.sampled_from(GROUPS)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"), st.lists(st.sampled_from([0, 0, 50_000, 400_000]), min_size=1)
        ),
        st.tuples(st.just("receive"), group),
        st.tuples(st.just("receive"), group),
        st.tuples(st.just("ack"), group),
        st.tuples(st.just("ack"), group),
        st.tuples(st.just("nack"), st.tuples(group, st.sampled_from([1, 60_000, 300_000]))),
        st.tuples(st.just("put"), group),
        st.tuples(st.just("trim"), st.none()),
        st.tuples(st.just("advance"), st.sampled_from([1_000, 40_000, IDLE_MS])),
        st.tuples(st.just("advance"), st.sampled_from([60_000, IDLE_MS])),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=30,
)


class Life:
    """What is done in one world, and what its groups get."""

    def __init__(self, world: EngineWorld) -> None:
        self.world = world
        self.held: dict[str, list[Delivery]] = {name: [] for name in GROUPS}
        self.begun_ms = world.now_ms
        self.used_ms: dict[str, int] = {}
        self.asked_for: set[str] = set()
        self.expired = 0

    def names(self) -> set[str]:
        return {one.name for one in self.world.groups()}

    async def step(self, kind: str, value: Any) -> Any:
        """What whoever does it is told."""
        world = self.world
        if kind == "publish":
            await world.publish(*[world.now_ms + delay_ms for delay_ms in value])
        elif kind == "receive":
            return await self.receive(value)
        elif kind == "ack":
            return await self.resolve(value, None)
        elif kind == "nack":
            return await self.resolve(*value)
        elif kind == "put":
            await within(world.engine.put_group(value, GroupSettings()))
            self.asked_for.add(value)
        elif kind == "trim":
            await world.trim()
        elif kind == "advance":
            world.advance(value)
            await let_others_run()
            await within(world.engine.group_commit.drain())
        elif kind == "restart":
            await world.restart()
            self.begun_ms = world.now_ms
            self.held = {name: [] for name in GROUPS}
        return None

    async def receive(self, name: str) -> list[tuple[int, int]]:
        """(Sequence, attempt) of all that the group gets now."""
        got: list[tuple[int, int]] = []
        while found := await self.world.receive(group=name, invisible_ms=INVISIBLE_MS):
            self.held[name].append(found)
            got += zip(
                found.units["sequence"].tolist(), found.units["attempt"].tolist(), strict=True
            )
        self.used_ms[name] = self.world.now_ms
        return sorted(got)

    async def resolve(self, name: str, delay_ms: int | None) -> list[list[int]]:
        """The outcome for each answer of the last receive that is still held."""
        world, held = self.world, self.held[name]
        self.held[name] = []
        if name not in self.names():
            return []
        outcomes = []
        for one in held:
            selection = world.select(one)
            if delay_ms is None:
                outcomes.append(await world.ack(selection, group=name))
            else:
                outcomes.append(await world.nack(selection, group=name, delay_ms=delay_ms))
            self.used_ms[name] = world.now_ms
        return outcomes

    async def look(self, steps: int) -> None:
        """As housekeeping does; who goes was not in use."""
        for _ in range(steps):
            before = self.names()
            await self.world.look_for_unused(1)
            for name in before - self.names():
                idle_ms = self.world.now_ms - max(self.used_ms.get(name, 0), self.begun_ms)
                assert idle_ms >= IDLE_MS, name
                assert name not in self.asked_for
                self.expired += 1


async def play(root: Path, steps: list[Step]) -> int:
    """Both lives; how many groups were deleted in the one."""
    lives: list[Life] = []
    async with AsyncExitStack() as stack:
        for idle_ms in (IDLE_MS, 0):
            defaults = DefaultsConfig(group_idle_ms=idle_ms, attempts_max=1_000)
            folder = root / str(idle_ms)
            folder.mkdir()
            world = EngineWorld(folder, EngineConfig(defaults=defaults))
            lives.append(Life(await stack.enter_async_context(world)))
        one, other = lives
        for life in lives:
            await life.world.publish(life.world.now_ms)
        for kind, value in steps:
            assert await one.step(kind, value) == await other.step(kind, value), kind
            await one.look(12)
        for name in GROUPS:
            assert await one.receive(name) == await other.receive(name)
        return one.expired


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
@example([("receive", "billing"), ("ack", "billing"), ("restart", None)])
@example([("receive", "billing"), ("advance", IDLE_MS), ("restart", None)])
@example([("receive", "billing"), ("restart", None), ("advance", IDLE_MS), ("receive", "billing")])
@example(
    [
        ("receive", "mail"),
        ("nack", ("mail", 300_000)),
        ("publish", [0, 0, 0]),
        ("advance", 1_000),
        ("trim", None),
        ("advance", IDLE_MS),
        ("advance", IDLE_MS),
        ("advance", IDLE_MS),
        ("receive", "mail"),
    ]
)
@example(
    [
        ("receive", "mail"),
        ("nack", ("mail", 1)),
        ("publish", [0, 0, 0]),
        ("advance", 1_000),
        ("trim", None),
        ("advance", IDLE_MS),
        ("advance", IDLE_MS),
        ("receive", "mail"),
        ("nack", ("mail", 1)),
    ]
)
def test_group_that_comes_back_gets_what_it_would_have_got(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as root, unsynced(), small_sizes(CHUNK_ENTRIES):
        asyncio.run(play(Path(root), steps))


def test_there_are_groups_to_delete(tmp_path: Path) -> None:
    """Of those that have resolved something, too: all of it is trimmed."""
    receives: list[Step] = [("receive", name) for name in GROUPS]
    acks: list[Step] = [("ack", name) for name in GROUPS]
    waits: list[Step] = [("advance", IDLE_MS)] * 2 + [("advance", 1_000)] * 4
    fill: Step = ("publish", [0, 0, 0])
    steps = [
        fill,
        *receives,
        *acks,
        waits[-1],
        ("trim", None),
        *waits,
        *receives,
        *waits,
        *receives,
    ]
    with small_sizes(entries=CHUNK_ENTRIES):
        assert asyncio.run(play(tmp_path, steps)) == 2 * len(GROUPS)
