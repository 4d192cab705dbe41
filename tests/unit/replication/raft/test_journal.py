"""What PySyncObj asks of a journal; the bugs by number are in test_raft_node."""

import random
from contextlib import suppress

import pytest

from hourwheel import errors
from replication.raft.journal import FIRST, RaftJournal
from replication.raft.journal_file import Entry
from replication.raft.snapshot import Snapshot
from storage.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk

IDENTITY = Identity(b"c" * 16, 0)


def opened(disk: SimulatedDisk, node_id: str = "a") -> RaftJournal:
    return RaftJournal.open(disk, "control", IDENTITY, node_id)


def entry(index: int, term: int = 1) -> Entry:
    return Entry(b"\x00%d" % index, index, term)


def filled(disk: SimulatedDisk, last: int) -> RaftJournal:
    journal = opened(disk)
    for index in range(2, last + 1):
        journal.add(*entry(index))
    journal.sync()
    return journal


def test_new_journal_begins_with_the_first_entry() -> None:
    journal = opened(SimulatedDisk())
    assert (len(journal), journal[0], journal[-1], journal[0:5]) == (1, FIRST, FIRST, [FIRST])
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (0, None)
    assert journal.getRaftCommitIndex() == 1


def test_term_and_vote_survive_a_power_cut() -> None:
    for seed in range(30):
        disk = SimulatedDisk()
        journal = opened(disk)
        journal.setCurrentTerm(7, "b")
        disk.crash(random.Random(seed))
        again = opened(disk)
        assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, "b")
        again.setCurrentTerm(8, None)
        disk.crash(random.Random(seed))
        assert opened(disk).getVotedForNodeId() is None


def test_creation_may_be_interrupted_anywhere() -> None:
    for fail_at in range(1, 12):
        for takes_effect in (False, True):
            disk = SimulatedDisk()
            disk.fail_after(fail_at, takes_effect=takes_effect)
            with suppress(SimulatedCrash):
                opened(disk)
            disk.crash(random.Random(fail_at))
            assert len(opened(disk)) == 1


def test_commit_index_is_kept_and_never_before_its_entries() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    for index in range(2, 6):
        journal.add(*entry(index))
    journal.setRaftCommitIndex(4)
    journal.onOneSecondTimer()
    disk.crash(random.Random(1))
    again = opened(disk)
    assert again.getRaftCommitIndex() == 4
    assert len(again) >= 4
    again.setRaftCommitIndex(2)
    assert again.getRaftCommitIndex() == 4, "what was committed stays"


def test_journal_that_ends_below_its_commit_index_is_refused() -> None:
    disk = SimulatedDisk()
    journal = filled(disk, 5)
    journal.setRaftCommitIndex(5)
    journal.onOneSecondTimer()
    old = SimulatedDisk()
    filled(old, 3)
    disk._folders["control"].names["journal"] = old._folders["control"].names["journal"]
    with pytest.raises(errors.CorruptFile, match="5 was committed"):
        opened(disk)


def test_missing_meta_is_refused_when_there_is_a_log() -> None:
    disk = SimulatedDisk()
    filled(disk, 3)
    disk.remove("control/vote")
    with pytest.raises(errors.CorruptFile, match="voted"):
        opened(disk)


def test_directory_of_another_node_is_refused() -> None:
    disk = SimulatedDisk()
    opened(disk)
    with pytest.raises(errors.ForeignDirectory, match="'a'"):
        opened(disk, "b")


def test_entries_dropped_in_a_message_are_only_hidden() -> None:
    disk = SimulatedDisk()
    journal = filled(disk, 6)
    count = disk.durability_op_count
    with journal.message():
        journal.deleteEntriesFrom(3)
        assert (len(journal), journal[-1], journal[2:]) == (3, entry(3), [entry(3)])
        journal.add(*entry(4))
        assert journal[-1] == entry(4)
        journal.sync()
    assert len(journal) == 6
    assert disk.durability_op_count == count


def test_entries_are_cut_when_another_one_is_added() -> None:
    disk = SimulatedDisk()
    journal = filled(disk, 6)
    with journal.message():
        journal.deleteEntriesFrom(3)
        journal.add(*entry(4))
        journal.add(*entry(5, term=2))
    assert journal[:] == [FIRST, *map(entry, (2, 3, 4)), entry(5, term=2)]
    journal.sync()
    disk.kill()
    assert opened(disk)[-1] == entry(5, term=2)


def test_cut_outside_of_a_message_is_one() -> None:
    journal = filled(SimulatedDisk(), 6)
    journal.deleteEntriesFrom(2)
    assert len(journal) == 2


def snapshot(last: int, *, is_installed: bool, term: int = 1) -> Snapshot:
    return Snapshot(b"state", entry(last, term), entry(last - 1, term), is_installed)


@pytest.mark.parametrize(
    ("held", "taken", "left"),
    [
        (9, snapshot(6, is_installed=False), [5, 6, 7, 8, 9]),  # the trim was not done
        (9, snapshot(6, is_installed=True), [5, 6, 7, 8, 9]),
        (3, snapshot(6, is_installed=True), [5, 6]),  # ahead of the log
        (6, snapshot(6, is_installed=True, term=3), [5, 6]),  # contradicts it
    ],
)
def test_journal_is_repaired_when_a_crash_came_between(
    held: int, taken: Snapshot, left: list[int]
) -> None:
    disk = SimulatedDisk()
    filled(disk, held).snapshot_file.store(taken)
    disk.kill()
    again = opened(disk)
    assert [each.index for each in again[:]] == left
    assert again.getRaftCommitIndex() == 6
    assert again[1] == taken.last


@pytest.mark.parametrize(
    "taken", [snapshot(6, is_installed=False), snapshot(3, is_installed=False, term=2)]
)
def test_journal_that_lost_what_its_own_snapshot_had_is_refused(taken: Snapshot) -> None:
    disk = SimulatedDisk()
    filled(disk, 4).snapshot_file.store(taken)
    disk.kill()
    with pytest.raises(errors.CorruptFile, match="lost"):
        opened(disk)


def test_snapshot_that_contradicts_what_was_committed_is_refused() -> None:
    disk = SimulatedDisk()
    journal = filled(disk, 6)
    journal.setRaftCommitIndex(6)
    journal.onOneSecondTimer()
    journal.snapshot_file.store(snapshot(6, is_installed=True, term=3))
    disk.kill()
    with pytest.raises(errors.CorruptFile):
        opened(disk)


def test_journal_behind_a_missing_snapshot_is_refused() -> None:
    disk = SimulatedDisk()
    journal = filled(disk, 9)
    journal.snapshot_file.store(snapshot(6, is_installed=False))
    journal.deleteEntriesTo(4)
    assert journal[0] == entry(5)
    disk.remove("control/snapshot")
    disk.kill()
    with pytest.raises(errors.CorruptFile, match="begins behind"):
        opened(disk)


def test_journal_is_never_cleared() -> None:
    with pytest.raises(errors.InvariantViolated):
        opened(SimulatedDisk()).clear()
