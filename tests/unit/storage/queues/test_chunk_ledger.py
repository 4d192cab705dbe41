from collections.abc import Callable

import pytest

from hourwheel import errors
from storage.files.file_header import Identity
from storage.queues.chunk_ledger import ChunkLedger, Settled
from storage.queues.page_sums import PageSums
from storage.queues.queue_chunk import NO_ENTRIES, ROW, Chunk, Seal, find_seal
from tests.sim.disk import SimulatedDisk
from tests.support.units import make_units

IDENTITY = Identity(bytes(range(16)), 3)
TOPIC_QUEUE = 0x501
CHUNK_ENTRIES = 10
Work = Callable[[], None]


class Files:
    """Chunks of 10 entries whose counts the test sets, and their ledger."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_dir("queue")
        self.ledger = ChunkLedger(self.disk, "queue", self.path, CHUNK_ENTRIES)
        self.counts: dict[int, int] = {}
        self.sums: dict[int, PageSums] = {}

    def path(self, number: int) -> str:
        return f"queue/{number}"

    def fill(self, number: int, count: int) -> None:
        if number not in self.counts:
            self.ledger.note_created(number)
            Chunk.create(self.disk, self.path(number), IDENTITY, number, CHUNK_ENTRIES)
        self.counts[number] = count
        chunk = Chunk.open(self.disk, self.path(number), CHUNK_ENTRIES, NO_ENTRIES)
        chunk.reserve(CHUNK_ENTRIES)
        chunk.store(make_units(0, count).view(ROW))
        self.sums[number] = chunk.sums

    def begin(self) -> list[Work]:
        return self.ledger.begin(
            TOPIC_QUEUE, self.counts.__getitem__, lambda _: NO_ENTRIES, self.sums.__getitem__
        )

    def checkpoint(self) -> list[Work]:
        """A whole checkpoint; the works that are left for removing files."""
        for work in self.begin():
            work()
        return self.ledger.end()

    def find_slot(self, number: int, count: int) -> int:
        return find_seal(self.disk, self.path(number), IDENTITY, number, TOPIC_QUEUE, count)[1]

    def seal(self, number: int) -> Seal:
        return find_seal(
            self.disk, self.path(number), IDENTITY, number, TOPIC_QUEUE, self.counts[number]
        )[0]


def test_begin_when_nothing_changed() -> None:
    files = Files()
    assert files.begin() == []
    files.fill(0, 3)
    files.checkpoint()
    assert files.begin() == []


def test_begin_when_entries_came_seals_in_turns() -> None:
    files = Files()
    for count, slot in ((3, 0), (5, 1), (9, 0), (10, 1)):
        files.fill(0, count)
        assert files.checkpoint() == []
        assert files.find_slot(0, count) == slot
    assert files.begin() == []


def test_begin_when_the_last_checkpoint_failed_spares_the_seal_before() -> None:
    files = Files()
    files.fill(0, 3)
    files.checkpoint()
    for count in (5, 6, 7):
        files.fill(0, count)
        for work in files.begin():
            work()
        assert files.find_slot(0, 3) == 0
        assert files.find_slot(0, count) == 1
    files.ledger.end()
    files.fill(0, 8)
    files.checkpoint()
    assert files.find_slot(0, 7) == 1
    assert files.find_slot(0, 8) == 0


def test_begin_when_taken_up_from_a_manifest() -> None:
    files = Files()
    files.fill(0, 3)
    files.checkpoint()
    files.ledger = ChunkLedger(files.disk, "queue", files.path, CHUNK_ENTRIES)
    files.ledger.note_tail(0, Settled(3, 0))
    assert files.begin() == []
    files.fill(0, 4)
    files.checkpoint()
    assert files.find_slot(0, 4) == 1


def test_begin_when_files_were_made_syncs_their_names_once() -> None:
    files = Files()
    files.fill(0, 10)
    files.fill(1, 2)
    before = files.disk.durability_op_count
    files.checkpoint()
    assert files.disk.durability_op_count == before + 3
    files.fill(1, 3)
    files.checkpoint()
    assert files.disk.durability_op_count == before + 4


def test_end_when_chunks_were_trimmed_removes_them() -> None:
    files = Files()
    files.fill(0, 10)
    files.fill(1, 10)
    files.checkpoint()
    files.ledger.note_trimmed(0, files.seal(0))
    assert files.ledger.trimmed_seals() == [files.seal(0)]
    works = files.checkpoint()
    assert files.disk.list("queue") == ["0", "1"]
    for work in works:
        work()
    assert files.disk.list("queue") == ["1"]
    assert files.ledger.trimmed_seals() == []


def test_end_when_trimmed_since_begin_keeps_the_file() -> None:
    files = Files()
    files.fill(0, 10)
    files.fill(1, 10)
    works = files.begin()
    for number in (0, 1):
        files.ledger.note_trimmed(number, NO_ENTRIES)
    for work in works:
        work()
    assert files.ledger.end() == []
    assert len(files.checkpoint()) == 2


def test_end_when_its_works_did_not_run() -> None:
    files = Files()
    files.fill(0, 3)
    files.begin()
    with pytest.raises(errors.InvariantViolated):
        files.ledger.end()


def test_end_when_nothing_has_begun() -> None:
    assert Files().ledger.end() == []
