"""What is refused of record batches from strangers."""

import struct
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.meta import encode_fields
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    HEADER_BYTES,
    Kind,
    RecordBatch,
    build_publish,
    build_rows,
)
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1.meta_pb2 import MessageMeta
from node.api.batches import check_batch
from node.config.model import LimitsSection
from tests.support.fake_engine import NOW_MS

HORIZON_MS = 1_100 * 86_400_000
LIMITS = LimitsSection()


def check(raw: bytes, allowed: LimitsSection = LIMITS) -> RecordBatch:
    return check_batch(raw, allowed, now_ms=NOW_MS, horizon_ms=HORIZON_MS)


def sealed(raw: bytes, at: int, value: bytes) -> bytes:
    """`raw` with bytes of its header or stamped columns changed and the header's CRC mended."""
    changed = bytearray(raw)
    changed[at : at + len(value)] = value
    stamped_bytes = struct.unpack_from("<I", changed, 52)[0]
    end = HEADER_BYTES + stamped_bytes
    crc = crc32c(bytes(changed[HEADER_BYTES:end]), crc32c(bytes(changed[: HEADER_BYTES - 4])))
    changed[HEADER_BYTES - 4 : HEADER_BYTES] = crc.to_bytes(4, "little")
    return bytes(changed)


def resummed(raw: bytes, at: int, value: bytes) -> bytes:
    """`raw` with bytes of its payload changed and both CRCs mended."""
    changed = bytearray(raw)
    changed[at : at + len(value)] = value
    stamped, columns, blobs = struct.unpack_from("<III", changed, 52)
    start = HEADER_BYTES + stamped
    payload_crc = crc32c(bytes(changed[start : start + columns + blobs]))
    return sealed(bytes(changed), 88, payload_crc.to_bytes(4, "little"))


def good(**fields: Any) -> bytes:
    return build_publish([NOW_MS, NOW_MS + 60_000], [b"first", b"second"], **fields)


def test_batch_passes_when_it_is_good() -> None:
    batch = check(good(producer_id=7, producer_sequence=3, gene_kind=1, tag_genes=[1, 2]))
    assert batch.header.count == 2
    assert bytes(batch.blobs) == b"firstsecond"


def test_batch_passes_when_delays_reach_to_the_horizon() -> None:
    check(build_publish([0, HORIZON_MS], [b"", b""], relative_due=True))
    check(build_publish([0, NOW_MS + HORIZON_MS], [b"", b""]))


def test_batch_is_refused_at_every_flipped_bit() -> None:
    raw = good()
    end = HEADER_BYTES + RecordBatch(raw).header.stamped_bytes + 56 + 11
    for at in range(end):
        flipped = bytearray(raw)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(errors.InvalidBatch):
            check(bytes(flipped))


def test_batch_is_refused_at_every_length_when_it_is_truncated() -> None:
    raw = good()
    for length in range(len(raw)):
        with pytest.raises(errors.InvalidBatch):
            check(raw[:length])


def test_batch_is_refused_when_something_follows_it() -> None:
    with pytest.raises(errors.InvalidBatch, match="behind"):
        check(good() + bytes(8))


def test_batch_is_refused_when_its_version_is_unknown() -> None:
    with pytest.raises(errors.UnsupportedVersion, match="version 9"):
        check(sealed(good(), 4, b"\x09"))


def test_batch_is_refused_when_it_is_no_publish() -> None:
    rows = np.zeros(1, CANCEL_ROW)
    with pytest.raises(errors.InvalidBatch, match="only PUBLISH"):
        check(build_rows(Kind.CANCEL, rows))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (6, b"\x02\x00"),  # flags: PER_MESSAGE_PRODUCER, whose columns are not there
        (6, b"\x04\x00"),  # flags: unknown
        (16, b"\x01"),  # offset
        (24, b"\x01"),  # base_sequence
        (32, b"\x01"),  # store_ms
        (40, b"\x01"),  # flushed_end_offset
        (48, b"\x01"),  # epoch
        (72, b"\xff" * 8),  # producer_sequence that overflows
        (80, b"\x09"),  # gene_kind
        (84, b"\xff" * 4),  # gene_spec: as each topic wants them
        (HEADER_BYTES + 16, b"\x01"),  # topic_queue
    ],
)
def test_batch_is_refused_when_it_is_forged(at: int, value: bytes) -> None:
    with pytest.raises(errors.InvalidBatch):
        check(sealed(good(), at, value))


def test_batch_is_refused_when_it_speaks_for_several_producers() -> None:
    raw = build_publish([0], [b"x"], message_producers=([1], [0]))
    with pytest.raises(errors.InvalidBatch, match="flag"):
        check(raw)


def test_batch_is_refused_when_one_messages_crc_is_wrong() -> None:
    raw = good()
    crc_at = HEADER_BYTES + RecordBatch(raw).header.stamped_bytes + 32
    with pytest.raises(errors.InvalidBatch, match="message 1 fails") as caught:
        check(resummed(raw, crc_at + 4, b"\x00\x00\x00\x00"))
    assert caught.value.params["index"] == "1"


