import numpy as np
import pytest

from hourwheel import errors
from storage.files.file_header import Identity
from storage.queues.queue_chunk import (
    ENTRIES_AT,
    NO_ENTRIES,
    ROW,
    SEAL_BYTES,
    Chunk,
    Seal,
    chunk_bytes,
    find_seal,
    lowest_references,
    pack_seal,
    seal_position,
    write_seal,
)
from storage.views.unit import UNIT_BYTES
from tests.sim.disk import SimulatedDisk
from tests.support.golden import golden
from tests.support.units import make_units

IDENTITY = Identity(bytes(range(16)), 3)
TOPIC_QUEUE = 0x501
PATH = "chunk"


def created(disk: SimulatedDisk, chunk_entries: int = 100) -> Chunk:
    return Chunk.create(disk, PATH, IDENTITY, 7, chunk_entries)


def store(chunk: Chunk, at: int, count: int) -> None:
    chunk.reserve(at + count)
    assert chunk.sums.row_count == at
    chunk.store(make_units(at, count).view(ROW))


def sealed(disk: SimulatedDisk, count: int, chunk_entries: int = 100) -> Seal:
    """A chunk with a seal in slot 0."""
    chunk = created(disk, chunk_entries)
    store(chunk, 0, count)
    chunk.close()
    return write_seal(disk, PATH, NO_ENTRIES, chunk.sums, 0, TOPIC_QUEUE)


def found(disk: SimulatedDisk, count: int) -> tuple[Seal, int]:
    return find_seal(disk, PATH, IDENTITY, 7, TOPIC_QUEUE, count)


def test_file_when_golden() -> None:
    disk = SimulatedDisk()
    chunk = created(disk, 3)
    units = make_units(5, 2, due_ms=1_700_000_000_000, store_ms=1_600_000_000_000, tag_gene=6)
    units["position"] = 0x1122334455, 77
    units["dlog_id"] = 0, 9
    chunk.reserve(2)
    chunk.store(units[:1].view(ROW))
    seal = write_seal(disk, PATH, NO_ENTRIES, chunk.sums, 0, TOPIC_QUEUE)
    chunk.store(units[1:].view(ROW))
    write_seal(disk, PATH, seal, chunk.sums, 1, TOPIC_QUEUE)
    file = disk.open(PATH)
    assert file.pread(file.size(), 0) == golden("consume_queue_chunk")


def test_find_seal_when_golden() -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).pwrite([golden("consume_queue_chunk")], 0)
    seal, slot = found(disk, 2)
    assert slot == 1
    assert seal.release_ms_max == 1_700_000_000_000
    assert lowest_references([seal]) == (0x1122334455, 9)
    chunk = Chunk.open(disk, PATH, 3, seal)
    assert chunk.units(0, 2)["sequence"].tolist() == [5, 6]
    assert found(disk, 1)[1] == 0


def test_seal_when_extended_piece_by_piece() -> None:
    units = make_units(0, 10, due_ms=5)
    units["store_ms"] = np.arange(10)
    units["dlog_id"] = [0, 8, 3, 0, 4, 0, 9, 9, 9, 9]
    units["position"] = [70, 1, 2, 50, 3, 60, 4, 4, 4, 4]
    whole = NO_ENTRIES.extended(units)
    pieces = NO_ENTRIES.extended(units[:1]).extended(units[1:4]).extended(units[4:])
    assert whole == pieces
    assert whole.entry_count == 10
    assert whole.release_ms_max == 9
    assert lowest_references([whole]) == (50, 3)
    assert NO_ENTRIES.extended(units[:0]) == NO_ENTRIES


def test_lowest_references_when_none() -> None:
    assert lowest_references([]) == (None, None)
    assert lowest_references([NO_ENTRIES]) == (None, None)
    only_log = NO_ENTRIES.extended(make_units(0, 1, dlog_id=0, position=9))
    assert lowest_references([NO_ENTRIES, only_log]) == (9, None)


def test_chunk_when_it_fills_takes_room_in_steps() -> None:
    disk = SimulatedDisk()
    chunk = created(disk, 10_000)
    assert disk.used_bytes("") == 4_096
    store(chunk, 0, chunk.entry_count_reserved)
    assert disk.used_bytes("") == 4_096
    store(chunk, 60, 1)
    assert disk.used_bytes("") == 65_536
    assert chunk.entry_count_reserved == (65_536 - ENTRIES_AT) // UNIT_BYTES
    store(chunk, 61, 9_939)
    assert chunk.entry_count_reserved == 10_000
    write_seal(disk, PATH, NO_ENTRIES, chunk.sums, 0, TOPIC_QUEUE)


def test_reserve_when_there_is_no_room_changes_nothing() -> None:
    disk = SimulatedDisk(capacity_bytes=8_192)
    chunk = created(disk, 10_000)
    with pytest.raises(errors.DiskFull):
        chunk.reserve(61)
    assert chunk.entry_count_reserved == 60
    disk.capacity_bytes = 1 << 20
    store(chunk, 0, 61)


def test_create_when_there_is_no_room_leaves_nothing() -> None:
    disk = SimulatedDisk(capacity_bytes=0)
    with pytest.raises(errors.DiskFull):
        created(disk)
    assert disk.list("") == []


def test_create_when_a_crash_left_a_file() -> None:
    disk = SimulatedDisk()
    sealed(disk, 60, chunk_entries=500)
    created(disk).close()
    assert disk.open(PATH).size() == chunk_bytes(100)
    with pytest.raises(errors.CorruptFile, match="no seal"):
        found(disk, 60)


