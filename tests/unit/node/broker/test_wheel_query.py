"""The wheel described through an engine: what is counted, who waits, what goes wrong."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.limits import WHEEL_BOUND_COUNT_MAX
from hourwheel.types import DUE_MS_MAX
from tests.support.engine_world import EngineWorld, within
from timewheel.due_counts import DueCounter


async def counts(world: EngineWorld, bounds: Sequence[int]) -> tuple[int, list[int], int]:
    found = await within(world.engine.describe_wheel(bounds))
    assert found.now_ms == world.now_ms
    return found.earlier_count, found.counts.tolist(), found.later_count


async def test_counts_when_messages_are_published_cancelled_and_released(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        now = world.now_ms
        bounds = [now, now + 10_000, now + 60_000]
        published = await world.publish(now + 5_000, now + 20_000, now + 30_000, now + 90_000)
        assert await counts(world, bounds) == (0, [1, 2], 1)
        ids = np.zeros(1, ID_DTYPE)
        ids["sequence"], ids["due_ms"] = published.base_sequence + 1, now + 20_000
        ids["epoch"] = published.epoch
        await within(world.engine.cancel(ids))
        found = await within(world.engine.describe_wheel(bounds))
        assert (found.pending_count, found.cancelled_count) == (3, 1)
        assert found.counts.sum() == 3, "counted until it would have been due"
        await world.restart()  # which flushes: from here on they lie in a run
        assert await counts(world, bounds) == (0, [1, 2], 1)
        world.advance(5_000)
        await world.leased()
        assert await counts(world, bounds) == (0, [0, 2], 1)


async def test_runs_change_while_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        step, changes = DueCounter.step, iter([True, True])

        def change(counter: DueCounter) -> None:
            step(counter)
            if next(changes, False):
                world.engine.shard.views.wheel.runs.version += 1

        monkeypatch.setattr(DueCounter, "step", change)
        assert await counts(world, [0, DUE_MS_MAX]) == (0, [1], 0)
        assert next(changes, None) is None


@pytest.mark.parametrize(
    "bounds",
    [[], [1], [1, 1], [2, 1], [-1, 1], [0, DUE_MS_MAX + 1], range(WHEEL_BOUND_COUNT_MAX + 1)],
)
async def test_bounds_are_refused(tmp_path: Path, bounds: Sequence[int]) -> None:
    async with EngineWorld(tmp_path) as world:
        with pytest.raises(errors.InvalidArgument):
            await world.engine.describe_wheel(bounds)


async def test_many_ask_at_one_time(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        asked = [world.engine.describe_wheel([0, 1]) for _ in range(40)]
        found = await within(asyncio.gather(*asked, return_exceptions=True))
        assert sum(isinstance(one, errors.Overloaded) for one in found) == 8
        assert await counts(world, [0, 1]) == (0, [0], 0)


async def test_the_node_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EngineWorld(tmp_path) as world:

        def fail(_counter: DueCounter) -> None:
            raise errors.CorruptFile("a slot directory fails its CRC32C", file="f")

        monkeypatch.setattr(DueCounter, "step", fail)
        with pytest.raises(errors.CorruptFile):
            await world.engine.describe_wheel([0, 1])
        assert isinstance(await world.failed(), errors.CorruptFile)
        with pytest.raises(errors.ShuttingDown):
            await world.engine.describe_wheel([0, 1])
