from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.types import DUE_MS_MAX
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.views.sequence_index import (
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    CHUNK_BLOCKS,
    SequenceIndex,
    SlotState,
    file_name,
)
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.golden import golden

IDENTITY = Identity(bytes(range(16)), 3)
FILE_ENTRIES = BLOCK_ENTRIES * CHUNK_BLOCKS
FIRST_FILE = f"sequences/{file_name(0)}"


def opened(disk: SimulatedDisk, count: int = 0) -> SequenceIndex:
    return SequenceIndex.open(disk, "sequences", IDENTITY, count)


def append(index: SequenceIndex, count: int, *, due_ms: int | None = None) -> None:
    """Append entries that are due at their own sequence, or all at `due_ms`."""
    due = np.arange(index.count, index.count + count)
    index.append(due if due_ms is None else np.full(count, due_ms), np.ones(count, np.uint8))


def read(index: SequenceIndex, *sequences: int) -> list[tuple[int, int]]:
    due_ms, state = index.read_many(np.array(sequences, np.uint64))
    return list(zip(due_ms.tolist(), state.tolist(), strict=True))


def checkpoint(index: SequenceIndex) -> int:
    for work in index.begin_checkpoint():
        work()
    count = index.count
    assert index.end_checkpoint() == []
    return count


def digest(index: SequenceIndex) -> bytes:
    hasher = sha256()
    index.digest_into(hasher)
    return hasher.digest()


def check_all(index: SequenceIndex, count: int) -> None:
    """Entries [0, count) are those of `append`, read near and far; of many, a part is looked at."""
    sequences = np.arange(0, count, 1 + count // 20_000, dtype=np.uint64)
    latest = np.arange(max(0, count - 20_000), count, dtype=np.uint64)
    shuffled = np.random.default_rng(1).permutation(sequences)
    for order in (sequences, sequences[::-1], shuffled, latest):
        due_ms, state = index.read_many(order)
        assert (due_ms == order).all()
        assert (state == SlotState.WHEEL).all()


def test_read_many_when_empty() -> None:
    index = opened(SimulatedDisk())
    assert read(index) == []
    assert read(index, 0, 5, 2**63 - 1) == [(0, 0)] * 3


def test_read_many_when_all_kinds() -> None:
    index = opened(SimulatedDisk())
    index.append(np.array([5, DUE_MS_MAX, 0]), np.array([2, 1, 0], np.uint8))
    assert read(index, 2, 1, 3, 0, 1) == [
        (0, SlotState.REJECTED),
        (DUE_MS_MAX, SlotState.WHEEL),
        (0, SlotState.REJECTED),
        (5, SlotState.RELEASED_AT_APPLY),
        (DUE_MS_MAX, SlotState.WHEEL),
    ]


def test_read_many_when_in_memory_and_in_several_files() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    for count in (1, 100, 9_000, 30_000, FILE_ENTRIES, 77):
        append(index, count)
    check_all(index, index.count)
    assert disk.list("sequences") == [file_name(0), file_name(1)]
    assert read(index, 2**63 - 1, 3, index.count) == [(0, 0), (3, 1), (0, 0)]


def test_read_many_when_across_the_end_of_a_file() -> None:
    index = opened(SimulatedDisk())
    append(index, FILE_ENTRIES + 9_000)
    append(index, 1)
    near = np.arange(FILE_ENTRIES - 300, FILE_ENTRIES + 300, dtype=np.uint64)
    far = np.append(near, np.arange(0, FILE_ENTRIES, 50_000, dtype=np.uint64))
    for sequences in (near, far):
        assert (index.read_many(sequences)[0] == sequences).all()


def test_read_many_when_many_files_are_open() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    for _ in range(35):
        append(index, FILE_ENTRIES, due_ms=8)
    sequences = range(0, index.count, FILE_ENTRIES // 3)
    assert read(index, *sequences) == [(8, 1)] * len(sequences)


@pytest.mark.parametrize("due_ms", [-1, DUE_MS_MAX + 1])
def test_append_when_no_due_time_can_be_that(due_ms: int) -> None:
    index = opened(SimulatedDisk())
    with pytest.raises(errors.InvariantViolated):
        append(index, 3, due_ms=due_ms)
    assert index.count == 0


def test_append_when_nothing() -> None:
    index = opened(SimulatedDisk())
    append(index, 0)
    assert index.count == 0


def test_files_when_golden() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, BLOCK_ENTRIES + 2, due_ms=0x0123456789ABC)
    checkpoint(index)
    for path, name in ((FIRST_FILE, "sequence_index"), ("sequences/tail", "sequence_index_tail")):
        file = disk.open(path)
        assert file.pread(file.size(), 0) == golden(name)


def test_open_when_golden() -> None:
    disk = SimulatedDisk()
    disk.make_dir("sequences")
    disk.open(FIRST_FILE, create=True).pwrite([golden("sequence_index")], 0)
    disk.open("sequences/tail", create=True).pwrite([golden("sequence_index_tail")], 0)
    index = opened(disk, BLOCK_ENTRIES + 2)
    assert read(index, 0, BLOCK_ENTRIES, BLOCK_ENTRIES + 1) == [(0x0123456789ABC, 1)] * 3


@pytest.mark.parametrize("count", [0, 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 9_000, FILE_ENTRIES])
def test_open_when_more_was_written_since(count: int) -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, count)
    checkpoint(index)
    append(index, 50_000, due_ms=7)
    disk.kill()
    again = opened(disk, count)
    assert again.count == count
    append(again, 30_000)
    check_all(again, count + 30_000)
    again = opened(disk, checkpoint(again))
    check_all(again, count + 30_000)


