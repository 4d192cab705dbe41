"""Columns of a piece are those of its batches one by one, whatever kinds of batches it has."""

import numpy as np

from hourwheel.formats import record_batch
from hourwheel.formats.dedup_key import make_dedup_key
from hourwheel.formats.record_batch import ROWS, Kind, RecordBatch, Stamp
from spark_jobs.logs.block_table import MESSAGE_COLUMNS, BlockTable, gather_headers

OWNER = ("n", 0, "f")


def piece(*built: bytes) -> BlockTable:
    """A piece of batches that are stamped one behind the other."""
    raw, at, sequence = b"", [], 100
    for number, one in enumerate(built):
        batch = RecordBatch(one)
        is_publish = batch.header.kind == Kind.PUBLISH
        stamp = Stamp(4_096 + len(raw), sequence, 1_000 + number, 0, 7)
        pieces = record_batch.stamp(
            batch,
            stamp,
            due_ms=batch.due_ms.copy() if is_publish else None,
            topic_queue=np.arange(batch.header.count, dtype="<u4") + 515 if is_publish else None,
        )
        at.append(len(raw))
        raw += b"".join(map(bytes, pieces))
        sequence += batch.header.count if is_publish else 0
    places = np.array(at, np.int64)
    return BlockTable(OWNER, raw, places, gather_headers(raw, places), np.ones(len(at), np.bool_))


def publish(count: int, *, producer: int = 0, per_message: bool = False) -> bytes:
    numbers = list(range(count))
    return record_batch.build_publish(
        [5_000 + one for one in numbers],
        [b"b" * one for one in numbers],
        metas=[b"m" * (one % 3) for one in numbers],
        tag_genes=[1 << 63 | one for one in numbers],
        key_hashes=[one * 3 for one in numbers],
        producer_id=producer,
        producer_sequence=producer * 10,
        message_producers=([9] * count, [one + 50 for one in numbers]) if per_message else None,
        dedup=[make_dedup_key(f"{one}", 1 + one % 3) for one in numbers] if count > 1 else None,
    )


CANCELS = record_batch.build_rows(
    Kind.CANCEL, np.array([(1, 2, 3, 0), (4, 5, 6, 0)], ROWS[Kind.CANCEL])
)
DISPATCH = record_batch.build_rows(
    Kind.DISPATCH, np.array([(1, 2, 3, 4, 5, 6, 7)], ROWS[Kind.DISPATCH])
)
PIECE = piece(
    publish(1),
    CANCELS,
    publish(6, producer=4),
    publish(3, per_message=True),
    DISPATCH,
    record_batch.build_blob(Kind.CONFIG, b"blob"),
    CANCELS,
    publish(1, per_message=True),
    publish(1),
)


def one_by_one(table: BlockTable) -> dict[str, list[int]]:
    """The columns, batch by batch, by the record batch's own reading."""
    found: dict[str, list[int]] = {name: [] for name in MESSAGE_COLUMNS}
    for ordinal in table.select(Kind.PUBLISH).tolist():
        batch = table.batch(ordinal)
        header, count = batch.header, batch.header.count
        wide = header.flags & record_batch.Flag.PER_MESSAGE_PRODUCER
        first = header.producer_sequence
        ids, numbers = (
            (column.tolist() for column in batch.message_producers)
            if wide
            else ([header.producer_id] * count, list(range(first, first + count)))
        )
        sizes = (batch.meta_len + batch.body_len).tolist()
        at = int(table.at[ordinal]) + batch.blob_offset
        found["sequence"] += range(header.base_sequence, header.base_sequence + count)
        found["producer_id"] += ids
        found["producer_sequence"] += numbers
        found["blob_at"] += [at + sum(sizes[:one]) for one in range(count)]
        found["topic_id"] += [one >> 8 for one in batch.topic_queue.tolist()]
        found["queue"] += [one & 255 for one in batch.topic_queue.tolist()]
        for name in ("offset", "epoch", "store_ms"):
            found[name] += [getattr(header, name)] * count
        for name in ("due_ms", "topic_queue", "tag_gene", "key_hash", "crc"):
            found[name] += getattr(batch, name).tolist()
        for name in ("body_len", "meta_len"):
            found[name] += getattr(batch, name).tolist()
        has_keys = header.flags & record_batch.Flag.DEDUP_KEYS
        keys = [one.tolist() for one in batch.dedup] if has_keys else [[0] * count] * 3
        for name, column in zip(("dedup_high", "dedup_low", "if_pending"), keys, strict=True):
            found[name] += column
    return found


def test_columns_when_gathered_at_once_are_those_of_the_batches() -> None:
    expected = one_by_one(PIECE)
    messages = PIECE.messages
    assert len(messages) == 12
    assert {name: messages.column(name).tolist() for name in MESSAGE_COLUMNS} == expected
    assert messages.batch.tolist() == [0, *[2] * 6, *[3] * 3, 7, 8]
    assert messages.blobs(6) == (b"mm", b"b" * 5)


def test_producers_when_the_last_batch_has_no_column_for_them_are_its_headers() -> None:
    bare = record_batch.build_publish([5_000] * 6, [b""] * 6, producer_id=8)
    messages = piece(publish(1, per_message=True), bare).messages
    assert messages.column("producer_id").tolist() == [9, *[8] * 6]
    assert messages.column("producer_sequence").tolist() == [50, *range(6)]


def test_rows_when_gathered_at_once_are_those_of_the_batches() -> None:
    owners, rows = PIECE.rows(Kind.CANCEL)
    assert owners.tolist() == [1, 1, 6, 6]
    assert rows.tolist() == [(1, 2, 3, 0), (4, 5, 6, 0)] * 2
    owners, rows = PIECE.rows(Kind.DISPATCH)
    assert (owners.tolist(), rows.tolist()) == ([4], [(1, 2, 3, 4, 5, 6, 7)])
    owners, rows = PIECE.rows(Kind.RESOLVE)
    assert (len(owners), len(rows), rows.dtype) == (0, 0, ROWS[Kind.RESOLVE])


def test_batch_when_rejected_has_no_messages_and_no_rows() -> None:
    table = piece(publish(2), CANCELS, publish(3))
    assert len(table.messages) == 5
    table.reject(np.array([0, 1]))
    assert table.messages.column("sequence").tolist() == [102, 103, 104]
    assert len(table.rows(Kind.CANCEL)[1]) == 0
    assert len(table) == 3


def test_piece_when_it_has_no_batch_has_no_rows_of_any_kind() -> None:
    table = piece()
    assert len(table) == len(table.messages) == len(table.rows(Kind.DISPATCH)[1]) == 0
    assert all(len(table.messages.column(name)) == 0 for name in MESSAGE_COLUMNS)


def test_batches_when_equal_have_equal_digests_and_blobs() -> None:
    digests = PIECE.digests()
    assert len(set(digests)) == len(digests) == len(PIECE)
    assert digests == PIECE.digests()
    assert PIECE.blob(5) == b"blob"
    assert PIECE.raw_of(5)[:4] == b"HWRB"
