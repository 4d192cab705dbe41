from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors, limits
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns, Draft
from hourwheel.client.message import Message
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.formats.tag_gene import (
    DEFAULT_SPEC,
    GENE_NONE,
    GENE_SPARSE,
    GeneKind,
    GeneSpec,
    gene_of,
    key_hash,
    sparse_gene,
)
from hourwheel.types import DUE_MS_MAX


def built(draft: Draft, producer_id: int = 5, first_sequence: int = 7) -> RecordBatch:
    batch = RecordBatch(batch_builder.build(draft, producer_id, first_sequence))
    batch.verify()
    return batch


def contents(batch: RecordBatch) -> list[tuple[bytes, bytes]]:
    """(meta, body) of each message."""
    raw, at, found = bytes(batch.blobs), 0, []
    for meta_len, body_len in zip(batch.meta_len.tolist(), batch.body_len.tolist(), strict=True):
        middle, end = at + meta_len, at + meta_len + body_len
        found.append((raw[at:middle], raw[middle:end]))
        at = end
    return found


def test_build_when_delays() -> None:
    messages = [Message(b"a", delay_ms=5), Message(b""), Message(b"c", delay_ms=0)]
    ((draft, ordinals),) = batch_builder.draft_messages(messages)
    batch = built(draft)
    assert ordinals is None
    assert batch.header.flags == Flag.RELATIVE_DUE
    assert batch.due_ms.tolist() == [5, 0, 0]
    assert contents(batch) == [(b"", b"a"), (b"", b""), (b"", b"c")]
    assert (batch.header.producer_id, batch.header.producer_sequence) == (5, 7)
    assert (batch.header.gene_kind, batch.header.gene_spec) == (GENE_NONE, 0)


@pytest.mark.parametrize(
    "spec",
    [
        GeneSpec(GeneKind.HASH_SET),
        GeneSpec(GeneKind.OR_GENE),
        GeneSpec(GeneKind.BLOOM, 2, ("p", "q")),
        GeneSpec(GeneKind.SPARSE, 5, ("p",)),
    ],
)
def test_build_when_the_topic_wants_other_genes(spec: GeneSpec) -> None:
    messages = [
        Message(b"a", tags=["x", "y"], properties={"p": "1", "r": "2"}),
        Message(b"b", tags=["x"], keys=["k"]),
        Message(b"c", properties={"q": "1"}),
        Message(b"d"),
    ]
    as_columns = Columns(bodies=[m.body for m in messages], metas=[m.meta() for m in messages])
    one_by_one = batch_builder.join([batch_builder.draft_one(message) for message in messages])
    for draft in (
        batch_builder.draft_messages(messages)[0][0],
        batch_builder.draft_columns(as_columns),
        one_by_one,
    ):
        batch = RecordBatch(batch_builder.build(draft, 0, 0, spec))
        batch.verify()
        expected = [gene_of(spec, m.tags, (m.properties or {}).items()) for m in messages]
        assert batch.tag_gene.tolist() == expected
        assert batch.header.gene_spec == spec.number
        again = RecordBatch(batch_builder.renumber(bytes(batch.head) + bytes(batch.payload), 7, 9))
        again.verify()
        assert again.header.gene_spec == spec.number


def test_build_when_instants_and_metas() -> None:
    messages = [
        Message(b"a", due_ms=1, tags=["x", "y"], keys=["k"]),
        Message(b"b", due_ms=2),
        Message(b"c", due_ms=3, properties={"p": "v"}),
    ]
    ((draft, _),) = batch_builder.draft_messages(messages)
    batch = built(draft)
    assert batch.header.flags == 0
    assert batch.header.gene_kind == GENE_SPARSE
    assert batch.tag_gene.tolist() == [sparse_gene(("x", "y")), 0, 0]
    assert batch.key_hash.tolist() == [key_hash("k"), 0, 0]
    assert batch.header.gene_spec == DEFAULT_SPEC.number
    expected = [encode(message.meta()).raw for message in messages]
    assert contents(batch) == list(zip(expected, [b"a", b"b", b"c"], strict=True))


def test_draft_messages_when_delays_and_instants() -> None:
    messages = [Message(b"0", delay_ms=1), Message(b"1", due_ms=2), Message(b"2")]
    (relative, first), (absolute, second) = batch_builder.draft_messages(messages)
    assert (first, second) == ([0, 2], [1])
    assert (relative.bodies, relative.times_ms.tolist()) == ([b"0", b"2"], [1, 0])
    assert (absolute.bodies, absolute.times_ms.tolist()) == ([b"1"], [2])


def test_draft_messages_when_none() -> None:
    ((draft, _),) = batch_builder.draft_messages([])
    assert draft.count == 0
    assert list(batch_builder.cut(draft, messages_max=10, bytes_max=10)) == []


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message(b"", delay_ms=-1), errors.InvalidDueTime),
        (Message(b"", due_ms=-1), errors.InvalidDueTime),
        (Message(b"", delay_ms=DUE_MS_MAX + 1), errors.InvalidDueTime),
        (Message(b"", due_ms=1 << 70), errors.InvalidDueTime),
        (Message(b"", delay_ms=1.5), errors.InvalidDueTime),  # type: ignore[arg-type]
        (Message(b"", delay_ms="5"), errors.InvalidDueTime),  # type: ignore[arg-type]
        (Message(b"", delay_ms=1, due_ms=1), errors.InvalidDueTime),
        (Message("text"), errors.InvalidArgument),  # type: ignore[arg-type]
        (Message(None), errors.InvalidArgument),  # type: ignore[arg-type]
        (Message([1, 2]), errors.InvalidArgument),  # type: ignore[arg-type]
        (Message(bytes(limits.MESSAGE_BODY_BYTES_MAX + 1)), errors.MessageTooLarge),
        (Message(b"", tags=["x"] * 65), errors.MessageTooLarge),
        (Message(b"", tags="x"), errors.InvalidArgument),
        (Message(b"", keys="x"), errors.InvalidArgument),
        (Message(b"", properties=[("a", "b")]), errors.InvalidArgument),  # type: ignore[arg-type]
        (b"no message", errors.InvalidArgument),
        (None, errors.InvalidArgument),
    ],
)
def test_draft_messages_when_bad(message: Message, error: type[errors.HourwheelError]) -> None:
    with pytest.raises(error):
        batch_builder.draft_messages([message])
    with pytest.raises(error):
        batch_builder.draft_messages([Message(b"good"), message])
    with pytest.raises(error):
        batch_builder.draft_one(message)


