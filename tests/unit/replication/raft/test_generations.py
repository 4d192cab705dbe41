"""A generation of voters is there as a whole or not at all, wherever the power goes."""

from collections.abc import Callable
from random import Random

import pytest

from hourwheel import errors
from hourwheel.types import NodeId
from replication.raft.first_states import PART_BYTES, FirstState, Incoming
from replication.raft.generations import (
    begin_generation,
    drop_former,
    find_generation,
    first_state,
    has_begun,
    open_journal,
)
from replication.raft.vote_file import VoteFile
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.every_step import EveryStepDisk, lose_power_at_every_step

IDENTITY = Identity(b"c" * 16, 0)
ME = NodeId("n1")


def begin(disk: SimulatedDisk, generation: int) -> None:
    begin_generation(disk, IDENTITY, ME, generation, b"state of %d" % generation)


def voted(disk: SimulatedDisk) -> None:
    """Generation 0, in which this node has voted."""
    journal = open_journal(disk, IDENTITY, ME, 0)
    journal.setCurrentTerm(7, "n2")


def test_generation_begins_with_two_entries_and_its_state() -> None:
    disk = SimulatedDisk()
    assert not has_begun(disk)
    voted(disk)
    begin(disk, 1)
    begin(disk, 1)
    assert (has_begun(disk), find_generation(disk)) == (True, 1)
    drop_former(disk, 1)
    journal = open_journal(disk, IDENTITY, ME, 1)
    assert [one.index for one in journal[:]] == [1, 2]
    assert (journal.getCurrentTerm(), journal.getRaftCommitIndex()) == (0, 2)
    assert journal.snapshot_file.load().state == first_state(disk, IDENTITY, 1) == b"state of 1"
    with pytest.raises(errors.CorruptFile, match="must not vote"):
        open_journal(disk, IDENTITY, ME, 0)  # as older software does


def test_generation_follows_another_when_the_power_goes_at_any_step() -> None:
    disks: list[SimulatedDisk] = []

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        disks.append(disk)
        voted(disk)
        begin(disk, 1)

        def advance() -> None:
            begin(disk, 2)
            drop_former(disk, 2)

        return advance

    def check(rng: Random) -> None:
        disk = disks[-1]
        disk.crash(rng)
        found = find_generation(disk)
        assert found in {1, 2}
        assert first_state(disk, IDENTITY, found) == b"state of %d" % found
        assert len(open_journal(disk, IDENTITY, ME, found)) == 2
        drop_former(disk, found)  # as each start does
        begin(disk, 2)
        drop_former(disk, 2)
        assert first_state(disk, IDENTITY, 2) == b"state of 2"
        assert [name for name in disk.list("") if name.startswith("gen")] == [
            "generation-0000000002"
        ]

    assert lose_power_at_every_step(prepare, check) > 30


@pytest.mark.parametrize("length", [1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_first_state_comes_in_parts(length: int) -> None:
    state = Random(length).randbytes(length)
    parts = list(FirstState(state, frozenset({ME})).parts(4, ME))
    incoming = Incoming(4)
    assert [incoming.take(part) for part in parts] == [None] * (len(parts) - 1) + [state]


def test_first_state_is_refused_when_it_is_not_whole() -> None:
    first, second = FirstState(bytes(PART_BYTES + 1), frozenset({ME})).parts(4, ME)
    with pytest.raises(errors.InvalidBatch, match="another generation"):
        Incoming(5).take(first)
    with pytest.raises(errors.InvalidBatch, match="digest"):
        Incoming(4).take(second)


def test_who_has_left_is_told_only_that() -> None:
    first = FirstState(b"all", frozenset({ME}), b"farewell", frozenset({NodeId("n2")}))
    assert [part.data for part in first.parts(4, ME)] == [b"all"]
    assert [part.data for part in first.parts(4, NodeId("n2"))] == [b"farewell"]
    assert first.known_ids == {"n1", "n2"}


def test_journal_is_blank_until_there_was_a_term() -> None:
    disk = SimulatedDisk()
    assert open_journal(disk, IDENTITY, ME, 0).is_blank
    assert open_journal(disk, IDENTITY, ME, 0).is_blank, "started again, it is still"
    voted(disk)
    assert not open_journal(disk, IDENTITY, ME, 0).is_blank
    begin(disk, 1)
    assert not open_journal(disk, IDENTITY, ME, 1).is_blank, "it had a part in another"
    begin_generation(disk, IDENTITY, ME, 2, b"state", is_blank=True)
    joined = open_journal(disk, IDENTITY, ME, 2)
    assert joined.is_blank
    joined.setCurrentTerm(1, None)
    assert not open_journal(disk, IDENTITY, ME, 2).is_blank


def test_peer_is_known_by_the_journal_that_it_had_first() -> None:
    disk, first, other = SimulatedDisk(), b"1" * 16, b"2" * 16
    journal = open_journal(disk, IDENTITY, ME, 0)
    assert journal.meet(NodeId("n2"), first)
    disk.crash(Random(1))  # noted durably
    journal = open_journal(disk, IDENTITY, ME, 0)
    assert journal.meet(NodeId("n2"), first)
    assert not journal.meet(NodeId("n2"), other)
    assert journal.meet(NodeId("n3"), other)
    begin(disk, 1)
    assert open_journal(disk, IDENTITY, ME, 1).meet(NodeId("n2"), other), "another generation"


def test_journal_that_could_not_be_noted_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be forgotten at the next start, and another one be taken for the first."""

    def full(*_: object) -> None:
        raise errors.DiskFull("no room")

    first, other = b"1" * 16, b"2" * 16
    journal = open_journal(SimulatedDisk(), IDENTITY, ME, 0)
    with monkeypatch.context() as patch:
        patch.setattr(VoteFile, "store", full)
        with pytest.raises(errors.DiskFull):
            journal.meet(NodeId("n2"), first)
    assert journal.meet(NodeId("n2"), other)
    assert not journal.meet(NodeId("n2"), first)


def test_journals_have_an_id_of_their_own_for_life() -> None:
    disk = SimulatedDisk()
    first = open_journal(disk, IDENTITY, ME, 0).journal_id
    assert open_journal(disk, IDENTITY, ME, 0).journal_id == first
    assert open_journal(SimulatedDisk(), IDENTITY, ME, 0).journal_id != first
