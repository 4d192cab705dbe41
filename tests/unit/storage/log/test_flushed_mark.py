from random import Random

import pytest

from hourwheel import errors
from hourwheel.types import Offset
from storage.files.file_header import FileType, Identity
from storage.log.flushed_mark import FlushedMark, read_mark, verify_mark
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import crash_everywhere

IDENTITY = Identity(bytes(range(16)), 0)


def open_mark(disk: SimulatedDisk) -> FlushedMark:
    return FlushedMark.open(disk, "mark", IDENTITY)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def stored(disk: SimulatedDisk, *offsets: int) -> FlushedMark:
    mark = open_mark(disk)
    for offset in offsets:
        mark.store(Offset(offset))
    return mark


def test_open_when_there_is_none(disk: SimulatedDisk) -> None:
    mark = open_mark(disk)
    assert (mark.offset, mark.was_lost) == (0, False)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_store_when_the_process_is_killed(disk: SimulatedDisk, count: int) -> None:
    mark = stored(disk, *range(100, 100 + count))
    assert mark.offset == 99 + count
    disk.kill()
    mark = open_mark(disk)
    assert (mark.offset, mark.was_lost) == (99 + count, False)
    mark.store(Offset(1 << 63))
    assert open_mark(disk).offset == 1 << 63


@pytest.mark.parametrize("slot", [0, 1])
def test_open_when_one_slot_is_half_stored(disk: SimulatedDisk, slot: int) -> None:
    stored(disk, 100, 200)
    disk.damage("mark", 64 + 16 * slot, bytes(8))
    mark = open_mark(disk)
    assert (mark.offset, mark.was_lost) == ((200, 100)[slot], False)


@pytest.mark.parametrize(
    ("position", "raw"), [(64, bytes(32)), (0, b"X"), (60, b"\0\0"), (0, bytes(128))]
)
def test_open_when_damaged_begins_anew(disk: SimulatedDisk, position: int, raw: bytes) -> None:
    stored(disk, 100, 200)
    disk.damage("mark", position, raw)
    mark = open_mark(disk)
    assert (mark.offset, mark.was_lost) == (0, True)
    mark.store(Offset(300))
    mark = open_mark(disk)
    assert (mark.offset, mark.was_lost) == (300, False)


def test_open_when_cut_short(disk: SimulatedDisk) -> None:
    stored(disk, 100)
    disk.crash(Random(0))
    disk.open("mark").truncate(100)
    assert open_mark(disk).was_lost


def test_open_when_foreign(disk: SimulatedDisk) -> None:
    stored(disk, 100)
    with pytest.raises(errors.ForeignDirectory):
        FlushedMark.open(disk, "mark", Identity(bytes(16), 0))


def test_open_when_power_is_cut_at_the_first_start() -> None:
    def check(disk: SimulatedDisk, rng: Random) -> None:
        assert open_mark(disk).offset == 0
        assert open_mark(disk).was_lost is False

    crash_everywhere(lambda disk: open_mark(disk).close(), check)


def test_store_when_power_is_cut_is_never_above_what_was_stored() -> None:
    found = set()
    for seed in range(200):
        disk = SimulatedDisk()
        mark = stored(disk, 100, 200)
        mark.datasync()
        mark.store(Offset(300))
        mark.store(Offset(400))
        disk.crash(Random(seed))
        mark = open_mark(disk)
        assert mark.was_lost is False or mark.offset == 0
        found.add(mark.offset)
    assert {200, 400} <= found <= {0, 100, 200, 300, 400}


def test_lower_when_power_is_cut_is_durable(disk: SimulatedDisk) -> None:
    stored(disk, 100, 200, 300).lower(Offset(50))
    for seed in range(20):
        disk.crash(Random(seed))
        assert open_mark(disk).offset == 50


def test_read_mark_when_it_is_there_damaged_or_not(disk: SimulatedDisk) -> None:
    assert read_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK) == 0
    assert not disk.exists("mark")
    stored(disk, 100, 200)
    assert read_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK) == 200
    with pytest.raises(errors.ForeignDirectory):
        read_mark(disk, "mark", IDENTITY._replace(shard=9), FileType.FLUSHED_MARK)
    disk.flip_bit("mark", 1)
    assert read_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK) == 0


def test_verify_mark_when_no_slot_is_intact_says_so(disk: SimulatedDisk) -> None:
    stored(disk, 100, 200)
    verify_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK)
    disk.flip_bit("mark", 65)
    verify_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK)  # the other one is
    disk.flip_bit("mark", 81)
    with pytest.raises(errors.CorruptFile, match="neither"):
        verify_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK)
    disk.flip_bit("mark", 1)
    with pytest.raises(errors.CorruptFile):
        verify_mark(disk, "mark", IDENTITY, FileType.FLUSHED_MARK)
