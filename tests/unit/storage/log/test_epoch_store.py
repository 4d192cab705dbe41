"""The highest epoch that a node has seen: kept, never lowered, of one master."""

from random import Random

import pytest

from hourwheel import errors
from storage.files import atomic_file
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.log.epochs import EpochStore
from tests.sim.disk import SimulatedCrash, SimulatedDisk

IDENTITY = Identity(bytes(range(16)), 0)


def open_seen(disk: SimulatedDisk) -> EpochStore:
    return EpochStore.open(disk, "seen", IDENTITY)


def test_nothing_is_seen_when_there_is_no_file() -> None:
    seen = open_seen(SimulatedDisk())
    assert (seen.epoch, seen.master) == (0, "")
    assert seen.is_acceptable(1, "a")


@pytest.mark.parametrize(
    ("epoch", "master", "is_acceptable"),
    [(4, "b", False), (5, "a", True), (5, "b", False), (5, "", False), (6, "b", True)],
)
def test_I4_an_epoch_is_of_one_master_when_it_was_seen(  # noqa: N802
    epoch: int, master: str, is_acceptable: bool
) -> None:
    seen = open_seen(SimulatedDisk())
    seen.note(5, "a")
    assert seen.is_acceptable(epoch, master) == is_acceptable
    if not is_acceptable:
        with pytest.raises(errors.InvariantViolated):
            seen.note(epoch, master)
    assert (seen.epoch, seen.master) == (5, "a")


def test_nothing_is_written_when_the_epoch_is_known() -> None:
    disk = SimulatedDisk()
    seen = open_seen(disk)
    seen.note(5, "a")
    count = disk.durability_op_count
    seen.note(5, "a")
    assert disk.durability_op_count == count


@pytest.mark.parametrize("seed", range(8))
def test_I4_what_was_noted_is_seen_when_power_is_cut(seed: int) -> None:  # noqa: N802
    disk = SimulatedDisk()
    open_seen(disk).note(3, "master-ä")
    disk.fail_after(1 + seed % 4, takes_effect=bool(seed // 4))
    noted = 3
    try:
        open_seen(disk).note(4, "b")
        noted = 4
    except SimulatedCrash:
        pass
    disk.crash(Random(seed))
    seen = open_seen(disk)
    assert (seen.epoch, seen.master) in {(3, "master-ä"), (4, "b")}
    assert seen.epoch >= noted


def test_epochs_are_noted_when_the_disk_is_full() -> None:
    disk = SimulatedDisk()
    seen = open_seen(disk)
    seen.keep_room()
    disk.capacity_bytes = disk.used_bytes("")
    for epoch in range(1, 20):
        seen.note(epoch, f"node-{epoch}")
        again = open_seen(disk)
        assert (again.epoch, again.master) == (epoch, f"node-{epoch}")


def test_nothing_has_changed_when_no_room_was_kept() -> None:
    disk = SimulatedDisk(capacity_bytes=0)
    seen = open_seen(disk)
    with pytest.raises(errors.DiskFull):
        seen.note(4, "b")
    assert (seen.epoch, seen.master) == (0, "")
    assert open_seen(disk).epoch == 0


@pytest.mark.parametrize("payload", [b"\x01\x00", b"\x01\x00\x00\x00\xff"])
def test_open_raises_when_the_contents_make_no_sense(payload: bytes) -> None:
    disk = SimulatedDisk()
    atomic_file.write(disk, "seen", pack_file_header(FileType.EPOCH_SEEN, IDENTITY), payload)
    with pytest.raises(errors.CorruptFile):
        open_seen(disk)
