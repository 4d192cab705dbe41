"""Deleting unused topics against a naive model: never one with a message that somebody is promised.

That is one that is pending, or was released no longer ago than messages are retained.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hourwheel.formats.message_id import ID_DTYPE
from node.broker.engine import EngineConfig
from node.catalog.changes import DefaultsConfig
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.unsynced import unsynced

IDLE_MS: Final = 100_000
RETENTION_MS: Final = 3 * IDLE_MS
INVISIBLE_MS: Final = 30_000
TOPICS: Final = ("orders", "mails", "bills")
topic = st.sampled_from(TOPICS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.tuples(topic, st.sampled_from([0, 50_000, 400_000]))),
        st.tuples(st.just("cancel"), topic),
        st.tuples(st.just("cancel"), topic),
        st.tuples(st.just("create"), topic),
        st.tuples(st.just("receive"), topic),
        st.tuples(st.just("delete group"), topic),
        st.tuples(st.just("trim"), st.none()),
        st.tuples(st.just("advance"), st.sampled_from([1_000, 40_000, IDLE_MS])),
        st.tuples(st.just("advance"), st.sampled_from([60_000, IDLE_MS])),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=25,
)


class Model:
    """What those who publish know."""

    def __init__(self, world: EngineWorld) -> None:
        self.world = world
        self.begun_ms = world.now_ms
        self.used_ms: dict[str, int] = {}
        self.asked_for: set[str] = set()
        self.received_ms: dict[str, int] = {}
        """When the group that receives from a topic did so last."""
        self.messages: dict[str, dict[tuple[int, int, int], int]] = {name: {} for name in TOPICS}
        """Of each topic (shard, epoch, sequence) -> due time, of what is there."""
        self.expired = 0

    def names(self) -> set[str]:
        return {one.name for one in self.world.topics()}

    def may_go(self, name: str) -> bool:
        now_ms = self.world.now_ms
        used_ms = max(self.used_ms.get(name, 0), self.received_ms.get(name, 0), self.begun_ms)
        is_owed = any(due_ms >= now_ms - RETENTION_MS for due_ms in self.messages[name].values())
        return name not in self.asked_for and not is_owed and now_ms - used_ms >= IDLE_MS

    async def step(self, kind: str, value: Any) -> None:
        world = self.world
        if kind == "publish":
            name, delay_ms = value
            due_ms = world.now_ms + delay_ms
            done = await world.publish(due_ms, topic=name)
            self.messages[name][done.shard, done.epoch, done.base_sequence] = due_ms
            self.used_ms[name] = world.now_ms
        elif kind == "cancel" and self.messages[value]:
            one, due_ms = self.messages[value].popitem()
            outcome = await within(world.engine.cancel(np.array([(*one, due_ms)], ID_DTYPE)))
            if outcome.tolist() != [1]:  # it was released before
                self.messages[value][one] = due_ms
        elif kind == "create":
            await within(world.engine.create_topic(value, 0))
            self.asked_for.add(value)
        elif kind == "receive" and value in self.names():
            await world.receive(topic=value, group=value, invisible_ms=INVISIBLE_MS)
            self.received_ms[value] = world.now_ms
        elif kind == "delete group" and value in {one.name for one in world.groups()}:
            await within(world.engine.delete_group(value))
        elif kind == "trim":
            await self.trim()
        elif kind == "advance":
            world.advance(value)
            await let_others_run()
            await within(world.engine.group_commit.drain())
        elif kind == "restart":
            await world.restart()
            self.begun_ms = world.now_ms

    async def trim(self) -> None:
        """As retention does: what was released may go, as much of it as goes in whole chunks."""
        world = self.world
        await world.trim()
        views = world.engine.shard.views
        for name in self.names():
            number = views.catalog.get_topic(name).topic_id << 8
            start, end = views.queues.bounds(number)
            if start == end:
                pending = self.messages[name].items()
                self.messages[name] = {one: due for one, due in pending if due > world.now_ms}

    async def look(self, times: int) -> None:
        """As housekeeping does; who goes must be allowed to go."""
        for _ in range(times):
            before = self.names()
            await self.world.look_for_unused(1)
            gone = before - self.names()
            assert all(map(self.may_go, gone)), gone
            self.expired += len(gone)
            for name in gone:
                self.messages[name].clear()

    async def check(self) -> None:
        """All that was published and not taken back is still delivered."""
        world = self.world
        world.advance(400_000)
        await within(world.engine.group_commit.drain())
        for name in self.names():
            wanted = {sequence for _, _, sequence in self.messages[name]}
            while wanted:
                found = await world.receive(topic=name, group="all", wait_ms=600_000)
                assert found is not None
                wanted -= set(found.units["sequence"].tolist())


async def play(root: Path, steps: list[tuple[str, Any]]) -> int:
    defaults = DefaultsConfig(topic_idle_ms=IDLE_MS, group_idle_ms=IDLE_MS, attempts_max=1_000)
    shard = ShardConfig(retention=RetentionConfig(retention_ms=RETENTION_MS))
    async with EngineWorld(root, EngineConfig(defaults=defaults), shard) as world:
        model = Model(world)
        for kind, value in steps:
            await model.step(kind, value)
            await model.look(6)
        expired = model.expired
        await model.check()
        for _ in range(16):  # retention of the topic's, and then of its retries; and some rounds
            world.advance(IDLE_MS)
            await let_others_run()
            await within(world.engine.group_commit.drain())
            await model.look(16)
        left = [name for name in model.names() if model.may_go(name)]
        assert left == [], "whoever may go has gone"
        return expired


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
@example([("publish", ("orders", 400_000))])
@example([("publish", ("orders", 0))])
@example([("publish", ("orders", 0)), ("trim", None), ("advance", IDLE_MS)])
@example([("publish", ("orders", 400_000)), ("advance", IDLE_MS), ("cancel", "orders")])
@example([("publish", ("orders", 400_000)), ("cancel", "orders"), ("restart", None)])
@example([("publish", ("orders", 50_000)), ("receive", "orders"), ("delete group", "orders")])
def test_no_topic_with_a_message_is_deleted_whatever_is_done(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root, unsynced():
        asyncio.run(play(Path(root), steps))


def test_there_are_topics_to_delete(tmp_path: Path) -> None:
    made: list[tuple[str, Any]] = [("publish", (name, 400_000)) for name in TOPICS]
    gone: list[tuple[str, Any]] = [("cancel", name) for name in TOPICS]
    waits: list[tuple[str, Any]] = [("advance", IDLE_MS)] * 3
    looks: list[tuple[str, Any]] = [("advance", 1_000)] * 8
    steps = [*made, *gone, *waits, *looks, *made, *gone, *waits, *looks]
    assert asyncio.run(play(tmp_path, steps)) == 2 * len(TOPICS)
