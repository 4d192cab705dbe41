from itertools import pairwise
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.types import KEY_MIN, Key
from storage.views.unit import UNIT_BYTES
from tests.support.runs import keyed, pairs_of
from tests.support.wheel_world import END, START_MS, WheelWorld, after, keys_of, world_at_start
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import Wheel, WheelConfig


def drain(world: WheelWorld) -> None:
    world.check()
    world.take(END)
    assert not world.pending


# -- taking


def test_take_when_years_are_empty_goes_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_at_start()
    loads = 0
    extend = world.wheel.near.extend

    def counted(*loaded: Any) -> None:
        nonlocal loads
        loads += 1
        extend(*loaded)

    monkeypatch.setattr(world.wheel.near, "extend", counted)
    world.publish([START_MS + 5, START_MS + 800 * DAY_MS])
    world.flush()
    world.take(after(900 * DAY_MS))
    assert not world.pending
    assert loads < 20  # of more than 20,000 hours


def test_take_when_in_many_steps_or_one_gives_the_same() -> None:
    delays = [ordinal * 137 % 9_000 for ordinal in range(400)]
    one, many = world_at_start(), world_at_start()
    for world in (one, many):
        for part in range(4):
            world.publish([START_MS + delay for delay in delays[part::4]])
            if part < 3:
                world.flush()
    for step in range(0, 9_000, 250):
        many.take(after(step))
        many.check()
    many.take(after(9_000))
    one.take(after(9_000))
    assert one.pending == many.pending


def test_take_when_nothing_was_ever_published() -> None:
    wheel = Wheel(WheelConfig(memtable_units_max=64), KEY_MIN)
    assert len(wheel.take(Key(1 << 50, 0))) == 0
    assert wheel.near.frontier == (1 << 50, 0)
    assert wheel.next_pending_ms(Key(1 << 50, 0)) is None


def test_insert_when_below_above_and_at_the_frontier() -> None:
    wheel = Wheel(WheelConfig(memtable_units_max=64), KEY_MIN)
    wheel.take(Key(99, 0))
    wheel.load_for_plan(Key(99, 0), Key(100, 5), 1)
    assert wheel.near.frontier == (100, 5)
    wheel.insert(keyed([(100, 6), (100, 5), (101, 0), (100, 4)]))
    assert sorted(pairs_of(wheel.near.take(Key(100, 5)))) == [(100, 4), (100, 5)]
    assert wheel.near.count == 0
    assert wheel.memtable.count == 4
    assert pairs_of(wheel.take(Key(101, 0))) == [(100, 6), (101, 0)]


# -- hot seconds


def test_take_when_a_hundred_thousand_are_due_in_one_millisecond() -> None:
    world = world_at_start(near_units=20_000, load_units=4_096, merge_run_count=8)
    hot_ms = START_MS + 700
    for _ in range(4):
        world.publish([hot_ms] * 20_000)
        world.flush()
    world.publish([hot_ms] * 20_000 + [hot_ms + 1, hot_ms - 1])
    world.begin_flush()
    target = after(5_000)
    while world.pending:
        before = world.wheel.near.count
        loaded = world.wheel.load_for_plan(world.cursor, target, 16_384)
        assert world.wheel.near.count <= before + 16_384 + 3 * 4_096
        to, count = world.wheel.near.plan(world.cursor, loaded, 16_384)
        assert 0 < count <= 16_384
        world.take(to)
        if world.job is not None and len(world.pending) < 60_000:
            world.end_job()  # the flush ends in the middle of the second
    assert world.cursor >= (hot_ms + 1, 0)


