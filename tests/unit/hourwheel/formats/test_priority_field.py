"""A message's priority, as its metadata and a batch of such metadata say it."""

from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.batch_builder import build, draft_messages, draft_one, join
from hourwheel.client.message import Message
from hourwheel.formats.batch_columns import priorities_of, requested_by
from hourwheel.formats.meta import MessageMeta, decode, encode
from hourwheel.formats.priority_field import PRIORITY_KEY, priority_field
from hourwheel.formats.record_batch import Flag, RecordBatch, build_publish
from hourwheel.v1 import meta_pb2

METAS = [
    MessageMeta(),
    MessageMeta(priority=1),
    MessageMeta(priority=9, tags=("t",), keys=("k",)),
    MessageMeta(priority=3, expires_ms=-5, properties=(("a", "b"),)),
    MessageMeta(expires_ms=1_800_000_000_000),
    MessageMeta(tags=("@",)),
]


def test_field_is_what_protobuf_writes() -> None:
    for priority in range(1, 10):
        raw = meta_pb2.MessageMeta(priority=priority).SerializeToString()
        assert encode(MessageMeta(priority=priority)).raw == raw
        assert (raw[0], priority_field(raw)) == (PRIORITY_KEY, priority)


@pytest.mark.parametrize("meta", METAS)
def test_priority_is_read_as_it_was_written(meta: MessageMeta) -> None:
    raw = encode(meta).raw
    assert priority_field(raw) == meta.priority
    assert decode(raw) == meta
    assert requested_by([b"", raw]) == (meta.expires_ms != 0, meta.priority > 0)


def test_column_of_a_batch_has_each_priority() -> None:
    raws = [encode(meta).raw for meta in METAS]
    batch = RecordBatch(build_publish([0] * 6, [b"\x40\x05"] * 6, metas=raws))
    assert batch.header.flags == Flag.EXPIRY | Flag.PRIORITY
    found = priorities_of(batch.blobs, batch.meta_len, batch.body_len)
    assert found.tolist() == [meta.priority for meta in METAS]


def test_column_of_metas_that_end_early_has_none() -> None:
    metas = [b"", b"\x40", b"\x39" + bytes(8), b"\x39" + bytes(8) + b"\x40"]
    batch = RecordBatch(build_publish([0] * 4, [b""] * 4, metas=metas))
    assert priorities_of(batch.blobs, batch.meta_len, batch.body_len).tolist() == [0] * 4
    assert [priority_field(meta) for meta in metas] == [0] * 4


@pytest.mark.parametrize("priority", [-1, 10, 1.0, "5", True])
def test_what_is_no_priority_is_refused(priority: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="a whole number from 0 to 9"):
        draft_one(Message(b"", priority=priority))
    with pytest.raises(errors.InvalidArgument):
        draft_messages([Message(b"", priority=priority)])


def test_message_with_a_priority_goes_in_a_batch_of_its_own_form() -> None:
    plain, first = draft_one(Message(b"")), draft_one(Message(b"", priority=2))
    assert plain.form != first.form
    batch = RecordBatch(build(join([first, plain]), 0, 0))
    assert batch.header.flags & Flag.PRIORITY
    assert not RecordBatch(build(plain, 0, 0)).header.flags & Flag.PRIORITY
