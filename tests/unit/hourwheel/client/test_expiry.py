"""When messages expire: what users say, and what a batch says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.batch_builder import Columns, build, draft_columns, draft_messages, draft_one
from hourwheel.client.expiry import expires_of
from hourwheel.client.message import Message
from hourwheel.formats.batch_columns import expires_of as expires_in
from hourwheel.formats.expiry_field import expires_field, expiry_of
from hourwheel.formats.meta import MessageMeta, decode, encode
from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.types import DUE_MS_MAX

AT_MS = 1_800_000_000_000


def stated(message: Message) -> int:
    """What the batch of one message says, made one way and the other."""
    found = []
    for draft in (draft_one(message), draft_messages([message, message])[0][0]):
        batch = RecordBatch(build(draft, 0, 0))
        assert batch.header.flags & Flag.EXPIRY
        assert draft.form[2]
        found.append(expires_in(batch.blobs, batch.meta_len, batch.body_len)[0].item())
    assert found[0] == found[1]
    return int(found[0])


def test_expiry_is_an_instant_or_a_time_after_it_is_due() -> None:
    assert stated(Message(b"", due_ms=AT_MS, expires_ms=AT_MS + 1)) == AT_MS + 1
    assert stated(Message(b"", due_ms=AT_MS, expire_after_ms=7)) == AT_MS + 7
    assert stated(Message(b"", delay_ms=500, expire_after_ms=7)) == -507
    assert stated(Message(b"", expire_after_ms=7)) == -7
    assert stated(Message(b"", delay_ms=500, expires_ms=AT_MS)) == AT_MS
    assert stated(Message(b"", expires=timedelta(seconds=1))) == -1_000
    instant = datetime.fromtimestamp(AT_MS / 1_000, UTC)
    assert stated(Message(b"", tags=("t",), expires=instant)) == AT_MS


def test_message_without_expiry_says_nothing_of_it() -> None:
    batch = RecordBatch(build(draft_one(Message(b"", tags=("t",))), 0, 0))
    assert not batch.header.flags & Flag.EXPIRY


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_ms": AT_MS, "expire_after_ms": 1},
        {"expires_ms": AT_MS, "due_ms": AT_MS},
        {"expires_ms": AT_MS // 1_000},
        {"expires_ms": 0},
        {"expires_ms": True},
        {"expires_ms": DUE_MS_MAX + 1},
        {"expire_after_ms": 0},
        {"expire_after_ms": -5},
        {"expire_after_ms": 1.5},
        {"expire_after_ms": DUE_MS_MAX, "due_ms": AT_MS},
        {"expire_after_ms": DUE_MS_MAX, "delay_ms": 1},
    ],
)
def test_expiry_when_it_is_none_is_refused(fields: dict[str, Any]) -> None:
    message = Message(b"", **fields)
    with pytest.raises(errors.InvalidDueTime):
        draft_one(message)
    with pytest.raises(errors.InvalidDueTime):
        draft_messages([message])


def test_expiry_when_it_is_given_twice_or_without_a_zone_is_refused() -> None:
    with pytest.raises(errors.InvalidDueTime, match="another expiry"):
        Message(b"", expires=timedelta(1), expires_ms=AT_MS)
    with pytest.raises(errors.InvalidDueTime):
        Message(b"", expires=datetime(2027, 3, 1))  # noqa: DTZ001 - what is tested
    assert expires_of(None, None, None, None) == 0


def test_columns_have_a_column_of_it() -> None:
    columns = Columns(bodies=[b"", b""], due_ms=[AT_MS, AT_MS], expires_ms=[AT_MS + 1, 0])
    batch = RecordBatch(build(draft_columns(columns), 0, 0))
    assert expires_in(batch.blobs, batch.meta_len, batch.body_len).tolist() == [AT_MS + 1, 0]
    for wrong in ([AT_MS, 0], [AT_MS + 1], [-1, 0]):
        with pytest.raises((errors.InvalidDueTime, errors.InvalidArgument)):
            draft_columns(Columns(bodies=[b"", b""], due_ms=[AT_MS] * 2, expires_ms=wrong))


def test_meta_has_it_before_all_else_and_others_are_not_taken_for_it() -> None:
    meta = MessageMeta(tags=("t",), ordering_key="9abcdefgh", expires_ms=-5)
    raw = encode(meta).raw
    assert decode(raw) == meta
    assert expires_field(raw) == -5
    assert expires_field(encode(MessageMeta(ordering_key="9abcdefgh")).raw) == 0
    assert [expiry_of(at, 100) for at in (-5, 0, 7)] == [105, 0, 7]
