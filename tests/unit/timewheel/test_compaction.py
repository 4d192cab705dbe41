from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from storage.views.unit import is_sorted
from tests.sim.disk import SimulatedDisk
from tests.support.every_step import lose_power_at_every_step
from tests.support.runs import DIRECTORY, IDENTITY, KeyPair, keyed, pairs_of, write_run
from tests.support.wheel_world import END, START_MS, MemoryLog, WheelWorld
from timewheel.compaction import CascadeJob, MergeJob, plan_cascade, plan_merge
from timewheel.flush import Place
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_LEVEL, HOUR_MS
from timewheel.run import Run, open_run
from timewheel.run_format import delay_log_path, run_path, unit_at
from timewheel.run_set import RunSet
from timewheel.wheel import WheelConfig


def run_set(*keys_of_runs: list[KeyPair], level: int = HOUR_LEVEL) -> tuple[SimulatedDisk, RunSet]:
    disk, runs = SimulatedDisk(), RunSet()
    for run_id, keys in enumerate(keys_of_runs, 1):
        units = keyed(keys, dlog_id=run_id)
        runs.add(
            write_run(
                disk,
                units,
                level=level,
                run_id=run_id,
                heads=lambda bucket, run_id=run_id: runs.heads(level, bucket, run_id),  # type: ignore[misc]
            )
        )
    return disk, runs


def merged(
    disk: SimulatedDisk,
    runs: RunSet,
    sources: list[Run],
    cursor: Key = KEY_MIN,
    pause: Callable[[], None] = lambda: None,
    slice_units: int = 7,
) -> Run:
    place = Place(disk, DIRECTORY, IDENTITY)
    job = MergeJob(place, sources, cursor, heads=runs.heads, slice_units=slice_units)
    footer = job.run(pause).footer
    return open_run(disk, DIRECTORY, IDENTITY, footer.covers_first, footer.run_id)


def everything(run: Run) -> list[KeyPair]:
    return pairs_of(run.read(0, run.footer.unit_count))


# -- choosing what to merge


@pytest.mark.parametrize(
    ("sizes", "run_count", "chosen"),
    [
        ([], 2, []),
        ([5, 5], 3, []),
        ([5, 5, 5], 3, [1, 2, 3]),
        ([5, 5, 5, 5], 3, [1, 2, 3]),  # the oldest first
        ([80, 5, 5, 5], 3, [2, 3, 4]),
        ([8, 2, 2], 3, [1, 2, 3]),  # four times as big is alike
        ([9, 2, 2], 3, []),
        ([2, 2, 80, 2, 2], 3, []),  # never past one that is not: neighbours only
        ([2, 2, 80, 2, 2], 2, [1, 2]),
        ([1, 20, 1, 20, 1, 20, 1], 2, []),
        ([1, 20, 1, 20, 2, 40, 1, 9], 2, [7, 8]),  # so many that some must: the smallest pair
        ([20, 1, 30, 2, 40, 1, 9, 1], 2, [6, 7]),
    ],
)
def test_plan_merge_when_runs_are_of_these_sizes(
    sizes: list[int], run_count: int, chosen: list[int]
) -> None:
    _, runs = run_set(*([(n, n) for n in range(size)] for size in sizes))
    found = [run.footer.run_id for run in plan_merge(runs, HOUR_LEVEL, run_count)]
    assert found == chosen
    assert plan_merge(runs, DAY_LEVEL, run_count) == []


def test_plan_merge_when_repeated_ends_and_leaves_few_runs() -> None:
    disk, runs = run_set(*([(n, n)] for n in range(40)))
    for _ in range(40):
        sources = plan_merge(runs, HOUR_LEVEL, 3)
        if not sources:
            break
        one = merged(disk, runs, sources)
        runs.remove(sources)
        runs.add(one)  # which asserts that ranges are disjoint
    assert plan_merge(runs, HOUR_LEVEL, 3) == []
    assert len(runs.all()) < 12
    assert sorted(key for run in runs.all() for key in everything(run)) == [
        (n, n) for n in range(40)
    ]


