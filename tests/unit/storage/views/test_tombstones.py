from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hourwheel import errors
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.views.bit_pages import U64
from storage.views.tombstones import RECORD_BYTES, Tombstones, TombstoneState, file_name
from tests.sim.disk import SimulatedDisk
from tests.support.golden import golden

IDENTITY = Identity(bytes(range(16)), 3)
PAGE = 65_536
NONE = TombstoneState()


def u64(*values: int) -> U64:
    return np.array(values, np.uint64)


def opened(disk: SimulatedDisk, state: TombstoneState = NONE) -> Tombstones:
    return Tombstones.open(disk, "tombstones", IDENTITY, state)


def checkpoint(tombstones: Tombstones) -> TombstoneState:
    """A whole checkpoint; what its manifest says."""
    for work in tombstones.begin_checkpoint():
        work()
    state = tombstones.state
    for work in tombstones.end_checkpoint():
        work()
    return state


def digest(tombstones: Tombstones) -> bytes:
    hasher = sha256()
    tombstones.digest_into(hasher)
    return hasher.digest()


def read(disk: SimulatedDisk, number: int) -> bytes:
    file = disk.open(f"tombstones/{file_name(number)}")
    return file.pread(file.size(), 0)


def test_contains_when_nothing_is_cancelled() -> None:
    tombstones = opened(SimulatedDisk())
    assert tombstones.contains(u64(1, 2)).tolist() == [False, False]
    assert tombstones.count == 0


def test_add_when_some_are_cancelled_already() -> None:
    tombstones = opened(SimulatedDisk())
    assert tombstones.add(u64(9, 5)) == 2
    assert tombstones.add(u64(9, 6, 6)) == 1
    assert tombstones.count == 3
    assert tombstones.contains(u64(4, 5, 6, 7, 8, 9)).tolist() == [0, 1, 1, 0, 0, 1]


def test_file_when_golden() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(5 * PAGE, 5 * PAGE + 9, 6 * PAGE - 1))
    assert checkpoint(tombstones) == TombstoneState(1, 64 + RECORD_BYTES)
    assert read(disk, 1) == golden("tombstones")


def test_open_when_golden() -> None:
    disk = SimulatedDisk()
    disk.make_dir("tombstones")
    disk.open("tombstones/0000000001.tomb", create=True).pwrite([golden("tombstones")], 0)
    tombstones = opened(disk, TombstoneState(1, 64 + RECORD_BYTES))
    assert tombstones.count == 3
    assert tombstones.contains(u64(5 * PAGE, 5 * PAGE + 9, 6 * PAGE - 1)).all()


def test_checkpoint_when_nothing_changed_writes_nothing() -> None:
    tombstones = opened(SimulatedDisk())
    assert tombstones.begin_checkpoint() == []
    assert checkpoint(tombstones) == NONE
    tombstones.add(u64(5))
    state = checkpoint(tombstones)
    assert checkpoint(tombstones) == state
    assert tombstones.add(u64(5)) == 0
    assert tombstones.begin_checkpoint() == []


def test_checkpoint_when_pages_change_appends_those() -> None:
    tombstones = opened(SimulatedDisk())
    tombstones.add(u64(1, PAGE, 2 * PAGE))
    first = checkpoint(tombstones)
    tombstones.add(u64(PAGE + 1, PAGE + 2))
    second = checkpoint(tombstones)
    assert (second.file, second.valid_bytes) == (1, first.valid_bytes + RECORD_BYTES)


def test_checkpoint_when_much_is_garbage_goes_to_a_new_file() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(PAGE))
    state, sequence = checkpoint(tombstones), 0
    while state.file == 1:
        assert state.record_count <= 2 * 2 + 64
        tombstones.add(u64(sequence))
        sequence += 1
        state = checkpoint(tombstones)
    assert state == TombstoneState(2, 64 + 2 * RECORD_BYTES)
    assert disk.list("tombstones") == [file_name(2)]
    again = opened(disk, state)
    assert digest(again) == digest(tombstones)


def test_checkpoint_when_changed_while_its_works_run() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(1))
    works = tombstones.begin_checkpoint()
    state = tombstones.state
    tombstones.add(u64(2))
    for work in works:
        work()
    assert opened(disk, state).contains(u64(1, 2)).tolist() == [True, False]
    tombstones.end_checkpoint()
    state = checkpoint(tombstones)
    assert opened(disk, state).contains(u64(1, 2)).tolist() == [True, True]


def test_checkpoint_when_there_is_no_room_can_be_tried_again() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(1))
    before = checkpoint(tombstones)
    tombstones.add(u64(2, PAGE))
    disk.capacity_bytes = 4_096
    with pytest.raises(errors.DiskFull):
        checkpoint(tombstones)
    assert opened(disk, before).count == 1
    disk.capacity_bytes = 1 << 30
    assert opened(disk, checkpoint(tombstones)).count == 3


def test_open_when_files_are_left_over() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(5))
    checkpoint(tombstones)
    assert opened(disk).count == 0
    assert disk.list("tombstones") == []


@pytest.mark.parametrize("position", [0, 40, 64, 72, 80, 64 + RECORD_BYTES - 1])
def test_open_when_a_bit_flipped(position: int) -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(5))
    state = checkpoint(tombstones)
    disk.flip_bit(f"tombstones/{file_name(1)}", position)
    with pytest.raises(errors.CorruptFile) as caught:
        opened(disk, state)
    assert caught.value.params["file"] == f"tombstones/{file_name(1)}"


def test_open_when_the_file_is_cut_or_missing() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(5))
    state = checkpoint(tombstones)
    disk.open(f"tombstones/{file_name(1)}").truncate(state.valid_bytes - 1)
    with pytest.raises(errors.CorruptFile, match="too short"):
        opened(disk, state)
    with pytest.raises(errors.CorruptFile, match="missing"):
        opened(disk, TombstoneState(7, 100))


def test_open_when_of_another_cluster() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(5))
    state = checkpoint(tombstones)
    with pytest.raises(errors.ForeignDirectory):
        Tombstones.open(disk, "tombstones", Identity(bytes(16), 3), state)


def test_open_when_there_are_many_pages() -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    sequences = u64(*(number * PAGE + number for number in range(300)))
    tombstones.add(sequences)
    again = opened(disk, checkpoint(tombstones))
    assert again.contains(sequences).all()
    assert again.count == 300


@pytest.mark.parametrize("seed", range(20))
def test_open_when_power_failed_before_the_manifest(seed: int) -> None:
    disk = SimulatedDisk()
    tombstones = opened(disk)
    tombstones.add(u64(1, 70 * PAGE))
    state, before = checkpoint(tombstones), digest(tombstones)
    tombstones.add(u64(*range(0, 200 * PAGE, 999)))
    works = tombstones.begin_checkpoint()
    for work in works[: seed % 2]:
        work()
    disk.crash(Random(seed))
    assert digest(opened(disk, state)) == before


def test_checkpoint_when_its_works_run_in_a_thread_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    tombstones = Tombstones.open(disk, "tombstones", IDENTITY, NONE)
    state, captured, sequence = NONE, b"", 0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(30):
            tombstones.add(np.arange(sequence, sequence + 9 * PAGE, 997, dtype=np.uint64))
            works = tombstones.begin_checkpoint()
            state, captured = tombstones.state, digest(tombstones)
            running = [pool.submit(work) for work in works]
            for _ in range(30):
                sequence += 1
                tombstones.add(u64(sequence * 7))
            for future in running:
                future.result()
            for work in tombstones.end_checkpoint():
                work()
    assert digest(Tombstones.open(disk, "tombstones", IDENTITY, state)) == captured
