"""Entries of a sequence index are read as the node wrote them, and held against the log's."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from spark_jobs.logs.sequence_reader import IndexCopy, IndexPart, SequenceReader
from storage.files.disk import RealDisk
from storage.views.sequence_index import SequenceIndex
from tests.support.broken_logs import IDENTITY

COUNT = 1_000
"""Seven whole blocks, and a tail."""
DUE_MS = np.arange(COUNT, dtype=np.int64) * 10
STATES = (np.arange(COUNT) % 3).astype(np.uint8)
ENTRIES = (DUE_MS.astype(np.uint64) << np.uint64(2)) | STATES
SEQUENCES = np.arange(COUNT, dtype=np.uint64)
QUEUES = np.full(COUNT, 256, np.uint32)


def save(index: SequenceIndex) -> None:
    for work in index.begin_checkpoint():
        work()
    index.end_checkpoint()


@pytest.fixture
def copy(tmp_path: Path) -> IndexCopy:
    index = SequenceIndex.open(RealDisk(tmp_path), "sequences", IDENTITY, 0)
    index.append(DUE_MS, STATES)
    save(index)
    cluster = IDENTITY.cluster_id.hex()
    return IndexCopy(str(tmp_path), "node-1", 0, cluster, "sequences", COUNT, 1 << 20)


def read(copy: IndexCopy, first: int, end: int) -> list[int]:
    with SequenceReader(copy) as reader:
        found: list[int] = reader.read(first, end).tolist()
        return found


@pytest.mark.parametrize(
    ("first", "end"), [(0, COUNT), (5, 6), (127, 129), (890, 900), (895, 1_000), (999, 1_000)]
)
def test_entries_are_those_that_were_written(copy: IndexCopy, first: int, end: int) -> None:
    assert read(copy, first, end) == ENTRIES[first:end].tolist()


def test_entries_when_a_later_checkpoint_has_begun_are_those_of_this_one(copy: IndexCopy) -> None:
    index = SequenceIndex.open(RealDisk(Path(copy.uri)), "sequences", IDENTITY, COUNT)
    index.append(DUE_MS[:10], STATES[:10])
    save(index)  # the tail has more
    assert read(copy, 900, COUNT) == ENTRIES[900:].tolist()
    index.append(DUE_MS[:500], STATES[:500])
    save(index)  # the block is whole
    assert read(copy, 900, COUNT) == ENTRIES[900:].tolist()


def test_difference_names_message_and_file(copy: IndexCopy) -> None:
    part, wanted = IndexPart(), ENTRIES.copy()
    wanted[[3, 950]] ^= np.uint64(4)
    with SequenceReader(copy) as reader:
        reader.compare(SEQUENCES[:500], wanted[:500], QUEUES[:500], part)
        reader.compare(SEQUENCES[500:], wanted[500:], QUEUES[500:], part)
        beyond = SEQUENCES + np.uint64(COUNT)
        reader.compare(beyond, wanted, QUEUES, part)
    assert [(one.sequence, one.file) for one in part.wrong] == [
        (3, "sequences/000000000000.seq"),
        (950, "sequences/tail"),
    ]
    assert part.wrong[0].found == int(ENTRIES[3])
    assert part.wrong_count == 2
    assert part.faults == []


def test_differences_when_they_are_many_are_all_counted(copy: IndexCopy) -> None:
    part = IndexPart()
    with SequenceReader(copy) as reader:
        reader.compare(SEQUENCES, ENTRIES ^ np.uint64(4), QUEUES, part)
    assert (len(part.wrong), part.wrong_count) == (100, COUNT)


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[300] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("000000000000.seq", Path.unlink, "missing"),
        ("000000000000.seq", flip, "CRC32C"),
        ("000000000000.seq", lambda path: path.write_bytes(path.read_bytes()[:-1]), "ends before"),
        ("tail", Path.unlink, "missing"),
        ("tail", flip, ""),
    ],
)
def test_damage_is_told_once(
    copy: IndexCopy, name: str, damage: Callable[[Path], object], why: str
) -> None:
    damage(Path(copy.uri) / "sequences" / name)
    with pytest.raises(errors.CorruptFile):
        read(copy, 0, COUNT)
    part = IndexPart()
    with SequenceReader(copy) as reader:
        reader.compare(SEQUENCES, ENTRIES, QUEUES, part)
        reader.compare(SEQUENCES, ENTRIES, QUEUES, part)
    ((node, file, told),) = part.faults
    assert (node, file) == ("node-1", f"sequences/{name}")
    assert why in told


def test_tail_when_it_is_of_an_older_checkpoint_is_damage(copy: IndexCopy) -> None:
    with pytest.raises(errors.CorruptFile, match="older checkpoint"):
        read(copy._replace(entry_count=COUNT + 20), 900, COUNT + 20)
