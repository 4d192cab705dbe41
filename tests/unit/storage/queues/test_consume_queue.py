from hashlib import sha256
from random import Random

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import QueueState
from hourwheel.types import Position
from storage.files.file_header import Identity
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.mapped_chunks import MappingBudget, file_name
from storage.views.unit import NO_UNITS
from tests.sim.disk import SimulatedDisk
from tests.support.units import make_units

IDENTITY = Identity(bytes(range(16)), 3)
TOPIC_QUEUE = 0x501
FOLDER = "queues/00000501"
CHUNK_ENTRIES = 100
EMPTY = QueueState(topic_queue=TOPIC_QUEUE)


def opened(
    disk: SimulatedDisk, state: QueueState = EMPTY, chunk_entries: int = CHUNK_ENTRIES
) -> ConsumeQueue:
    return ConsumeQueue.open(disk, FOLDER, IDENTITY, state, chunk_entries)


def filled(disk: SimulatedDisk, count: int, *, due_ms: int = 1_000) -> ConsumeQueue:
    """A queue of units whose sequences are their positions."""
    queue = opened(disk)
    queue.append(make_units(0, count, due_ms=due_ms))
    return queue


def checkpoint(queue: ConsumeQueue) -> QueueState:
    """A whole checkpoint; what its manifest says."""
    works = queue.begin_checkpoint()
    state = queue.state()
    for work in works:
        work()
    for work in queue.end_checkpoint():
        work()
    return state


def sequences(queue: ConsumeQueue) -> list[int]:
    """Of all entries, which are read in whatever pieces come."""
    found: list[int] = []
    at = int(queue.start_position)
    while at < queue.end_position:
        units = queue.read(at, 1_000)
        found += units["sequence"].tolist()
        at += len(units)
    return found


def digest(queue: ConsumeQueue) -> bytes:
    hasher = sha256()
    queue.digest_into(hasher)
    return hasher.digest()


def test_append_when_in_pieces_of_any_size() -> None:
    queue = opened(SimulatedDisk())
    position = 0
    for count in (1, 1, 20, 78, 100, 250, 0, 49, 1, 1):
        assert queue.append(make_units(position, count)) == position
        position += count
    assert queue.end_position == position
    assert sequences(queue) == list(range(position))


def test_append_when_many_chunks_at_once() -> None:
    queue = filled(SimulatedDisk(), 3_333)
    assert sequences(queue) == list(range(3_333))


def test_append_when_units_are_a_part_of_an_array() -> None:
    queue = opened(SimulatedDisk())
    queue.append(make_units(0, 90)[::3])
    assert sequences(queue) == list(range(0, 90, 3))


def test_append_when_there_is_no_room_appends_nothing() -> None:
    disk = SimulatedDisk(capacity_bytes=16_384)
    queue = filled(disk, 100)
    with pytest.raises(errors.DiskFull):
        queue.append(make_units(100, 200))
    assert queue.end_position == 100
    disk.capacity_bytes = 1 << 30
    queue.append(make_units(100, 200))
    assert sequences(opened(disk, checkpoint(queue))) == list(range(300))


def test_append_when_there_was_no_room_and_mappings_were_closed() -> None:
    disk = SimulatedDisk(capacity_bytes=20_480)
    queue = filled(disk, 100)
    with pytest.raises(errors.DiskFull):
        queue.append(make_units(100, 200))
    queue.close_mappings()
    disk.capacity_bytes = 1 << 30
    queue.append(make_units(100, 200))
    assert sequences(queue) == list(range(300))


def test_append_when_the_queue_has_few_entries_takes_little_room() -> None:
    disk = SimulatedDisk()
    queue = opened(disk, chunk_entries=16_384)
    queue.append(make_units(0, 1))
    assert disk.used_bytes("") == 4_096
    queue.append(make_units(1, 100))
    assert disk.used_bytes("") == 65_536


def test_append_when_the_budget_took_the_mapping() -> None:
    disk, budget = SimulatedDisk(), MappingBudget(1)
    queues = [
        ConsumeQueue.open(
            disk, f"queues/{number}", IDENTITY, QueueState(topic_queue=number), 10, budget
        )
        for number in range(3)
    ]
    for first in range(0, 36, 3):
        for queue in queues:
            queue.append(make_units(first, 3))
            assert budget.count <= 2
    for queue in queues:
        assert sequences(queue) == list(range(36))


