"""What PySyncObj asks of a journal; the bugs by number are in test_raft_node."""

import random
from contextlib import suppress

import pytest

from hourwheel import errors
from replication.raft.journal import FIRST, RaftJournal
from replication.raft.journal_file import Entry
from replication.raft.snapshot import Snapshot
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.golden import golden

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
    stale, file = old.open("control/journal"), disk.open("control/journal")
    file.truncate(0)
    file.pwrite([stale.pread(stale.size(), 0)], 0)
    file.datasync()
    with pytest.raises(errors.CorruptFile, match="5 was committed"):
        opened(disk)


def test_missing_meta_is_refused_when_there_is_a_log() -> None:
    disk = SimulatedDisk()
    filled(disk, 3)
    disk.remove("control/vote")
    with pytest.raises(errors.CorruptFile, match="the vote of this node is lost"):
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


# --- term and vote, as older versions kept them

OLD_IDENTITY = Identity(bytes(range(16)), 0)
OLD_FILES = ("journal", "meta", "snapshot")


def old_directory() -> SimulatedDisk:
    """Of a node of the version before `vote`."""
    disk = SimulatedDisk()
    disk.make_dir("control")
    for name in OLD_FILES:
        file = disk.open(f"control/{name}", create=True)
        file.pwrite((golden(f"raft_{name}"),), 0)
        file.datasync()
    disk.sync_dir("control")
    return disk


def of_old(disk: SimulatedDisk) -> RaftJournal:
    return RaftJournal.open(disk, "control", OLD_IDENTITY, "n1")


def check_old(journal: RaftJournal) -> None:
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (3, "n2")
    assert journal.getRaftCommitIndex() == 5
    assert [each.index for each in journal[:]] == [3, 4, 5, 6]
    assert journal.snapshot_file.load().state == b"state"


def test_directory_of_an_older_version_is_taken_over_wherever_that_is_interrupted() -> None:
    for fail_at in range(1, 12):
        for takes_effect in (False, True):
            disk = old_directory()
            disk.fail_after(fail_at, takes_effect=takes_effect)
            with suppress(SimulatedCrash):
                of_old(disk)
            disk.crash(random.Random(fail_at))
            check_old(of_old(disk))
            assert disk.exists("control/vote")
            assert not disk.exists("control/meta"), "an older version must not find an old vote"
            again = of_old(disk)
            check_old(again)
            again.setCurrentTerm(4, None)
            assert of_old(disk).getCurrentTerm() == 4


def test_new_vote_is_believed_when_an_old_one_lies_beside_it() -> None:
    disk = old_directory()
    of_old(disk).setCurrentTerm(9, "n3")
    disk.open("control/meta", create=True).pwrite((golden("raft_meta"),), 0)
    assert of_old(disk).getCurrentTerm() == 9
    assert not disk.exists("control/meta")


def test_older_version_of_another_node_is_refused() -> None:
    with pytest.raises(errors.ForeignDirectory, match="'n1'"):
        RaftJournal.open(old_directory(), "control", OLD_IDENTITY, "n2")


# --- full disks


def full(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = disk.used_bytes("")


def test_votes_entries_cuts_and_snapshots_are_kept_when_the_disk_is_full() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    index = 1
    for term in range(1, 120):
        full(disk)  # whatever was given back, somebody else has taken
        journal.setCurrentTerm(term, "b")
        for _ in range(20):
            index += 1
            journal.add(*entry(index, term))
        journal.sync()
        if term % 3 == 0:  # a conflict with the leader's log
            journal.deleteEntriesFrom(len(journal) - 5)
            index -= 5
        journal.setRaftCommitIndex(index - 2)
        journal.onOneSecondTimer()
        if term % 10 == 0:
            at = len(journal) - 3
            taken = Snapshot(b"s" * term * 100, journal[at], journal[at - 1], is_installed=False)
            journal.snapshot_file.store(taken)
            journal.deleteEntriesTo(at - 1)
        disk.crash(random.Random(term))
        journal = opened(disk)
        assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (term, "b")
        assert journal[-1] == entry(index, journal[-1].term)
        assert journal.getRaftCommitIndex() == index - 2


def test_nothing_is_added_when_the_room_is_used_up_and_votes_still_are() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    full(disk)
    index = 1
    with suppress(errors.DiskFull):
        while index < 1_000:
            journal.add(bytes(30_000), index + 1, 1)
            index += 1
    assert 30 < index < 1_000
    assert journal[-1].index == index
    assert not journal.has_command_room
    assert journal.is_half_full
    journal.setCurrentTerm(5, "c")
    journal.sync()
    disk.crash(random.Random(1))
    again = opened(disk)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (5, "c")
    assert again[-1].index == index
    disk.capacity_bytes = 1 << 30
    assert again.has_command_room
    again.add(bytes(30_000), index + 1, 5)
    again.sync()
    assert opened(disk)[-1].index == index + 1


def test_node_starts_on_a_full_disk_and_takes_its_room_when_there_is_some() -> None:
    disk = old_directory()
    of_old(disk)
    disk.remove("control/journal.spare")
    disk.remove("control/snapshot.spare")
    full(disk)
    check_old(of_old(disk))
    disk.capacity_bytes = 1 << 30
    of_old(disk)
    full(disk)
    journal = of_old(disk)
    journal.deleteEntriesFrom(3)
    assert len(journal) == 3
    assert [each.index for each in of_old(disk)[:]] == [3, 4, 5]
