"""How far each dispatch goes, and when there is none."""

from typing import Any

import pytest

from hourwheel.formats.record_batch import RecordBatch
from hourwheel.types import SEQUENCE_MAX, Key
from node.shard.dispatcher import FIRST_UNITS, DispatchConfig, Dispatcher
from node.shard.recovery import ShardConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import START_MS, ShardWorld

INTERVAL_MS = DispatchConfig().interval_ms
LEAD_MS = 3 + INTERVAL_MS
"""Of a dispatcher that has seen no commit."""
DUE_MS = START_MS + 1_000


def world_with(due_ms: list[int]) -> ShardWorld:
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    if due_ms:
        world.publish(due_ms)
        world.commit()
    return world


def dispatcher_of(world: ShardWorld, config: DispatchConfig | None = None) -> Dispatcher:
    return Dispatcher(config or DispatchConfig(), world.opened.shard.views.cursor.key)


def row_of(planned: bytes | None) -> Any:
    assert planned is not None
    return RecordBatch(planned).rows[0]


def range_of(planned: bytes | None) -> tuple[Key, Key]:
    """(after, to] that is released."""
    values = row_of(planned).tolist()
    return Key(*values[:2]), Key(*values[2:4])


# -- lead -----------------------------------------------------------------------------------------


def test_lead_follows_commits_quickly_up_and_slowly_down() -> None:
    dispatcher = Dispatcher(DispatchConfig(), Key(0, 0))
    assert dispatcher.lead_ms == LEAD_MS
    for _ in range(3):
        dispatcher.observe_commit(5.0)
    risen = dispatcher.lead_ms
    assert risen == LEAD_MS + 5, "twice the usual time, and what it is apart from the next one"
    dispatcher.observe_commit(1.0)
    assert risen - 1 <= dispatcher.lead_ms <= risen
    for _ in range(3_000):
        dispatcher.observe_commit(1.0)
    assert dispatcher.lead_ms == LEAD_MS


def test_lead_covers_a_slow_commit_that_comes_again_and_again() -> None:
    dispatcher = Dispatcher(DispatchConfig(), Key(0, 0))
    for _ in range(4):
        dispatcher.observe_commit(12.0)
        for _ in range(250):
            assert dispatcher.lead_ms - DispatchConfig().interval_ms >= 12 * 0.999**250
            dispatcher.observe_commit(0.5)


def test_lead_falls_from_its_bound_after_a_stall() -> None:
    dispatcher = Dispatcher(DispatchConfig(), Key(0, 0))
    dispatcher.observe_commit(60_000.0)
    assert dispatcher.lead_ms == DispatchConfig().lead_ms_max
    for _ in range(5_000):
        dispatcher.observe_commit(1.0)
    assert dispatcher.lead_ms == LEAD_MS


def test_lead_stays_within_its_bounds() -> None:
    config = DispatchConfig(lead_ms_min=5, lead_ms_max=9, interval_ms=0)
    dispatcher = Dispatcher(config, Key(0, 0))
    assert dispatcher.lead_ms == 5
    for _ in range(50):
        dispatcher.observe_commit(1_000.0)
    assert dispatcher.lead_ms == 9


# -- plans ----------------------------------------------------------------------------------------


def test_nothing_is_planned_when_nothing_is_due_within_the_lead() -> None:
    world = world_with([DUE_MS])
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    before = dispatcher.append_cursor
    assert dispatcher.plan(views, DUE_MS - LEAD_MS - 1) is None
    assert dispatcher.append_cursor == before
    to = Key(DUE_MS, SEQUENCE_MAX)
    assert range_of(dispatcher.plan(views, DUE_MS - LEAD_MS)) == (before, to)
    assert dispatcher.append_cursor == to
    assert dispatcher.plan(views, DUE_MS + 1_000) is None, "it is planned already"


def test_nothing_is_planned_when_there_is_nothing() -> None:
    world = world_with([])
    dispatcher = dispatcher_of(world)
    assert dispatcher.plan(world.opened.shard.views, DUE_MS) is None
    assert dispatcher.next_wakeup_ms(world.opened.shard.views) is None


def test_nothing_is_planned_when_the_clock_is_behind_the_cursor() -> None:
    world = world_with([DUE_MS])
    dispatcher = Dispatcher(DispatchConfig(), Key(DUE_MS - 10, 0))
    assert dispatcher.plan(world.opened.shard.views, DUE_MS - 500) is None


def test_plans_are_an_interval_apart_when_they_are_whole() -> None:
    world = world_with([DUE_MS, DUE_MS + 1])
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    now_ms = DUE_MS - LEAD_MS
    first = range_of(dispatcher.plan(views, now_ms))
    next_ms = now_ms + INTERVAL_MS
    assert dispatcher.next_wakeup_ms(views) == next_ms
    assert dispatcher.plan(views, next_ms - 1) is None
    second = range_of(dispatcher.plan(views, next_ms))
    assert second == (first[1], Key(next_ms + LEAD_MS, SEQUENCE_MAX))


