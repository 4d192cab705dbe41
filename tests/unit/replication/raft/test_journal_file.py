import random
from contextlib import suppress

import pytest

from hourwheel import errors
from replication.raft.journal_file import COMMAND_BYTES_MAX, Entry, JournalFile
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk

IDENTITY = Identity(b"c" * 16, 0)
PATH = "journal"


def entries(count: int, *, first: int = 1, term: int = 1) -> list[Entry]:
    return [Entry(b"\x00" + b"%d" % index, index, term) for index in range(first, first + count)]


def new(disk: SimulatedDisk, count: int = 3) -> JournalFile:
    return JournalFile.create(disk, PATH, IDENTITY, entries(count))


def end_of(count: int) -> int:
    """Where the record of so many entries ends, in a file that `new` made."""
    disk = SimulatedDisk()
    file = new(disk, count)
    return disk.open(PATH).size() - file.room_bytes


def reopened(disk: SimulatedDisk) -> JournalFile:
    return JournalFile.open(disk, PATH, IDENTITY)


def test_entries_are_there_again_when_the_file_is_opened(tmp_path) -> None:  # type: ignore[no-untyped-def]
    disk = RealDisk(tmp_path)
    file = JournalFile.create(disk, PATH, IDENTITY, entries(2))
    file.append(Entry(b"", 3, 1))
    file.append(Entry(b"\x00" + bytes(COMMAND_BYTES_MAX - 1), 4, 7))
    assert file.is_dirty
    file.sync()
    assert not file.is_dirty
    file.close()
    again = JournalFile.open(disk, PATH, IDENTITY)
    assert again.entries == [*entries(2), Entry(b"", 3, 1), file.entries[3]]
    assert again.cut_bytes == 0
    again.close()


def test_synced_entries_survive_and_others_come_whole_or_not_at_all() -> None:
    for seed in range(200):
        rng, disk = random.Random(seed), SimulatedDisk()
        file = new(disk)
        synced = 3
        for entry in entries(12, first=4):
            file.append(entry)
            if rng.random() < 0.4:
                file.sync()
                synced = entry.index
            elif rng.random() < 0.3:
                file.write_buffer()
        disk.crash(rng)
        again = reopened(disk)
        assert len(again.entries) >= synced, f"seed {seed}"
        assert again.entries == entries(len(again.entries)), f"seed {seed}"
        again.append(Entry(b"on", len(again.entries) + 1, 2))
        again.sync()


def test_cut_is_durable_and_what_was_cut_never_comes_back_behind_new_entries() -> None:
    for seed in range(200):
        rng, disk = random.Random(seed), SimulatedDisk()
        file = new(disk, 8)
        kept = rng.randint(1, 7)
        disk.fail_after(rng.randint(1, 4), takes_effect=rng.random() < 0.5)
        other = entries(3, first=kept + 1, term=2)
        with suppress(SimulatedCrash):
            file = file.replaced(file.entries[:kept])
            for entry in other:
                file.append(entry)
            file.write_buffer()
            file.sync()
        disk.crash(rng)
        found = reopened(disk).entries
        old, mixed = entries(8), [*entries(kept), *other]
        is_prefix = found in (old[: len(found)], mixed[: len(found)])
        assert is_prefix, f"seed {seed}"
        assert len(found) >= kept


def test_replaced_file_is_the_old_or_the_new_one() -> None:
    for fail_at in range(1, 4):
        for takes_effect in (False, True):
            disk = SimulatedDisk()
            file = new(disk, 6)
            disk.fail_after(fail_at, takes_effect=takes_effect)
            with suppress(SimulatedCrash):
                file.replaced(entries(2, first=5))
            disk.crash(random.Random(fail_at))
            assert reopened(disk).entries in (entries(6), entries(2, first=5))


@pytest.mark.parametrize("index", range(5))
def test_flipped_bit_is_found_wherever_it_is(index: int) -> None:
    disk = SimulatedDisk()
    new(disk, 5)
    disk.flip_bit(PATH, end_of(index + 1) - 1)
    disk.kill()
    with pytest.raises(errors.CorruptFile, match="it was durable") as caught:
        reopened(disk)
    assert caught.value.params["file"] == PATH


def test_later_record_proves_damage_when_the_mark_is_gone() -> None:
    disk = SimulatedDisk()
    file = new(disk, 5)
    for entry in entries(2, first=6):
        file.append(entry)
        file.sync()
    disk.damage(PATH, 64, bytes(32))
    disk.flip_bit(PATH, end_of(2) - 1)
    disk.kill()
    with pytest.raises(errors.CorruptFile):
        reopened(disk)


def test_file_that_has_become_shorter_is_corrupt() -> None:
    disk = SimulatedDisk()
    new(disk, 5)
    opened = disk.open(PATH)
    opened.truncate(end_of(3))
    opened.datasync()
    disk.kill()
    with pytest.raises(errors.CorruptFile):
        reopened(disk)


def test_records_of_another_file_do_not_follow() -> None:
    """A record that is whole and comes next by its number, but was written behind others."""
    disk = SimulatedDisk()
    new(disk, 3)
    other_disk = SimulatedDisk()
    JournalFile.create(other_disk, PATH, IDENTITY, entries(4, term=2))
    stray = other_disk.open(PATH).pread(1_000, end_of(3))
    disk.damage(PATH, end_of(3), stray)
    disk.kill()
    assert reopened(disk).entries == entries(3)


def test_entries_that_do_not_follow_are_a_bug() -> None:
    file = new(SimulatedDisk())
    for wrong in (Entry(b"", 5, 1), Entry(b"", 3, 1), Entry(b"", 4, 0)):
        with pytest.raises(errors.InvariantViolated):
            file.append(wrong)
    with pytest.raises(errors.InvariantViolated):
        file.append(Entry(bytes(COMMAND_BYTES_MAX + 1), 4, 1))


def test_file_of_another_cluster_is_refused() -> None:
    disk = SimulatedDisk()
    new(disk)
    with pytest.raises(errors.ForeignDirectory):
        JournalFile.open(disk, PATH, Identity(b"x" * 16, 0))


def test_empty_file_is_corrupt() -> None:
    disk = SimulatedDisk()
    file = new(disk, 1)
    opened = disk.open(PATH)
    opened.truncate(128)
    opened.pwrite((bytes(32),), 64)
    file.close()
    with pytest.raises(errors.CorruptFile, match="no entry"):
        reopened(disk)
