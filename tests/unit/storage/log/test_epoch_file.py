from contextlib import suppress
from random import Random

import pytest

from hourwheel import errors
from storage.files import atomic_file
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.log.epoch_file import EpochFile
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import crash_everywhere

IDENTITY = Identity(bytes(range(16)), 0)


def open_file(disk: SimulatedDisk) -> EpochFile:
    return EpochFile.open(disk, "epochs", IDENTITY)


def filled(disk: SimulatedDisk) -> EpochFile:
    epochs = open_file(disk)
    for epoch, start in ((1, 0), (2, 1000), (5, 1000), (9, 4000)):
        epochs.append(epoch, start)
    return epochs


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_open_when_there_is_none(disk: SimulatedDisk) -> None:
    epochs = open_file(disk)
    assert epochs.entries == ()
    assert epochs.latest is None
    assert epochs.find_epoch_at(0) is None
    assert epochs.find_end(3, 100) is None


def test_append_when_reopened_after_a_power_cut(disk: SimulatedDisk) -> None:
    filled(disk)
    disk.crash(Random(1))
    epochs = open_file(disk)
    assert epochs.entries == ((1, 0), (2, 1000), (5, 1000), (9, 4000))
    assert epochs.latest == (9, 4000)


@pytest.mark.parametrize(("epoch", "start"), [(9, 5000), (8, 5000), (10, 3999)])
def test_append_when_it_does_not_grow(disk: SimulatedDisk, epoch: int, start: int) -> None:
    epochs = filled(disk)
    with pytest.raises(errors.InvariantViolated):
        epochs.append(epoch, start)
    assert epochs.latest == (9, 4000)


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, 1), (999, 1), (1000, 5), (3999, 5), (4000, 9), (9999, 9)]
)
def test_find_epoch_at(disk: SimulatedDisk, offset: int, epoch: int) -> None:
    found = filled(disk).find_epoch_at(offset)
    assert found is not None
    assert found.epoch == epoch


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, None),
        (1, (1, 1000)),
        (2, (2, 1000)),
        (4, (2, 1000)),
        (5, (5, 4000)),
        (9, (9, 5000)),
        (99, (9, 5000)),
    ],
)
def test_find_end(disk: SimulatedDisk, epoch: int, answer: tuple[int, int] | None) -> None:
    assert filled(disk).find_end(epoch, 5000) == answer


@pytest.mark.parametrize(("end", "left"), [(0, 0), (1, 1), (1000, 1), (4000, 3), (4001, 4)])
def test_truncate(disk: SimulatedDisk, end: int, left: int) -> None:
    epochs = filled(disk)
    epochs.truncate(end)
    assert len(epochs.entries) == left
    assert open_file(disk).entries == epochs.entries


@pytest.mark.parametrize(
    ("start", "first"), [(0, (1, 0)), (999, (1, 0)), (1000, (5, 1000)), (5000, (9, 4000))]
)
def test_delete_below(disk: SimulatedDisk, start: int, first: tuple[int, int]) -> None:
    epochs = filled(disk)
    epochs.delete_below(start)
    assert epochs.entries[0] == first
    assert open_file(disk).entries == epochs.entries


def test_append_when_power_is_cut() -> None:
    def check(disk: SimulatedDisk, rng: Random) -> None:
        assert open_file(disk).latest in {(9, 4000), (10, 6000)}

    def prepare(disk: SimulatedDisk) -> None:
        filled(disk)

    crash_everywhere(lambda disk: open_file(disk).append(10, 6000), check, prepare)


def test_epochs_are_noted_when_the_disk_is_full(disk: SimulatedDisk) -> None:
    epochs = filled(disk)
    disk.capacity_bytes = disk.used_bytes("")
    for epoch in range(10, 200):
        epochs.append(epoch, 6000)
        assert open_file(disk).latest == (epoch, 6000)
    epochs.truncate(6000)
    assert open_file(disk).latest == (9, 4000)


def test_nothing_has_changed_when_even_the_room_that_is_kept_is_used_up(
    disk: SimulatedDisk,
) -> None:
    epochs = filled(disk)
    disk.capacity_bytes = disk.used_bytes("")
    with suppress(errors.DiskFull):
        for epoch in range(10, 2_000):
            epochs.append(epoch, 6000)
    last = epochs.latest
    assert last is not None
    assert last.epoch < 1_999
    assert open_file(disk).latest == last
    disk.capacity_bytes = 1 << 40
    epochs.append(last.epoch + 1, 6000)
    assert open_file(disk).entries == epochs.entries


def test_first_epoch_is_noted_when_the_disk_has_become_full(disk: SimulatedDisk) -> None:
    epochs = open_file(disk)
    epochs.keep_room()
    disk.capacity_bytes = disk.used_bytes("")
    epochs.append(1, 0)
    assert open_file(disk).latest == (1, 0)


@pytest.mark.parametrize(
    "payload",
    [
        bytes(15),
        bytes.fromhex("01000000 00000000 0000000000000000" * 2),
        bytes.fromhex("01000000 00000000 0900000000000000 02000000 00000000 0800000000000000"),
    ],
)
def test_open_when_malformed(disk: SimulatedDisk, payload: bytes) -> None:
    header = pack_file_header(FileType.EPOCHS, IDENTITY)
    atomic_file.write(disk, "epochs", header, payload)
    with pytest.raises(errors.CorruptFile, match="epochs"):
        open_file(disk)