def test_load_when_the_memtable_alone_has_more_than_a_chunk_loads_about_one() -> None:
    world = world_at_start(load_units=50)
    world.publish([START_MS + 10 + ordinal // 100 for ordinal in range(500)])
    world.wheel.load_for_plan(world.cursor, after(1_000), 1)
    assert world.wheel.near.count == 50
    world.check()
    world.take(Key(START_MS + 10, 20))
    world.wheel.load_for_plan(world.cursor, after(1_000), 60)
    assert world.wheel.near.count == 79
    drain(world)


def test_load_when_runs_and_memtable_share_a_hot_second_loads_about_one_chunk() -> None:
    world = world_at_start(load_units=50)
    for _ in range(3):
        world.publish([START_MS + 10 + ordinal % 40 for ordinal in range(200)])
        world.flush()
    world.publish([START_MS + 10 + ordinal % 40 for ordinal in range(400)])
    loads = []
    while world.wheel.near.frontier < after(1_000):
        before = world.wheel.near.count
        world.wheel.load_for_plan(KEY_MIN, after(1_000), before + 1)
        loads.append(world.wheel.near.count - before)
        world.check()
    # The bound that the memtable sets is lower than where the runs were read to: they are put back.
    assert sum(loads) == 1_000
    assert max(loads) <= 3 * 256 + 50
    drain(world)


def test_load_when_the_last_millisecond_of_an_hour_is_hot() -> None:
    world = world_at_start(load_units=5)
    world.publish([START_MS + HOUR_MS - 1] * 900 + [START_MS + HOUR_MS])
    world.flush()
    world.take(Key(START_MS + HOUR_MS - 1, 300))  # inside it: the hour is not over
    world.reopen()
    drain(world)


def test_load_when_more_units_share_a_key_than_a_chunk_has() -> None:
    world = world_at_start(load_units=5)
    world.publish([START_MS + 5])
    world.take(after(5))
    world.give_back(0, START_MS + 100, groups=40)
    world.flush()
    world.give_back(0, START_MS + 100, groups=30)
    world.wheel.load_for_plan(world.cursor, after(1_000), 1)
    world.check()
    world.take(world.wheel.near.frontier)
    assert not world.pending


# -- the near level is a cache


def test_I1_cut_back_when_the_hour_was_being_read_loads_it_again() -> None:  # noqa: N802
    world = world_at_start(near_units=20)
    world.publish([START_MS + 2_000 + ordinal * 100 for ordinal in range(60)])
    world.flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 1_000)
    assert world.wheel.near.count == 60
    assert len(world.wheel.runs_in_use()) == 1
    world.wheel.load_ahead(world.cursor, START_MS)
    assert world.wheel.near.count <= 20
    assert world.wheel.near.frontier < after(9_000)
    drain(world)


def test_I1_cut_back_when_what_it_drops_was_flushed_meanwhile_loads_it_again() -> None:  # noqa: N802
    world = world_at_start(near_units=20)
    world.publish([START_MS + 30_000])
    world.flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 1_000)
    world.publish([START_MS + 2_000 + ordinal * 100 for ordinal in range(60)])
    world.flush()  # in the near level already, so the readers pass over it
    world.wheel.load_ahead(world.cursor, START_MS)
    assert world.wheel.near.frontier < after(9_000)
    drain(world)


def test_I3_cut_back_when_the_clock_is_behind_the_cursor_never_goes_behind_it() -> None:  # noqa: N802
    world = world_at_start(near_units=10, load_units=5)
    world.publish([START_MS + 60_000 + ordinal for ordinal in range(80)])
    world.take(after(60_040))
    world.wheel.load_for_plan(world.cursor, after(60_200), 1_000)
    world.wheel.load_ahead(world.cursor, START_MS)
    assert world.wheel.near.frontier >= world.cursor
    drain(world)


def test_cut_back_when_it_fits_leaves_the_readers_alone() -> None:
    world = world_at_start(near_units=1_000)
    world.publish([START_MS + ordinal * 100 for ordinal in range(1, 300)])
    world.flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 100)
    in_use = world.wheel.runs_in_use()
    world.wheel.load_ahead(world.cursor, START_MS)
    assert world.wheel.runs_in_use() == in_use != set()
    drain(world)


