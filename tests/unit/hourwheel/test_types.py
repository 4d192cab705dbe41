from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import (
    DUE_MS_MAX,
    KEY_MIN,
    QUEUE_COUNT_MAX,
    SEQUENCE_MAX,
    TOPIC_ID_MAX,
    Key,
    queue_of,
    topic_of,
    topic_queue,
)


@given(st.integers(0, TOPIC_ID_MAX), st.integers(0, QUEUE_COUNT_MAX - 1))
def test_topic_queue_when_joined_and_taken_apart(topic_id: int, queue: int) -> None:
    joined = topic_queue(topic_id, queue)
    assert 0 <= joined < 1 << 32
    assert (topic_of(joined), queue_of(joined)) == (topic_id, queue)


def test_topic_queue_when_sorted_keeps_a_topics_queues_together() -> None:
    assert topic_queue(1, QUEUE_COUNT_MAX - 1) + 1 == topic_queue(2, 0)
    assert topic_queue(TOPIC_ID_MAX, QUEUE_COUNT_MAX - 1) == (1 << 32) - 1


def test_key_when_compared_is_ordered_by_due_time_then_sequence() -> None:
    assert Key(1, SEQUENCE_MAX) < Key(2, 0) < Key(2, 1)


def test_key_min_when_compared_is_below_every_message() -> None:
    assert Key(0, 0) > KEY_MIN


def test_largest_due_time_when_read_by_a_language_with_doubles_only_is_exact() -> None:
    assert float(DUE_MS_MAX) == DUE_MS_MAX
    assert float(DUE_MS_MAX - 1) == DUE_MS_MAX - 1
