from collections.abc import Callable
from random import Random
from unittest import mock

import pytest

from hourwheel import errors
from hourwheel.types import SEQUENCE_MAX, Key
from tests.sim.disk import SimulatedDisk
from tests.support.every_step import lose_power_at_every_step
from tests.support.runs import DIRECTORY, IDENTITY, pairs_of
from tests.support.wheel_world import END, START_MS, WheelWorld, body_of
from timewheel.flush import FlushJob, FlushSource, sections_end_ms
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_LEVEL, HOUR_MS
from timewheel.run import Run, open_run
from timewheel.run_format import delay_log_path
from timewheel.wheel import WheelConfig

FIRST_DAY_LEVEL_MS = 20_002 * DAY_MS
"""Two days from START_MS on are held as hours."""


def world_at_start(disk: SimulatedDisk | None = None) -> WheelWorld:
    config = WheelConfig(memtable_units_max=64)
    return WheelWorld(disk or SimulatedDisk(), config, Key(START_MS, SEQUENCE_MAX), START_MS)


def flushed(world: WheelWorld) -> list[Run]:
    before = set(world.wheel.runs.all())
    world.flush()
    return [run for run in world.wheel.runs.all() if run not in before]


def test_flush_when_due_times_lie_at_the_border_of_the_levels() -> None:
    world = world_at_start()
    dues = [FIRST_DAY_LEVEL_MS + step for step in (-1, 0, 1, -HOUR_MS, DAY_MS)]
    world.publish(dues)
    hours, days = flushed(world)
    assert sections_end_ms(20_002) == FIRST_DAY_LEVEL_MS
    assert (hours.footer.level, hours.footer.run_id) == (HOUR_LEVEL, 1)
    assert (days.footer.level, days.footer.run_id) == (DAY_LEVEL, 2)
    assert [due for due, _ in pairs_of(hours.read(0, 2))] == [
        FIRST_DAY_LEVEL_MS - HOUR_MS,
        FIRST_DAY_LEVEL_MS - 1,
    ]
    assert [due for due, _ in pairs_of(days.read(0, 3))] == [
        FIRST_DAY_LEVEL_MS,
        FIRST_DAY_LEVEL_MS + 1,
        FIRST_DAY_LEVEL_MS + DAY_MS,
    ]
    world.take(END)


@pytest.mark.parametrize(
    ("due_ms", "level", "run_id"),
    [(START_MS + 5, HOUR_LEVEL, 1), (START_MS + 9 * DAY_MS, DAY_LEVEL, 2)],
)
def test_flush_when_all_is_of_one_level_writes_one_run(
    due_ms: int, level: int, run_id: int
) -> None:
    world = world_at_start()
    world.publish([due_ms])
    (run,) = flushed(world)
    assert (run.footer.level, run.footer.run_id, run.footer.covers_first) == (level, run_id, run_id)
    assert world.disk.list(DIRECTORY) == [f"{run_id:010d}-{run_id:010d}.run", f"{run_id:010d}.dlog"]


def test_flush_when_nothing_is_ahead_of_the_cursor_writes_nothing() -> None:
    world = world_at_start()
    world.publish([START_MS + 5, START_MS + 6])
    world.take(Key(START_MS + 6, SEQUENCE_MAX))
    before = world.disk.durability_op_count
    assert flushed(world) == []
    assert world.disk.list(DIRECTORY) == []
    assert world.disk.durability_op_count == before


def test_flush_when_the_cursor_is_inside_a_millisecond_leaves_what_is_released() -> None:
    world = world_at_start()
    world.publish([START_MS + 5] * 4 + [START_MS + 4])
    world.take(Key(START_MS + 5, 1))
    (run,) = flushed(world)
    assert pairs_of(run.read(0, 2)) == [(START_MS + 5, 2), (START_MS + 5, 3)]
    assert run.footer.unit_count == 2
    world.take(END)


def test_flush_when_written_has_bodies_in_the_order_in_which_they_fall_due() -> None:
    world = world_at_start()
    rng = Random(5)
    world.publish([START_MS + rng.randrange(3 * DAY_MS) for _ in range(300)])
    for run in flushed(world):
        units = run.read(0, run.footer.unit_count)
        assert set(units["dlog_id"].tolist()) == {run.footer.run_id}
        starts = units["position"].tolist()
        assert starts == sorted(starts)
        size = world.disk.open(delay_log_path(DIRECTORY, run.footer.run_id)).size()
        assert size == starts[-1] + int(units["body_len"][-1])
    world.take(END)


@pytest.mark.parametrize("chunk_units", [1, 7, 100])
def test_flush_when_written_in_chunks_is_byte_for_byte_the_same(chunk_units: int) -> None:
    files = []
    for limits in ({}, {"chunk_units": chunk_units}):
        world = world_at_start()
        world.publish([START_MS + ordinal * 7_919_000 % (4 * DAY_MS) for ordinal in range(100)])
        world.begin_flush(**limits)
        world.end_job()
        opened = [world.disk.open(f"{DIRECTORY}/{name}") for name in world.disk.list(DIRECTORY)]
        files.append([file.pread(file.size(), 0) for file in opened])
    assert files[0] == files[1]
    assert len(files[0]) == 4