def test_load_ahead_when_nothing_is_due_soon_reaches_its_distance() -> None:
    world = world_at_start()
    world.publish([START_MS + DAY_MS])
    world.wheel.load_ahead(world.cursor, START_MS)
    assert world.wheel.near.frontier == after(10_000)
    world.wheel.load_ahead(world.cursor, START_MS + 4_000)
    assert world.wheel.near.frontier == after(10_000)  # in steps, not with every tick
    world.wheel.load_ahead(world.cursor, START_MS + 5_000)
    assert world.wheel.near.frontier == after(15_000)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_load_ahead_when_much_is_due_soon_goes_by_pieces(is_flushed: bool) -> None:
    """Each of them takes as long as its units, not as those that follow."""
    world = world_at_start(near_units=10_000, load_units=300)
    world.publish([START_MS + 1_000 + ordinal for ordinal in range(2_000)])
    if is_flushed:
        world.flush()
    counts = [0]
    while world.wheel.load_ahead(world.cursor, START_MS):
        counts.append(world.wheel.near.count)
        world.check()
    steps = [later - before for before, later in pairwise(counts)]
    assert len(steps) >= 6
    assert max(steps) <= 300
    assert (world.wheel.near.count, world.wheel.near.frontier) == (2_000, after(10_000))
    assert not world.wheel.load_ahead(world.cursor, START_MS)
    drain(world)


def test_load_ahead_when_a_second_is_hot_stops_at_its_bytes() -> None:
    world = world_at_start(near_units=100, load_units=30)
    world.publish([START_MS + 3_000 + ordinal for ordinal in range(1_000)])
    world.flush()
    for _ in range(5):
        world.wheel.load_ahead(world.cursor, START_MS)
        assert world.wheel.near.size_bytes <= 100 * UNIT_BYTES + 256 * UNIT_BYTES
    world.check()
    for step in range(0, 4_000, 100):
        world.take(after(step))
        world.wheel.load_ahead(world.cursor, START_MS + step)
        world.check()
    drain(world)


def test_load_for_plan_when_the_limit_is_reached_goes_no_further() -> None:
    world = world_at_start(load_units=20)
    world.publish([START_MS + ordinal for ordinal in range(1, 200)])
    loaded = world.wheel.load_for_plan(world.cursor, after(5_000), 30)
    assert after(30) <= loaded < after(100)
    assert world.wheel.load_for_plan(world.cursor, after(20), 30) == after(20)
    assert world.wheel.load_for_plan(world.cursor, after(5_000), 1_000) == after(5_000)


# -- the next wake-up


def next_delay(world: WheelWorld) -> int | None:
    found = world.wheel.next_pending_ms(world.cursor)
    return None if found is None else found - START_MS


def test_next_pending_when_units_are_in_memory_is_exact() -> None:
    world = world_at_start()
    assert next_delay(world) is None
    world.publish([START_MS + 77_777])
    assert next_delay(world) == 77_777
    world.begin_flush()  # frozen
    assert next_delay(world) == 77_777
    world.publish([START_MS + 66_666])
    assert next_delay(world) == 66_666
    world.wheel.load_for_plan(world.cursor, after(70_000), 10)
    assert next_delay(world) == 66_666
    world.take(after(66_666))
    assert next_delay(world) == 77_777


def test_next_pending_when_units_are_in_an_hour_level_run_is_the_start_of_the_second() -> None:
    world = world_at_start()
    world.publish([START_MS + 77_777, START_MS + HOUR_MS + 5])
    world.flush()
    assert next_delay(world) == 77_000
    world.take(after(77_500))
    assert next_delay(world) == 77_500  # inside the second: look again at once
    world.wheel.load_ahead(world.cursor, START_MS + 77_500)
    assert next_delay(world) == 77_777
    world.take(after(77_777))
    assert next_delay(world) == HOUR_MS


def test_next_pending_when_units_are_in_a_day_level_run_is_the_start_of_the_hour() -> None:
    world = world_at_start()
    world.publish([START_MS + 9 * DAY_MS + 5 * HOUR_MS + 1_234_567])
    world.flush()
    assert next_delay(world) == 9 * DAY_MS + 5 * HOUR_MS


