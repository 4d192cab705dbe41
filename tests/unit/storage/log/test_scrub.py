from typing import Any

import pytest

from hourwheel import errors
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.log.commit_log import CommitLog
from storage.log.scrub import SegmentCheck, find_begin, find_next
from storage.log.segment import SegmentInfo
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import BATCH_BYTES, IDENTITY, delete_below, fill, open_log

ALL = 1 << 40


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> CommitLog:
    """Several segments; the last is written to."""
    made = open_log(disk)
    fill(made, 70, writes_of=5)
    assert len(made.segments()) > 3
    return made


def verify(disk: Disk, segment: SegmentInfo, step: int = ALL, **other: Any) -> list[int]:
    """Bytes of each step."""
    check = SegmentCheck(disk, other.get("identity", IDENTITY), segment)
    counts = []
    try:
        while count := check.run(step):
            counts.append(count)
        assert check.run(step) == 0
    finally:
        check.close()
    return counts


# --- what is next ---------------------------------------------------------------------------------


def test_all_segments_are_found_in_order(log: CommitLog) -> None:
    segments, found, at = log.segments(), [], 0
    while (one := find_next(segments, log.flushed_end_offset, at)) is not None:
        found.append(one)
        at = one.end_offset
    assert found == segments


def test_segment_is_verified_only_where_it_is_committed(log: CommitLog) -> None:
    first, second, *_ = segments = log.segments()
    within = second.start_offset + 2 * BATCH_BYTES
    assert find_next(segments, within, 0) == first
    assert find_next(segments, within, first.end_offset) == second._replace(end_offset=within)
    assert find_next(segments, second.start_offset, first.end_offset) is None
    assert find_next(segments, 0, 0) is None


def test_I8_flipped_bit_is_found_in_the_segment_that_is_written_to(  # noqa: N802
    disk: SimulatedDisk, log: CommitLog
) -> None:
    last = log.segments()[-1]
    committed = last.end_offset - BATCH_BYTES
    part = find_next(log.segments(), committed, last.start_offset)
    assert part is not None
    disk.flip_bit(last.path, 64 + committed - last.start_offset + 40)  # not committed: may be torn
    assert sum(verify(disk, part)) == committed - last.start_offset
    disk.flip_bit(last.path, 64 + committed - last.start_offset - 40)
    with pytest.raises(errors.CorruptLog):
        verify(disk, part)


def test_nothing_is_found_when_there_is_nothing() -> None:
    assert find_next([], 0, 0) is None
    assert find_begin([], 7) == 0


def test_passes_begin_at_different_segments(log: CommitLog) -> None:
    segments = log.segments()
    starts = {find_begin(segments, number) for number in range(len(segments))}
    assert starts == {one.start_offset for one in segments}


# --- one segment ----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, BATCH_BYTES, BATCH_BYTES + 1, 1_000, ALL])
def test_whole_segment_is_verified_in_steps(disk: SimulatedDisk, log: CommitLog, step: int) -> None:
    for segment in log.segments()[:-1]:
        counts = verify(disk, segment, step)
        assert sum(counts) == segment.end_offset - segment.start_offset
        assert all(count >= step for count in counts[:-1])
        assert max(counts) < step + BATCH_BYTES


def test_I8_each_flipped_bit_is_found_and_its_batch_named(  # noqa: N802
    disk: SimulatedDisk, log: CommitLog
) -> None:
    segment = log.segments()[1]
    size = 64 + segment.end_offset - segment.start_offset
    for position in range(0, size, 37):
        disk.flip_bit(segment.path, position, position % 8)
        with pytest.raises(errors.CorruptLog) as caught:
            verify(disk, segment, 500)
        batch = max(0, position - 64) // BATCH_BYTES * BATCH_BYTES
        assert caught.value.params["file"] == segment.path
        assert caught.value.params["offset"] == str(segment.start_offset + batch)
        disk.flip_bit(segment.path, position, position % 8)
    assert verify(disk, segment)


def test_segment_that_is_too_short_is_found(disk: SimulatedDisk, log: CommitLog) -> None:
    segment = log.segments()[0]
    disk.open(segment.path).truncate(1_000)
    with pytest.raises(errors.CorruptLog, match="too early"):
        verify(disk, segment)


def test_file_that_was_put_in_the_place_of_another_is_found(
    disk: SimulatedDisk, log: CommitLog
) -> None:
    with pytest.raises(errors.CorruptLog, match="header"):
        verify(disk, log.segments()[0], identity=Identity(bytes(16), 3))


def test_removed_segment_is_no_damage(disk: SimulatedDisk, log: CommitLog) -> None:
    first, second, *_ = log.segments()
    check = SegmentCheck(disk, IDENTITY, second)
    assert check.run(1)
    delete_below(log, second.end_offset)
    with pytest.raises(FileNotFoundError):
        verify(disk, first)
    while check.run(1_000):  # what is open stays readable
        pass
    check.close()


@pytest.mark.parametrize("bad", [0, 64, 64 + 3 * BATCH_BYTES])
def test_place_that_cannot_be_read_is_damage(
    disk: SimulatedDisk, log: CommitLog, bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process need not end for it, as it must where a write fails."""
    monkeypatch.setattr("storage.log.scan.CHUNK_BYTES", BATCH_BYTES)
    segment = log.segments()[0]
    opened = disk.open

    def open_(path: str, *, create: bool = False) -> Any:
        file = opened(path, create=create)
        pread = file.pread

        def fail(length: int, position: int) -> bytes:
            if position >= bad:
                raise errors.DiskFailed("EIO")
            return pread(length, position)

        monkeypatch.setattr(file, "pread", fail)
        return file

    monkeypatch.setattr(disk, "open", open_)
    with pytest.raises(errors.CorruptLog, match="cannot read") as caught:
        verify(disk, segment, 1)
    assert caught.value.params["offset"] == str(max(0, bad - 64))
