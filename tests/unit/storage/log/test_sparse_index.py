import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import Kind, build_blob, unpack_header
from storage.log.sparse_index import SparseIndex

SIZE = 100


def filled(count: int, start: int = 1000, interval: int = 250) -> SparseIndex:
    """Batches of 100 bytes; every second has a sequence of its own."""
    index = SparseIndex(start, interval)
    add(index, count)
    return index


def add(index: SparseIndex, count: int) -> None:
    for _ in range(count):
        offset = index.end_offset
        index.add(offset, offset + SIZE, (offset - 1000) // 200, 5000 + offset % 700)


def test_entries_when_batches_are_added() -> None:
    index = filled(9)
    assert index.entries["offset"].tolist() == [1000, 1300, 1600]
    assert index.entries["base_sequence"].tolist() == [0, 1, 3]
    assert (index.start_offset, index.end_offset) == (1000, 1900)
    assert index.store_ms_max == 5600


def test_entries_when_empty() -> None:
    index = SparseIndex(8, 250)
    assert index.entries.tolist() == []
    assert index.store_ms_max == -1
    assert index.find_offset(0) is None


@pytest.mark.parametrize(
    ("sequence", "offset"), [(0, 1000), (1, 1300), (2, 1300), (3, 1600), (1 << 63, 1600)]
)
def test_find_offset(sequence: int, offset: int) -> None:
    assert filled(9).find_offset(sequence) == offset


def test_find_offset_when_before_the_first() -> None:
    index = SparseIndex(0, 100)
    index.add(0, 100, 7, 0)
    assert index.find_offset(6) is None
    assert index.find_offset(7) == 0


@pytest.mark.parametrize("count", range(9))
def test_extend_when_cut_anywhere_is_the_same(count: int) -> None:
    index = filled(count)
    successor = index.successor()
    add(successor, 9 - count)
    index.extend(successor)
    assert index.pack() == filled(9).pack()
    assert index.next_entry_offset == filled(9).next_entry_offset


def test_extend_when_there_is_a_gap() -> None:
    with pytest.raises(errors.InvariantViolated, match="gap"):
        filled(3).extend(SparseIndex(1400, 250))


@pytest.mark.parametrize("count", range(10))
def test_truncate_when_cut_anywhere_goes_on_as_before(count: int) -> None:
    index = filled(9)
    index.truncate(1000 + SIZE * count)
    assert index.entries.tolist() == filled(count).entries.tolist()
    assert index.next_entry_offset == filled(count).next_entry_offset
    add(index, 9 - count)
    assert index.pack() == filled(9).pack()


def test_add_batch_when_read_from_the_log() -> None:
    header = unpack_header(build_blob(Kind.CONFIG, b"x"))._replace(
        offset=1000, base_sequence=77, store_ms=9
    )
    index = SparseIndex(1000, 250)
    index.add_batch(header)
    assert index.entries.tolist() == [(1000, 77, 9)]
    assert index.end_offset == 1000 + header.total_bytes


@pytest.mark.parametrize("count", [0, 1, 9])
def test_unpack_when_packed(count: int) -> None:
    index = filled(count)
    again = SparseIndex.unpack(index.pack(), 1000, "f")
    add(again, 5)
    add(index, 5)
    assert again.pack() == index.pack()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        filled(9).pack()[:23],
        filled(9).pack()[:-1],
        filled(9).pack() + bytes(24),
        (999).to_bytes(8, "little") + filled(9).pack()[8:],
    ],
)
def test_unpack_when_malformed(payload: bytes) -> None:
    with pytest.raises(errors.CorruptFile, match="some/file"):
        SparseIndex.unpack(payload, 1000, "some/file")
