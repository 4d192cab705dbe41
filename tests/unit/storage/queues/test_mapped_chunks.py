import pytest

from hourwheel import errors
from storage.files.file_header import Identity
from storage.queues.mapped_chunks import CHUNKS_PER_QUEUE_MAX, MappedChunks, MappingBudget
from storage.queues.queue_chunk import NO_ENTRIES
from tests.sim.disk import SimulatedDisk

IDENTITY = Identity(bytes(range(16)), 3)


def chunks_of(disk: SimulatedDisk, budget: MappingBudget, name: str = "queue") -> MappedChunks:
    disk.make_dir(name)
    return MappedChunks(disk, name, IDENTITY, 50, budget)


def mapped(chunks: MappedChunks, count: int = 100) -> list[int]:
    return [number for number in range(count) if number in chunks]


def test_get_when_mapped_already_is_the_same() -> None:
    chunks = chunks_of(SimulatedDisk(), MappingBudget(99))
    chunk = chunks.create(4)
    assert chunks.get(4, NO_ENTRIES) is chunk
    chunks.close(4)
    assert chunk.entry_count_reserved == 0
    assert chunks.get(4, NO_ENTRIES) is not chunk


def test_get_when_many_are_mapped_closes_the_one_used_longest_ago() -> None:
    budget = MappingBudget(99)
    chunks = chunks_of(SimulatedDisk(), budget)
    chunks.writable_from = 100
    for number in range(CHUNKS_PER_QUEUE_MAX):
        chunks.create(number)
    chunks.get(0, NO_ENTRIES)
    chunks.create(20)
    assert mapped(chunks) == [0, *range(2, CHUNKS_PER_QUEUE_MAX), 20]
    assert budget.count == CHUNKS_PER_QUEUE_MAX


def test_create_when_all_are_written_to_closes_none() -> None:
    chunks = chunks_of(SimulatedDisk(), MappingBudget(99))
    for number in range(12):
        chunks.create(number)
    assert mapped(chunks) == list(range(12))
    chunks.writable_from = 11
    chunks.create(12)
    assert len(mapped(chunks)) == CHUNKS_PER_QUEUE_MAX
    assert {11, 12} < set(mapped(chunks))


def test_budget_when_spent_closes_those_of_the_queue_used_longest_ago() -> None:
    disk, budget = SimulatedDisk(), MappingBudget(4)
    one, two, three = (chunks_of(disk, budget, name) for name in ("1", "2", "3"))
    one.create(0)
    two.create(0)
    two.create(1)
    one.used()
    three.create(0)
    assert budget.count == 4
    three.create(1)
    assert (mapped(one), mapped(two), mapped(three)) == ([0], [], [0, 1])
    assert budget.count == 3


def test_budget_when_one_queue_has_all_lets_it() -> None:
    budget = MappingBudget(2)
    chunks = chunks_of(SimulatedDisk(), budget)
    for number in range(5):
        chunks.create(number)
    assert budget.count == 5
    chunks.close_all()
    assert budget.count == 0
    chunks.used()
    chunks.close(3)


def test_budget_when_nothing_is_allowed() -> None:
    with pytest.raises(errors.InvariantViolated):
        MappingBudget(0)
