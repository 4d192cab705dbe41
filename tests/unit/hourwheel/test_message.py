import pytest

from hourwheel import errors
from hourwheel import meta as metas
from hourwheel.message import Message
from hourwheel.message_id import MessageId
from hourwheel.meta import NO_META, MessageMeta
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