def test_read_when_a_chunk_ends() -> None:
    queue = filled(SimulatedDisk(), 250)
    assert queue.read(90, 50)["sequence"].tolist() == list(range(90, 100))
    assert queue.read(200, 500)["sequence"].tolist() == list(range(200, 250))
    assert queue.read(130, 2)["sequence"].tolist() == [130, 131]
    assert len(queue.read(250, 5)) == 0
    assert len(queue.read(7, 0)) == 0


def test_read_when_changed_by_the_reader() -> None:
    queue = filled(SimulatedDisk(), 5)
    queue.read(0, 5)["sequence"] = 99
    assert sequences(queue) == [0, 1, 2, 3, 4]


def test_read_when_trimmed() -> None:
    queue = filled(SimulatedDisk(), 250)
    queue.trim_to(120)
    assert queue.read(120, 1)["sequence"].tolist() == [120]
    with pytest.raises(errors.InvariantViolated, match="trimmed"):
        queue.read(119, 1)


def test_visible_end_when_entries_lie_ahead() -> None:
    queue = opened(SimulatedDisk())
    assert queue.visible_end(5) == 0
    assert queue.next_gate_ms() is None
    queue.append(make_units(0, 5, due_ms=10))
    queue.append(make_units(5, 5, due_ms=20))
    assert queue.next_gate_ms() == 10
    assert queue.visible_end(9) == 0
    assert queue.next_gate_ms() == 10
    assert queue.visible_end(10) == 5
    assert queue.next_gate_ms() == 20
    assert queue.visible_end(19) == 5
    assert queue.visible_end(1_000) == 10
    assert queue.next_gate_ms() is None
    queue.append(make_units(10, 1, due_ms=2_000))
    assert queue.next_gate_ms() == 2_000
    assert queue.visible_end(1_000) == 10


def test_visible_end_when_the_clock_steps_back() -> None:
    queue = filled(SimulatedDisk(), 5, due_ms=10)
    assert queue.visible_end(10) == 5
    assert queue.visible_end(3) == 5


def test_visible_end_when_the_clock_was_set_back() -> None:
    queue = filled(SimulatedDisk(), 5, due_ms=10)
    queue.append(make_units(5, 5, due_ms=20))
    assert queue.visible_end(20) == 10
    queue.look_again()
    assert queue.visible_end(10) == 5
    assert queue.next_gate_ms() == 20
    assert queue.visible_end(20) == 10


def test_visible_end_when_few_lie_ahead_and_it_looks_anew() -> None:
    queue = opened(SimulatedDisk(), chunk_entries=4)
    for position in range(6):
        queue.append(make_units(position, 1, due_ms=10 * position))
    assert queue.visible_end(10) == 2
    queue.look_again()
    assert queue.visible_end(5) == 1
    assert queue.next_gate_ms() == 10
    queue.trim_to(Position(3))
    assert queue.visible_end(5) == 3
    assert queue.next_gate_ms() == 30
    queue.append(make_units(6, 1, due_ms=45))
    assert [queue.visible_end(now_ms) for now_ms in (29, 30, 40, 49, 50)] == [3, 4, 5, 5, 7]


def test_visible_end_when_accepted_after_its_due_time() -> None:
    queue = opened(SimulatedDisk())
    queue.append(make_units(0, 1, due_ms=10, store_ms=30))
    assert queue.visible_end(29) == 0
    assert queue.next_gate_ms() == 30


def test_visible_end_when_one_entry_hides_those_behind_it() -> None:
    queue = opened(SimulatedDisk())
    units = make_units(0, 1_000)
    units["due_ms"][777] = 5_000
    queue.append(units)
    assert queue.visible_end(4_000) == 777
    assert queue.visible_end(5_000) == 1_000