@pytest.mark.parametrize(
    ("due_ms", "relative", "error"),
    [
        ([0, -1], False, errors.InvalidDueTime),
        ([0, -1], True, errors.InvalidDueTime),
        ([0, -(2**63)], True, errors.InvalidDueTime),
        ([0, NOW_MS + HORIZON_MS + 1], False, errors.BeyondHorizon),
        ([0, HORIZON_MS + 1], True, errors.BeyondHorizon),
        ([0, 2**63 - 1], True, errors.BeyondHorizon),
        ([0, 2**63 - 1], False, errors.BeyondHorizon),
    ],
)
def test_batch_is_refused_when_a_due_time_is_impossible(
    due_ms: list[int], relative: bool, error: type[errors.HourwheelError]
) -> None:
    with pytest.raises(error) as caught:
        check(build_publish(due_ms, [b"a", b"b"], relative_due=relative))
    assert caught.value.params["index"] == "1"


@pytest.mark.parametrize("relative", [True, False])
def test_error_says_how_far_the_horizon_is_when_beyond_it(*, relative: bool) -> None:
    start_ms = 0 if relative else NOW_MS
    with pytest.raises(errors.BeyondHorizon, match=r"message 0: .* days ahead \(wheel\.") as caught:
        check(build_publish([start_ms + HORIZON_MS + 1], [b""], relative_due=relative))
    assert caught.value.params["due_ms"] == str(NOW_MS + HORIZON_MS + 1)
    assert caught.value.params["due_ms_max"] == str(NOW_MS + HORIZON_MS)


def test_batch_is_refused_when_it_is_too_large() -> None:
    with pytest.raises(errors.BatchTooLarge, match="bytes"):
        check(good(), LimitsSection(batch_bytes=4096).model_copy(update={"batch_bytes": 100}))
    with pytest.raises(errors.BatchTooLarge, match="2 messages"):
        check(good(), LimitsSection(batch_messages=1))
    with pytest.raises(errors.MessageTooLarge, match="message 1: its body has 6 bytes"):
        check(good(), LimitsSection(message_body_bytes=5))
    with pytest.raises(errors.MessageTooLarge, match="metadata"):
        check(good(metas=[b"", b"\x0a" * 32_769]))


def test_batch_is_refused_when_a_meta_cannot_be_read() -> None:
    fine = MessageMeta(tags=["eu"]).SerializeToString()
    check(good(metas=[fine, fine]))
    with pytest.raises(errors.InvalidBatch, match="message 1: its metadata"):
        check(good(metas=[fine, b"\x0a\x7f"]))
    with pytest.raises(errors.MessageTooLarge, match="message 0: too many"):
        check(good(metas=[MessageMeta(tags=["t"] * 65).SerializeToString(), fine]))


@pytest.mark.parametrize("size", [1, 14, 127, 128, 255])
def test_batch_is_taken_when_each_message_has_a_key_of_its_own(size: int) -> None:
    metas = [MessageMeta(keys=[text * size]).SerializeToString() for text in "ab"]
    check(good(metas=metas))
    if size > 1:
        check(good(metas=[metas[0], MessageMeta(keys=["é" * (size // 2)]).SerializeToString()]))


@pytest.mark.parametrize(
    "meta",
    [
        b"\x12\x02\xc3(",  # no UTF-8
        b"\x12\x03ab",
        b"\x12\x01ab",
        b"\x12",
        b"\x12\x00",
        MessageMeta(keys=["k" * 256]).SerializeToString(),
    ],
)
def test_batch_is_refused_when_what_looks_like_one_key_is_none(meta: bytes) -> None:
    fine = MessageMeta(keys=["ab"]).SerializeToString()
    for metas in ([fine, meta], [meta, fine]):
        with pytest.raises(errors.InvalidBatch, match=r"message [01]: "):
            check(good(metas=metas))


def expiring(at: int, due_ms: int = NOW_MS, **fields: Any) -> bytes:
    raw = encode_fields(("t",), (), (), "", "", expires_ms=at).raw
    return build_publish([due_ms], [b""], metas=[raw], **fields)


@pytest.mark.parametrize("at", [NOW_MS, NOW_MS - 1, 1])
def test_batch_when_a_message_expires_before_it_is_due_is_refused(at: int) -> None:
    with pytest.raises(errors.InvalidDueTime, match="no group would ever get it"):
        check(expiring(at))
    check(expiring(NOW_MS + 1))


@pytest.mark.parametrize("after_ms", [1, 500])
def test_batch_when_a_message_expires_before_its_delay_is_over_is_refused(after_ms: int) -> None:
    with pytest.raises(errors.InvalidDueTime):
        check(expiring(-after_ms, 500, relative_due=True))
    check(expiring(-501, 500, relative_due=True))


@pytest.mark.parametrize("at", [(1 << 63) - 1, -(1 << 63), DUE_MS_MAX + 1])
def test_batch_when_an_expiry_is_out_of_range_is_refused(at: int) -> None:
    meta = b"\x39" + struct.pack("<q", at)
    with pytest.raises(errors.InvalidDueTime, match="out of range"):
        check(build_publish([NOW_MS], [b""], metas=[meta]))


def test_batch_when_an_expiry_stands_elsewhere_or_no_flag_tells_of_it_is_refused() -> None:
    behind = MessageMeta(tags=["t"], expires_ms=NOW_MS + 9).SerializeToString()
    right = expiring(NOW_MS + 9)
    for raw in (
        build_publish([NOW_MS], [b""], metas=[behind]),
        sealed(right, 6, b"\0\0"),
    ):
        with pytest.raises(errors.InvalidBatch, match="stands first"):
            check(raw)
    check(right)
