from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import QueueState
from hourwheel.types import topic_queue
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.queues.consume_queues import ConsumeQueues
from tests.sim.disk import SimulatedDisk
from tests.support.units import make_units

IDENTITY = Identity(bytes(range(16)), 3)
A, B, C = topic_queue(1, 0), topic_queue(1, 7), topic_queue(2, 0)


def opened(disk: SimulatedDisk, state: list[QueueState] | None = None) -> ConsumeQueues:
    return ConsumeQueues.open(disk, "queues", IDENTITY, state or [], chunk_entries=10)


def filled(disk: SimulatedDisk) -> ConsumeQueues:
    queues = opened(disk)
    queues.get(C).append(make_units(0, 5, dlog_id=0, position=70))
    queues.get(B).append(make_units(0, 25, dlog_id=4))
    queues.get(A).append(make_units(0, 5, dlog_id=0, position=90))
    return queues


def checkpoint(queues: ConsumeQueues) -> list[QueueState]:
    for work in queues.begin_checkpoint():
        work()
    state = queues.state()
    for work in queues.end_checkpoint():
        work()
    return state


def digest(queues: ConsumeQueues) -> bytes:
    hasher = sha256()
    queues.digest_into(hasher)
    return hasher.digest()


def test_get_when_new_is_empty_and_no_state() -> None:
    disk = SimulatedDisk()
    queues = opened(disk)
    before = digest(queues)
    queue = queues.get(A)
    assert queues.get(A) is queue
    assert queue.end_position == 0
    assert queues.state() == []
    assert queues.topic_queues() == []
    assert digest(queues) == before
    assert disk.list("queues") == []


def test_state_when_some_queues_are_not_opened() -> None:
    disk = SimulatedDisk()
    queues = filled(disk)
    state = checkpoint(queues)
    assert state == [
        QueueState(topic_queue=A, end_position=5),
        QueueState(topic_queue=B, end_position=25),
        QueueState(topic_queue=C, end_position=5),
    ]
    again = opened(disk, state)
    assert again.state() == state
    again.get(B).append(make_units(25, 1))
    again.get(B).trim_to(20)
    assert again.state() == [
        state[0],
        QueueState(topic_queue=B, start_position=20, end_position=26),
        state[2],
    ]
    assert [queue.topic_queue for queue in again.all()] == [A, B, C]


def test_digest_when_reopened() -> None:
    disk = SimulatedDisk()
    queues = filled(disk)
    assert digest(opened(disk, checkpoint(queues))) == digest(queues)


def test_references_when_of_all_queues() -> None:
    disk = SimulatedDisk()
    queues = filled(disk)
    assert queues.references() == (70, 4)
    again = opened(disk, checkpoint(queues))
    assert again.references() == (70, 4)
    assert opened(SimulatedDisk()).references() == (None, None)


def test_drop_topic_when_files_go_after_the_next_checkpoint() -> None:
    disk = SimulatedDisk()
    queues = filled(disk)
    before = checkpoint(queues)
    queues.drop_topic(1)
    assert [state.topic_queue for state in queues.state()] == [C]
    assert queues.references() == (70, 4)  # the last manifest still has them
    assert len(disk.list("queues")) == 3
    assert opened(disk, before).get(B).end_position == 25
    after = checkpoint(queues)
    assert disk.list("queues") == ["00000200"]
    assert queues.references() == (70, None)
    assert opened(disk, after).state() == after


def test_drop_topic_when_its_queues_are_not_opened() -> None:
    disk = SimulatedDisk()
    queues = opened(disk, checkpoint(filled(disk)))
    queues.drop_topic(1)
    assert [state.topic_queue for state in checkpoint(queues)] == [C]
    assert disk.list("queues") == ["00000200"]


def test_drop_topic_when_a_checkpoint_is_under_way() -> None:
    disk = SimulatedDisk()
    queues = filled(disk)
    works = queues.begin_checkpoint()
    state = queues.state()
    queues.drop_topic(1)
    for work in works:
        work()
    assert queues.end_checkpoint() == []
    assert opened(disk, state).get(B).end_position == 25


def test_get_when_dropped() -> None:
    queues = filled(SimulatedDisk())
    queues.drop_topic(1)
    with pytest.raises(errors.InvariantViolated, match="dropped"):
        queues.get(A)


def test_open_when_folders_are_left_over() -> None:
    disk = SimulatedDisk()
    queues = filled(disk)
    state = checkpoint(queues)
    queues.get(topic_queue(9, 0)).append(make_units(0, 30))
    disk.kill()
    again = opened(disk, state)
    assert len(disk.list("queues")) == 3
    assert again.get(topic_queue(9, 0)).append(make_units(0, 5)) == 0


def test_read_when_mappings_are_short_spares_the_queue_used_last() -> None:
    disk = SimulatedDisk()
    queues = ConsumeQueues.open(disk, "queues", IDENTITY, [], chunk_entries=10, mapped_chunks_max=2)
    for number in (A, B):
        queues.get(number).append(make_units(0, 5))
    queues.get(A).read(0, 1)
    queues.get(C).append(make_units(0, 5))
    disk.remove("queues/00000100/000000000000.cq")
    assert len(queues.get(A).read(0, 5)) == 5
    disk.remove("queues/00000107/000000000000.cq")
    with pytest.raises(errors.CorruptFile, match="missing"):
        queues.get(B).read(0, 5)


def test_close_when_used_again() -> None:
    queues = filled(SimulatedDisk())
    queues.close()
    assert queues.get(B).read(20, 9)["sequence"].tolist() == [20, 21, 22, 23, 24]


def test_end_checkpoint_when_none_has_begun() -> None:
    assert opened(SimulatedDisk()).end_checkpoint() == []


def test_checkpoint_when_its_works_run_in_a_thread_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    queues = ConsumeQueues.open(disk, "queues", IDENTITY, [], chunk_entries=500)
    ends: dict[int, int] = dict.fromkeys((A, B, C), 0)

    def append_some() -> None:
        for number, end in ends.items():
            queues.get(number).append(make_units(end, 37))
            ends[number] = end + 37

    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            append_some()
            works, state = queues.begin_checkpoint(), queues.state()
            running = [pool.submit(work) for work in works]
            for _ in range(30):
                append_some()
            for future in running:
                future.result()
            for work in queues.end_checkpoint():
                work()
    queues.close()
    again = ConsumeQueues.open(disk, "queues", IDENTITY, state, chunk_entries=500)
    for each in state:
        queue, at = again.get(each.topic_queue), 0
        while at < each.end_position:
            units = queue.read(at, 500)
            assert units["sequence"].tolist() == list(range(at, at + len(units)))
            at += len(units)
    again.close()
