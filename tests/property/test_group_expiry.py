"""Deleting unused groups against a naive model: never one in use; what is acknowledged stays so."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from node.broker.engine import EngineConfig
from node.catalog.service import DefaultsConfig
from node.contracts.broker import Delivery, GroupSettings
from tests.support.engine_world import EngineWorld, let_others_run, within

IDLE_MS: Final = 100_000
INVISIBLE_MS: Final = 30_000
GROUPS: Final = ("billing", "audit", "mail")
group = st.sampled_from(GROUPS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from([0, 50_000, 400_000])),
        st.tuples(st.just("receive"), group),
        st.tuples(st.just("receive"), group),
        st.tuples(st.just("ack"), group),
        st.tuples(st.just("nack"), group),
        st.tuples(st.just("put"), group),
        st.tuples(st.just("advance"), st.sampled_from([1_000, 40_000, IDLE_MS])),
        st.tuples(st.just("advance"), st.sampled_from([60_000, IDLE_MS])),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=30,
)


class Model:
    """What the users of the groups know."""

    def __init__(self, world: EngineWorld) -> None:
        self.world = world
        self.begun_ms = world.now_ms
        self.used_ms: dict[str, int] = {}
        self.asked_for: set[str] = set()
        self.resolved: set[str] = set()
        """Groups that resolved a message, or gave it back when their lease ended."""
        self.leased_until_ms: dict[str, list[int]] = {}
        self.acked: set[tuple[str, int]] = set()
        """(Group, sequence)."""
        self.held: dict[str, Delivery] = {}
        self.expired = 0

    def names(self) -> set[str]:
        return {one.name for one in self.world.groups()}

    def may_go(self, name: str) -> bool:
        idle_ms = self.world.now_ms - max(self.used_ms.get(name, 0), self.begun_ms)
        is_kept = name in self.asked_for | self.resolved or self.leased_until_ms.get(name)
        return not is_kept and idle_ms >= IDLE_MS

    async def step(self, kind: str, value: Any) -> None:
        world = self.world
        if kind == "publish":
            await world.publish(world.now_ms + value)
        elif kind == "receive":
            await self.receive(value)
        elif kind in ("ack", "nack") and value in self.held:
            held, self.used_ms[value] = self.held.pop(value), world.now_ms
            call = world.ack if kind == "ack" else world.nack
            counts = await call(world.select(held), group=value)
            if sum(counts):
                self.resolved.add(value)
            if kind == "ack" and counts == [len(held.units)]:
                self.acked |= {(value, int(one)) for one in held.units["sequence"]}
        elif kind == "put":
            await within(world.engine.put_group(value, GroupSettings()))
            self.asked_for.add(value)
        elif kind == "advance":
            world.advance(value)
            for name, ends in self.leased_until_ms.items():
                if any(at <= world.now_ms for at in ends):
                    self.resolved.add(name)
            await let_others_run()
        elif kind == "restart":
            await world.restart()
            self.begun_ms = world.now_ms
            self.held.clear()
            self.leased_until_ms.clear()  # they were of the process, and end without a record

    async def receive(self, name: str) -> None:
        found = await self.world.receive(group=name, invisible_ms=INVISIBLE_MS)
        self.used_ms[name] = self.world.now_ms
        if found is not None:
            self.held[name] = found
            self.leased_until_ms.setdefault(name, []).append(found.invisible_until_ms)
            again = {(name, int(one)) for one in found.units["sequence"]} & self.acked
            assert not again, "what a group has acknowledged it does not get again"

    async def look(self, times: int) -> None:
        """As housekeeping does; who goes must be allowed to go."""
        for _ in range(times):
            before = self.names()
            self.world.engine.expiry.look(self.world.now_ms)
            await let_others_run()
            await self.world.publish(self.world.now_ms, topic="other")
            gone = before - self.names()
            assert all(map(self.may_go, gone)), gone
            self.expired += len(gone)


async def play(root: Path, steps: list[tuple[str, Any]]) -> int:
    defaults = DefaultsConfig(group_idle_ms=IDLE_MS)
    async with EngineWorld(root, EngineConfig(defaults=defaults)) as world:
        model = Model(world)
        await world.publish(world.now_ms + 10 * IDLE_MS)
        for kind, value in steps:
            await model.step(kind, value)
            await model.look(2)
        world.advance(IDLE_MS)
        await model.look(10)
        left = [name for name in model.names() if model.may_go(name)]
        assert left == [], "whoever may go has gone"
        return model.expired


@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
@example([("publish", 0), ("receive", "billing"), ("ack", "billing"), ("restart", None)])
@example([("publish", 0), ("receive", "billing"), ("nack", "billing"), ("advance", IDLE_MS)])
@example([("publish", 0), ("receive", "billing"), ("advance", IDLE_MS), ("restart", None)])
@example([("publish", 0), ("receive", "billing"), ("restart", None), ("advance", IDLE_MS)])
def test_no_group_in_use_is_deleted_whatever_is_done(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(play(Path(root), steps))


def test_there_are_groups_to_delete(tmp_path: Path) -> None:
    receives: list[tuple[str, Any]] = [("receive", name) for name in GROUPS]
    looks: list[tuple[str, Any]] = [("advance", 1_000)] * 5
    steps = [*receives, ("advance", IDLE_MS), *looks, *receives]
    assert asyncio.run(play(tmp_path, steps)) == 2 * len(GROUPS)