def test_plans_follow_at_once_when_more_is_due_than_one_may_release() -> None:
    world = world_with([DUE_MS] * 3 + [DUE_MS + 1] * 2)
    dispatcher, views = dispatcher_of(world, DispatchConfig(units_max=2)), world.opened.shard.views
    ranges = [range_of(dispatcher.plan(views, DUE_MS)) for _ in range(3)]
    assert [to for _, to in ranges] == [
        Key(DUE_MS, 1),
        Key(DUE_MS + 1, 3),
        Key(DUE_MS + LEAD_MS, SEQUENCE_MAX),
    ]
    assert [after for after, _ in ranges[1:]] == [to for _, to in ranges[:-1]]
    assert dispatcher.plan(views, DUE_MS + 100) is None


def test_pieces_of_one_moment_begin_small_and_double() -> None:
    world = world_with([DUE_MS] * 20 * FIRST_UNITS)
    config = DispatchConfig(units_max=8 * FIRST_UNITS)
    dispatcher, views = dispatcher_of(world, config), world.opened.shard.views
    counts = []
    while dispatcher.plan(views, DUE_MS) is not None:
        counts.append(dispatcher.planned_count)
    assert counts == [FIRST_UNITS * share for share in (1, 2, 4, 8, 5)]
    assert dispatcher.next_wakeup_ms(views) == DUE_MS + INTERVAL_MS, "it looks once more"
    assert dispatcher.plan(views, DUE_MS + INTERVAL_MS) is None
    assert dispatcher.next_wakeup_ms(views) is None


def test_first_piece_is_small_again_when_nothing_was_due_for_a_while() -> None:
    later_ms = DUE_MS + 1_000
    world = world_with([DUE_MS] * 3 * FIRST_UNITS + [later_ms] * 3 * FIRST_UNITS)
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    counts = []
    for now_ms in (DUE_MS, DUE_MS, later_ms, later_ms):
        assert dispatcher.plan(views, now_ms) is not None
        counts.append(dispatcher.planned_count)
    assert counts == [FIRST_UNITS, 2 * FIRST_UNITS] * 2


def test_first_piece_is_small_when_the_burst_before_ended_with_a_whole_one() -> None:
    later_ms = DUE_MS + 1_000
    burst_ms = later_ms + LEAD_MS + INTERVAL_MS
    world = world_with([DUE_MS] * 3 * FIRST_UNITS + [later_ms] + [burst_ms] * 3 * FIRST_UNITS)
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    counts = []
    for now_ms in (DUE_MS, DUE_MS, later_ms, burst_ms):
        assert dispatcher.plan(views, now_ms) is not None
        counts.append(dispatcher.planned_count)
    assert counts == [FIRST_UNITS, 2 * FIRST_UNITS, 1, FIRST_UNITS]


def test_steady_flow_needs_one_plan_an_interval() -> None:
    dues = [DUE_MS + at_ms for at_ms in range(120) for _ in range(FIRST_UNITS // 2)]
    world = world_with(dues)
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    counts = [
        dispatcher.planned_count
        for now_ms in range(DUE_MS, DUE_MS + 90)
        if dispatcher.plan(views, now_ms) is not None
    ]
    assert counts[-3:] == [INTERVAL_MS * FIRST_UNITS // 2] * 3


def test_a_plan_carries_what_was_released_so_far() -> None:
    world = world_with([DUE_MS, DUE_MS + 500])
    world.advance(1_000)
    views = world.opened.shard.views
    row = row_of(dispatcher_of(world).plan(views, DUE_MS + 500))
    assert row["check_offset"] == views.applied_offset
    assert row["check_count"] == views.cursor.released_count == 1
    assert row["check_mix"] == views.cursor.released_mix


def test_take_back_plans_the_same_again_at_once() -> None:
    world = world_with([DUE_MS])
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    before = dispatcher.append_cursor
    planned = dispatcher.plan(views, DUE_MS)
    dispatcher.take_back(row_of(planned))
    assert dispatcher.append_cursor == before
    assert dispatcher.plan(views, DUE_MS) == planned


@pytest.mark.parametrize("commit_ms", [0.0, 11.0])
def test_next_wakeup_is_the_lead_before_the_first_is_due(commit_ms: float) -> None:
    world = world_with([DUE_MS + 500, DUE_MS])
    dispatcher, views = dispatcher_of(world), world.opened.shard.views
    dispatcher.observe_commit(commit_ms)
    wakeup_ms = dispatcher.next_wakeup_ms(views)
    assert wakeup_ms == DUE_MS - dispatcher.lead_ms
    assert dispatcher.plan(views, wakeup_ms - 1) is None
    assert dispatcher.plan(views, wakeup_ms) is not None
