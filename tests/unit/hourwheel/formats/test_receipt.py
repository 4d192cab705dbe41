from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.receipt import (
    RECEIPT_BYTES,
    RECEIPT_CHARS,
    Receipt,
    format_each,
    parse,
    parse_each,
)
from tests.support.golden import golden

RECEIPT = Receipt(
    cluster=0x01020304,
    epoch=7,
    group_id=3,
    topic_queue=5 << 8 | 1,
    lease_id=0x1122334455667788,
    first_position=1_000_000_007,
    index=2,
    count=30,
)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


def test_pack_when_golden() -> None:
    assert RECEIPT.pack() == golden("receipt")


@given(st.builds(Receipt, U32, U32, U32, U32, U64, U64, U32, U32))
def test_parse_when_printed(receipt: Receipt) -> None:
    text = str(receipt)
    assert len(text) == RECEIPT_CHARS
    assert parse(text) == receipt


def test_parse_each_when_several() -> None:
    receipts = [Receipt(1, 2, 3, 4, 5, 6, index, 1) for index in range(100)]
    assert parse_each([str(receipt) for receipt in receipts]) == receipts


def test_parse_each_when_none() -> None:
    assert parse_each([]) == []


def test_format_each_when_part_of_a_lease() -> None:
    each = [parse(text) for text in format_each(RECEIPT)]
    assert [one.index for one in each] == list(range(2, 32))
    assert {one.count for one in each} == {1}
    assert {one.lease_id for one in each} == {RECEIPT.lease_id}


def damaged() -> list[tuple[str, str]]:
    good = str(RECEIPT)
    return [
        ("empty", ""),
        ("short", good[:-1]),
        ("long", good + "A"),
        ("two in one", good * 2),
        ("padded", good[:-1] + "="),
        ("standard alphabet", "+/" + good[2:]),
        ("blank", " " + good[1:]),
        ("not ascii", "é" + good[1:]),
        ("flipped", good[:20] + ("A" if good[20] != "A" else "B") + good[21:]),
        ("of a later version", _with_version(2)),
        ("zeros", "A" * RECEIPT_CHARS),
    ]


def _with_version(version: int) -> str:
    from base64 import urlsafe_b64encode  # noqa: PLC0415

    from hourwheel.crc32c import crc32c  # noqa: PLC0415

    body = bytes([version]) + RECEIPT.pack()[1:-4]
    return urlsafe_b64encode(body + crc32c(body).to_bytes(4, "little")).decode()


@pytest.mark.parametrize(
    "text", [text for _, text in damaged()], ids=[name for name, _ in damaged()]
)
def test_parse_when_garbage(text: str) -> None:
    with pytest.raises(errors.InvalidReceipt):
        parse(text)
    with pytest.raises(errors.InvalidReceipt) as refused:
        parse_each([str(RECEIPT), text])
    assert refused.value.params["ordinal"] == "1"


def test_parse_when_any_bit_is_flipped() -> None:
    raw = RECEIPT.pack()
    from base64 import urlsafe_b64encode  # noqa: PLC0415

    for bit in range(RECEIPT_BYTES * 8):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.InvalidReceipt):
            parse(urlsafe_b64encode(bad).decode())


def test_receipt_fields_when_compared_with_the_interface() -> None:
    assert [field.name for field in fields(Receipt)] == [
        *("cluster", "epoch", "group_id", "topic_queue"),
        *("lease_id", "first_position", "index", "count"),
    ]