def test_next_pending_when_an_earlier_message_is_published_is_earlier() -> None:
    world = world_at_start()
    for delay in (9 * DAY_MS, 9 * HOUR_MS, 90_000, 900):
        world.publish([START_MS + delay])
        assert next_delay(world) == delay
        world.flush()
        found = next_delay(world)
        assert found is not None
        assert found <= delay


def test_next_pending_when_runs_hold_only_what_is_past_is_none() -> None:
    world = world_at_start()
    world.publish([START_MS + 5_000])
    world.flush()
    world.take(after(HOUR_MS))
    assert next_delay(world) is None


# -- flushes


def test_flush_when_the_hour_is_being_read_adds_to_it() -> None:
    world = world_at_start(load_units=10)
    world.publish([START_MS + ordinal * 9 for ordinal in range(1, 900)])
    world.flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 5)
    assert world.wheel.near.count < 300
    world.publish([START_MS + ordinal * 9 + 1 for ordinal in range(1, 900)])
    world.begin_flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 400)
    world.check()
    world.end_job()
    world.check()
    assert len(world.wheel.runs_in_use()) == 2
    drain(world)


def test_flush_when_it_holds_nothing_of_the_hour_being_read_adds_nothing_to_it() -> None:
    world = world_at_start(load_units=10)
    world.publish([START_MS + ordinal * 50 for ordinal in range(1, 100)])
    world.flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 5)
    world.publish([START_MS + 5 * HOUR_MS, START_MS + 5 * DAY_MS])
    world.flush()
    assert len(world.wheel.runs_in_use()) == 1
    drain(world)


def test_flush_when_abandoned_keeps_the_order_of_arrival() -> None:
    world = world_at_start()
    world.publish([START_MS + 9_000, START_MS + 8_000])
    world.begin_flush()
    world.publish([START_MS + 7_000])
    world.end_job(install=False)
    assert [key.sequence for key in keys_of(world.wheel.memtable.units)] == [0, 1, 2]
    assert world.wheel.frozen is None
    world.flush()
    assert world.wheel.memtable.count == 0
    drain(world)


def test_flush_when_repeated_begins_with_an_empty_memtable() -> None:
    world = world_at_start()
    for _ in range(3):
        world.publish([START_MS + 9_000] * 200)
        world.flush()
        assert world.wheel.memtable.count == 0
        assert world.wheel.memtable.next_due_ms(world.cursor) is None
    world.publish([START_MS + 4])
    assert next_delay(world) == 4
    drain(world)


def test_flush_when_begun_twice_or_ended_without_a_beginning_stops() -> None:
    wheel = world_at_start().wheel
    with pytest.raises(errors.InvariantViolated):
        wheel.install_flush([])
    with pytest.raises(errors.InvariantViolated):
        wheel.abandon_flush()
    wheel.freeze()
    with pytest.raises(errors.InvariantViolated):
        wheel.freeze()


def test_units_in_memory_when_asked_are_all_that_may_point_into_files() -> None:
    world = world_at_start()
    world.publish([START_MS + 5_000])
    world.flush()
    world.publish([START_MS + 6_000])
    world.begin_flush()
    world.publish([START_MS + 7_000])
    world.wheel.load_for_plan(world.cursor, after(5_500), 10)
    found = {key.sequence for units in world.wheel.units_in_memory() for key in keys_of(units)}
    assert found == {0, 1, 2}


def test_I8_take_when_a_block_is_damaged_serves_nothing_beyond_it() -> None:  # noqa: N802
    world = world_at_start(load_units=100)
    world.publish([START_MS + ordinal for ordinal in range(1, 600)])
    world.flush()
    (run,) = world.wheel.runs.all()
    world.disk.flip_bit(run.path, 64 + 520 * UNIT_BYTES)
    world.take(after(150))
    with pytest.raises(errors.CorruptFile) as found:
        world.wheel.take(after(590))
    assert found.value.params["file"] == run.path
    assert world.wheel.near.frontier < after(513)
    world.check_near()
