from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.client.message import Message, ReceivedBatch, runs_of
from hourwheel.formats import meta as metas
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import NO_META, MessageMeta
from tests.support.received import received


def test_received_message_when_it_has_everything() -> None:
    meta = MessageMeta(("a", "b"), ("k",), (("x", "1"),), "mine", "text/plain")
    raw = metas.encode(meta).raw
    batch = received([(raw, b"one"), (b"", b"two")])
    first, second = batch
    assert first.body == b"one"
    assert first.message_id == MessageId(2, 5, 70, 1_000)
    assert (first.topic, first.due_ms, first.store_ms, first.receive_ms) == ("t", 1_000, 500, 1_234)
    assert (first.attempt, first.invisible_until_ms) == (1, 9_000)
    assert first.meta == meta
    assert (first.tags, first.keys, first.properties) == (("a", "b"), ("k",), {"x": "1"})
    assert (first.client_message_id, first.content_type) == ("mine", "text/plain")
    assert repr(first) == f"<ReceivedMessage {first.message_id} attempt 1>"
    assert (second.body, second.meta, second.attempt) == (b"two", NO_META, 2)
    assert batch.bodies() == [b"one", b"two"]


def test_received_batch_when_used_as_a_sequence() -> None:
    batch = received([(b"", bytes([n])) for n in range(5)])
    assert len(batch) == 5
    assert batch[4].body == b"\4"
    assert [message.body for message in batch.messages(1, 3)] == [b"\1", b"\2"]
    assert [message.index for message in batch.messages(3)] == [3, 4]
    assert batch.bodies() == [b"\0", b"\1", b"\2", b"\3", b"\4"]
    for bad in (-1, 5):
        with pytest.raises(IndexError):
            batch[bad]


@pytest.mark.parametrize("meta", [b"", b"\x0a\x01a"])
def test_received_message_when_its_bytes_are_damaged(meta: bytes) -> None:
    batch = received([(b"", b"one"), (meta, b"two")], damage=-1)
    assert batch[0].body == b"one"
    with pytest.raises(errors.InvalidBatch) as found:
        _ = batch[1].body
    assert found.value.params == {"sequence": "71"}
    with pytest.raises(errors.InvalidBatch):
        batch.bodies()
    if meta:
        with pytest.raises(errors.InvalidBatch):
            _ = batch[1].tags


def test_message_meta_when_given_in_any_sequence() -> None:
    message = Message(b"x", tags=["a"], keys=["k"], properties={"p": "v"}, content_type="c")
    assert message.meta() == MessageMeta(("a",), ("k",), (("p", "v"),), "", "c")
    assert Message(b"x").meta() == NO_META


@pytest.mark.parametrize("message", [Message(b"x", tags="paid"), Message(b"x", keys="k")])
def test_message_meta_when_a_text_stands_for_a_list(message: Message) -> None:
    with pytest.raises(errors.InvalidArgument, match="lists"):
        message.meta()


def test_received_batch_when_some_do_not_match() -> None:
    meta = metas.encode(MessageMeta(tags=("a",))).raw
    whole = received([(meta if n % 2 else b"", bytes([n])) for n in range(8)])
    mask = np.isin(np.arange(8), (1, 2, 3, 6))
    batch = ReceivedBatch(
        whole.delivery, topic="t", receipt="r", invisible_until_ms=9_000, mask=mask
    )
    assert len(batch) == 4
    assert batch.bodies() == [b"\1", b"\2", b"\3", b"\6"]
    assert [message.body for message in batch] == batch.bodies()
    assert [message.index for message in batch.messages(1, 3)] == [2, 3]
    assert [message.index for message in batch.messages(3)] == [6]
    assert batch.ordinals.tolist() == [1, 2, 3, 6]
    assert (batch[3].body, batch[3].due_ms, batch[3].attempt) == (b"\6", 1_006, 7)
    assert [message.tags for message in batch] == [("a",), (), ("a",), ()]
    assert batch.delivery.due_ms[batch.ordinals].tolist() == [m.due_ms for m in batch]
    assert batch.runs() == [(1, 4), (6, 7)]
    assert batch.runs(1, 3) == [(2, 4)]
    assert batch.runs(2, 2) == []
    with pytest.raises(IndexError):
        batch[4]
    damaged = received([(b"", b"one"), (b"", b"two"), (b"", b"six")], damage=-1).delivery
    masked = {"topic": "t", "receipt": "r", "invisible_until_ms": 1}
    good = ReceivedBatch(damaged, **masked, mask=np.array([True, True, False]))  # type: ignore[arg-type]
    assert good.bodies() == [b"one", b"two"]
    bad = ReceivedBatch(damaged, **masked, mask=np.array([False, True, True]))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidBatch) as found:
        bad.bodies()
    assert found.value.params == {"sequence": "72"}


def test_received_batch_when_all_match() -> None:
    batch = received([(b"", bytes([n])) for n in range(3)])
    assert batch.mask is None
    assert batch.ordinals.tolist() == [0, 1, 2]
    assert batch.runs() == [(0, 3)]
    assert batch.runs(1, 2) == [(1, 2)]
    assert batch.runs(3, 3) == []


@given(st.sets(st.integers(0, 40)))
def test_runs_of_when_any(numbers: set[int]) -> None:
    runs = runs_of(sorted(numbers))
    assert {n for first, end in runs for n in range(first, end)} == numbers
    assert all(left[1] < right[0] for left, right in pairwise(runs))


def test_message_when_its_time_is_written_as_python_has_it() -> None:
    assert Message(b"", delay=timedelta(minutes=30)) == Message(b"", delay_ms=1_800_000)
    due = datetime(2027, 3, 1, 9, tzinfo=UTC)
    message = Message(b"", due=due)
    assert message == Message(b"", due_ms=1_803_891_600_000)
    assert replace(message, body=b"another").due_ms == message.due_ms
    assert Message(b"") == Message(b"", delay=None, due=None)


@pytest.mark.parametrize(
    "times",
    [
        {"delay": timedelta(1), "delay_ms": 1},
        {"due": datetime(2027, 3, 1, tzinfo=UTC), "due_ms": 1},
        {"due": datetime(2027, 3, 1)},  # noqa: DTZ001
        {"due": 1_803_891_600},
        {"delay": 30},
        {"delay": timedelta(-1)},
    ],
)
def test_message_when_its_time_cannot_be_meant(times: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidDueTime):
        Message(b"", **times)  # type: ignore[arg-type]
