from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats import record_batch
from hourwheel.formats.batch_columns import pad8
from hourwheel.formats.joined_rows import join_rows
from hourwheel.formats.record_batch import (
    DISPATCH_ROW,
    HEADER_BYTES,
    ROWS,
    Flag,
    Header,
    Kind,
    RecordBatch,
    Stamp,
    build_blob,
    build_publish,
    build_rows,
    stamp,
    unpack_header,
)

STAMP = Stamp(
    offset=4_096, base_sequence=70, store_ms=1_700_000_000_000, flushed_end_offset=9, epoch=3
)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
BLOB = st.binary(max_size=20)
MESSAGES = st.lists(st.tuples(I64, BLOB, BLOB, U64, U64, U32, U64, U64), min_size=1, max_size=9)


def published(**changed: Any) -> bytes:
    """Three messages, not stamped."""
    facts: dict[str, Any] = {
        "due_ms": [1_000, -1, 2_000],
        "bodies": [b"first", b"", b"third"],
        "metas": [b"", b"meta", b"m"],
        "producer_id": 5,
        "producer_sequence": 8,
    }
    return build_publish(**(facts | changed))


def resealed(raw: bytes, **fields: int) -> bytes:
    """`raw` with these fields of its header forged, and the CRCs made right again."""
    header = unpack_header(raw)._replace(**fields)
    stamped = raw[HEADER_BYTES : HEADER_BYTES + unpack_header(raw).stamped_bytes]
    head = record_batch._seal(header, stamped)
    return head + raw[len(head) :]


@given(messages=MESSAGES, is_merged=st.booleans(), has_metas=st.booleans())
def test_publish_when_built_stamped_and_read(
    messages: list[tuple[Any, ...]], *, is_merged: bool, has_metas: bool
) -> None:
    due, bodies, metas, genes, hashes, queues, producers, sequences = map(
        list, zip(*messages, strict=True)
    )
    raw = build_publish(
        due,
        bodies,
        metas=metas if has_metas else None,
        tag_genes=genes,
        key_hashes=hashes,
        message_producers=(producers, sequences) if is_merged else None,
    )
    built = RecordBatch(raw)
    built.verify()
    head, payload = stamp(
        built, STAMP, due_ms=built.due_ms, topic_queue=np.array(queues, np.uint32)
    )
    for batch in (RecordBatch.from_pieces(head, payload), RecordBatch(head + bytes(payload))):
        batch.verify()
        assert batch.header[6:11] == STAMP
        assert (batch.header.count, batch.header.total_bytes) == (len(due), len(raw))
        assert batch.due_ms.tolist() == due
        assert batch.topic_queue.tolist() == queues
        assert batch.tag_gene.tolist() == genes
        assert batch.key_hash.tolist() == hashes
        assert batch.body_len.tolist() == [len(body) for body in bodies]
        blobs = [
            (meta if has_metas else b"") + body for meta, body in zip(metas, bodies, strict=True)
        ]
        assert bytes(batch.blobs) == b"".join(blobs)
        assert batch.crc.tolist() == [crc32c(blob) for blob in blobs]
        assert (head + bytes(payload))[batch.blob_offset :].startswith(b"".join(blobs))
        if is_merged:
            assert [column.tolist() for column in batch.message_producers] == [producers, sequences]
        assert batch.header.flags == (Flag.PER_MESSAGE_PRODUCER if is_merged else 0)
    assert len(raw) % 8 == 0


def test_publish_when_nothing_but_bodies_is_given() -> None:
    batch = RecordBatch(build_publish([1, 2], [b"a", b"bc"]))
    for column in (batch.tag_gene, batch.key_hash, batch.topic_queue, batch.meta_len):
        assert column.tolist() == [0, 0]
    assert bytes(batch.blobs) == b"abc"


def test_publish_when_a_due_time_does_not_fit_into_64_bits() -> None:
    for due_ms in (1 << 63, -(1 << 63) - 1, 1 << 80):
        with pytest.raises(errors.InvalidDueTime):
            build_publish([0, due_ms], [b"", b""])


def test_columns_when_written_to_are_refused() -> None:
    batch = RecordBatch(published())
    for column in (batch.due_ms, batch.topic_queue, batch.crc, batch.tag_gene):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_rows_when_built_stamped_and_read(kind: Kind, count: int) -> None:
    rows = np.frombuffer(bytes(range(200))[: ROWS[kind].itemsize] * count, ROWS[kind])
    built = RecordBatch(build_rows(kind, rows))
    batch = RecordBatch(b"".join(stamp(built, STAMP)))
    batch.verify()
    assert batch.rows.tobytes() == rows.tobytes()
    assert (batch.header.kind, batch.header.count) == (kind, count)
    assert ROWS[kind].itemsize % 8 == 0


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.sampled_from(sorted(ROWS)))
def test_join_rows_when_compared_with_lists(counts: list[int], kind: Kind) -> None:
    whole = np.arange(sum(counts) * ROWS[kind].itemsize, dtype=np.uint8).view(ROWS[kind])
    ends = np.cumsum(counts).tolist()
    pieces = [whole[end - count : end] for count, end in zip(counts, ends, strict=True)]
    joined = join_rows(pieces)
    assert joined.dtype == ROWS[kind]
    assert joined.tolist() == whole.tolist()
    every_other = [piece[::2] for piece in pieces]
    expected = [row for piece in every_other for row in piece.tolist()]
    assert join_rows(every_other).tolist() == expected


