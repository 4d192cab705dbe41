from contextlib import suppress
from random import Random

import pytest

from hourwheel import errors
from storage.files import atomic_file
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.files.spare_file import give_room
from storage.log.epochs import EpochFile
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


@pytest.mark.parametrize(("end", "left"), [(0, 0), (1, 1), (1000, 1), (4000, 3), (4001, 4)])
def test_truncate(disk: SimulatedDisk, end: int, left: int) -> None:
    epochs = filled(disk)
    epochs.truncate(end)
    assert len(epochs.entries) == left
    assert open_file(disk).entries == epochs.entries


@pytest.mark.parametrize(
    ("log_start", "first"),
    [(0, (1, 0)), (999, (1, 0)), (1000, (1, 0)), (1001, (5, 1000)), (5000, (9, 4000))],
)
def test_append_when_the_log_was_trimmed(
    disk: SimulatedDisk, log_start: int, first: tuple[int, int]
) -> None:
    epochs = filled(disk)
    epochs.append(10, 5000, log_start_offset=log_start)
    assert epochs.entries[0] == first
    assert epochs.latest == (10, 5000)
    assert open_file(disk).entries == epochs.entries


def test_history_is_as_long_as_the_log_when_it_is_trimmed_all_the_time(
    disk: SimulatedDisk,
) -> None:
    epochs = open_file(disk)
    for epoch in range(1, 300):
        epochs.append(epoch, epoch * 100, log_start_offset=max(0, epoch * 100 - 1_000))
    assert [one.epoch for one in epochs.entries] == list(range(288, 300))


def test_append_when_power_is_cut() -> None:
    def check(disk: SimulatedDisk, rng: Random) -> None:
        found = open_file(disk).entries
        assert found in {((1, 0), (2, 1000), (5, 1000), (9, 4000)), ((9, 4000), (10, 6000))}

    def prepare(disk: SimulatedDisk) -> None:
        filled(disk)

    crash_everywhere(
        lambda disk: open_file(disk).append(10, 6000, log_start_offset=4500), check, prepare
    )


def test_epochs_are_noted_when_the_disk_is_full(disk: SimulatedDisk) -> None:
    epochs = filled(disk)
    disk.capacity_bytes = disk.used_bytes("")
    for epoch in range(10, 200):
        epochs.append(epoch, 6000)
        assert open_file(disk).latest == (epoch, 6000)
    epochs.truncate(6000)
    assert open_file(disk).latest == (9, 4000)


def test_epochs_are_noted_when_others_take_all_room_that_there_is(disk: SimulatedDisk) -> None:
    """Also a second block of them, when nobody has called `keep_room` since the first."""
    epochs = open_file(disk)
    epochs.append(1, 6000)
    disk.capacity_bytes = disk.used_bytes("")
    other = disk.open("other", create=True)
    for epoch in range(2, 253):
        epochs.append(epoch, 6000)
        give_room(other, 4_096)
        assert other.size() == 0, f"epoch {epoch} gave room back"
    assert len(open_file(disk).entries) == 252


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
