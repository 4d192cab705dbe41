from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hourwheel import errors
from storage.views.unit import UNIT_BYTES
from tests.sim.disk import SimulatedDisk
from tests.support.runs import (
    DIRECTORY,
    IDENTITY,
    KeyPair,
    keyed,
    no_heads,
    pairs_of,
    run_bytes,
    write_run,
)
from timewheel.levels import BUCKET_MS, DAY_LEVEL, DAY_MS, HOUR_LEVEL, HOUR_MS, SLOT_MS, SLOTS
from timewheel.run import open_run
from timewheel.run_format import BLOCK_UNITS, run_path, unit_at
from timewheel.run_writer import RunWriter

BORDERS = st.sampled_from([0, 1, 999, 1_000, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS, 3 * DAY_MS])
DUE_MS = st.one_of(BORDERS, st.integers(0, 3 * DAY_MS))
KEYS = st.lists(st.tuples(DUE_MS, st.integers(0, 5)), max_size=60).map(sorted)
LEVELS = st.sampled_from([HOUR_LEVEL, DAY_LEVEL])


def writer_for(disk: SimulatedDisk, level: int = HOUR_LEVEL) -> RunWriter:
    disk.make_dir(DIRECTORY)
    return RunWriter(
        disk,
        DIRECTORY,
        IDENTITY,
        level=level,
        covers_first=1,
        run_id=1,
        heads=no_heads(level),
    )