def test_open_when_more_is_stored_afterwards() -> None:
    disk = SimulatedDisk()
    seal = sealed(disk, 50)
    chunk = Chunk.open(disk, PATH, 100, seal)
    store(chunk, 50, 30)
    write_seal(disk, PATH, seal, chunk.sums, 1, TOPIC_QUEUE)
    assert found(disk, 50) == (seal, 0)
    assert found(disk, 80)[1] == 1
    assert chunk.units(0, 80)["sequence"].tolist() == list(range(80))


def test_write_seal_when_the_slots_take_turns() -> None:
    disk = SimulatedDisk()
    seal = sealed(disk, 10)
    chunk = Chunk.open(disk, PATH, 100, seal)
    for at, count, slot in ((10, 10, 1), (20, 10, 0), (30, 70, 1)):
        store(chunk, at, count)
        seal = write_seal(disk, PATH, seal, chunk.sums, slot, TOPIC_QUEUE)
    assert found(disk, 30)[1] == 0
    assert found(disk, 100) == (seal, 1)
    with pytest.raises(errors.CorruptFile, match="no seal"):
        found(disk, 10)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("position", [ENTRIES_AT, ENTRIES_AT + 9, ENTRIES_AT + 50 * 64 - 1])
def test_open_when_a_bit_of_an_entry_flipped(position: int, bit: int) -> None:
    disk = SimulatedDisk()
    seal = sealed(disk, 50)
    disk.flip_bit(PATH, position, bit)
    with pytest.raises(errors.CorruptFile, match="fail their CRC32C"):
        Chunk.open(disk, PATH, 100, seal)


@pytest.mark.parametrize("position", [0, 9, 32, *range(64, 64 + SEAL_BYTES, 7), 127])
def test_find_seal_when_a_bit_flipped(position: int) -> None:
    disk = SimulatedDisk()
    sealed(disk, 50)
    disk.flip_bit(PATH, position)
    with pytest.raises(errors.CorruptFile):
        found(disk, 50)


def test_find_seal_when_the_wrong_file() -> None:
    disk = SimulatedDisk()
    sealed(disk, 50)
    with pytest.raises(errors.CorruptFile, match="no seal over 50 entries of queue 00000502"):
        find_seal(disk, PATH, IDENTITY, 7, TOPIC_QUEUE + 1, 50)
    with pytest.raises(errors.CorruptFile, match="number 7"):
        find_seal(disk, PATH, IDENTITY, 8, TOPIC_QUEUE, 50)
    with pytest.raises(errors.ForeignDirectory):
        find_seal(disk, PATH, Identity(bytes(16), 3), 7, TOPIC_QUEUE, 50)
    with pytest.raises(errors.CorruptFile, match="missing"):
        find_seal(disk, "other", IDENTITY, 7, TOPIC_QUEUE, 50)


@pytest.mark.parametrize("size", [0, 63, 64, 127, 128])
def test_find_seal_when_the_file_is_cut(size: int) -> None:
    disk = SimulatedDisk()
    raw = golden("consume_queue_chunk")
    disk.open(PATH, create=True).pwrite([raw[:size]], 0)
    with pytest.raises(errors.CorruptFile):
        found(disk, 2)


def test_open_when_the_file_has_another_size() -> None:
    disk = SimulatedDisk()
    seal = sealed(disk, 50)
    with pytest.raises(errors.CorruptFile):
        Chunk.open(disk, PATH, 101, seal)


def test_write_seal_when_the_file_lost_its_size() -> None:
    disk = SimulatedDisk()
    chunk = created(disk)
    store(chunk, 0, 5)
    disk.open("short", create=True)
    with pytest.raises(errors.InvariantViolated):
        write_seal(disk, "short", NO_ENTRIES, chunk.sums, 0, TOPIC_QUEUE)


def test_I8_mapped_entries_are_verified_whenever_they_are_read() -> None:  # noqa: N802
    disk = SimulatedDisk()
    chunk = created(disk, 1_000)
    store(chunk, 0, 500)
    assert len(chunk.copy(300, 310)) == 10
    disk.flip_bit(PATH, ENTRIES_AT + 300 * UNIT_BYTES + 3)
    assert chunk.units(0, 256)["sequence"].tolist() == list(range(256))
    at = f"from byte {ENTRIES_AT + 256 * UNIT_BYTES} on"
    for read in (
        lambda: chunk.units(290, 310),
        lambda: chunk.copy(383, 384),
        lambda: chunk.pick(np.array([1, 383])),
        lambda: write_seal(disk, PATH, NO_ENTRIES, chunk.sums, 0, TOPIC_QUEUE),
    ):
        with pytest.raises(errors.CorruptFile, match=at):
            read()
    assert len(chunk.pick(np.array([1, 499]))) == 2


def test_I8_chunk_is_mapped_again_by_the_sums_of_what_no_seal_is_over() -> None:  # noqa: N802
    disk = SimulatedDisk()
    chunk = created(disk, 1_000)
    store(chunk, 0, 500)
    chunk.close()
    assert Chunk.open(disk, PATH, 1_000, NO_ENTRIES, chunk.sums).sums.row_count == 500
    disk.flip_bit(PATH, ENTRIES_AT + 300 * UNIT_BYTES + 3)
    with pytest.raises(errors.CorruptFile):
        Chunk.open(disk, PATH, 1_000, NO_ENTRIES, chunk.sums)


def test_pack_seal_when_all_fields_differ() -> None:
    assert len(pack_seal(NO_ENTRIES, TOPIC_QUEUE)) == SEAL_BYTES
    assert [seal_position(slot) for slot in (0, 1)] == [64, 128]
