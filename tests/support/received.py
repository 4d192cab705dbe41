"""Received messages without a node."""

from collections.abc import Sequence as Seq

import numpy as np

from hourwheel.client.message import ReceivedBatch
from hourwheel.crc32c import crc32c
from hourwheel.formats.delivery_batch import DeliveryBatch, pack
from hourwheel.types import Epoch, ShardId, TopicId

UNIT = np.dtype(
    [
        *(("due_ms", "<i8"), ("sequence", "<u8"), ("store_ms", "<i8"), ("body_len", "<u4")),
        *(("crc", "<u4"), ("meta_len", "<u2"), ("attempt", "<u2")),
    ]
)


def received(messages: Seq[tuple[bytes, bytes]], *, damage: int | None = None) -> ReceivedBatch:
    """One answer with these (meta, body); `damage` is the byte of the batch to change."""
    units = np.zeros(len(messages), UNIT)
    for index, (meta, body) in enumerate(messages):
        units[index] = (
            *(1_000 + index, 70 + index, 500, len(body)),
            *(crc32c(meta + body), len(meta), 1 + index),
        )
    blobs = [meta + body for meta, body in messages]
    raw = bytearray(
        pack(units, blobs, shard=ShardId(2), topic_id=TopicId(1), receive_ms=1_234, epoch=Epoch(5))
    )
    if damage is not None:
        raw[damage] ^= 1
    batch = DeliveryBatch(bytes(raw))
    return ReceivedBatch(batch, topic="t", receipt="r", invisible_until_ms=9_000)
