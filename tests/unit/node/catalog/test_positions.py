"""Where groups begin and go on: by time, by position, and while they run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from node.catalog.positions import find_positions
from node.contracts.broker import CatalogUpdate, GroupSettings
from node.contracts.group_positions import ResetTarget
from storage.views.catalog_items import START_NOW_MS
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.small_sizes import small_sizes
from tests.support.stepped_engine import SteppedEngine
from tests.support.units import make_units

STEP_MS = 1_000


async def left(world: EngineWorld, group: str = "billing") -> list[int]:
    """Sequences of all that the group gets."""
    found: list[int] = []
    while (delivery := await world.receive(group=group)) is not None:
        found += delivery.units["sequence"].tolist()
    return found


@pytest.mark.parametrize(
    ("start", "expected"), [("first", [0, 1, 2, 3]), ("time", [2, 3]), ("now", [])]
)
async def test_subscription_begins_where_the_group_says(
    tmp_path: Path, start: str, expected: list[int]
) -> None:
    async with EngineWorld(tmp_path) as world:
        dues_ms = await world.publish_steps(4)
        start_ms = {"first": 0, "time": dues_ms[2], "now": START_NOW_MS}[start]
        settings = GroupSettings(start_ms=start_ms)
        assert (await within(world.engine.put_group("billing", settings))).start_ms == start_ms
        assert await left(world) == expected
        await world.publish(world.now_ms)
        await world.restart()
        again = await world.receive(count=9)
        assert again is not None
        assert again.units["sequence"].tolist() == [*expected, 4], "leases are gone, the start not"


async def test_topic_that_is_younger_than_the_start_is_read_from_its_first_message(
    tmp_path: Path,
) -> None:
    """Consumers of a pattern hear of it a while after that message."""
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms, topic="old")
        world.advance(STEP_MS)
        now = GroupSettings(start_ms=START_NOW_MS)
        await within(world.engine.put_group("billing", now))
        await world.publish(world.now_ms, world.now_ms, topic="new")
        world.advance(STEP_MS)
        await within(world.engine.put_group("later", now))
        await world.restart()
        await within(world.engine.put_group("billing", now))  # says again what it was: no new mark
        paused = CatalogUpdate(is_paused=False, description="changed")
        await within(world.engine.update_group("billing", paused, GroupSettings()))
        assert [await count(world, "billing", topic) for topic in ("old", "new")] == [0, 2]
        assert [await count(world, "later", topic) for topic in ("old", "new")] == [0, 0]


async def test_start_that_becomes_now_counts_from_then_on(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings()))
        await world.publish(world.now_ms, topic="made-before")
        world.advance(STEP_MS)
        now = GroupSettings(start_ms=START_NOW_MS)
        await within(world.engine.update_group("billing", CatalogUpdate(), now))
        await world.publish(world.now_ms, topic="made-after")
        found = [await count(world, "billing", topic) for topic in ("made-before", "made-after")]
        assert found == [0, 1]


async def count(world: EngineWorld, group: str, topic: str) -> int:
    """How many messages the group gets of a topic."""
    delivery = await world.receive(group=group, topic=topic, count=9)
    return 0 if delivery is None else len(delivery.units)


async def test_start_stays_until_it_is_changed_and_moves_no_subscription(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(2)
        await within(world.engine.put_group("billing", GroupSettings(start_ms=START_NOW_MS)))
        put = await within(world.engine.put_group("billing", GroupSettings()))
        assert put.start_ms == START_NOW_MS
        assert await left(world) == []
        first = GroupSettings(start_ms=0)
        changed = await within(world.engine.update_group("billing", CatalogUpdate(), first))
        assert changed.start_ms == 0
        assert await left(world) == []


async def test_first_receives_at_one_time_wait_for_the_start(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(3)
        await within(world.engine.put_group("billing", GroupSettings(start_ms=START_NOW_MS)))
        found = await asyncio.gather(*(world.receive() for _ in range(5)))
        assert found == [None] * 5


async def test_group_that_would_begin_in_the_future_is_refused(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings(start_ms=world.now_ms)))
        later = GroupSettings(start_ms=world.now_ms + 1)
        for asked in (
            world.engine.put_group("billing", later),
            world.engine.put_group("others", later),
            world.engine.update_group("billing", CatalogUpdate(), later),
        ):
            with pytest.raises(errors.InvalidArgument, match="in the future"):
                await within(asked)


async def test_skip_lets_a_group_go_on_behind_an_instant(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        dues_ms = await world.publish_steps(5)
        held = await world.receive(count=2)
        assert held is not None
        assert await left(world, "others") == [0, 1, 2, 3, 4]
        done = await within(world.engine.skip("billing", "orders", dues_ms[3], ()))
        assert (done.skipped_count, done.positions) == (3, [3])
        assert await left(world) == [3, 4]
        assert await world.ack(world.select(held)) == [2], "stale"
        repeated = await within(world.engine.skip("billing", "orders", dues_ms[3], ()))
        assert repeated.skipped_count == 0
        await world.restart()
        assert await left(world) == [3, 4], "leases are forgotten, and what was skipped is not"


async def test_skip_to_now_takes_due_retries_along(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(3)
        delivery = await world.receive(count=1)
        assert delivery is not None
        await world.nack(world.select(delivery), delay_ms=0)
        world.advance(STEP_MS)
        await let_others_run()
        done = await within(world.engine.skip("billing", "orders", 0, ()))
        assert (done.skipped_count, done.positions) == (3, [3])
        assert await left(world) == []
        await world.publish(world.now_ms)
        assert await left(world) == [3]


async def test_skip_to_positions_leaves_retries(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 2))
        await world.publish_steps(4)
        await left(world)
        with pytest.raises(errors.InvalidArgument, match="2 queues, and 1 positions"):
            await within(world.engine.skip("billing", "orders", 0, [0]))
        with pytest.raises(errors.InvalidArgument, match="behind the end"):
            await within(world.engine.skip("billing", "orders", 0, [0, 99]))
        done = await within(world.engine.skip("billing", "orders", 0, [1, 0]))
        assert (done.skipped_count, done.positions) == (1, [1, 0])


async def test_skip_is_refused_when_it_cannot_be_meant(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(1)
        await within(world.engine.put_group("billing", GroupSettings()))
        with pytest.raises(errors.FailedPrecondition, match="does not read"):
            await within(world.engine.skip("billing", "orders", 0, ()))
        await left(world)
        with pytest.raises(errors.InvalidArgument, match="future"):
            await within(world.engine.skip("billing", "orders", world.now_ms + 60_000, ()))
        with pytest.raises(errors.UnknownGroup):
            await within(world.engine.skip("nobody", "orders", 0, ()))
        with pytest.raises(errors.UnknownTopic):
            await within(world.engine.skip("billing", "nowhere", 0, ()))


async def test_positions_wait_for_all_nodes_to_know_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(1)
        await left(world)
        monkeypatch.setattr(world.engine.shard.views, "feature_level", 3)
        settings = GroupSettings(start_ms=START_NOW_MS)
        for refused in (
            world.engine.skip("billing", "orders", 0, ()),
            world.engine.put_group("billing", settings),
            world.engine.update_group("billing", CatalogUpdate(), settings),
        ):
            with pytest.raises(errors.FailedPrecondition, match="earlier version"):
                await within(refused)


async def test_position_of_an_instant_is_found_across_chunks(tmp_path: Path) -> None:
    with small_sizes(8):
        async with EngineWorld(tmp_path) as world:
            await world.publish(world.now_ms)
            topic = world.engine.shard.views.catalog.get_topic("orders")
            number = topic.topic_id << 8 | 7
            queue = world.engine.shard.views.queues.get(number)
            for at in range(50):
                queue.append(make_units(at, 1, due_ms=1_000 * at, store_ms=0))
            shard = world.engine.shard
            for from_ms, expected in ((0, 0), (1, 1), (7_000, 7), (8_001, 9), (99_000, 50)):
                assert await find_positions(shard, [number], from_ms) == [expected]


@pytest.mark.parametrize("queue_count", [1, 40])
@pytest.mark.parametrize("what", ["skip", "count", "reset"])
@pytest.mark.parametrize("ahead", range(0, 12, 2))
def test_topic_that_goes_while_positions_are_looked_for_ends_the_call_alone(
    queue_count: int, what: str, ahead: int
) -> None:
    with SteppedEngine() as engine:
        ask, dues_ms = engine.engine, [0] * queue_count
        engine.call(ask.create_topic("short", queue_count))
        engine.call(engine.publish(*dues_ms, topic="short"))
        engine.call(engine.receive(topic="short"))
        deleting = engine.begin(ask.delete_topic("short"))
        for _ in range(ahead):  # it is that far
            engine.call(asyncio.sleep(0))
        call = engine.begin(_look_for_positions(engine, what))
        engine.settle()
        deleting.result()
        assert _error_of(call) in {None, errors.Unavailable, errors.UnknownTopic}


async def _look_for_positions(engine: SteppedEngine, what: str) -> None:
    if what == "skip":
        await engine.engine.skip("billing", "short", 0, ())
    else:
        await engine.engine.reset_group(
            "billing", "short", ResetTarget(from_ms=0), count_only=what == "count"
        )


def _error_of(task: "asyncio.Task[Any]") -> type[BaseException] | None:
    """Of what kind the error is that a task has ended with, or None."""
    error = task.exception()
    return None if error is None else type(error)
