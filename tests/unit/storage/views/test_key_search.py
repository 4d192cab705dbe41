"""Keys that are looked for in several runs at once; one run: see test_key_run."""

from random import Random

import numpy as np
import pytest

from hourwheel import errors
from storage.files.file_header import Identity
from storage.views import key_run
from storage.views.key_rows import Hashes, KeyRows, in_order
from storage.views.key_run import BLOCK_ROWS, KeyRun, KeyRunWriter, file_name
from storage.views.key_search import find_in
from tests.sim.disk import SimulatedDisk

IDENTITY = Identity(bytes(range(16)), 3)


def hashes_of(keys: list[int]) -> Hashes:
    """Of keys, in the order of their first halves."""
    high = np.sort(np.array(keys, np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return Hashes(high, high ^ np.uint64(0x5851F42D4C957F2D))


def write(disk: SimulatedDisk, number: int, rows: KeyRows) -> KeyRun:
    path = file_name(number)
    writer = KeyRunWriter(disk, path, IDENTITY, run_id=number, rows_max=rows.size)
    writer.append(rows)
    writer.finish()
    return KeyRun(disk, path, IDENTITY)


def rows_of(keys: list[int], first_sequence: int) -> KeyRows:
    hashes = hashes_of(keys)
    sequences = np.arange(first_sequence, first_sequence + len(keys), dtype=np.uint64)
    return in_order(KeyRows(*hashes, sequences, sequences.astype(np.int64)))


@pytest.mark.parametrize("slot_count", [1, 2, 7, 300])
@pytest.mark.parametrize("has_filter", [True, False])
def test_find_in_when_many_runs_and_fewer_slots(
    slot_count: int, has_filter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_run, "FILTER_ROWS_MAX", 1 << 20 if has_filter else 0)
    disk, random = SimulatedDisk(), Random(slot_count)
    known: list[KeyRows] = []
    runs: list[KeyRun] = []
    for number, size in enumerate((3 * BLOCK_ROWS, 1, 5 * BLOCK_ROWS + 9, BLOCK_ROWS - 1)):
        rows = rows_of([random.randrange(400) for _ in range(size)], 10_000 * number)
        known.append(rows)
        runs.append(write(disk, number + 1, rows))
    for _ in range(3):
        asked = hashes_of(random.sample(range(500), 90))
        found = find_in(runs, asked, slot_count)
        assert not len(found.many)
        expected = [
            (at, sequence)
            for rows in known
            for at in range(90)
            for sequence in rows.sequence[rows.high == asked.high[at]].tolist()
        ]
        pairs = zip(found.ordinals.tolist(), found.rows.sequence.tolist(), strict=True)
        assert sorted(pairs) == sorted(expected)


def test_find_in_when_old_rows_are_in_the_slots_they_do_not_count() -> None:
    disk = SimulatedDisk()
    many = write(disk, 1, rows_of([8] * 16, 0))
    few = write(disk, 2, rows_of([8], 100))
    asked = hashes_of([8])
    found = find_in([many, few], asked, slot_count_max=1)
    assert found.rows.sequence.tolist() == [*range(16), 100]
    assert not len(found.many)


def test_find_in_when_there_are_no_runs_or_keys() -> None:
    run = write(SimulatedDisk(), 1, rows_of([8], 0))
    assert find_in([], hashes_of([8])).rows.size == 0
    assert find_in([run], hashes_of([])).rows.size == 0


def test_find_in_when_a_run_has_more_rows_than_words_of_a_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_run, "FILTER_WORDS_MAX", 60)
    run = write(SimulatedDisk(), 1, rows_of(list(range(600)), 0))
    assert run.footer.filter_words == 60
    assert find_in([run], hashes_of(list(range(600)))).rows.size == 600
    absent = hashes_of(list(range(1_000, 2_000)))
    places = run.places_of(absent, key_run.filter_bits(absent.low))
    assert len(places.ordinals) < 150


def test_find_in_when_a_run_is_cut() -> None:
    disk = SimulatedDisk()
    run = write(disk, 1, rows_of(list(range(500)), 0))
    asked = hashes_of(list(range(500)))
    assert find_in([run], asked).rows.size == 500
    disk.open(run.path).truncate(2_000)
    with pytest.raises(errors.CorruptFile, match="fails its CRC32C"):
        find_in([run], asked)
