"""Priorities and the queues of a topic that are theirs."""

from hourwheel.priorities import (
    FIRST_PRIORITY_QUEUE,
    has_room,
    is_priority_queue,
    priority_of,
    priority_queue,
    retry_queue,
)
from hourwheel.types import queue_of, topic_queue


def test_queues_of_priorities_are_the_last_ones_of_a_topic() -> None:
    found = [priority_queue(3, priority) for priority in range(1, 10)]
    assert [queue_of(one) for one in found] == list(range(247, 256))
    assert [priority_of(one, 247) for one in found] == list(range(1, 10))
    assert all(map(is_priority_queue, found))
    assert priority_of(topic_queue(3, 246), 247) == 0
    assert not is_priority_queue(topic_queue(3, 246))


def test_topic_with_many_queues_has_no_priorities() -> None:
    assert has_room(FIRST_PRIORITY_QUEUE)
    assert not has_room(FIRST_PRIORITY_QUEUE + 1)
    assert priority_of(topic_queue(3, 250), 256) == 0
    assert retry_queue(9, topic_queue(3, 250), 256) == topic_queue(9, 0)


def test_retry_keeps_the_priority() -> None:
    assert retry_queue(9, priority_queue(3, 4), 1) == priority_queue(9, 4)
    assert retry_queue(9, topic_queue(3, 1), 2) == topic_queue(9, 0)
