"""Checks of due times, the choice of queues, and who may share a batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.record_batch import Flag, RecordBatch, build_publish
from hourwheel.types import DUE_MS_MAX, TopicId
from node.broker.publish_service import (
    check_instants,
    choose_queues,
    queues_of_few,
    queues_of_many,
    resolve_due,
)
from node.broker.small_calls import Merge, MergeBuffer
from node.contracts.broker import IncomingMessages
from storage.views.catalog_items import Topic

NOW_MS, HORIZON_MS = 1_000_000, 5_000
KEY_HASH_MAX = (1 << 64) - 1


def batch_of(due_ms: list[int], *, relative: bool = False) -> RecordBatch:
    return RecordBatch(build_publish(due_ms, [b"x"] * len(due_ms), relative_due=relative))


def messages(
    count: int, *, producer: int = 0, sequence: int = 0, body: bytes = b"x"
) -> IncomingMessages:
    due_ms = [NOW_MS + n for n in range(count)]
    nothing = [0] * count
    return IncomingMessages(
        "orders", due_ms, [body] * count, [b""] * count, nothing, nothing, producer, sequence
    )


def merged(requests: list[IncomingMessages]) -> list[list[object]]:
    """Which requests, by their ordinals, share batches."""
    buffer = MergeBuffer()
    for ordinal, incoming in enumerate(requests):
        buffer.add(incoming, [256] * len(incoming.bodies), ordinal)
    return [[token for token, _, _ in merge.callers] for merge in buffer.take()]


# -- due times ------------------------------------------------------------------------------------


def test_instants_stay_as_they_are_up_to_the_horizon() -> None:
    due_ms = [0, NOW_MS, NOW_MS + HORIZON_MS]
    assert resolve_due(batch_of(due_ms), NOW_MS, HORIZON_MS).tolist() == due_ms
    check_instants(due_ms, NOW_MS, HORIZON_MS)


def test_delays_count_from_now() -> None:
    batch = batch_of([0, 7, HORIZON_MS], relative=True)
    assert resolve_due(batch, NOW_MS, HORIZON_MS).tolist() == [
        NOW_MS,
        NOW_MS + 7,
        NOW_MS + HORIZON_MS,
    ]


@pytest.mark.parametrize(
    ("due_ms", "relative"),
    [
        ([0, NOW_MS + HORIZON_MS + 1], False),
        ([0, HORIZON_MS + 1], True),
        ([(1 << 63) - 1], True),
        ([(1 << 63) - 1], False),
    ],
)
def test_batch_is_refused_when_one_is_beyond_the_horizon(due_ms: list[int], relative: bool) -> None:
    with pytest.raises(errors.BeyondHorizon) as refusal:
        resolve_due(batch_of(due_ms, relative=relative), NOW_MS, HORIZON_MS)
    assert refusal.value.params["horizon_ms"] == str(HORIZON_MS)


@pytest.mark.parametrize("relative", [False, True])
def test_batch_is_refused_when_one_is_negative(relative: bool) -> None:
    with pytest.raises(errors.InvalidDueTime):
        resolve_due(batch_of([5, -1], relative=relative), NOW_MS, HORIZON_MS)


def test_instants_of_few_are_refused_alike() -> None:
    with pytest.raises(errors.InvalidDueTime):
        check_instants([5, -1], NOW_MS, HORIZON_MS)
    with pytest.raises(errors.BeyondHorizon):
        check_instants([5, NOW_MS + HORIZON_MS + 1], NOW_MS, HORIZON_MS)


def test_no_horizon_reaches_beyond_what_can_be_stored() -> None:
    check_instants([DUE_MS_MAX], NOW_MS, 1 << 60)
    with pytest.raises(errors.BeyondHorizon):
        check_instants([DUE_MS_MAX + 1], NOW_MS, 1 << 60)


# -- queues ---------------------------------------------------------------------------------------


def test_queues_are_chosen_by_key_else_in_turn() -> None:
    hashes = np.array([0, 5, 0, KEY_HASH_MAX, 0], np.uint64)
    base = 7 << 8
    chosen = choose_queues(7, 3, hashes, first_sequence=10)
    assert (chosen - base).tolist() == [10 % 3, 5 % 3, 12 % 3, KEY_HASH_MAX % 3, 14 % 3]


def test_the_only_queue_is_chosen_whatever_the_key() -> None:
    assert choose_queues(7, 1, np.array([0, 5], np.uint64), 3).tolist() == [7 << 8] * 2
    assert queues_of_few(7, 1, [0, 5], 3) == [7 << 8] * 2


@pytest.mark.parametrize("queue_count", [1, 2, 7, 256])
def test_queues_of_few_are_those_of_many(queue_count: int) -> None:
    hashes = [0, 1, 0, 0, KEY_HASH_MAX, 1 << 63, 12_345]
    many = choose_queues(9, queue_count, np.array(hashes, np.uint64), 1_001)
    assert queues_of_few(9, queue_count, hashes, 1_001) == many.tolist()


# -- merging --------------------------------------------------------------------------------------


def test_requests_of_several_producers_share_a_batch() -> None:
    requests = [messages(1, producer=1), messages(2, producer=2), messages(1, producer=3)]
    assert merged(requests) == [[0, 1, 2]]


def test_requests_without_a_producer_share_a_batch() -> None:
    assert merged([messages(1), messages(2), messages(1)]) == [[0, 1, 2]]


def test_two_requests_of_one_producer_never_share_a_batch() -> None:
    requests = [
        messages(1, producer=1, sequence=0),
        messages(1, producer=2),
        messages(1, producer=1, sequence=1),
        messages(1, producer=2, sequence=1),
        messages(1, producer=1, sequence=2),
    ]
    assert merged(requests) == [[0, 1], [2, 3], [4]]


def test_a_batch_ends_where_the_messages_would_be_too_many() -> None:
    assert merged([messages(4_095), messages(1), messages(1)]) == [[0, 1], [2]]
    assert merged([messages(4_095), messages(2)]) == [[0], [1]]


def test_a_batch_ends_where_the_bytes_would_be_too_many() -> None:
    half = bytes(1 << 20)
    assert merged([messages(1, body=half), messages(1, body=half)]) == [[0, 1]]
    assert merged([messages(1, body=half), messages(1, body=half + b"x")]) == [[0], [1]]


def test_a_request_beyond_the_limits_has_a_batch_of_its_own() -> None:
    assert Merge().takes(messages(5_000), 3 << 20)
    assert merged([messages(5_000), messages(1)]) == [[0], [1]]
    assert merged([messages(1, body=bytes(3 << 20)), messages(1)]) == [[0], [1]]


def test_a_buffer_is_empty_when_it_was_taken() -> None:
    buffer = MergeBuffer()
    assert not buffer
    buffer.add(messages(1, producer=1), [256], "a")
    assert buffer
    first = buffer.take()
    assert not buffer
    assert buffer.take() == []
    buffer.add(messages(1, producer=1), [256], "b")
    assert [token for token, _, _ in first[0].callers] == ["a"], "what was taken is left alone"


def test_a_merged_batch_keeps_each_requests_messages() -> None:
    merge = Merge()
    one = IncomingMessages("orders", [5, 6], [b"a", b"bc"], [b"", b"m"], [0, 9], [0, 8], 3, 70)
    merge.add(one, [256, 257], 4, "one")
    merge.add(messages(1), [258], 1, "two")
    batch = merge.build()
    batch.verify()
    assert merge.callers == [("one", 0, 2), ("two", 2, 1)]
    assert batch.header.flags & Flag.PER_MESSAGE_PRODUCER
    assert batch.due_ms.tolist() == [5, 6, NOW_MS]
    assert batch.topic_queue.tolist() == [256, 257, 258]
    assert [column.tolist() for column in batch.message_producers] == [[3, 3, 0], [70, 71, 0]]
    assert batch.tag_gene.tolist() == [0, 9, 0]
    assert batch.key_hash.tolist() == [0, 8, 0]
    assert bytes(batch.blobs) == b"ambcx"


@given(
    st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 256), st.integers(1, 5)), min_size=1),
    st.integers(0, 1 << 40),
    st.data(),
)
def test_queues_of_many_topics_are_those_of_each_by_itself(
    topics: list[tuple[int, int, int]], first_sequence: int, data: st.DataObject
) -> None:
    counts = [count for _, _, count in topics]
    keys = st.sampled_from([0, 0, 1, 77, KEY_HASH_MAX])
    hashes = data.draw(st.lists(keys, min_size=sum(counts), max_size=sum(counts)))
    key_hashes = np.array(hashes, np.uint64)
    found = [Topic(TopicId(number), f"t{number}", width) for number, width, _ in topics]
    expected, at = [], 0
    for number, width, count in topics:
        own = key_hashes[at : at + count]
        expected += choose_queues(number, width, own, first_sequence + at).tolist()
        at += count
    assert queues_of_many(found, counts, key_hashes, first_sequence).tolist() == expected
