"""Rows of keys, made of a batch and of messages that were read."""

import numpy as np

from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from node.shard.deduplication import units_of
from node.shard.message_keys import rows_of_batch, rows_of_units
from storage.views.catalog import Catalog
from storage.views.key_rows import KeyRows, hash_keys

KEYS: list[tuple[str, ...]] = [("a",), (), ("b", "a"), ("ü",)]
DUE = [10, 20, 30, 40]


def batch_of(metas: list[bytes] | None) -> RecordBatch:
    return RecordBatch(
        build_publish(
            DUE, [b"body"] * 4, metas=metas, topic_queues=[256, 256, 257, 512], producer_id=5
        )
    )


def metas() -> list[bytes]:
    return [encode(MessageMeta(tags=("t",), keys=keys)).raw for keys in KEYS]


def plain(rows: KeyRows | None) -> list[tuple[int, ...]]:
    assert rows is not None
    return [*zip(*(column.tolist() for column in rows), strict=True)]


def expected(topics: list[int], keys: list[bytes], ordinals: list[int]) -> list[tuple[int, ...]]:
    hashes = hash_keys(topics, keys)
    dues = [DUE[at] for at in ordinals]
    return [*zip(hashes.high.tolist(), hashes.low.tolist(), ordinals, dues, strict=True)]


def test_rows_of_a_batch_when_some_messages_have_keys() -> None:
    batch = batch_of(metas())
    every = expected([1, 1, 1, 2], [b"a", b"b", b"a", "ü".encode()], [0, 2, 2, 3])
    assert plain(rows_of_batch(batch, None)) == every
    accepted = np.array([False, True, True, False])
    assert plain(rows_of_batch(batch, accepted)) == every[1:3]
    assert rows_of_batch(batch, np.array([False, True, False, False])) is None


def test_rows_of_a_batch_when_no_message_has_any() -> None:
    assert rows_of_batch(batch_of(None), None) is None
    assert rows_of_batch(batch_of([b"", b"\x0a\x01t", b"", b""]), None) is None


def test_rows_of_units_when_they_were_read() -> None:
    batch = batch_of(metas())
    units = units_of(Catalog([], [], [], next_topic_id=1, next_group_id=1), batch)
    blobs: list[bytes | memoryview] = [raw + b"body" for raw in metas()]
    assert plain(rows_of_units(units, blobs)) == plain(rows_of_batch(batch, None))
    assert rows_of_units(units[1:2], blobs[1:2]) is None
    assert rows_of_units(units[:1], [b""]) is None, "it could not be read"
