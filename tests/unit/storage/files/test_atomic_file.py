from random import Random

import pytest

from hourwheel import errors
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import crash_everywhere

IDENTITY = Identity(bytes(range(16)), 0)
HEADER = pack_file_header(FileType.EPOCHS, IDENTITY)
OLD, NEW = b"old" * 700, b"newer"


def write(disk: Disk, payload: bytes) -> None:
    atomic_file.write(disk, "a/f", HEADER, payload)


def read(disk: Disk) -> bytes:
    return atomic_file.read(disk, "a/f", FileType.EPOCHS, IDENTITY).payload


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("a")
    return disk


def test_read_when_written_and_replaced(disk: SimulatedDisk) -> None:
    for payload in (OLD, NEW, b""):
        write(disk, payload)
        assert read(disk) == payload
        assert disk.list("a") == ["f"]
    found = atomic_file.read_any(disk, "a/f")
    assert found.header.identity == IDENTITY
    assert found.payload == b""


def test_read_when_missing(disk: SimulatedDisk) -> None:
    with pytest.raises(FileNotFoundError):
        read(disk)


def test_read_when_foreign(disk: SimulatedDisk) -> None:
    write(disk, OLD)
    with pytest.raises(errors.ForeignDirectory):
        atomic_file.read(disk, "a/f", FileType.EPOCHS, Identity(bytes(16), 0))


def test_write_when_a_longer_one_was_left_over(disk: SimulatedDisk) -> None:
    disk.open("a/f.tmp", create=True).pwrite([bytes(9999)], 0)
    write(disk, NEW)
    assert read(disk) == NEW


def test_write_when_durable_survives_power_cuts(disk: SimulatedDisk) -> None:
    write(disk, OLD)
    write(disk, NEW)
    for seed in range(20):
        disk.crash(Random(seed))
        assert read(disk) == NEW


def test_write_when_power_is_cut_leaves_old_or_new() -> None:
    found = set()

    def prepare(disk: SimulatedDisk) -> None:
        disk.make_dir("a")
        write(disk, OLD)

    def check(disk: SimulatedDisk, rng: Random) -> None:
        found.add(read(disk))
        write(disk, b"next")
        assert read(disk) == b"next"

    crash_everywhere(lambda disk: write(disk, NEW), check, prepare, range(20))
    assert found == {OLD, NEW}


def test_write_when_the_disk_is_full_leaves_the_old(disk: SimulatedDisk) -> None:
    write(disk, OLD)
    disk.capacity_bytes = disk.used_bytes("") + 4096
    with pytest.raises(errors.DiskFull):
        write(disk, bytes(8192))
    assert read(disk) == OLD
    assert disk.list("a") == ["f"]
    write(disk, NEW)
    assert read(disk) == NEW


def test_write_when_a_sync_fails(disk: SimulatedDisk) -> None:
    write(disk, OLD)
    disk.fail_sync("a/f.tmp")
    with pytest.raises(errors.FsyncFailed):
        write(disk, NEW)
    assert read(disk) == OLD


def test_read_when_any_byte_is_damaged(disk: SimulatedDisk) -> None:
    write(disk, NEW)
    for position in range(64, disk.open("a/f").size()):
        disk.flip_bit("a/f", position, position % 8)
        with pytest.raises(errors.CorruptFile, match="a/f"):
            read(disk)
        disk.flip_bit("a/f", position, position % 8)
    assert read(disk) == NEW


def test_read_when_cut_short_or_longer(disk: SimulatedDisk) -> None:
    for length in [*range(80 + len(NEW)), 80 + len(NEW) + 1]:
        write(disk, NEW)
        disk.open("a/f").truncate(length)
        with pytest.raises(errors.CorruptFile, match="a/f"):
            read(disk)