@pytest.mark.parametrize("blob", [b"", b"1", b"12345678", bytes(1_000)])
def test_blob_when_built_stamped_and_read(blob: bytes) -> None:
    batch = RecordBatch(b"".join(stamp(RecordBatch(build_blob(Kind.CONFIG, blob)), STAMP)))
    batch.verify()
    assert bytes(batch.blobs) == blob
    assert batch.header.total_bytes == pad8(HEADER_BYTES + len(blob))


# -- stamping


def test_stamp_when_due_times_were_delays_makes_them_instants() -> None:
    built = RecordBatch(published(relative_due=True))
    assert built.header.flags == Flag.RELATIVE_DUE
    due_ms = built.due_ms + STAMP.store_ms
    head, payload = stamp(built, STAMP, due_ms=due_ms, topic_queue=np.zeros(3, np.uint32))
    batch = RecordBatch.from_pieces(head, payload)
    batch.verify()
    assert batch.header.flags == 0
    assert batch.due_ms.tolist() == due_ms.tolist()


def test_stamp_when_repeated_changes_only_what_the_master_writes() -> None:
    built = RecordBatch(published())
    queues = np.array([1, 2, 3], np.uint32)
    head, payload = stamp(built, STAMP, due_ms=built.due_ms, topic_queue=queues)
    assert payload.obj is built.payload.obj  # not a copy
    again = RecordBatch.from_pieces(head, payload)
    later = STAMP._replace(offset=8_192, epoch=4)
    second, _ = stamp(again, later, due_ms=again.due_ms, topic_queue=again.topic_queue)
    assert len(second) == len(head) == HEADER_BYTES + pad8(3 * 12)
    header = RecordBatch.from_pieces(second, payload).header
    assert header == again.header._replace(offset=8_192, epoch=4, header_crc=header.header_crc)


def test_stamp_when_columns_would_change_their_size_stops() -> None:
    built = RecordBatch(published())
    for due_ms, queues in [(None, None), (built.due_ms[:2], np.zeros(2, np.uint32))]:
        with pytest.raises(errors.InvariantViolated):
            stamp(built, STAMP, due_ms=due_ms, topic_queue=queues)
    with pytest.raises(errors.InvariantViolated):
        stamp(
            RecordBatch(build_blob(Kind.CONFIG, b"x")),
            STAMP,
            due_ms=np.zeros(1, np.int64),
            topic_queue=np.zeros(1, np.uint32),
        )


# -- bad input


def stamped_publish() -> bytes:
    built = RecordBatch(published())
    return b"".join(stamp(built, STAMP, due_ms=built.due_ms, topic_queue=built.topic_queue))


@pytest.mark.parametrize(
    "make",
    [
        published,
        stamped_publish,
        lambda: build_rows(Kind.DISPATCH, np.zeros(2, DISPATCH_ROW)),
        lambda: build_blob(Kind.EPOCH_START, b"12345"),
    ],
)
def test_I8_batch_when_any_bit_is_flipped_is_refused(make: Callable[[], bytes]) -> None:  # noqa: N802
    good = make()
    header = unpack_header(good)
    parts = header.stamped_bytes + header.column_bytes + header.blob_bytes
    for bit in range(8 * (HEADER_BYTES + parts)):  # the padding behind it means nothing
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.InvalidBatch):
            RecordBatch(bytes(bad)).verify()


def test_batch_when_cut_at_every_byte_is_refused() -> None:
    good = published()
    for size in range(len(good)):
        with pytest.raises(errors.InvalidBatch):
            RecordBatch(good[:size])


def test_batch_when_more_follows_it_ends_where_it_ends() -> None:
    good = published()
    batch = RecordBatch(good + published(bodies=[b"x", b"y", b"z"]))
    batch.verify()
    assert bytes(batch.blobs) == b"firstmetamthird"
    assert len(batch.payload) == len(good) - batch.blob_offset + batch.header.column_bytes


