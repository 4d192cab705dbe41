from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from storage.files.file_header import Identity
from storage.views.unit import sort_by_key
from tests.sim.disk import SimulatedDisk
from tests.support.runs import DIRECTORY, IDENTITY, KeyPair, keyed, pairs_of, run_bytes, write_run
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_LEVEL, HOUR_MS
from timewheel.memtable import Memtable
from timewheel.run import Run, open_run
from timewheel.run_format import BLOCK_UNITS, run_path, unit_at

PATH = run_path(DIRECTORY, 1, 1)
KEYS = [(0, 0), (5, 1), (5, 2), (HOUR_MS, 3), (DAY_MS - 1, 4), (DAY_MS, 5), (9 * DAY_MS, 6)]


def disk_with(raw: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir(DIRECTORY)
    disk.open(PATH, create=True).pwrite([raw], 0)
    return disk


def read_everything(run: Run) -> None:
    """Read all that the wheel ever reads of a run."""
    for bucket in run.buckets():
        run.directory(bucket)
        run.read(*run.section(bucket))


def corrupt(disk: SimulatedDisk, use: Callable[[Run], object] = read_everything) -> str:
    """Open and use a run that must turn out to be corrupt: the error's text."""
    with pytest.raises(errors.CorruptFile) as found:
        use(Run(disk, PATH, IDENTITY))
    assert found.value.params["file"] == PATH
    return found.value.message


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=40).map(sorted))
def test_find_after_when_compared_with_a_scan(keys: list[KeyPair]) -> None:
    run = write_run(SimulatedDisk(), keyed(keys))
    end = len(keys)
    for after in [KEY_MIN, *keys, Key(25, SEQUENCE_MAX), Key(51, 0)]:
        expected = sum(key <= tuple(after) for key in keys)
        assert run.find_after(0, end, *after) == expected
        assert run.find_after(min(2, end), end, *after) == max(expected, min(2, end))
        assert run.find_after(0, end // 2, *after) == min(expected, end // 2)


def test_find_after_when_the_key_lies_at_borders_of_blocks() -> None:
    run = write_run(SimulatedDisk(), keyed([(due, 7) for due in range(3 * BLOCK_UNITS)]))
    for index in (0, 255, 256, 257, 511, 512, 767):
        assert run.find_after(0, 768, index, 7) == index + 1
        assert run.find_after(0, 768, index, 6) == index
        assert run.find_after(index, index + 1, index, 7) == index + 1


def test_read_when_the_range_lies_anywhere_in_blocks() -> None:
    count = 2 * BLOCK_UNITS + 44
    units = keyed([(due, 7) for due in range(count)], crc=99)
    run = write_run(SimulatedDisk(), units)
    borders = [0, 1, 255, 256, 257, 511, 512, 513, count - 1, count]
    for first in borders:
        for end in borders:
            if first <= end:
                assert run.read(first, end).tobytes() == units[first:end].tobytes()


def test_read_when_outside_the_run_stops() -> None:
    run = write_run(SimulatedDisk(), keyed([(1, 1)]))
    for first, end in [(-1, 1), (0, 2), (1, 0)]:
        with pytest.raises(errors.InvariantViolated):
            run.read(first, end)


def test_read_when_written_to_is_refused() -> None:
    units = write_run(SimulatedDisk(), keyed([(1, 1)])).read(0, 1)
    with pytest.raises(ValueError, match="read-only"):
        units["due_ms"] = 5


def test_sections_when_asked_for_a_bucket_that_is_not_there() -> None:
    run = write_run(SimulatedDisk(), keyed(KEYS), level=DAY_LEVEL)
    assert run.buckets() == [0, 1, 9]
    assert [run.section(day) for day in (0, 1, 2, 9)] == [(0, 5), (5, 6), (0, 0), (6, 7)]
    assert run.directory(2) is None


def test_sections_when_a_day_has_cascaded_are_not_the_runs_any_more() -> None:
    run = write_run(SimulatedDisk(), keyed(KEYS), level=DAY_LEVEL)
    run.cascaded_days.add(1)
    assert run.buckets() == [0, 9]
    assert run.section(1) == (0, 0)
    assert run.directory(1) is None


def test_open_when_it_stands_for_several_runs() -> None:
    disk = SimulatedDisk()
    write_run(disk, keyed(KEYS), run_id=9, covers_first=4)
    assert open_run(disk, DIRECTORY, IDENTITY, 4, 9).order == (9, 4)


def test_I8_run_when_any_bit_is_flipped_is_never_served() -> None:  # noqa: N802
    good = SimulatedDisk()
    units = keyed(KEYS)
    write_run(good, units, level=DAY_LEVEL)
    raw = run_bytes(good)
    for bit in range(len(raw) * 8):
        disk = disk_with(raw)
        disk.flip_bit(PATH, bit // 8, bit % 8)
        assert corrupt(disk), bit


def test_I8_run_when_bits_of_an_hour_level_run_are_flipped_is_never_served() -> None:  # noqa: N802
    good = SimulatedDisk()
    write_run(good, keyed([(due * 97, due) for due in range(300)]))
    raw = run_bytes(good)
    for position in range(0, len(raw), 331):
        disk = disk_with(raw)
        disk.flip_bit(PATH, position, position % 8)
        assert corrupt(disk), position


def test_run_when_cut_anywhere_or_longer_is_corrupt() -> None:
    good = SimulatedDisk()
    write_run(good, keyed(KEYS), level=DAY_LEVEL)
    raw = run_bytes(good)
    for size in range(len(raw)):
        assert corrupt(disk_with(raw[:size])), size
    assert corrupt(disk_with(raw + b"\0"))
    assert corrupt(disk_with(raw + raw[-64:]))


def test_run_when_pieces_are_missing_in_its_middle_is_corrupt() -> None:
    good = SimulatedDisk()
    write_run(good, keyed([(due, due) for due in range(600)]), level=DAY_LEVEL)
    raw = run_bytes(good)
    for low, high in [(64, 128), (64, unit_at(256)), (unit_at(256), unit_at(512)), (64, 20_000)]:
        assert corrupt(disk_with(raw[:low] + raw[high:])), (low, high)


def test_read_when_one_block_is_damaged_serves_the_others_and_names_the_place() -> None:
    good = SimulatedDisk()
    write_run(good, keyed([(due, due) for due in range(700)]))
    disk = disk_with(run_bytes(good))
    disk.flip_bit(PATH, unit_at(300))
    run = Run(disk, PATH, IDENTITY)
    assert pairs_of(run.read(0, 256))[-1] == (255, 255)
    assert pairs_of(run.read(512, 700))[0] == (512, 512)
    for first, end in [(0, 257), (300, 301), (511, 513)]:
        with pytest.raises(errors.CorruptFile) as found:
            run.read(first, end)
        assert found.value.params == {"file": PATH, "offset": str(unit_at(256))}


def test_directory_when_damaged_names_the_bucket() -> None:
    good = SimulatedDisk()
    write_run(good, keyed(KEYS), level=DAY_LEVEL)
    disk = disk_with(run_bytes(good))
    disk.flip_bit(PATH, unit_at(len(KEYS)) + 24 * 12)
    run = Run(disk, PATH, IDENTITY)
    assert run.directory(0) is not None
    with pytest.raises(errors.CorruptFile) as found:
        run.directory(1)
    assert found.value.params == {"file": PATH, "bucket": "1"}


def test_open_when_blocks_were_swapped_is_corrupt() -> None:
    good = SimulatedDisk()
    write_run(good, keyed([(due, due) for due in range(512)]))
    raw = run_bytes(good)
    first, second = raw[64 : unit_at(256)], raw[unit_at(256) : unit_at(512)]
    swapped = raw[:64] + second + first + raw[unit_at(512) :]
    assert "block" in corrupt(disk_with(swapped))


def test_open_when_the_run_is_of_another_shard_or_cluster() -> None:
    disk = SimulatedDisk()
    write_run(disk, keyed(KEYS))
    for identity in (Identity(IDENTITY.cluster_id, 1), Identity(bytes(16), 0)):
        with pytest.raises(errors.ForeignDirectory):
            Run(disk, PATH, identity)


def test_open_when_the_file_is_missing_is_corrupt() -> None:
    disk = SimulatedDisk()
    disk.make_dir(DIRECTORY)
    with pytest.raises(errors.CorruptFile) as found:
        open_run(disk, DIRECTORY, IDENTITY, 1, 1)
    assert found.value.params["file"] == PATH


def test_open_when_another_runs_file_lies_there_is_corrupt() -> None:
    good = SimulatedDisk()
    write_run(good, keyed(KEYS), run_id=2)
    disk = disk_with(run_bytes(good, 2))
    with pytest.raises(errors.CorruptFile) as found:
        open_run(disk, DIRECTORY, IDENTITY, 1, 1)
    assert found.value.params["file"] == PATH


def test_will_need_when_asked_for_anything_reads_nothing() -> None:
    run = write_run(SimulatedDisk(), keyed(KEYS), level=HOUR_LEVEL)
    run.will_need(0, 7)
    run.will_need(7, 7)
    run.will_need(5, 3)
    run.close()


@given(
    keys=st.lists(st.sampled_from(KEYS), max_size=30).map(sorted),
    level=st.sampled_from([HOUR_LEVEL, DAY_LEVEL]),
    bounds=st.tuples(st.sampled_from([KEY_MIN, *KEYS]), st.sampled_from(KEYS)).map(sorted),
    cascaded=st.sets(st.sampled_from([0, 1, 9])),
)
def test_pieces_when_compared_with_a_scan(
    keys: list[KeyPair], level: int, bounds: list[KeyPair], cascaded: set[int]
) -> None:
    after, to = Key(*bounds[0]), Key(*bounds[1])
    run = write_run(SimulatedDisk(), keyed(keys), level=level)
    if level == DAY_LEVEL:
        run.cascaded_days.update(cascaded)
    pieces = [pairs_of(run.read(first, end)) for first, end in run.pieces(after, to)]
    own = [key for key in keys if not (level == DAY_LEVEL and key[0] // DAY_MS in cascaded)]
    found = [key for piece in pieces for key in piece]
    assert found == [key for key in own if key > after][: len(found)]
    assert [key for key in found if key <= to] == [key for key in own if after < key <= to]


@pytest.mark.parametrize("seed", range(3))
def test_units_are_found_among_equal_keys_and_across_blocks(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 5 * BLOCK_UNITS + 17
    units = keyed(
        [
            (int(due), int(sequence))
            for due, sequence in zip(
                random.integers(0, 40, count) * HOUR_MS // 8,
                random.integers(0, 60, count),
                strict=True,
            )
        ]
    )
    units["attempt"] = random.integers(0, 3, count)
    units = sort_by_key(units)
    disk = SimulatedDisk()
    write_run(disk, units)
    run = Run(disk, PATH, IDENTITY)
    due_ms = random.integers(0, 42, 900) * HOUR_MS // 8
    sequences = random.integers(0, 62, 900).astype(np.uint64)
    attempts = random.integers(0, 3, 900).astype(np.uint16)
    there = {tuple(row) for row in units[["due_ms", "sequence", "attempt"]].tolist()}
    wanted = [*zip(due_ms.tolist(), sequences.tolist(), attempts.tolist(), strict=True)]
    here, found = run.find(due_ms, sequences, attempts)
    assert sorted(here.tolist()) == [at for at, row in enumerate(wanted) if row in there]
    rows = found[["due_ms", "sequence", "attempt"]].tolist()
    assert [tuple(row) for row in rows] == [wanted[at] for at in here.tolist()]
    table = Memtable(16)
    for low in range(0, count, 200):  # what came since the last search is found as well
        table.insert(units[low : low + 200])
        among, _ = table.find(due_ms[:3], sequences[:3], attempts[:3])
        known = {
            tuple(row) for row in units[: low + 200][["due_ms", "sequence", "attempt"]].tolist()
        }
        assert among.tolist() == [at for at in range(3) if wanted[at] in known]
    among, copies = table.find(due_ms, sequences, attempts)
    assert sorted(among.tolist()) == sorted(here.tolist())
    assert (copies["sequence"] == sequences[among]).all()


@pytest.mark.parametrize("skipped", [0, 1, 100, BLOCK_UNITS])
def test_find_when_all_units_of_blocks_are_asked_for_at_once(skipped: int) -> None:
    """As a bulk move does: hundreds of requests begin, or end, in one block."""
    count = 4 * BLOCK_UNITS
    run = write_run(SimulatedDisk(), keyed([(number // 5, number) for number in range(count)]))
    sequences = np.arange(skipped, count, dtype=np.uint64)
    attempts = np.zeros(len(sequences), np.uint16)
    here, found = run.find(sequences.astype(np.int64) // 5, sequences, attempts)
    assert sorted(here.tolist()) == list(range(len(sequences)))
    assert sorted(found["sequence"].tolist()) == sequences.tolist()


def test_find_when_a_block_is_damaged_or_a_day_has_gone() -> None:
    disk = SimulatedDisk()
    write_run(disk, keyed([(at, at) for at in range(3 * BLOCK_UNITS)]))
    raw = bytearray(run_bytes(disk))
    raw[unit_at(BLOCK_UNITS) + 40] ^= 1
    run = Run(disk_with(bytes(raw)), PATH, IDENTITY)
    one = np.array([5], np.int64), np.array([5], np.uint64), np.array([1], np.uint16)
    attempt = run.read(5, 6)["attempt"]
    assert run.find(one[0], one[1], attempt)[0].tolist() == [0]
    middle = BLOCK_UNITS + 5
    with pytest.raises(errors.CorruptFile, match="block of units"):
        run.find(np.array([middle]), np.array([middle], np.uint64), attempt)
    run.cascaded_days.add(0)
    assert not len(run.find(one[0], one[1], attempt)[0])