def test_visible_end_when_much_came_at_once_gets_there_in_steps() -> None:
    queue = opened(SimulatedDisk(), chunk_entries=200_000)
    queue.append(make_units(0, 150_000, due_ms=7))
    first = queue.visible_end(8)
    assert 0 < first < 150_000
    assert queue.next_gate_ms() == 7
    while queue.next_gate_ms() is not None:
        assert queue.visible_end(8) > first
    assert queue.visible_end(8) == 150_000


def test_visible_end_when_a_backlog_is_opened_passes_over_full_chunks() -> None:
    disk = SimulatedDisk()
    queue = opened(disk, chunk_entries=70_000)
    queue.append(make_units(0, 280_000))
    again = opened(disk, checkpoint(queue), chunk_entries=70_000)
    assert again.visible_end(1_000) == 280_000


def test_trim_position_for_when_chunks_are_of_different_age() -> None:
    queue = opened(SimulatedDisk())
    for due_ms in (100, 200, 300):
        queue.append(make_units(0, 100, due_ms=due_ms))
    queue.append(make_units(0, 50, due_ms=100))
    expected = {100: 0, 101: 100, 200: 100, 201: 200, 301: 300, 999: 300}
    assert {ms: queue.trim_position_for(ms) for ms in expected} == expected
    queue.trim_to(130)
    assert queue.trim_position_for(0) == 130
    assert queue.trim_position_for(301) == 300


def test_trim_to_when_chunks_go_their_files_go_after_the_next_checkpoint() -> None:
    disk = SimulatedDisk()
    queue = filled(disk, 450)
    before = checkpoint(queue)
    queue.trim_to(320)
    assert len(disk.list(FOLDER)) == 5
    assert sequences(opened(disk, before)) == list(range(450))
    after = checkpoint(queue)
    assert disk.list(FOLDER) == [file_name(3), file_name(4)]
    again = opened(disk, after)
    assert again.start_position == 320
    assert sequences(again) == list(range(320, 450))


def test_trim_to_when_nothing_is_left() -> None:
    disk = SimulatedDisk()
    queue = filled(disk, 300)
    queue.trim_to(300)
    assert queue.visible_end(0) == 300
    assert queue.references() == (None, 1)
    queue = opened(disk, checkpoint(queue))
    assert disk.list(FOLDER) == []
    assert queue.references() == (None, None)
    queue.append(make_units(300, 5))
    assert sequences(opened(disk, checkpoint(queue))) == [300, 301, 302, 303, 304]


def test_trim_to_when_all_of_a_part_of_a_chunk() -> None:
    disk = SimulatedDisk()
    queue = filled(disk, 150)
    queue.trim_to(150)
    queue = opened(disk, checkpoint(queue))
    assert queue.start_position == queue.end_position == 150
    queue.append(make_units(150, 60))
    assert sequences(opened(disk, checkpoint(queue))) == list(range(150, 210))


def test_trim_to_when_behind_the_start_or_the_end() -> None:
    queue = filled(SimulatedDisk(), 10)
    queue.trim_to(5)
    queue.trim_to(3)
    assert queue.start_position == 5
    with pytest.raises(errors.InvariantViolated):
        queue.trim_to(11)


def test_references_when_entries_come_and_go() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    assert queue.references() == (None, None)
    queue.append(make_units(0, 100, dlog_id=0, position=500))
    assert queue.references() == (500, None)
    queue.append(make_units(100, 150, dlog_id=7))
    queue.append(make_units(250, 1, dlog_id=0, position=900))
    assert queue.references() == (500, 7)
    queue.append(make_units(251, 1, dlog_id=3))
    assert queue.references() == (500, 3)
    assert opened(disk, checkpoint(queue)).references() == (500, 3)
    queue.trim_to(100)
    assert queue.references() == (500, 3)  # the last manifest still has them
    checkpoint(queue)
    assert queue.references() == (900, 3)


def test_checkpoint_when_appended_while_its_works_run() -> None:
    disk = SimulatedDisk()
    queue = filled(disk, 150)
    works = queue.begin_checkpoint()
    state = queue.state()
    position = 150
    for work in works:
        queue.append(make_units(position, 120))
        position += 120
        queue.close_mappings()
        work()
    queue.end_checkpoint()
    disk.crash(Random(3))
    assert sequences(opened(disk, state)) == list(range(150))


