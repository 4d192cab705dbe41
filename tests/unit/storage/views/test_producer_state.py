from hashlib import sha256

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import ProducerBatch, ProducerState
from storage.views.producer_state import NEW, Duplicate, ProducerStates


def digest(producers: ProducerStates) -> bytes:
    hasher = sha256()
    producers.digest_into(hasher)
    return hasher.digest()


def record(producers: ProducerStates, first: int, count: int, *, producer_id: int = 7) -> None:
    """Record a batch whose sequences are 1,000 above the producer's own."""
    producers.record(producer_id, first, count, 1_000 + first, 50 + first, 2)


def known(*batches: tuple[int, int]) -> ProducerStates:
    producers = ProducerStates()
    for first, count in batches:
        record(producers, first, count)
    return producers


def test_check_when_the_next_batch() -> None:
    assert known().check(7, 0, 5) is NEW
    assert known((0, 5)).check(7, 5, 1) is NEW


def test_check_when_one_of_the_last_five() -> None:
    producers = known(*((first, 10) for first in range(0, 60, 10)))
    for first in range(10, 60, 10):
        assert producers.check(7, first, 10) == Duplicate(1_000 + first, 50 + first, 2)
    with pytest.raises(errors.OutOfOrderSequence):
        producers.check(7, 0, 10)


def test_check_when_a_part_of_a_batch() -> None:
    assert known((0, 10)).check(7, 4, 3) == Duplicate(1_004, 50, 2)


@pytest.mark.parametrize(("first", "count"), [(16, 1), (14, 3), (9, 2), (0, 16), (100, 1)], ids=str)
def test_check_when_out_of_order(first: int, count: int) -> None:
    with pytest.raises(errors.OutOfOrderSequence) as caught:
        known((0, 10), (10, 5)).check(7, first, count)
    assert caught.value.params["expected_sequence"] == "15"


def test_check_when_the_producer_is_unknown() -> None:
    with pytest.raises(errors.UnknownProducer):
        known((0, 10)).check(8, 10, 1)


def test_check_when_without_idempotence() -> None:
    producers = ProducerStates()
    assert producers.check(0, 55, 1) is NEW
    producers.record(0, 55, 1, 1, 1, 1)
    assert len(producers) == 0


def test_record_when_not_the_next_one() -> None:
    with pytest.raises(errors.InvariantViolated):
        record(known((0, 10)), 11, 1)


def test_check_when_a_batch_is_empty() -> None:
    with pytest.raises(errors.InvariantViolated):
        ProducerStates().check(7, 0, 0)


def test_expire_when_idle() -> None:
    producers = ProducerStates()
    producers.record(1, 0, 1, 0, 100, 1)
    producers.record(2, 0, 1, 1, 200, 1)
    assert producers.oldest_ms() == 100
    assert producers.expire(200) == 1
    assert producers.oldest_ms() == 200
    with pytest.raises(errors.UnknownProducer):
        producers.check(1, 1, 1)
    assert producers.check(2, 1, 1) is NEW
    assert producers.expire(201) == 1
    assert producers.oldest_ms() is None


def test_state_when_taken_up_again() -> None:
    producers = known((0, 10), (10, 5))
    record(producers, 0, 3, producer_id=3)
    state = producers.state()
    assert [each.producer_id for each in state] == [3, 7]
    assert state[1] == ProducerState(
        producer_id=7,
        last_ms=60,
        batches=[
            ProducerBatch(first_sequence=0, count=10, base_sequence=1_000, store_ms=50, epoch=2),
            ProducerBatch(first_sequence=10, count=5, base_sequence=1_010, store_ms=60, epoch=2),
        ],
    )
    again = ProducerStates(state)
    assert again.state() == state
    assert digest(again) == digest(producers)
    assert digest(again) != digest(known((0, 10)))


def test_capture_when_changed_afterwards() -> None:
    producers = known((0, 10))
    encode = producers.capture()
    record(producers, 10, 1)
    assert len(encode()[0].batches) == 1


def test_state_when_it_contradicts_itself() -> None:
    with pytest.raises(errors.InvariantViolated):
        ProducerStates([ProducerState(producer_id=7)])