def test_header_when_inside_a_buffer() -> None:
    good = published()
    assert unpack_header(b"12345" + good, 5) == unpack_header(good)
    with pytest.raises(errors.InvalidBatch, match="shorter"):
        unpack_header(good, len(good) - HEADER_BYTES + 1)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_batch_when_of_another_version_is_refused_as_such(version: int) -> None:
    with pytest.raises(errors.UnsupportedVersion):
        RecordBatch(resealed(published(), version=version))


def test_batch_when_it_is_something_else_is_refused() -> None:
    for raw in (b"", b"GET / HTTP/1.1\r\n" * 20, bytes(500)):
        with pytest.raises(errors.InvalidBatch):
            RecordBatch(raw)


FORGED: dict[str, dict[str, int]] = {
    "no messages": {"count": 0},
    "more messages": {"count": 4},
    "fewer messages": {"count": 2},
    "so many that sizes overflow": {"count": (1 << 32) // 12 + 4},
    "all the messages there could be": {"count": (1 << 32) - 1},
    "producer columns that are not there": {"flags": Flag.PER_MESSAGE_PRODUCER},
    "a larger total": {"total_bytes": 1 << 31},
    "a smaller total": {"total_bytes": HEADER_BYTES},
    "a total of nothing": {"total_bytes": 0},
    "a kind with rows": {"kind": Kind.DISPATCH},
    "a kind with a blob": {"kind": Kind.CONFIG},
    "an unknown kind": {"kind": 200},
}


@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED)
def test_batch_when_forged_with_right_checksums_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidBatch):
        RecordBatch(resealed(published(), **fields)).verify()


@pytest.mark.parametrize(
    ("stamped", "columns", "blobs"),
    [(8, 0, 0), (-8, 8, 0), (0, 8, -8), (0, -8, 8), (4, -4, 0), (0, 4, -4)],
)
def test_batch_when_forged_sizes_add_up_is_refused(stamped: int, columns: int, blobs: int) -> None:
    good = published(bodies=[b"x" * 50, b"", b""])
    header = unpack_header(good)
    with pytest.raises(errors.InvalidBatch):
        RecordBatch(
            resealed(
                good,
                stamped_bytes=header.stamped_bytes + stamped,
                column_bytes=header.column_bytes + columns,
                blob_bytes=header.blob_bytes + blobs,
            )
        ).verify()


def test_batch_when_blob_lengths_do_not_add_up_is_refused() -> None:
    good = published()
    batch = RecordBatch(good)
    narrow = HEADER_BYTES + batch.header.stamped_bytes + 16 * 3
    for column, lengths in [(1, [6, 0, 5]), (1, [5, 0, 4]), (2, [0, 4, 0]), (1, [2**32 - 1, 0, 0])]:
        bad = bytearray(good)
        at = narrow + 12 * column
        bad[at : at + 12] = np.array(lengths, "<u4").tobytes()
        payload = bad[HEADER_BYTES + batch.header.stamped_bytes :]
        end = batch.header.column_bytes + batch.header.blob_bytes
        forged = resealed(bytes(bad), payload_crc=crc32c(payload[:end]))
        with pytest.raises(errors.InvalidBatch, match="add up"):
            RecordBatch(forged).verify()


def test_publish_when_columns_do_not_fit_one_another_is_refused_by_whoever_reads_it() -> None:
    raw = build_publish([1, 2, 3], [b"a", b"b"])
    with pytest.raises(errors.InvalidBatch):
        RecordBatch(raw).verify()


def test_batch_when_of_an_unknown_kind_but_whole_is_verified() -> None:
    # Whoever applies it stops (node/shard/apply.py); whoever only copies it may.
    RecordBatch(resealed(build_blob(Kind.CONFIG, b"later"), kind=200)).verify()


@pytest.mark.parametrize(("size", "padded"), [(0, 0), (1, 8), (7, 8), (8, 8), (9, 16)])
def test_pad8_when_sizes_are_at_borders(size: int, padded: int) -> None:
    assert pad8(size) == padded


def test_header_when_taken_apart_has_the_fields_of_the_page() -> None:
    header = unpack_header(published())
    assert isinstance(header, Header)
    assert header.magic.to_bytes(4, "little") == b"HWRB"
    assert header[6:11] == (0, 0, 0, 0, 0)
    assert (header.producer_id, header.producer_sequence) == (5, 8)


def test_gene_spec_is_in_the_header_and_under_its_crc() -> None:
    raw = build_publish([0], [b"x"], tag_genes=[5], gene_kind=1, gene_spec=0xDEAD_BEEF)
    batch = RecordBatch(raw)
    batch.verify()
    assert (batch.header.gene_kind, batch.header.gene_spec) == (1, 0xDEAD_BEEF)
    assert raw[81:88] == bytes(3) + b"\xef\xbe\xad\xde"
    forged = raw[:84] + bytes(4) + raw[88:]
    with pytest.raises(errors.InvalidBatch):
        RecordBatch(forged).verify()
