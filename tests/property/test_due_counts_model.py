"""Counts by due time against a bag of keys, while the wheel lives on between the steps."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sizes import small_sizes
from tests.support.wheel_life import Life, some_delay
from tests.support.wheel_world import START_MS, WheelWorld, world_at_start
from timewheel.due_counts import DueCounter, DueCounts
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_MS, SECOND_MS


def due_times(world: WheelWorld) -> list[int]:
    """Of everything pending, with those of one key counted apart."""
    return sorted(key.due_ms for key, _ in world.pending.elements())


def counted(dues: list[int], bounds: Iterable[int]) -> list[int]:
    """How many are due before each bound, one by one."""
    return [sum(due < bound for due in dues) for bound in bounds]


def some_bounds(rng: Random, dues: list[int]) -> list[int]:
    """Around what is there, or anywhere; on any raster."""
    raster_ms = rng.choice((1, 1, 100, SECOND_MS, SECOND_MS, HOUR_MS, DAY_MS))
    places = [START_MS + some_delay(rng) for _ in range(rng.randint(1, 30))]
    places += rng.choices(dues, k=rng.randint(0, 30)) if dues else []
    places += [rng.choice(places) + rng.choice((-1, 1)) * raster_ms, 0]
    found = sorted({place // raster_ms * raster_ms for place in places})
    return found if len(found) > 1 else [*found, found[0] + raster_ms]


def check_counts(world: WheelWorld, bounds: list[int], dues: list[int], found: DueCounts) -> None:
    """`found` is true where it says so, and within an hour of the truth elsewhere."""
    before = counted(dues, bounds)
    assert found.total == len(dues)
    counts, truth = found.counts.tolist(), [high - low for low, high in pairwise(before)]
    for count, is_exact, true_count in zip(counts, found.are_exact.tolist(), truth, strict=True):
        assert count == true_count or not is_exact
    sums = found.earlier_count + np.cumsum([0, *found.counts])
    floors = counted(dues, (bound // HOUR_MS * HOUR_MS for bound in bounds))
    ceilings = counted(dues, (-(-bound // HOUR_MS) * HOUR_MS for bound in bounds))
    for low, told, high in zip(floors, sums.tolist(), ceilings, strict=True):
        assert low <= told <= high
    if all(bound % HOUR_MS == 0 for bound in bounds):
        assert found.are_exact.all()
        assert found.earlier_count == before[0]
    has_days = any(run.footer.level == DAY_LEVEL for run in world.wheel.runs.all())
    if not has_days and all(bound % SECOND_MS == 0 for bound in bounds):
        assert found.are_exact.all()


@given(seed=st.integers(0, 1 << 32), births=st.integers(1, 12), is_calm=st.booleans())
def test_counts_when_the_wheel_lives_on(seed: int, births: int, is_calm: bool) -> None:
    rng = Random(seed)
    with small_sizes():
        life = Life(rng)
        for _ in range(births):
            life.live(rng)
            life.publish(rng)
            if rng.random() < 0.3:
                life.advance(rng)
        world = life.world
        dues = due_times(world)
        bounds = some_bounds(rng, dues)
        counter = DueCounter(world.wheel, world.cursor, np.array(bounds, np.int64))
        while not counter.is_done and not counter.is_stale:
            counter.step()
            if not is_calm:
                life.live(rng)
        if counter.is_stale:  # as whoever asks does: begin again
            dues = due_times(world)
            counter = DueCounter(world.wheel, world.cursor, np.array(bounds, np.int64))
            while not counter.is_done:
                counter.step()
        check_counts(world, bounds, dues, counter.result())


def test_counts_when_the_wheel_is_empty_or_all_lies_outside() -> None:
    world = world_at_start()
    bounds = np.array([START_MS, START_MS + SECOND_MS], np.int64)

    def result() -> DueCounts:
        counter = DueCounter(world.wheel, world.cursor, bounds)
        while not counter.is_done:
            counter.step()
        return counter.result()

    assert result() == ([0], [True], 0, 0)
    world.publish([START_MS + SECOND_MS, START_MS + DAY_MS])
    world.flush()
    assert result() == ([0], [True], 0, 2)
    world.publish([START_MS + 1, START_MS + 999])
    assert result() == ([2], [True], 0, 2)
