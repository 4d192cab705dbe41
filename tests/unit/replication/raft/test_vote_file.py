import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.internal.v1 import raft_pb2 as pb
from replication.raft.vote_file import (
    FILE_BYTES,
    MESSAGE_BYTES_MAX,
    SLOT_BYTES,
    VoteFile,
    slot_position,
)
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.golden import golden

IDENTITY = Identity(b"c" * 16, 0)
PATH = "vote"
GOLDEN_IDENTITY = Identity(bytes(range(16)), 0)


def meta(term: int, voted_for: str = "", commit_index: int = 1) -> pb.RaftMeta:
    return pb.RaftMeta(term=term, voted_for=voted_for, commit_index=commit_index, node_id="n1")


def opened(disk: SimulatedDisk) -> tuple[VoteFile, pb.RaftMeta]:
    return VoteFile.open(disk, PATH, IDENTITY)


def term_in(disk: SimulatedDisk) -> int:
    return opened(disk)[1].term


@given(st.integers(0, 2**32), st.integers(1, 25), st.booleans(), st.booleans())
def test_vote_after_a_crash_is_the_last_acknowledged_or_the_one_being_written(
    seed: int, fail_at: int, takes_effect: bool, loses_power: bool
) -> None:
    rng, disk = random.Random(seed), SimulatedDisk()
    file, being_written, acknowledged = VoteFile.create(disk, PATH, IDENTITY, meta(0)), 0, 0
    for _ in range(4):
        disk.fail_after(rng.randint(1, fail_at), takes_effect=takes_effect)
        with suppress(SimulatedCrash):
            for _ in range(rng.randint(1, 8)):
                being_written += 1
                file.store(meta(being_written, f"n{being_written % 3}"))
                acknowledged = being_written
        if loses_power:
            disk.crash(rng)
        else:
            disk.kill()
        file, found = opened(disk)
        assert found.term in (acknowledged, being_written)
        assert found.voted_for == (f"n{found.term % 3}" if found.term else "")
        # What was read is acted upon: it stays, whatever comes.
        disk.crash(rng)
        file, again = opened(disk)
        assert again == found
        acknowledged = being_written = found.term


def test_vote_is_written_when_the_disk_is_full() -> None:
    disk = SimulatedDisk()
    file = VoteFile.create(disk, PATH, IDENTITY, meta(0))
    disk.capacity_bytes = disk.used_bytes("")
    for term in range(1, 50):
        file.store(meta(term, "n" * 127, 1 << 60))
        assert term_in(disk) == term
    assert disk.used_bytes("") == disk.capacity_bytes == FILE_BYTES


@pytest.mark.parametrize("slot", range(2))
@pytest.mark.parametrize("stores", range(4))
def test_no_vote_is_lost_when_one_slot_is_damaged(slot: int, stores: int) -> None:
    disk = SimulatedDisk()
    file = VoteFile.create(disk, PATH, IDENTITY, meta(0))
    for term in range(1, stores + 1):
        file.store(meta(term))
    disk.flip_bit(PATH, slot_position(slot) + 20)
    again, found = opened(disk)
    assert found.term == stores
    again.store(meta(stores + 1))
    again.store(meta(stores + 2))
    _, found = opened(disk)
    assert found.term == stores + 2


def test_open_raises_when_both_slots_are_damaged() -> None:
    disk = SimulatedDisk()
    VoteFile.create(disk, PATH, IDENTITY, meta(0))
    for slot in range(2):
        disk.flip_bit(PATH, slot_position(slot) + SLOT_BYTES - 1)
    with pytest.raises(errors.CorruptFile, match="vote of this node is lost"):
        opened(disk)


def test_open_raises_when_the_file_is_cut() -> None:
    disk = SimulatedDisk()
    VoteFile.create(disk, PATH, IDENTITY, meta(0))
    disk.open(PATH).truncate(slot_position(0) + 100)
    with pytest.raises(errors.CorruptFile):
        opened(disk)


def test_open_raises_when_it_is_another_clusters() -> None:
    disk = SimulatedDisk()
    VoteFile.create(disk, PATH, Identity(b"d" * 16, 0), meta(0))
    with pytest.raises(errors.ForeignDirectory):
        opened(disk)


def test_nothing_is_there_when_there_is_no_room_to_begin() -> None:
    disk = SimulatedDisk(capacity_bytes=SLOT_BYTES)
    with pytest.raises(errors.DiskFull):
        VoteFile.create(disk, PATH, IDENTITY, meta(0))
    assert not disk.exists(PATH)


def test_creation_may_be_interrupted_anywhere() -> None:
    for seed in range(40):
        rng, disk = random.Random(seed), SimulatedDisk()
        disk.fail_after(rng.randint(1, 3), takes_effect=rng.random() < 0.5)
        with suppress(SimulatedCrash):
            VoteFile.create(disk, PATH, IDENTITY, meta(3))
        disk.crash(rng)
        if disk.exists(PATH):
            assert term_in(disk) == 3
        else:
            VoteFile.create(disk, PATH, IDENTITY, meta(3))


def test_vote_that_does_not_fit_its_slot_is_a_bug() -> None:
    file = VoteFile.create(SimulatedDisk(), PATH, IDENTITY, meta(0))
    with pytest.raises(errors.InvariantViolated):
        file.store(meta(1, "n" * MESSAGE_BYTES_MAX))


def golden_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    file = VoteFile.create(disk, PATH, GOLDEN_IDENTITY, meta(0))
    file.store(meta(6, "n2", 40))
    file.store(meta(7, "n3", 41))
    return disk


def test_file_when_written_is_the_golden_one() -> None:
    raw = golden_disk().open(PATH).pread(FILE_BYTES, 0)
    assert raw[:64] == golden("raft_vote")[:64]
    assert raw == golden("raft_vote")[:64] + bytes(SLOT_BYTES - 64) + 2 * (
        golden("raft_vote")[64:].ljust(SLOT_BYTES, b"\0")
    )


def test_file_when_read_from_the_golden_one() -> None:
    disk, raw = SimulatedDisk(), golden("raft_vote")
    slot = raw[64:].ljust(SLOT_BYTES, b"\0")
    disk.open(PATH, create=True).pwrite((raw[:64].ljust(SLOT_BYTES, b"\0"), slot, slot), 0)
    _, found = VoteFile.open(disk, PATH, GOLDEN_IDENTITY)
    assert found == meta(7, "n3", 41)
