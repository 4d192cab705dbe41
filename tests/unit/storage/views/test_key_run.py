"""A run of keys: written, found, damaged."""

import numpy as np
import pytest

from hourwheel import errors
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.views import key_run
from storage.views.key_rows import Hashes, KeyRows, in_order, joined
from storage.views.key_run import BLOCK_ROWS, KeyRun, KeyRunWriter, file_name
from storage.views.key_search import find_in
from tests.sim.disk import SimulatedDisk, SimulatedFile
from tests.support.golden import golden

IDENTITY = Identity(bytes(range(16)), 3)
FOLDER = "keys"
PATH = f"{FOLDER}/{file_name(5)}"


def rows_of(keys: list[int], first_sequence: int = 0) -> KeyRows:
    """A row for each key, whose hash is mixed of its number."""
    high = np.array(keys, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    low = high ^ np.uint64(0x5851F42D4C957F2D)
    sequences = np.arange(first_sequence, first_sequence + len(keys), dtype=np.uint64)
    return in_order(KeyRows(high, low, sequences, sequences.astype(np.int64) * 10))


def hashes_of(keys: list[int]) -> Hashes:
    rows = rows_of(keys)
    order = np.argsort(rows.sequence)
    return Hashes(rows.high[order], rows.low[order])


def write(disk: Disk, parts: list[KeyRows], number: int = 5) -> KeyRun:
    disk.make_dir(FOLDER)
    path = f"{FOLDER}/{file_name(number)}"
    count = sum(part.size for part in parts)
    writer = KeyRunWriter(disk, path, IDENTITY, run_id=number, rows_max=count)
    for part in parts:
        writer.append(part)
    writer.finish()
    return KeyRun(disk, path, IDENTITY)


def contents(disk: Disk, path: str = PATH) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def found_in(run: KeyRun, keys: list[int]) -> list[tuple[int, int]]:
    """(ordinal of the key, sequence) of what is found."""
    found = find_in([run], hashes_of(keys))
    return sorted(zip(found.ordinals.tolist(), found.rows.sequence.tolist(), strict=True))


@pytest.mark.parametrize("cut", [1, 100, BLOCK_ROWS, 3 * BLOCK_ROWS + 5])
@pytest.mark.parametrize("has_filter", [True, False])
def test_find_when_there_are_many_blocks(
    cut: int, has_filter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_run, "FILTER_ROWS_MAX", 1 << 20 if has_filter else 0)
    keys = [one // 3 for one in range(1_500)]
    rows = rows_of(keys)
    run = write(SimulatedDisk(), [rows.take(slice(0, cut)), rows.take(slice(cut, None))])
    asked = [7, 0, 499, 500, 7_000]
    expected = [(0, 21), (0, 22), (0, 23), (1, 0), (1, 1), (1, 2), (2, 1497), (2, 1498), (2, 1499)]
    assert found_in(run, asked) == expected
    assert found_in(run, [at + 600 for at in range(500)]) == []
    assert (run.footer.sequence_min, run.footer.sequence_max) == (0, 1_499)
    assert run.footer.due_ms_max == 14_990
    assert run.run_id == 5


def test_find_when_two_keys_share_half_of_a_hash() -> None:
    rows = rows_of([1, 1, 1])
    rows.low[1] ^= np.uint64(1 << 63)
    run = write(SimulatedDisk(), [rows])
    assert found_in(run, [1]) == [(0, 0), (0, 2)]


@pytest.mark.parametrize("count", [17, 129, 2_000])
def test_find_when_a_key_has_many_rows_leaves_it_to_who_reads_it_apart(count: int) -> None:
    rows = rows_of([8] * count + [*range(40)] * 2)
    run = write(SimulatedDisk(), [rows])
    hashes = hashes_of([3, 8, 5])
    found = find_in([run], hashes)
    assert set(found.many.tolist()) == {1}
    assert {0, 2} <= set(found.ordinals.tolist()) <= {0, 1, 2}
    pieces = list(run.pieces(hashes.high[1], hashes.low[1]))
    assert all(piece.size <= 4_096 for piece in pieces)
    assert sorted(joined(pieces).sequence.tolist()) == [*range(count), count + 8, count + 48]


def test_pieces_when_the_run_is_replaced_meanwhile() -> None:
    run = write(SimulatedDisk(), [rows_of([8] * 9_000)])
    hashes = hashes_of([8])
    pieces = run.pieces(hashes.high[0], hashes.low[0])
    count = next(pieces).size
    run.close()
    assert count + sum(piece.size for piece in pieces) == 9_000


def test_run_when_the_disk_cannot_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    run = write(disk, [rows_of([8] * 9)])

    def fail(*_: object) -> None:
        raise errors.DiskFailed("Input/output error")

    monkeypatch.setattr(SimulatedFile, "pread_into", fail)
    with pytest.raises(errors.CorruptFile, match="cannot be read") as caught:
        find_in([run], hashes_of([8]))
    assert caught.value.params["file"] == run.path


@pytest.mark.parametrize("has_filter", [True, False])
def test_newest_when_a_key_has_few_or_very_many_rows(
    has_filter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_run, "FILTER_ROWS_MAX", 1 << 20 if has_filter else 0)
    keys = [8] * 3_000 + [*range(300)] * 2 + [9] * 200
    run = write(SimulatedDisk(), [rows_of(keys)])
    for key in (8, 9, 3, 7_000):
        mine = [at for at, one in enumerate(keys) if one == key]
        (high,), (low,) = hashes_of([key])
        for below in (0, 1, 2, 1_000, 2_999, 3_000, 3_304, 3_700, 1 << 60):
            for count in (1, 130, 5_000):
                found = run.newest(high, low, below, count).sequence.tolist()
                assert found == [at for at in mine if at < below][-count:]


def test_file_when_golden() -> None:
    disk = SimulatedDisk()
    write(disk, [rows_of([3, 1, 3, 2, 9, 4], 70)])
    assert contents(disk) == golden("key_run")


def test_open_when_golden() -> None:
    disk = SimulatedDisk()
    disk.make_dir(FOLDER)
    disk.open(PATH, create=True).pwrite([golden("key_run")], 0)
    assert found_in(KeyRun(disk, PATH, IDENTITY), [3, 9, 7]) == [(0, 70), (0, 72), (1, 74)]


def test_open_when_any_byte_is_damaged() -> None:
    good = golden("key_run")
    for at in range(len(good)):
        disk = SimulatedDisk()
        disk.make_dir(FOLDER)
        raw = bytearray(good)
        raw[at] ^= 0x10
        disk.open(PATH, create=True).pwrite([bytes(raw)], 0)
        with pytest.raises((errors.CorruptFile, errors.ForeignDirectory)) as caught:
            list(KeyRun(disk, PATH, IDENTITY).check())
        assert caught.value.params["file"] == PATH


@pytest.mark.parametrize("size", [0, 63, 64, 200, -1])
def test_open_when_it_is_cut_off(size: int) -> None:
    disk = SimulatedDisk()
    disk.make_dir(FOLDER)
    disk.open(PATH, create=True).pwrite([golden("key_run")[:size]], 0)
    with pytest.raises(errors.CorruptFile):
        KeyRun(disk, PATH, IDENTITY)


def test_open_when_it_is_missing() -> None:
    with pytest.raises(errors.CorruptFile, match="missing"):
        KeyRun(SimulatedDisk(), PATH, IDENTITY)
