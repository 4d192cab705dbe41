"""A voter's state, read beside it: what its journal has as committed, and nothing more."""

from random import Random

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.state import ControlState, encode_state
from replication.raft.codec import REGULAR
from replication.raft.committed_state import CommittedState, read_committed
from replication.raft.generations import begin_generation, open_journal
from replication.raft.journal import JOURNAL, NOOP
from replication.raft.snapshot import SNAPSHOT, Snapshot
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.control_commands import CLUSTER_ID, StateWorld

IDENTITY = Identity(CLUSTER_ID, 0)
ME = NodeId("n1")


class Voter:
    """Appends, commits and compacts as Raft does; `states`: after each index."""

    def __init__(self) -> None:
        self.disk, self.world = SimulatedDisk(), StateWorld()
        self.journal = open_journal(self.disk, IDENTITY, ME, 0)
        self.states = {1: self.world.state}
        self.append(
            bootstrap=pb.BootstrapCommand(
                cluster_id=CLUSTER_ID, min_in_sync=2, shard_count=1, node_ids=("n1", "n2", "n3")
            )
        )

    @property
    def end(self) -> int:
        return self.journal[-1].index

    def append(self, **command: object) -> None:
        """One command, or, without any, the first entry of a leader."""
        raw = NOOP
        if command:
            raw = REGULAR + self.world.raw(**command)
            self.world.apply(raw[1:])
        self.journal.add(raw, self.end + 1, 1)
        self.journal.sync()
        self.states[self.end] = self.world.state

    def commit(self, index: int) -> None:
        self.journal.setRaftCommitIndex(index)
        self.journal.onOneSecondTimer()

    def compact(self, index: int) -> None:
        entries = self.journal[:]
        at = next(n for n, one in enumerate(entries) if one.index == index)
        state = encode_state(self.states[index])
        snapshot = Snapshot(state, entries[at], entries[at - 1], is_installed=False)
        self.journal.snapshot_file.store(snapshot)
        self.journal.deleteEntriesTo(at - 1)

    def read(self) -> CommittedState:
        found = read_committed(self.disk, "", IDENTITY)
        assert found is not None
        return found


def test_node_that_took_no_part_has_no_state() -> None:
    disk = SimulatedDisk()
    assert read_committed(disk, "control", IDENTITY) is None
    disk.make_dir("control")
    assert read_committed(disk, "control", IDENTITY) is None


def test_state_is_that_of_what_is_committed_whatever_was_compacted() -> None:
    for seed in range(10):
        rng, voter, committed = Random(seed), Voter(), 1
        for number in range(30):
            step = rng.randrange(4)
            if step < 2:
                voter.append(put_topic=pb.PutObjectCommand(name=f"t{number}"))
            elif step == 2:
                committed = rng.randint(committed, voter.end)
                voter.commit(committed)
            elif committed - 1 > voter.journal[0].index:
                voter.compact(rng.randint(voter.journal[0].index + 1, committed))
            found = voter.read()
            assert found.state.digest() == voter.states[committed].digest(), f"seed {seed}"
            assert found.is_all == (voter.end == committed)


def test_first_entries_of_leaders_change_nothing() -> None:
    voter = Voter()
    voter.append()
    voter.append(put_topic=pb.PutObjectCommand(name="t"))
    voter.commit(voter.end)
    assert voter.read() == CommittedState(voter.world.state, is_all=True)


def test_generation_that_is_in_force_counts() -> None:
    voter = Voter()
    voter.commit(voter.end)
    first = ControlState(cluster_id=CLUSTER_ID, min_in_sync=1)
    begin_generation(voter.disk, IDENTITY, ME, 1, encode_state(first))
    assert voter.read().state == first


def test_what_is_damaged_or_missing_is_refused() -> None:
    for name in (JOURNAL, SNAPSHOT):
        voter = Voter()
        for number in range(4):
            voter.append(put_topic=pb.PutObjectCommand(name=f"t{number}"))
        voter.commit(voter.end)
        voter.compact(voter.end - 1)
        voter.read()
        voter.disk.flip_bit(name, 150)
        with pytest.raises(errors.CorruptFile):
            voter.read()
    voter.disk.remove(SNAPSHOT)
    with pytest.raises(errors.CorruptFile, match="does not fit"):
        voter.read()


def test_nothing_is_changed_by_reading() -> None:
    voter = Voter()
    voter.commit(voter.end)
    before = voter.disk.durability_op_count
    voter.read()
    assert voter.disk.durability_op_count == before
