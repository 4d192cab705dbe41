import random
from contextlib import suppress

import pytest

from hourwheel import errors
from replication.raft.journal_file import Entry
from replication.raft.snapshot import CHUNK_BYTES, SNAPSHOT_BYTES_MAX, Snapshot, SnapshotFile
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk

IDENTITY = Identity(b"c" * 16, 0)
LAST, PREVIOUS = Entry(b"\x00b", 8, 3), Entry(b"\x00a", 7, 2)


def new(state: bytes = b"state", *, disk: SimulatedDisk | None = None) -> SnapshotFile:
    file = SnapshotFile(disk or SimulatedDisk(), "", IDENTITY)
    file.store(Snapshot(state, LAST, PREVIOUS, is_installed=False))
    return file


def chunks(file: SnapshotFile, peer: object = "p") -> list[tuple[bytes, bool, bool]]:
    found = []
    while not found or not found[-1][2]:
        chunk = file.getTransmissionData(peer)
        assert chunk is not None
        found.append(chunk)
    return found


def test_snapshot_is_the_same_when_it_was_stored() -> None:
    assert new().load() == Snapshot(b"state", LAST, PREVIOUS, is_installed=False)


def test_snapshot_is_the_old_or_the_new_one_when_power_is_lost() -> None:
    for seed in range(40):
        disk = SimulatedDisk()
        file = new(b"old", disk=disk)
        disk.fail_after(seed % 4 + 1, takes_effect=seed % 2 == 0)
        with suppress(SimulatedCrash):
            new(b"new", disk=disk)
        disk.crash(random.Random(seed))
        assert file.load().state in {b"old", b"new"}


@pytest.mark.parametrize("size", [5, 3 * CHUNK_BYTES])
def test_snapshot_travels_in_chunks(size: int) -> None:
    file = new(bytes(size))
    taken = SnapshotFile(SimulatedDisk(), "", IDENTITY)
    sent = chunks(file)
    assert [taken.setTransmissionData(chunk) for chunk in sent] == [
        *[False] * (len(sent) - 1),
        True,
    ]
    assert taken.received == Snapshot(bytes(size), LAST, PREVIOUS, is_installed=True)
    assert not taken.exists, "the node decides whether it wants it"


def test_snapshot_is_dropped_when_a_chunk_is_missing_or_changed() -> None:
    sent = chunks(new(bytes(4 * CHUNK_BYTES)))
    taken = SnapshotFile(SimulatedDisk(), "", IDENTITY)
    for each in (sent[1:], sent[:2] + sent[3:], [*sent[:-1], (b"changed", False, True)]):
        assert not any(taken.setTransmissionData(chunk) for chunk in each)
    assert not taken.setTransmissionData(None)
    whole = b"\x00" * 4 + b"\xff"
    assert not taken.setTransmissionData((whole, True, True))
    assert taken.received is None


def test_snapshot_is_dropped_when_it_never_ends() -> None:
    taken = SnapshotFile(SimulatedDisk(), "", IDENTITY)
    big = bytes(SNAPSHOT_BYTES_MAX // 4)
    assert not taken.setTransmissionData((big, True, False))
    for _ in range(4):
        assert not taken.setTransmissionData((big, False, False))
    assert not taken.setTransmissionData((b"", False, True))
    assert taken.received is None


def test_transmission_begins_again_when_the_peer_was_gone_or_there_is_a_new_one() -> None:
    file = new(bytes(4 * CHUNK_BYTES))
    file.getTransmissionData("p")
    assert file.getTransmissionData("p")[1] is False  # type: ignore[index]
    file.cancelTransmisstion("p")
    assert file.getTransmissionData("p")[1] is True  # type: ignore[index]
    assert file.getTransmissionData("q")[1] is True  # type: ignore[index]
    file.store(Snapshot(b"newer", LAST, PREVIOUS, is_installed=False))
    taken = SnapshotFile(SimulatedDisk(), "", IDENTITY)
    assert [taken.setTransmissionData(chunk) for chunk in chunks(file)] == [True]


def test_nothing_is_sent_when_there_is_none() -> None:
    file = SnapshotFile(SimulatedDisk(), "", IDENTITY)
    assert file.getTransmissionData("p") is None
    with pytest.raises(FileNotFoundError):
        file.load()


@pytest.mark.parametrize(
    ("last", "previous"),
    [(LAST, LAST), (Entry(b"", 1, 0), Entry(b"", 0, 0)), (Entry(b"", 8, 1), PREVIOUS)],
)
def test_snapshot_whose_entries_do_not_follow_is_none(last: Entry, previous: Entry) -> None:
    disk = SimulatedDisk()
    file = SnapshotFile(disk, "", IDENTITY)
    file.store(Snapshot(b"", last, previous, is_installed=False))
    with pytest.raises(errors.CorruptFile, match="not a snapshot"):
        file.load()
