"""A log is cut where batches begin, with the index or without; nothing is left out or doubled."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hourwheel.formats.record_batch import unpack_header
from spark_jobs.logs.ranges import SegmentRange, find_batch, is_batch_at, plan_ranges
from tests.support.audited import copied, in_memory, only_copy, tables_of
from tests.support.log_maker import Made, segments

PARTITION_BYTES = 8_192


def starts_of(made: Made) -> list[int]:
    """Offsets of all batches of the log."""
    return [
        int(offset)
        for table in tables_of(*only_copy(made.directory))
        for offset in table.headers["offset"]
    ]


def check_cut(ranges: list[SegmentRange], made: Made) -> None:
    starts = starts_of(made)
    assert ranges[0].from_offset == 0
    for before, after in pairwise(ranges):
        assert before.to_offset == after.from_offset
        assert after.from_offset in starts
        assert not before.is_tail
    assert ranges[-1].is_tail


def test_log_when_cut_is_cut_between_batches(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    ranges = plan_ranges(replica, copy, partition_bytes=PARTITION_BYTES)
    check_cut(ranges, made)
    assert len(ranges) > len(copy.segments)
    longest = max(one.to_offset - one.from_offset for one in ranges)
    assert longest < 2 * PARTITION_BYTES + 4_096


def test_log_when_its_indexes_are_gone_or_damaged_is_cut_all_the_same(
    made: Made, tmp_path: Path
) -> None:
    directory = copied(made.directory, tmp_path)
    first, *others = sorted((directory / "shard-0" / "log").glob("*.index"))
    first.write_bytes(b"x" * 200)
    for path in others:
        path.unlink()
    ranges = plan_ranges(*only_copy(directory), partition_bytes=PARTITION_BYTES)
    check_cut(ranges, made)
    assert len(ranges) > len(segments(directory))


def test_range_when_asked_for_is_the_only_one(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    starts = starts_of(made)
    low, high = starts[5], starts[-5]
    ranges = plan_ranges(
        replica, copy, partition_bytes=PARTITION_BYTES, from_offset=low, to_offset=high
    )
    assert (ranges[0].from_offset, ranges[-1].to_offset) == (low, high)
    assert not ranges[-1].is_tail
    assert plan_ranges(replica, copy, from_offset=copy.end_offset) == []


def test_segment_when_its_format_is_not_known_is_left_out(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    first, *others = copy.segments
    unreadable = replace(copy, segments=(first._replace(fault="version 2"), *others))
    assert plan_ranges(replica, unreadable)[0].from_offset == others[0].start_offset


def test_batch_when_looked_for_is_the_next_one_that_is_really_there(made: Made) -> None:
    raw = segments(made.directory)[0].read_bytes()
    file, end = in_memory(raw).open("a"), len(raw) - 64
    starts = [one for one in starts_of(made) if one < end]
    for before, after in pairwise(starts):
        assert is_batch_at(file, 0, after)
        assert find_batch(file, 0, before + 8, end) == after
    assert find_batch(file, 0, starts[-1] + 8, end) is None


@pytest.mark.parametrize("place", [4, 8, 16, 40, 93, 100])
def test_batch_when_a_byte_of_its_head_is_wrong_is_none(made: Made, place: int) -> None:
    raw = bytearray(segments(made.directory)[0].read_bytes())
    header = next(
        found
        for found in (unpack_header(bytes(raw), 64 + one) for one in starts_of(made)[:20])
        if found.stamped_bytes
    )
    raw[64 + header.offset + place] ^= 1
    assert not is_batch_at(in_memory(bytes(raw)).open("a"), 0, header.offset)