def test_checkpoint_when_trimmed_while_its_works_run() -> None:
    disk = SimulatedDisk()
    queue = filled(disk, 250)
    works = queue.begin_checkpoint()
    state = queue.state()
    queue.trim_to(250)
    for work in works:
        work()
    assert queue.end_checkpoint() == []
    disk.crash(Random(3))
    assert sequences(opened(disk, state)) == list(range(250))


def test_open_when_more_was_written_than_the_manifest_knows() -> None:
    disk = SimulatedDisk()
    queue = filled(disk, 150)
    state = checkpoint(queue)
    queue.append(make_units(900, 500))
    disk.kill()
    again = opened(disk, state)
    assert disk.list(FOLDER) == [file_name(0), file_name(1)]
    again.append(make_units(150, 300))
    assert sequences(opened(disk, checkpoint(again))) == list(range(450))


def test_open_when_a_chunk_is_missing_or_foreign() -> None:
    disk = SimulatedDisk()
    state = checkpoint(filled(disk, 250))
    with pytest.raises(errors.ForeignDirectory):
        ConsumeQueue.open(disk, FOLDER, Identity(bytes(16), 3), state, CHUNK_ENTRIES)
    disk.remove(f"{FOLDER}/{file_name(1)}")
    with pytest.raises(errors.CorruptFile, match="missing"):
        opened(disk, state)


def test_read_when_a_bit_flipped_names_the_file() -> None:
    disk = SimulatedDisk()
    state = checkpoint(filled(disk, 250))
    path = f"{FOLDER}/{file_name(1)}"
    disk.flip_bit(path, 1_000)
    queue = opened(disk, state)
    assert len(queue.read(0, 100)) == 100
    with pytest.raises(errors.CorruptFile) as caught:
        queue.read(150, 1)
    assert caught.value.params["file"] == path


def test_read_when_the_next_chunk_is_missing() -> None:
    disk = SimulatedDisk()
    queue = opened(disk, checkpoint(filled(disk, 250)))
    disk.remove(f"{FOLDER}/{file_name(1)}")
    assert len(queue.read(0, 100)) == 100
    with pytest.raises(errors.CorruptFile, match="missing"):
        queue.read(100, 1)


def test_find_before_when_a_message_is_there_once_twice_or_not() -> None:
    queue = filled(SimulatedDisk(), 250)
    queue.append(make_units(210, 1))
    assert queue.find_before(251, 210) == (200, 250)
    assert queue.find_before(250, 210) == (200, 210)
    assert queue.find_before(200, 210) == (100, None)
    assert queue.find_before(101, 100) == (100, 100)
    queue.trim_to(100)
    assert queue.find_before(150, 99) == (100, None)


def test_digest_when_only_pointers_differ() -> None:
    one, two = opened(SimulatedDisk()), opened(SimulatedDisk(), chunk_entries=7)
    one.append(make_units(0, 300, dlog_id=0, position=44))
    for first in range(0, 300, 5):
        two.append(make_units(first, 5, dlog_id=9, position=99))
    assert digest(one) == digest(two)
    two.append(make_units(300, 1))
    one.append(make_units(301, 1))
    assert digest(one) != digest(two)


def test_append_when_nothing_to_append() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    assert queue.append(NO_UNITS) == 0
    assert not disk.exists(FOLDER)


def test_read_when_random_positions_of_many_chunks() -> None:
    queue = filled(SimulatedDisk(), 5_000)
    for position in np.random.default_rng(1).integers(0, 5_000, 300).tolist():
        assert queue.read(position, 1)["sequence"].tolist() == [position]


def test_genes_and_single_entries_are_read_across_chunks() -> None:
    queue = filled(SimulatedDisk(), 250)
    units = make_units(250, 3, tag_gene=7)
    queue.append(units)
    assert queue.look_at(199, 9)["tag_gene"].tolist() == [0], "as far as a chunk reaches"
    assert queue.look_at(249, 99)["tag_gene"].tolist() == [0, 7, 7, 7]
    chosen = np.array([0, 99, 100, 101, 252], np.int64)
    assert queue.pick(chosen)["sequence"].tolist() == chosen.tolist()
    assert len(queue.pick(chosen[:0])) == 0