def test_draft_messages_when_the_error_says_what_to_write() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"Message\(b'\.\.\.'.* not a bytes"):
        batch_builder.draft_messages([b"body"])  # type: ignore[list-item]
    with pytest.raises(errors.InvalidDueTime, match="-5 ms is negative"):
        batch_builder.draft_messages([Message(b"", delay_ms=-5)])
    with pytest.raises(errors.InvalidDueTime, match="out of range"):
        batch_builder.draft_messages([Message(b"", due_ms=DUE_MS_MAX + 1)])


def test_draft_messages_when_bodies_are_other_buffers() -> None:
    messages = [Message(bytearray(b"a")), Message(memoryview(b"bc"))]  # type: ignore[arg-type]
    ((draft, _),) = batch_builder.draft_messages(messages)
    assert draft.bodies == [b"a", b"bc"]


@pytest.mark.parametrize(
    "message",
    [
        Message(b"a"),
        Message(b"", delay_ms=5),
        Message(b"a", due_ms=5, tags=["x"], keys=["k"]),
        Message(bytearray(b"a"), due_ms=DUE_MS_MAX),  # type: ignore[arg-type]
        Message(b"a", delay_ms=True),
    ],
)
def test_draft_one_when_compared_with_a_list_of_one(message: Message) -> None:
    ((draft, _),) = batch_builder.draft_messages([message])
    single = batch_builder.draft_one(message)
    assert batch_builder.build(single, 1, 2) == batch_builder.build(draft, 1, 2)
    assert (single.batch_bytes, single.largest_bytes) == (draft.batch_bytes, draft.largest_bytes)


def test_draft_columns_when_lists_or_arrays() -> None:
    for times in ([1, 2], np.array([1, 2]), np.array([1, 2], np.uint64), np.array([1, 2], ">i4")):
        draft = batch_builder.draft_columns(Columns(bodies=(b"a", b"b"), delay_ms=times))
        assert built(draft).due_ms.tolist() == [1, 2]
    draft = batch_builder.draft_columns(
        Columns(bodies=[b"a"], due_ms=[4], metas=[MessageMeta(tags=("x",))])
    )
    assert contents(built(draft)) == [(encode(MessageMeta(tags=("x",))).raw, b"a")]


@pytest.mark.parametrize(
    "columns",
    [
        Columns(bodies=[b"a"], delay_ms=[1], due_ms=[1]),
        Columns(bodies=[b"a"], delay_ms=[1, 2]),
        Columns(bodies=[b"a"], metas=[]),
        Columns(bodies=[b"a"], delay_ms=np.array([1.0])),
        Columns(bodies=[b"a"], delay_ms=np.array([[1]])),
        Columns(bodies=[b"a"], due_ms=np.array([1 << 63], np.uint64)),
        Columns(bodies=[b"a"], due_ms=np.array([-1])),
    ],
)
def test_draft_columns_when_bad(columns: Columns) -> None:
    with pytest.raises(errors.InvalidArgument):
        batch_builder.draft_columns(columns)


@given(
    st.lists(st.tuples(st.binary(max_size=200), st.lists(st.sampled_from("abc"), max_size=2))),
    st.integers(1, 7),
    st.integers(1, 500),
)
def test_cut_and_join_when_put_together_again(
    given_messages: list[tuple[bytes, list[str]]], messages_max: int, bytes_max: int
) -> None:
    messages = [
        Message(body, delay_ms=n, tags=tags) for n, (body, tags) in enumerate(given_messages)
    ]
    ((draft, _),) = batch_builder.draft_messages(messages)
    pieces = list(batch_builder.cut(draft, messages_max=messages_max, bytes_max=bytes_max))
    assert all(0 < piece.count <= messages_max for piece in pieces)
    assert all(piece.count == 1 or piece.batch_bytes <= bytes_max for piece in pieces)
    if pieces:
        whole = batch_builder.join(pieces)
        assert batch_builder.build(whole, 1, 2) == batch_builder.build(draft, 1, 2)
        assert whole.blob_bytes == draft.blob_bytes


def test_renumber_when_flags_and_metas_are_there() -> None:
    ((draft, _),) = batch_builder.draft_messages([Message(b"a", due_ms=1, tags=["x"])] * 3)
    raw = batch_builder.renumber(batch_builder.build(draft, 1, 2), (1 << 64) - 1, 1 << 40)
    assert raw == batch_builder.build(draft, (1 << 64) - 1, 1 << 40)


def test_columns_when_made_by_position() -> None:
    make: Any = Columns
    with pytest.raises(TypeError):
        make([b"a"])