@pytest.mark.parametrize("piece_bytes", [1, 150, 1_000])
def test_flush_when_the_log_is_read_in_pieces_is_byte_for_byte_the_same(piece_bytes: int) -> None:
    files, reads = [], list[list[int]]()
    for limits in ({}, {"piece_bytes": piece_bytes, "chunk_units": 7}):
        world = world_at_start()
        world.publish([START_MS + ordinal for ordinal in range(1, 4)])
        world.take(Key(START_MS + 4, 0))
        world.flush()  # what is given back below lies in front of the span
        world.publish([START_MS + ordinal * 7_919_000 % (4 * DAY_MS) for ordinal in range(5, 200)])
        world.give_back(1, START_MS + HOUR_MS, groups=1)
        reads.append(lengths := [])
        read = world.log.read

        def noted(
            offset: int,
            length: int,
            read: Callable[[int, int], bytes] = read,
            lengths: list[int] = lengths,
        ) -> bytes:
            lengths.append(length)
            return read(offset, length)

        with mock.patch.object(world.log, "read", noted):
            world.begin_flush(**limits)
        world.end_job()
        opened = [world.disk.open(f"{DIRECTORY}/{name}") for name in world.disk.list(DIRECTORY)]
        files.append([file.pread(file.size(), 0) for file in opened])
        world.take(END)
    assert files[0] == files[1]
    assert len(files[0]) == 4
    largest = max(map(len, map(body_of, range(251))))
    assert max(reads[1]) <= piece_bytes + largest < max(reads[0])


def test_flush_when_older_runs_have_the_second_continues_their_chain() -> None:
    world = world_at_start()
    slot = 7
    for _ in range(3):
        world.publish([START_MS + slot * 1_000, START_MS + 9 * DAY_MS])
        world.flush()
    hour = START_MS // HOUR_MS
    assert [run.footer.run_id for run in world.wheel.runs.chain(hour, slot)] == [5, 3, 1]
    newest = world.wheel.runs.of_level(DAY_LEVEL)[-1]
    directory = newest.directory(20_009)
    assert directory is not None
    assert directory["previous_run"].tolist() == [4 if slot == 10 else 0 for slot in range(24)]


def test_flush_when_messages_were_given_back_copies_them_from_where_they_lie() -> None:
    world = world_at_start()
    world.publish([START_MS + ordinal for ordinal in range(1, 20)])
    world.flush()
    world.publish([START_MS + ordinal for ordinal in range(20, 40)])
    world.take(Key(START_MS + 50, 0))
    world.flush()  # so that nothing of the first part is in the span
    for ordinal in range(0, 39, 3):
        world.give_back(ordinal, START_MS + HOUR_MS, groups=2)
    (run,) = flushed(world)
    assert set(run.read(0, 26)["dlog_id"].tolist()) == {run.footer.run_id}
    world.take(END)


def prepared(disk: SimulatedDisk) -> WheelWorld:
    """A wheel with two flushes behind it, and a third to do."""
    world = world_at_start(disk)
    rng = Random(1)
    for _ in range(3):
        spread = [rng.randrange(1, 4 * DAY_MS) for _ in range(12)]
        world.publish([START_MS + delay for delay in (5, 5, *spread)])
        if world.next_run_id < 5:
            world.flush()
    world.take(Key(START_MS + 5, 3))
    world.give_back(0, START_MS + HOUR_MS, groups=3)
    return world


def test_I1_flush_when_power_fails_at_every_step_leaves_nothing_that_a_reopen_sees() -> None:  # noqa: N802
    worlds: list[WheelWorld] = []

    def check(rng: Random) -> None:
        world = worlds[-1]
        world.lose_power(rng)
        world.check()
        assert [run.footer.run_id for run in world.wheel.runs.all()] == [1, 3, 2, 4]
        world.flush()
        world.check()
        world.take(END)
        assert not world.pending

    def prepare(disk: SimulatedDisk) -> object:
        worlds.append(prepared(disk))
        return worlds[-1].begin_flush

    assert lose_power_at_every_step(prepare, check) > 30  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_I1_flush_when_power_fails_after_it_is_whole(seed: int) -> None:  # noqa: N802
    world = prepared(SimulatedDisk())
    world.flush()
    world.lose_power(Random(seed))
    assert world.wheel.memtable.count == 0
    world.check()
    world.take(END)


def test_flush_when_the_disk_is_full_at_any_point_loses_nothing() -> None:
    world = prepared(SimulatedDisk())
    room = world.disk.used_bytes("")
    refused = 0
    for _ in range(200):
        world.disk.capacity_bytes = room + 4_096 * refused
        try:
            world.begin_flush()
        except errors.DiskFull:
            refused += 1
            world.wheel.abandon_flush()
            world.check()
            world.reopen()  # removes what the job left
        else:
            break
    assert refused > 4
    world.end_job()
    world.check()
    world.take(END)


def test_flush_when_it_runs_works_on_what_was_frozen() -> None:
    world = world_at_start()
    world.publish([START_MS + 5])
    table = world.wheel.freeze()
    job = FlushJob(
        world.place,
        FlushSource(table, world.cursor, world.log, (0, len(world.log.data))),
        run_ids=(1, 2),
        hour_level_end_day=20_002,
        heads=world.wheel.runs.heads,
    )
    world.publish([START_MS + 6])
    (written,) = job.run()
    assert (written.footer.unit_count, written.delay_log_id) == (1, 1)
    assert written.delay_log_bytes == world.disk.open(delay_log_path(DIRECTORY, 1)).size()
    world.wheel.install_flush([open_run(world.disk, DIRECTORY, IDENTITY, 1, 1)])
    world.check()
    world.take(END)
