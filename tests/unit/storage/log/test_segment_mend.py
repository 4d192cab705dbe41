"""A damaged segment gets the batches back that another log has at the same offsets."""

from random import Random

import pytest

from hourwheel import errors
from storage.log.commit_log import CommitLog
from storage.log.recent_batches import read_piece
from storage.log.segment_mend import SegmentMend
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import (
    BATCH_BYTES,
    CONFIG,
    IDENTITY,
    LOG,
    crash_everywhere,
    fill,
    open_log,
    read_all,
)

STEP = 3 * BATCH_BYTES


def log_on(disk: SimulatedDisk) -> CommitLog:
    made = open_log(disk)
    fill(made, 70, writes_of=5)
    assert len(made.segments()) > 3
    return made


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> CommitLog:
    return log_on(disk)


@pytest.fixture
def peer() -> CommitLog:
    """The same log, sound."""
    return log_on(SimulatedDisk())


def mended(disk: SimulatedDisk, log: CommitLog, peer: CommitLog, which: int = 1) -> list[int]:
    """Mend a segment; the offsets at which it was damaged."""
    segment, faults = log.segments()[which], []
    mend = SegmentMend(disk, IDENTITY, segment)
    while not mend.is_done:
        fault = mend.look_on(STEP)
        if fault is not None:
            faults.append(fault)
            piece = read_piece(peer, fault, 1)
            assert piece is not None
            mend.put(piece.raw)
    if mend.is_needed:
        mend.rewrite()
    mend.close()
    log.reopen(segment.start_offset)
    return faults


def test_sound_segment_needs_nothing(disk: SimulatedDisk, log: CommitLog, peer: CommitLog) -> None:
    before = disk.durability_op_count
    assert mended(disk, log, peer) == []
    assert disk.durability_op_count == before


@pytest.mark.parametrize("which", [0, 1])
def test_flips_anywhere_are_mended(
    disk: SimulatedDisk, log: CommitLog, peer: CommitLog, which: int
) -> None:
    segment = log.segments()[which]
    for at in (20, 64 + 3, 64 + 5 * BATCH_BYTES + 150, 64 + 6 * BATCH_BYTES + 8, 64 + 2_000):
        disk.flip_bit(segment.path, at)
    faults = mended(disk, log, peer, which)
    assert faults == [segment.start_offset + n * BATCH_BYTES for n in (0, 5, 6, 10)]
    assert read_all(log) == read_all(peer)
    log.close()
    assert read_all(open_log(disk)) == read_all(peer)


def test_segment_that_was_cut_is_whole_again(
    disk: SimulatedDisk, log: CommitLog, peer: CommitLog
) -> None:
    segment = log.segments()[1]
    disk.open(segment.path).truncate(64 + 700)
    assert len(mended(disk, log, peer)) == (segment.end_offset - segment.start_offset) // 200 - 3
    assert read_all(log) == read_all(peer)


def test_what_does_not_belong_there_is_refused(
    disk: SimulatedDisk, log: CommitLog, peer: CommitLog
) -> None:
    segment = log.segments()[1]
    disk.flip_bit(segment.path, 64 + 5 * BATCH_BYTES + 150)
    mend = SegmentMend(disk, IDENTITY, segment)
    fault = mend.look_on(1 << 20)
    assert fault == segment.start_offset + 5 * BATCH_BYTES
    right = peer.read(fault, BATCH_BYTES)
    wrong = bytearray(right)
    wrong[150] ^= 1
    for raw in (b"", right[:-8], bytes(wrong), peer.read(fault + BATCH_BYTES, BATCH_BYTES)):
        assert not mend.fits(raw)
        with pytest.raises(errors.InvalidBatch):
            mend.put(raw)
    assert mend.fits(right)
    to_the_end = peer.read(fault, segment.end_offset - fault + BATCH_BYTES)
    mend.put(to_the_end)  # what belongs to the next segment is left out
    assert mend.look_on(1 << 20) is None
    assert mend.is_done
    mend.rewrite()
    mend.close()
    log.reopen(segment.start_offset)
    assert read_all(log) == read_all(peer)


def test_log_is_the_old_one_or_the_new_one_when_the_power_fails_at_any_step(
    peer: CommitLog,
) -> None:
    right = read_all(peer)

    def prepare(disk: SimulatedDisk) -> None:
        log = log_on(disk)
        log.close()
        disk.flip_bit(log.segments()[1].path, 64 + 5 * BATCH_BYTES + 150)

    def use(disk: SimulatedDisk) -> None:
        log = CommitLog.open(disk, "shard-3", CONFIG, IDENTITY)
        assert mended(disk, log, peer) == [log.segments()[1].start_offset + 5 * BATCH_BYTES]

    def check(disk: SimulatedDisk, _: Random) -> None:
        log = CommitLog.open(disk, "shard-3", CONFIG, IDENTITY)
        assert not [name for name in disk.list(LOG) if name.endswith(".repair")]
        assert mended(disk, log, peer) in (
            [],
            [log.segments()[1].start_offset + 5 * BATCH_BYTES],
        )
        log.close()
        assert read_all(open_log(disk)) == right

    crash_everywhere(use, check, prepare, range(3))
