from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.client.message import ReceivedBatch
from hourwheel.client.prefetch_buffer import AckBuffer, PrefetchBuffer, Selection, select
from tests.support.received import received


def batch(count: int, lease_until_ms: float = 100.0) -> ReceivedBatch:
    made = received([(b"", b"%d" % n) for n in range(count)])
    made.lease_until_ms = lease_until_ms
    return made


def filled(*batches: ReceivedBatch, messages_max: int = 1_000) -> PrefetchBuffer:
    buffer = PrefetchBuffer(messages_max, messages_max)
    for each in batches:
        buffer.add(0, each)
    return buffer


def test_take_when_less_than_an_answer() -> None:
    first, second = batch(5), batch(3)
    buffer = filled(first, second)
    taken = [[message.index for message in buffer.take(3, 0.0)] for _ in range(4)]
    assert taken == [[0, 1, 2], [3, 4], [0, 1, 2], []]
    assert len(buffer) == 0
    for count in (0, -1):
        with pytest.raises(errors.InvalidArgument):
            buffer.take(count, 0.0)


def test_find_one_when_several_answers() -> None:
    buffer = filled(batch(2), batch(1))
    found = [buffer.find_one(0.0) for _ in range(4)]
    assert [one and (one.index, one.body) for one in found] == [
        *((0, b"0"), (1, b"1"), (0, b"0"), None),
    ]


def test_find_batch_when_one_was_begun() -> None:
    first, second = batch(5), batch(3)
    buffer = filled(first, second)
    buffer.take(2, 0.0)
    assert buffer.find_batch(0.0) is second
    assert buffer.find_batch(0.0) is None
    assert len(buffer) == 3
    assert [message.index for message in buffer.take(10, 0.0)] == [2, 3, 4]


@pytest.mark.parametrize("is_begun", [True, False])
def test_take_when_leases_are_over(*, is_begun: bool) -> None:
    buffer = filled(batch(5, 50.0), batch(3, 50.0), batch(2, 60.0))
    begun = len(buffer.take(2, 0.0)) if is_begun else 0
    message = buffer.find_one(50.0)
    assert message is not None
    assert message.index == 0
    assert buffer.expired_count == 8 - begun
    assert len(buffer) == 1
    assert buffer.take(5, 60.0) == []
    assert buffer.expired_count == 9 - begun


def test_find_batch_when_leases_are_over() -> None:
    last = batch(2, 60.0)
    buffer = filled(batch(5, 50.0), last)
    assert buffer.find_batch(50.0) is last
    assert buffer.expired_count == 5


def test_take_all_when_closing() -> None:
    first, second = batch(5), batch(3)
    buffer = filled(first, second)
    buffer.take(2, 0.0)
    assert buffer.take_all() == [Selection(first, 2, 5), Selection(second, 0, 3)]
    assert len(buffer) == 0
    assert buffer.take_all() == []
    assert buffer.find_one(0.0) is None


def test_reserve_when_several_polls_share_the_room() -> None:
    buffer = PrefetchBuffer(100, 50)
    assert [buffer.reserve(), buffer.reserve(), buffer.reserve()] == [50, 50, 0]
    buffer.add(50, batch(10))
    assert buffer.reserve() == 40
    buffer.add(40, None)
    buffer.add(50, batch(50))
    assert buffer.reserve() == 40
    buffer.add(40, batch(20))
    assert buffer.reserve() == 0  # 20 would be little: wait
    buffer.take(5, 0.0)
    assert buffer.reserve() == 25


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 5)), max_size=30))
def test_ack_buffer_when_ranges_come_in_any_order(added: list[tuple[int, int, int]]) -> None:
    batches = [batch(20) for _ in range(3)]
    buffer = AckBuffer()
    expected = set()
    for which, first, count in added:
        buffer.add_range(batches[which], first, first + count)
        expected |= {(which, index) for index in range(first, first + count)}
    assert len(buffer) == sum(count for _, _, count in added)
    taken = list(_take_in_steps(buffer))
    found = [
        (batches.index(run.batch), index) for run in taken for index in range(run.first, run.end)
    ]
    assert sorted(found) == sorted(expected)
    assert len(buffer) == 0


def _take_in_steps(buffer: AckBuffer) -> Iterator[Selection]:
    while runs := buffer.take(2):
        assert len(runs) <= 2
        yield from runs


