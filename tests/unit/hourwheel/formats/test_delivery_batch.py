from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.delivery_batch import HEADER_BYTES, DeliveryBatch, pack
from tests.support.golden import golden

FIELDS = np.dtype(
    [
        *(("due_ms", "<i8"), ("sequence", "<u8"), ("store_ms", "<i8"), ("body_len", "<u4")),
        *(("crc", "<u4"), ("meta_len", "<u2"), ("attempt", "<u2")),
    ]
)
MESSAGES = [(b"", b"hello"), (b"\x0a\x01a", b""), (b"\x12\x03k-1", b"world" * 3)]


def units() -> NDArray[Any]:
    rows = np.zeros(len(MESSAGES), FIELDS)
    rows["due_ms"] = [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_500]
    rows["sequence"] = [10, 3, 12]
    rows["store_ms"] = [1_600_000_000_000] * 3
    rows["body_len"] = [len(body) for _, body in MESSAGES]
    rows["meta_len"] = [len(meta) for meta, _ in MESSAGES]
    rows["crc"] = [crc32c(meta + body) for meta, body in MESSAGES]
    rows["attempt"] = [1, 2, 1]
    return rows


def packed(**changed: Any) -> bytes:
    blobs = [meta + body for meta, body in MESSAGES]
    facts: dict[str, Any] = {
        "shard": 4,
        "topic_id": 9,
        "receive_ms": 1_700_000_000_777,
        "epoch": np.array([1, 2, 2]),
    }
    return pack(units(), blobs, **(facts | changed))


def test_pack_when_golden() -> None:
    assert packed() == golden("delivery_batch")


def test_view_when_packed() -> None:
    batch = DeliveryBatch(packed())
    batch.verify()
    assert len(batch) == 3
    assert (batch.header.shard, batch.header.topic_id) == (4, 9)
    assert batch.header.receive_ms == 1_700_000_000_777
    for name in ("sequence", "due_ms", "store_ms", "crc", "body_len", "meta_len", "attempt"):
        assert getattr(batch, name).tolist() == units()[name].tolist(), name
    assert batch.epoch.tolist() == [1, 2, 2]
    ends = batch.blob_ends().tolist()
    assert batch.buffer[batch.blob_offset : ends[0]] == b"hello"
    assert batch.buffer[ends[0] : ends[1]] == b"\x0a\x01a"
    assert batch.buffer[ends[1] : ends[2]] == b"\x12\x03k-1" + b"world" * 3
    assert ends[2] == len(batch.buffer)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("is_one_epoch", [True, False])
def test_pack_when_few_or_many_has_the_same_columns(count: int, *, is_one_epoch: bool) -> None:
    rows = np.resize(units(), count)
    rows["sequence"] = np.arange(count, dtype=np.uint64) + np.uint64(1 << 63)
    epochs = np.arange(1, count + 1, dtype=np.uint32)
    blobs = [b"x" * int(rows["body_len"].sum() + rows["meta_len"].sum())]
    epoch = 5 if is_one_epoch else epochs
    raw = pack(rows, blobs, shard=1, topic_id=2, receive_ms=3, epoch=epoch)
    batch = DeliveryBatch(raw)
    for name in ("sequence", "due_ms", "store_ms", "crc", "body_len", "meta_len", "attempt"):
        assert getattr(batch, name).tolist() == rows[name].tolist()
    assert batch.epoch.tolist() == ([5] * count if is_one_epoch else epochs.tolist())
    padding = raw[HEADER_BYTES + 44 * count : batch.blob_offset]
    assert padding == bytes(len(padding))
    with pytest.raises(errors.InvalidBatch):
        DeliveryBatch(raw + b"x")


def test_view_when_columns_are_asked_to_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        DeliveryBatch(packed()).sequence[0] = 1


def test_pack_when_one_epoch_and_first_due_times() -> None:
    batch = DeliveryBatch(packed(epoch=7, due_ms=np.array([1, 2, 3])))
    assert batch.epoch.tolist() == [7, 7, 7]
    assert batch.due_ms.tolist() == [1, 2, 3]


def test_pack_when_blobs_do_not_fit() -> None:
    with pytest.raises(errors.InvariantViolated):
        pack(units(), [b"hello"], shard=0, topic_id=1, receive_ms=0, epoch=0)
    with pytest.raises(errors.InvariantViolated):
        pack(units()[:0], [], shard=0, topic_id=1, receive_ms=0, epoch=0)


def test_view_when_any_bit_of_header_or_columns_is_flipped() -> None:
    good = packed()
    for bit in range(DeliveryBatch(good).blob_offset * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.InvalidBatch):
            DeliveryBatch(bytes(bad))


def test_view_when_of_a_later_version() -> None:
    bad = bytearray(packed())
    bad[4] = 2
    with pytest.raises(errors.UnsupportedVersion):
        DeliveryBatch(bytes(bad))


def test_view_when_cut_at_every_byte_or_longer() -> None:
    good = packed()
    for size in range(len(good)):
        with pytest.raises(errors.InvalidBatch):
            DeliveryBatch(good[:size])
    with pytest.raises(errors.InvalidBatch):
        DeliveryBatch(good + b"\0")


def test_view_when_count_and_crc_are_forged() -> None:
    body = bytes(HEADER_BYTES)
    forged = bytearray(b"HWDB\x01" + body[5:])
    forged[36:40] = crc32c(forged[:36]).to_bytes(4, "little")
    with pytest.raises(errors.InvalidBatch, match="add up"):
        DeliveryBatch(bytes(forged))


def test_verify_when_a_blob_is_damaged() -> None:
    bad = bytearray(packed())
    bad[-1] ^= 1
    batch = DeliveryBatch(bytes(bad))
    with pytest.raises(errors.InvalidBatch) as found:
        batch.verify()
    assert found.value.params["sequence"] == "12"