def test_open_when_the_tail_is_of_a_later_checkpoint() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, BLOCK_ENTRIES + 5)
    before = checkpoint(index)
    append(index, 3)
    checkpoint(index)
    check_all(opened(disk, before), before)
    append(index, 5 * BLOCK_ENTRIES)
    checkpoint(index)
    check_all(opened(disk, before), before)


def test_open_when_torn_after_a_later_tail() -> None:
    """The block that the manifest needs a part of is written over, torn, and needed again."""
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, BLOCK_ENTRIES + 5)
    before = checkpoint(index)
    append(index, 5 * BLOCK_ENTRIES)
    checkpoint(index)  # the manifest of this one is lost
    disk.kill()
    again = opened(disk, before)
    append(again, BLOCK_ENTRIES, due_ms=3)
    disk.fail_after(1)
    with pytest.raises(SimulatedCrash):
        checkpoint(again)
    disk.crash(Random(1))
    position = 64 + BLOCK_BYTES + 700
    disk.damage(FIRST_FILE, position, bytes(300))
    check_all(opened(disk, before), before)


def test_checkpoint_when_nothing_changed_does_nothing() -> None:
    index = opened(SimulatedDisk())
    assert index.begin_checkpoint() == []
    append(index, BLOCK_ENTRIES + 1)
    assert len(index.begin_checkpoint()) == 3
    checkpoint(index)
    assert index.begin_checkpoint() == []
    append(index, 1)
    assert len(index.begin_checkpoint()) == 1


def test_checkpoint_when_there_is_no_room_can_be_tried_again() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, 5)
    before = checkpoint(index)
    append(index, 5_000)
    disk.capacity_bytes = disk.used_bytes("") + 4_096
    with pytest.raises(errors.DiskFull):
        checkpoint(index)
    check_all(opened(disk, before), 5)
    disk.capacity_bytes = 1 << 30
    check_all(opened(disk, checkpoint(index)), 5_005)


def test_append_when_there_is_no_room_waits_in_memory() -> None:
    disk = SimulatedDisk(capacity_bytes=8_192)
    index = opened(disk)
    append(index, 8_192)
    append(index, 1)
    append(index, 20_000)
    assert disk.used_bytes("") <= 8_192
    check_all(index, 28_193)
    disk.capacity_bytes = 1 << 30
    append(index, 1)
    assert disk.used_bytes("") > 8 * 28_000
    check_all(opened(disk, checkpoint(index)), 28_194)


def test_append_when_there_is_room_for_one_of_two_files() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, FILE_ENTRIES - BLOCK_ENTRIES)
    checkpoint(index)
    append(index, 9_000)
    disk.capacity_bytes = disk.used_bytes("") + 4_096
    append(index, 1)
    check_all(index, FILE_ENTRIES - BLOCK_ENTRIES + 9_001)
    disk.capacity_bytes = 1 << 30
    append(index, 1)
    check_all(opened(disk, checkpoint(index)), FILE_ENTRIES - BLOCK_ENTRIES + 9_002)