def test_select_when_one_some_or_all() -> None:
    first, second = batch(5), batch(3)
    assert select(first[2]) == [Selection(first, 2, 3)]
    assert select(first) == [Selection(first, 0, 5)]
    assert select([first[1], first[2], second[0], first[3]]) == [
        Selection(first, 1, 4),
        Selection(second, 0, 1),
    ]
    assert select(message for message in first if message.index % 2) == [
        Selection(first, 1, 2),
        Selection(first, 3, 4),
    ]
    assert select([]) == []


def masked(*ordinals: int, count: int = 8) -> ReceivedBatch:
    """An answer of `count` messages of which those at `ordinals` match a filter."""
    mask = np.zeros(count, np.bool_)
    mask[list(ordinals)] = True
    made = batch(count)
    return ReceivedBatch(
        made.delivery, topic="t", receipt="r", invisible_until_ms=9, lease_until_ms=100.0, mask=mask
    )


def test_take_when_some_do_not_match() -> None:
    buffer = filled(masked(1, 2, 5, 7), masked(0))
    assert len(buffer) == 5
    assert [message.index for message in buffer.take(2, 0.0)] == [1, 2]
    one = buffer.find_one(0.0)
    assert one is not None
    assert (one.index, one.body) == (5, b"5")
    assert [message.index for message in buffer.take(9, 0.0)] == [7]
    assert len(buffer) == 1
    assert buffer.take(9, 100.0) == []
    assert buffer.expired_count == 1


def test_take_all_when_some_do_not_match() -> None:
    first, second = masked(1, 2, 5, 7), masked(0, 1, 3)
    buffer = filled(first, second)
    buffer.take(1, 0.0)
    assert buffer.take_all() == [
        *(Selection(first, 2, 3), Selection(first, 5, 6), Selection(first, 7, 8)),
        *(Selection(second, 0, 2), Selection(second, 3, 4)),
    ]


def test_select_when_some_do_not_match() -> None:
    chosen = masked(1, 2, 5)
    assert select(chosen) == [Selection(chosen, 1, 3), Selection(chosen, 5, 6)]
    assert select(list(chosen)) == select(chosen)
    assert select(chosen[2]) == [Selection(chosen, 5, 6)]


class Slow:
    """A consumer with one poll at a time, whose leases last 100 ms."""

    def __init__(self, messages_max: int) -> None:
        self.buffer = PrefetchBuffer(messages_max, max(1, messages_max // 2))
        self.now_ms = 0.0
        self.handled = 0

    def handle(self, count: int, each_ms: float) -> None:
        """Handle so many, each of which takes that long."""
        for _ in range(count):
            while (wanted := self.buffer.reserve()) > 0:
                made = batch(wanted, self.now_ms + 100.0)
                made.lease_ms = 100.0
                self.buffer.add(wanted, made)
            self.handled += self.buffer.find_one(self.now_ms) is not None
            self.now_ms += each_ms


@pytest.mark.parametrize("each_ms", [3.0, 10.0, 40.0, 90.0])
@pytest.mark.parametrize("messages_max", [2, 3, 50, 400])
def test_consumer_that_is_too_slow_learns_to_hold_less(messages_max: int, each_ms: float) -> None:
    slow = Slow(messages_max)
    slow.handle(200, each_ms)
    lost = slow.buffer.expired_count
    assert lost <= messages_max
    slow.handle(1_000, each_ms)
    assert slow.buffer.expired_count == lost, "no lease ends unused any more"
    assert slow.handled >= 1_190
    assert len(slow.buffer) <= max(1, 100 / each_ms)


def test_consumer_that_has_become_fast_holds_as_much_as_before() -> None:
    slow = Slow(400)
    slow.handle(100, 20.0)
    assert slow.buffer.expired_count > 0
    assert len(slow.buffer) < 10
    slow.handle(2_000, 0.01)
    assert len(slow.buffer) > 200


def test_answer_of_which_nothing_matches_says_nothing_of_the_pace() -> None:
    buffer = filled(batch(3, 10.0))
    assert buffer.find_batch(10.0) is None
    empty = masked(count=8)
    buffer.add(0, empty)
    assert buffer.find_batch(20.0) is empty
    assert buffer.find_one(30.0) is None
    assert buffer.reserve() == 1


def test_consumer_that_keeps_up_holds_all_that_it_may() -> None:
    slow = Slow(400)
    slow.handle(2_000, 0.1)
    assert (slow.buffer.expired_count, len(slow.buffer) > 200) == (0, True)