# -- merging


def test_merge_when_runs_overlap_is_all_units_in_key_order() -> None:
    rng = Random(3)
    keys = [(rng.randrange(3 * HOUR_MS), sequence) for sequence in range(300)]
    parts = [sorted(keys[part::3]) for part in range(3)]
    disk, runs = run_set(*parts)
    one = merged(disk, runs, runs.all())
    assert everything(one) == sorted(keys)
    assert (one.footer.covers_first, one.footer.run_id) == (1, 3)
    assert (one.footer.delay_log_first, one.footer.delay_log_last) == (1, 3)
    units = one.read(0, 300)
    of_run = {sequence: part + 1 for part in range(3) for _, sequence in parts[part]}
    assert units["dlog_id"].tolist() == [of_run[key[1]] for key in sorted(keys)]


@pytest.mark.parametrize(("level", "bucket_ms"), [(HOUR_LEVEL, HOUR_MS), (DAY_LEVEL, DAY_MS)])
@pytest.mark.parametrize(
    ("cursor", "first_kept"),
    [
        (KEY_MIN, 0),
        (Key(999, 0), 0),
        (Key(5_000, 0), 5),  # the bucket that the cursor has just entered stays
        (Key(5_999, SEQUENCE_MAX), 5),  # and the one that it is about to leave
        (Key(6_000, 0), 6),
        (Key(99_000, 0), 10),
    ],
)
def test_merge_when_buckets_are_past_leaves_out_those_and_no_other(
    level: int, bucket_ms: int, cursor: Key, first_kept: int
) -> None:
    keys = [(bucket * bucket_ms + ms, bucket) for bucket in range(10) for ms in (0, bucket_ms - 1)]
    disk, runs = run_set(keys[::2], keys[1::2], level=level)
    scaled = Key(cursor.due_ms * bucket_ms // 1_000, cursor.sequence)
    one = merged(disk, runs, runs.all(), scaled)
    assert everything(one) == [key for key in keys if key[1] >= first_kept]
    assert one.buckets() == list(range(first_kept, 10))


def test_merge_when_days_have_cascaded_leaves_them_out() -> None:
    keys = [(day * DAY_MS, day) for day in range(4)]
    disk, runs = run_set(keys, keys, level=DAY_LEVEL)
    first, second = runs.all()
    for day, run in [(1, first), (1, second), (2, second)]:
        runs.mark_cascaded(run, day)
    one = merged(disk, runs, [first, second])
    assert everything(one) == sorted([keys[0], keys[0], keys[2], keys[3], keys[3]])
    assert one.cascaded_days == set()


def test_merge_when_older_runs_are_left_continues_their_chain() -> None:
    disk, runs = run_set([(1_000, 1)], [(1_000, 2), (9_000, 2)], [(2_000, 3)], [(1_000, 4)])
    sources = runs.all()[1:3]
    one = merged(disk, runs, sources)
    runs.remove(sources)
    runs.add(one)
    directory = one.directory(0)
    assert directory is not None
    assert directory["previous_run"][[1, 2, 9]].tolist() == [1, 0, 0]
    assert [run.footer.run_id for run in runs.chain(0, 1)] == [4, 3, 1]


def test_merge_when_everything_is_past_is_empty() -> None:
    disk, runs = run_set([(1, 1)], [(2, 2)])
    one = merged(disk, runs, runs.all(), Key(HOUR_MS, 0))
    assert one.footer.unit_count == 0


def test_merge_when_one_key_is_in_several_runs_keeps_each() -> None:
    disk, runs = run_set([(5, 7), (5, 7)], [(5, 7)], [(5, 6), (5, 7), (5, 8)])
    assert everything(merged(disk, runs, runs.all(), slice_units=1)) == [
        *((5, 6), (5, 7), (5, 7), (5, 7), (5, 7), (5, 8))
    ]


def test_merge_when_there_is_much_pauses_between_slices() -> None:
    pauses: list[None] = []
    disk, runs = run_set(*([(n, n) for n in range(2_000)] for _ in range(2)))
    merged(disk, runs, runs.all(), pause=lambda: pauses.append(None), slice_units=512)
    assert 4_000 / 512 <= len(pauses) <= 4_000 / 200


def test_I8_merge_when_a_block_of_a_source_is_damaged_fails_and_leaves_the_sources() -> None:  # noqa: N802
    keys = [(n, n) for n in range(600)]
    disk, runs = run_set(keys, keys)
    disk.flip_bit(run_path(DIRECTORY, 2, 2), unit_at(300))
    with pytest.raises(errors.CorruptFile) as found:
        merged(disk, runs, runs.all())
    assert found.value.params["file"] == run_path(DIRECTORY, 2, 2)
    assert everything(runs.all()[0]) == keys
    with pytest.raises(errors.CorruptFile):
        open_run(disk, DIRECTORY, IDENTITY, 1, 2)  # what it left is no run


# -- cascading


@pytest.mark.parametrize(("end_day", "planned"), [(0, None), (3, None), (4, 3), (6, 3), (99, 3)])
def test_plan_cascade_when_days_near(end_day: int, planned: int | None) -> None:
    _, runs = run_set([(3 * DAY_MS, 1), (5 * DAY_MS, 1)], [(5 * DAY_MS, 1)], level=DAY_LEVEL)
    assert plan_cascade(runs, end_day) == planned


def test_plan_cascade_when_the_first_days_have_cascaded() -> None:
    _, runs = run_set([(3 * DAY_MS, 1), (5 * DAY_MS, 1)], [(3 * DAY_MS, 1)], level=DAY_LEVEL)
    runs.mark_cascaded(runs.all()[0], 3)
    assert plan_cascade(runs, 6) == 3
    runs.mark_cascaded(runs.all()[1], 3)
    assert plan_cascade(runs, 6) == 5
    runs.mark_cascaded(runs.all()[0], 5)
    assert plan_cascade(runs, 6) is None


def world_of_days(disk: SimulatedDisk | None = None) -> WheelWorld:
    """Three days at the day level, in three runs that also have other days; two are due to move."""
    config = WheelConfig(merge_run_count=2, hour_level_days=1)
    world = WheelWorld(disk or SimulatedDisk(), config, Key(START_MS, SEQUENCE_MAX), START_MS)
    rng = Random(4)
    for _ in range(3):
        world.publish([START_MS + DAY_MS + rng.randrange(3 * DAY_MS) for _ in range(40)])
        world.flush()
    world.hour_level_end_day += 2
    return world


def test_cascade_when_a_day_moves_it_moves_once_and_whole() -> None:
    world = world_of_days()
    day = START_MS // DAY_MS + 1
    before = world.pending_keys()
    of_day = [key for key in before if key.due_ms // DAY_MS == day]
    assert world.cascade()
    world.check()
    (run,) = world.wheel.runs.of_level(HOUR_LEVEL)
    assert everything(run) == of_day
    assert run.buckets() == sorted({key.due_ms // HOUR_MS for key in of_day})
    assert all(day not in one.buckets() for one in world.wheel.runs.of_level(DAY_LEVEL))
    has = [bool(world.wheel.runs.with_bucket(DAY_LEVEL, day + n)) for n in range(5)]
    assert (world.wheel.runs.first_day(), has) == (day + 1, [False, True, True, True, False])
    assert world.cascade()
    assert not world.cascade()
    world.check()
    assert world.pending_keys() == before
    world.take(END)


def test_cascade_when_done_has_bodies_in_the_order_in_which_they_fall_due() -> None:
    world = world_of_days()
    world.cascade()
    (run,) = world.wheel.runs.of_level(HOUR_LEVEL)
    units = run.read(0, run.footer.unit_count)
    assert set(units["dlog_id"].tolist()) == {run.footer.run_id}
    assert is_sorted(units)
    ends = 64 + np.cumsum(units["body_len"].astype(np.int64))
    assert units["position"].tolist() == [64, *ends[:-1].tolist()]
    size = world.disk.open(delay_log_path(DIRECTORY, run.footer.run_id)).size()
    assert size == int(ends[-1])


def test_cascade_when_the_day_has_begun_and_is_being_read() -> None:
    world = world_of_days()
    day_ms = START_MS // DAY_MS * DAY_MS + DAY_MS
    world.take(Key(day_ms + 11 * HOUR_MS + 1_800_000, 0))
    world.publish([world.now_ms + HOUR_MS])
    world.cascade()
    world.check()
    world.take(Key(day_ms + 12 * HOUR_MS, 0))
    world.merge()
    world.cascade()
    world.flush()
    world.check()
    world.take(END)


def test_I8_cascade_when_a_body_is_damaged_moves_it_and_serves_the_others() -> None:  # noqa: N802
    world = world_of_days()
    day = START_MS // DAY_MS + 1
    (source, *_) = world.wheel.runs.with_bucket(DAY_LEVEL, day)
    unit = next(one for one in source.read(*source.section(day)) if one["body_len"])
    path = delay_log_path(DIRECTORY, int(unit["dlog_id"]))
    world.disk.flip_bit(path, int(unit["position"]))
    world.cascade()
    (run,) = world.wheel.runs.of_level(HOUR_LEVEL)
    units = run.read(0, run.footer.unit_count)
    _, bad = world.bodies.read(units)
    assert [int(units["sequence"][one.ordinal]) for one in bad] == [int(unit["sequence"])]
    assert bad[0].error.params == {"file": path, "offset": str(unit["position"])}


def test_cascade_when_no_run_has_the_day_writes_an_empty_run() -> None:
    disk, runs = run_set([(3 * DAY_MS, 1)], level=DAY_LEVEL)
    place = Place(disk, DIRECTORY, IDENTITY)
    job = CascadeJob(place, 4, runs, run_id=9, log=MemoryLog(), slice_units=5)
    assert job.sources == []
    assert job.run(lambda: None).footer.unit_count == 0


# -- crashes


def mixed_world(disk: SimulatedDisk) -> WheelWorld:
    world = world_of_days(disk)
    for _ in range(2):
        world.publish([START_MS + delay for delay in (5_000, HOUR_MS, 5 * HOUR_MS)])
        world.flush()
    return world


@pytest.mark.parametrize("job", ["begin_merge", "begin_cascade"])
def test_I1_job_when_power_fails_at_every_step_leaves_nothing_that_a_reopen_sees(job: str) -> None:  # noqa: N802
    worlds: list[WheelWorld] = []

    def prepare(disk: SimulatedDisk) -> Callable[[], object]:
        world = mixed_world(disk)
        worlds[:] = [world]
        found: Callable[[], object] = getattr(world, job)
        return found

    def check(rng: Random) -> None:
        (world,) = worlds
        names = [run.path for run in world.wheel.runs.all()]
        world.lose_power(rng)
        assert [run.path for run in world.wheel.runs.all()] == names
        world.check()
        assert getattr(world, job)()
        world.end_job()
        world.check()
        world.take(END)

    assert lose_power_at_every_step(prepare, check, stride=3) > 10


@pytest.mark.parametrize("job", ["begin_merge", "begin_cascade"])
@pytest.mark.parametrize("seed", range(6))
def test_I1_job_when_power_fails_after_it_is_whole(job: str, seed: int) -> None:  # noqa: N802
    world = mixed_world(SimulatedDisk())
    assert getattr(world, job)()
    world.end_job()
    world.lose_power(Random(seed))
    world.check()
    world.take(END)


@pytest.mark.parametrize("job", ["begin_merge", "begin_cascade"])
@pytest.mark.parametrize("install", [True, False])
def test_job_when_messages_come_and_go_beside_it(job: str, *, install: bool) -> None:
    world = mixed_world(SimulatedDisk())
    assert getattr(world, job)()
    world.publish([START_MS + 2 * HOUR_MS, START_MS + 3 * DAY_MS])
    world.take(Key(START_MS + HOUR_MS, 0))
    world.check()
    world.end_job(install=install)
    world.check()
    world.flush()
    world.check()
    world.take(END)
