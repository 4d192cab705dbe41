"""Rescheduling by id and by key through an engine."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors, limits
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import RescheduleOutcome
from node.broker import reschedule_service, small_calls
from node.shard.views import RESCHEDULE_LEVEL
from tests.support.engine_world import EngineWorld, within

RESCHEDULED, RELEASED, UNKNOWN, CANCELLED = (
    RescheduleOutcome.RESCHEDULED,
    RescheduleOutcome.ALREADY_RELEASED,
    RescheduleOutcome.UNKNOWN,
    RescheduleOutcome.CANCELLED,
)


async def publish(world: EngineWorld, keys: list[str], delay_ms: int) -> int:
    """A message for each key. The first sequence."""
    metas = [encode(MessageMeta(keys=(key,) if key else ())) for key in keys]
    batch = RecordBatch(
        build_publish(
            [world.now_ms + delay_ms] * len(keys),
            [key.encode() for key in keys],
            metas=[one.raw for one in metas],
            key_hashes=[one.key_hash for one in metas],
        )
    )
    return (await within(world.engine.publish_batch("orders", batch))).base_sequence


async def reschedule(
    world: EngineWorld, sequences: list[int], times_ms: list[int], *, are_delays: bool = True
) -> list[tuple[int, int]]:
    due_ms, _ = world.engine.shard.views.sequences.read_many(np.array(sequences, np.uint64))
    rows = [
        (0, world.mastership.epoch, one, due)
        for one, due in zip(sequences, due_ms.clip(0).tolist(), strict=True)
    ]
    found = await within(
        world.engine.reschedule(
            np.array(rows, ID_DTYPE), np.array(times_ms, np.int64), are_delays=are_delays
        )
    )
    answers: list[tuple[int, int]] = found.tolist()
    return answers


async def by_key(
    world: EngineWorld, keys: list[str], delays_ms: list[int]
) -> list[tuple[int, int, int]]:
    found = await within(
        world.engine.reschedule_keys(
            "orders",
            [key.encode() for key in keys],
            np.array(delays_ms, np.int64),
            are_delays=True,
        )
    )
    columns = (found.outcomes, found.due_ms, found.rescheduled_counts)
    return [*zip(*(column.tolist() for column in columns), strict=True)]


async def test_ids_when_they_are_pending_released_cancelled_or_unknown(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["", "", "", ""], 5_000)
        await publish(world, [""], 0)
        cancelled = np.array([(0, world.mastership.epoch, 3, world.now_ms + 5_000)], ID_DTYPE)
        await within(world.engine.cancel(cancelled))
        now_ms = world.now_ms
        answers = await reschedule(world, [0, 1, 0, 3, 4, 77], [60_000, 500, 70_000, 1, 1, 1])
        assert answers == [
            (RESCHEDULED, now_ms + 60_000),
            (RESCHEDULED, now_ms + 500),
            (RESCHEDULED, now_ms + 70_000),
            (CANCELLED, 0),
            (RELEASED, 0),
            (UNKNOWN, 0),
        ]
        assert world.engine.stats.rescheduled == 3
        # What is past is due now, and released.
        assert await reschedule(world, [2], [5], are_delays=False) == [(RESCHEDULED, now_ms)]
        assert await reschedule(world, [2], [5]) == [(RELEASED, 0)]
        assert world.engine.shard.views.counters.pending == 2


async def test_I3_a_moved_message_is_received_once_under_its_first_id(  # noqa: N802
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        first_due_ms = world.now_ms + 5_000
        await publish(world, ["k"], 5_000)
        for delay_ms in (90_000, 5_000, 50):
            assert (await reschedule(world, [0], [delay_ms]))[0][0] == RESCHEDULED
        await world.receive()  # subscribes
        world.advance(100)
        found = await world.receive(wait_ms=10_000)
        assert found is not None
        assert (found.units["sequence"].tolist(), found.due_ms.tolist()) == ([0], [first_due_ms])
        assert found.units["attempt"].tolist() == [1]
        world.advance(100_000)
        assert await world.receive() is None
        assert world.engine.shard.views.cursor.released_count == 1


async def test_keys_when_they_have_no_one_or_several_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reschedule_service, "RESCHEDULES_MAX", 2)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "a", "a", "b"], 5_000)
        await publish(world, ["past"], 0)
        now_ms = world.now_ms
        assert await by_key(world, ["a", "b", "past", "none"], [10_000, 20_000, 1, 1]) == [
            (RESCHEDULED, now_ms + 10_000, 3),
            (RESCHEDULED, now_ms + 20_000, 1),
            (RELEASED, 0, 0),
            (UNKNOWN, 0, 0),
        ]
        # They are found by their key also where they are now, and when that was long.
        world.advance(6_000)
        assert await by_key(world, ["a"], [500]) == [(RESCHEDULED, world.now_ms + 500, 3)]
        done = await within(world.engine.cancel_keys("orders", [b"a", b"b"]))
        assert done.cancelled_counts.tolist() == [3, 1]
        assert await by_key(world, ["a"], [50]) == [(CANCELLED, 0, 0)]


async def test_call_when_it_is_long_is_done_in_records_of_some_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reschedule_service, small_calls):
        monkeypatch.setattr(module, "RESCHEDULES_MAX", 3)
    async with EngineWorld(tmp_path) as world:
        await publish(world, [""] * 40, 5_000)
        calls = [
            reschedule(world, list(range(first, first + 20)), list(range(9_000, 9_020)))
            for first in (0, 20)
        ]
        for answers in await asyncio.gather(*calls):
            assert answers == [(RESCHEDULED, world.now_ms + 9_000 + at) for at in range(20)]


@pytest.mark.parametrize(
    ("times_ms", "are_delays", "error"),
    [
        ([-1], True, errors.InvalidDueTime),
        ([-1], False, errors.InvalidDueTime),
        ([1 << 50], True, errors.BeyondHorizon),
        ([1 << 50], False, errors.BeyondHorizon),
    ],
)
async def test_call_when_a_time_cannot_be(
    tmp_path: Path, times_ms: list[int], are_delays: bool, error: type[errors.HourwheelError]
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, [""], 5_000)
        with pytest.raises(error):
            await reschedule(world, [0], times_ms, are_delays=are_delays)
        assert not world.engine.shard.views.moved.count


async def test_call_when_not_all_nodes_know_the_record_or_too_much_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["k", "k"], 5_000)
        views = world.engine.shard.views
        views.feature_level = RESCHEDULE_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await reschedule(world, [0], [5])
        views.feature_level = RESCHEDULE_LEVEL
        monkeypatch.setattr(limits, "MOVED_COUNT_MAX", 1)
        with pytest.raises(errors.TooManyMoved):
            await reschedule(world, [0, 1], [5_000, 5_000])
        with pytest.raises(errors.TooManyMoved):
            await by_key(world, ["k"], [5_000])
        assert (await reschedule(world, [0], [5_000]))[0][0] == RESCHEDULED