@given(keys=KEYS, level=LEVELS)
def test_directories_when_compared_with_a_naive_count(keys: list[KeyPair], level: int) -> None:
    run = write_run(SimulatedDisk(), keyed(keys), level=level)
    assert run.buckets() == sorted({due_ms // BUCKET_MS[level] for due_ms, _ in keys})
    for bucket in run.buckets():
        directory = run.directory(bucket)
        assert directory is not None
        for slot in np.flatnonzero(directory["count"]).tolist():
            start = bucket * BUCKET_MS[level] + slot * SLOT_MS[level]
            inside = [key for key in keys if start <= key[0] < start + SLOT_MS[level]]
            first, count = int(directory[slot]["first"]), int(directory[slot]["count"])
            assert keys[first : first + count] == inside
        first, end = run.section(bucket)
        assert int(directory["count"].sum()) == end - first
        assert [key for key in keys if key[0] // BUCKET_MS[level] == bucket] == keys[first:end]


@given(keys=KEYS, cuts=st.lists(st.integers(0, 60), max_size=4), level=LEVELS)
def test_run_when_appended_in_other_chunks_is_byte_for_byte_the_same(
    keys: list[KeyPair], cuts: list[int], level: int
) -> None:
    whole, pieces = SimulatedDisk(), SimulatedDisk()
    write_run(whole, keyed(keys), level=level)
    writer = writer_for(pieces, level)
    borders = sorted([0, *(min(cut, len(keys)) for cut in cuts), len(keys)])
    for low, high in pairwise(borders):
        writer.append(keyed(keys[low:high]))
    writer.finish()
    assert run_bytes(pieces) == run_bytes(whole)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 511, 512, 513, 1_000])
@pytest.mark.parametrize("chunk", [1_000, 200, 256, 7])
def test_block_checks_when_units_end_at_borders_of_blocks(count: int, chunk: int) -> None:
    disk = SimulatedDisk()
    units = keyed([(due, 0) for due in range(count)])
    writer = writer_for(disk)
    for low in range(0, count, chunk):
        writer.append(units[low : low + chunk])
    writer.finish()
    run = open_run(disk, DIRECTORY, IDENTITY, 1, 1)
    for first in {0, count // 2, count - 1}:
        assert pairs_of(run.read(first, count)) == pairs_of(units[first:])
    assert run.footer.unit_count == count
    blocks = -(-count // BLOCK_UNITS)
    directories = SLOTS[HOUR_LEVEL] * 12
    assert len(run_bytes(disk)) == unit_at(count) + directories + 24 + 4 * blocks + 64


def test_append_when_chunks_are_not_in_key_order_stops() -> None:
    writer = writer_for(SimulatedDisk())
    with pytest.raises(errors.InvariantViolated):
        writer.append(keyed([(5, 2), (5, 1)]))
    writer.append(keyed([(5, 1), (5, 2)]))
    with pytest.raises(errors.InvariantViolated):
        writer.append(keyed([(4, 3)]))


def test_append_when_a_chunk_goes_on_in_the_millisecond_of_the_last() -> None:
    disk = SimulatedDisk()
    writer = writer_for(disk)
    writer.append(keyed([(5, 1), (5, 2)]))
    writer.append(keyed([]))
    writer.append(keyed([(5, 2), (5, 3)]))  # one message, given back by two groups
    writer.finish()
    run = open_run(disk, DIRECTORY, IDENTITY, 1, 1)
    assert pairs_of(run.read(0, 4)) == [(5, 1), (5, 2), (5, 2), (5, 3)]


def test_finish_when_nothing_was_appended_leaves_an_empty_run() -> None:
    disk = SimulatedDisk()
    footer = writer_for(disk).finish()
    assert footer.unit_count == footer.section_count == 0
    assert footer.delay_log_first == footer.delay_log_last == 0
    run = open_run(disk, DIRECTORY, IDENTITY, 1, 1)
    assert run.buckets() == []
    assert len(run.read(0, 0)) == 0


def test_footer_when_finished_says_what_is_in_the_run() -> None:
    units = keyed([(DAY_MS - 1, 0), (DAY_MS, 1), (3 * DAY_MS, 2)])
    units["dlog_id"] = [7, 3, 5]
    run = write_run(SimulatedDisk(), units, level=DAY_LEVEL, run_id=9, covers_first=4)
    footer = run.footer
    assert (footer.unit_count, footer.section_count, footer.level) == (3, 3, DAY_LEVEL)
    assert (footer.covers_first, footer.run_id) == (4, 9)
    assert (footer.due_ms_min, footer.due_ms_max) == (DAY_MS - 1, 3 * DAY_MS)
    assert (footer.delay_log_first, footer.delay_log_last) == (3, 7)


def test_footer_when_a_lost_message_still_points_into_the_log_names_delay_logs_of_the_others() -> (
    None
):
    units = keyed([(1, 0), (2, 1), (3, 2)])
    units["dlog_id"] = [0, 5, 8]
    footer = write_run(SimulatedDisk(), units).footer
    assert (footer.delay_log_first, footer.delay_log_last) == (5, 8)


def test_footer_when_all_messages_are_lost_names_no_delay_log() -> None:
    footer = write_run(SimulatedDisk(), keyed([(1, 0), (2, 1)], dlog_id=0)).footer
    assert footer.unit_count == 2
    assert footer.delay_log_first == footer.delay_log_last == 0


def test_previous_run_when_heads_know_one_is_kept_for_slots_without_units_too() -> None:
    asked = []

    def heads(bucket: int) -> NDArray[np.uint32]:
        asked.append(bucket)
        return np.arange(SLOTS[DAY_LEVEL], dtype=np.uint32) + np.uint32(100 * bucket)

    units = keyed([(HOUR_MS, 0), (2 * DAY_MS + 5, 1)])
    run = write_run(SimulatedDisk(), units, level=DAY_LEVEL, heads=heads)
    for bucket in (0, 2):
        directory = run.directory(bucket)
        assert directory is not None
        assert directory["previous_run"].tolist() == list(range(100 * bucket, 100 * bucket + 24))
    assert asked == [0, 2]


def test_writer_when_a_longer_file_was_left_there_begins_anew() -> None:
    disk, clean = SimulatedDisk(), SimulatedDisk()
    disk.make_dir(DIRECTORY)
    disk.open(run_path(DIRECTORY, 1, 1), create=True).pwrite([b"x" * 100_000], 0)
    write_run(disk, keyed([(1, 1)]), level=DAY_LEVEL)
    write_run(clean, keyed([(1, 1)]), level=DAY_LEVEL)
    assert run_bytes(disk) == run_bytes(clean)


@pytest.mark.parametrize("seed", range(10))
def test_run_when_finished_and_named_survives_any_power_cut(seed: int) -> None:
    disk = SimulatedDisk()
    units = keyed([(due * 700, due) for due in range(600)])
    write_run(disk, units)
    disk.crash(Random(seed))
    run = open_run(disk, DIRECTORY, IDENTITY, 1, 1)
    assert run.read(0, 600).tobytes() == units.tobytes()
    assert run.directory(0) is not None


def test_units_when_written_are_all_their_bytes() -> None:
    units = keyed([(1, 2)])
    for ordinal, name in enumerate(units.dtype.names or ()):
        if name not in ("due_ms", "sequence"):
            units[name] = 1_000 + ordinal
    disk = SimulatedDisk()
    write_run(disk, units, level=DAY_LEVEL)
    assert run_bytes(disk)[64 : 64 + UNIT_BYTES] == units.tobytes()