def damaged(position: int) -> SequenceIndex:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, 3 * BLOCK_ENTRIES)
    count = checkpoint(index)
    disk.flip_bit(FIRST_FILE, position)
    return opened(disk, count)


@pytest.mark.parametrize("position", [64, 64 + 8 * 5, 64 + BLOCK_BYTES - 8])
def test_read_many_when_a_bit_flipped(position: int) -> None:
    index = damaged(position)
    with pytest.raises(errors.CorruptFile, match="block 0 fails") as caught:
        read(index, 127)
    assert caught.value.params["file"] == FIRST_FILE
    assert read(index, 128, 300) == [(128, 1), (300, 1)]


def test_read_many_when_the_header_is_damaged() -> None:
    with pytest.raises(errors.CorruptFile, match="header"):
        read(damaged(9), 1)


def test_read_many_when_blocks_changed_places() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, 2 * BLOCK_ENTRIES)
    count = checkpoint(index)
    file = disk.open(FIRST_FILE)
    blocks = [file.pread(BLOCK_BYTES, 64 + number * BLOCK_BYTES) for number in (1, 0)]
    file.pwrite(blocks, 64)
    with pytest.raises(errors.CorruptFile):
        read(opened(disk, count), 1)


def test_read_many_when_the_file_is_cut_or_missing() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, 2 * BLOCK_ENTRIES)
    count = checkpoint(index)
    disk.open(FIRST_FILE).truncate(64 + BLOCK_BYTES + 9)
    with pytest.raises(errors.CorruptFile, match="is missing"):
        read(opened(disk, count), 130)
    disk.remove(FIRST_FILE)
    with pytest.raises(errors.CorruptFile, match="is missing"):
        read(opened(disk, count), 1)


def test_read_many_when_a_block_of_scattered_ones_is_missing() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    blocks = 400
    append(index, blocks * BLOCK_ENTRIES)
    count = checkpoint(index)
    disk.open(FIRST_FILE).truncate(64 + (blocks - 1) * BLOCK_BYTES + 9)
    far = [0, 100 * BLOCK_ENTRIES, (blocks - 1) * BLOCK_ENTRIES]
    index = opened(disk, count)
    read(index, *far[:2])
    with pytest.raises(errors.CorruptFile, match=f"block {blocks - 1} or one of the next"):
        read(index, *far)


def test_open_when_the_tail_is_missing_or_too_old() -> None:
    disk = SimulatedDisk()
    with pytest.raises(errors.CorruptFile, match="missing"):
        opened(disk, 1)
    index = opened(disk)
    append(index, 5)
    checkpoint(index)
    for count in (6, BLOCK_ENTRIES + 1):
        with pytest.raises(errors.CorruptFile, match="older"):
            opened(disk, count)


def test_open_when_files_are_left_over() -> None:
    disk = SimulatedDisk()
    index = opened(disk)
    append(index, 2 * FILE_ENTRIES)
    checkpoint(index)
    opened(disk, FILE_ENTRIES - BLOCK_ENTRIES)
    assert disk.list("sequences") == [file_name(0)]


def test_digest_when_files_differ() -> None:
    one, two = opened(SimulatedDisk()), opened(SimulatedDisk())
    append(one, 70_000)
    for _ in range(7):
        append(two, 10_000)
        checkpoint(two)
    assert digest(one) == digest(two)
    append(two, 1)
    assert digest(one) != digest(two)


def test_checkpoint_when_its_works_run_in_a_thread_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    index = SequenceIndex.open(disk, "sequences", IDENTITY, 0)
    count = 0
    with ThreadPoolExecutor(1) as pool:
        for size in range(1, 200, 9):
            append(index, 50 * size)
            works, count = index.begin_checkpoint(), index.count
            running = [pool.submit(work) for work in works]
            for _ in range(30):
                append(index, 300)
            for future in running:
                future.result()
            index.end_checkpoint()
    check_all(SequenceIndex.open(disk, "sequences", IDENTITY, count), count)
