from typing import Any

import numpy as np
import pytest

from filters import meta_columns
from filters.meta_columns import MetaColumns
from filters.packed_bytes import PackedBytes
from hourwheel import limits
from hourwheel.formats.meta import MessageMeta, encode


def walked(
    raws: list[bytes], tags: list[str], names: list[str], *, asks_for_any_tag: bool = False
) -> MetaColumns:
    lengths = np.array([len(raw) for raw in raws], np.int64)
    packed = PackedBytes(b"".join(raws), np.cumsum(lengths) - lengths, lengths)
    return MetaColumns(
        packed, packed.starts, lengths, tags, names, asks_for_any_tag=asks_for_any_tag
    )


def values(columns: MetaColumns, name: str) -> list[bytes | None]:
    found = columns.values[name]
    return [
        columns.packed.raw[start : start + length] if length >= 0 else None
        for start, length in zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
    ]


def test_walk_when_any_tag_is_asked_for() -> None:
    metas = [MessageMeta(("a",)), MessageMeta(), MessageMeta(keys=("a",)), MessageMeta(("b", "c"))]
    raws = [encode(meta).raw for meta in metas]
    columns = walked(raws, [], [], asks_for_any_tag=True)
    assert columns.has_any_tag.tolist() == [True, False, False, True]
    assert not columns.is_odd.any()


def test_walk_when_messages_differ() -> None:
    metas = [
        MessageMeta(
            ("a", "b"), ("k",), (("x", "1"), ("y", ""), ("long", "v" * 16_384)), "id", "ct"
        ),
        MessageMeta(),
        MessageMeta(("bb", *map(str, range(20))), ("k" * 200,) * 3),
        MessageMeta((), (), (("y", "e" * 127), ("x", "é" * 64))),
    ]
    columns = walked(
        [encode(meta).raw for meta in metas], ["a", "b", "bb", "c"], ["x", "long", "y"]
    )
    has = {tag: mask.tolist() for tag, mask in columns.tags.items()}
    assert has == {
        "a": [True, False, False, False],
        "b": [True, False, False, False],
        "bb": [False, False, True, False],
        "c": [False] * 4,
    }
    assert values(columns, "x") == [b"1", None, None, "é".encode() * 64]
    assert values(columns, "y") == [b"", None, None, b"e" * 127]
    assert values(columns, "long") == [b"v" * 16_384, None, None, None]
    assert columns.values["y"].is_there.tolist() == [True, False, False, True]
    assert not columns.is_odd.any()


GOOD = encode(MessageMeta(("a",), (), (("x", "1"),))).raw


@pytest.mark.parametrize(
    "odd",
    [
        b"\x30\x01",  # a field of a later version
        b"\x0a\x05a",  # longer than the meta
        b"\x0a",  # no length
        b"\x1a\x06\x12\x011\x0a\x01x",  # value before name
        b"\x1a\x07\x0a\x01x\x12\x021",  # a value longer than its property
        b"\x1a\x03\x0a\x7fx",  # a name longer than its property
        b"\x1a\x00",  # a property without anything
        b"\x1a\x0a\x0a\x01x\x12\x011\x12\x012\x00",  # two values
        b"\x0a\xff\xff\xff\xff\x0f",  # a length of five bytes
        b"\x0a\x81\x80\x80\x00a",  # a length written too long
        b"\x0b\x0c",  # a group
    ],
)
def test_walk_when_a_meta_is_odd_the_others_are_read(odd: bytes) -> None:
    for raws in ([GOOD, odd, GOOD], [GOOD, GOOD + odd, GOOD], [GOOD, GOOD, odd]):
        columns = walked(raws, ["a"], ["x"])
        is_good = np.array([raw == GOOD for raw in raws])
        assert columns.is_odd.tolist() == (~is_good).tolist()
        assert columns.tags["a"][is_good].all()
        assert [text for text, good in zip(values(columns, "x"), is_good, strict=True) if good] == [
            b"1"
        ] * int(is_good.sum())


def test_walk_when_a_length_has_more_bytes_than_it_needs() -> None:
    columns = walked([b"\x0a\x81\x00a", b"\x0a\x81\x80\x00a"], ["a"], [])
    assert columns.tags["a"].tolist() == [True, True]
    assert not columns.is_odd.any()


def test_walk_when_a_property_is_there_twice_the_last_one_counts() -> None:
    columns = walked([b"\x1a\x06\x0a\x01x\x12\x011\x1a\x06\x0a\x01x\x12\x012"], [], ["x"])
    assert values(columns, "x") == [b"2"]


def test_walk_when_a_meta_has_as_many_fields_as_it_may() -> None:
    full = MessageMeta(
        tuple(f"t{number}" for number in range(limits.MESSAGE_TAG_COUNT_MAX)),
        tuple(f"k{number}" for number in range(limits.MESSAGE_KEY_COUNT_MAX)),
        tuple((f"p{number}", "1") for number in range(limits.MESSAGE_PROPERTY_COUNT_MAX)),
        *("id", "ct"),
    )
    columns = walked([encode(full).raw, GOOD], ["t63"], ["p127"])
    assert not columns.is_odd.any()
    assert columns.tags["t63"].tolist() == [True, False]
    assert values(columns, "p127") == [b"1", None]


@pytest.mark.parametrize("field", [b"\x22\x00", b"\x2a\x00", b"\x0a\x00"])
def test_walk_takes_no_more_steps_than_a_meta_may_have_fields(
    field: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is there thousands of times is no error in protobuf: the last one counts."""
    steps = 0
    content = meta_columns._content

    def counted(*args: Any) -> Any:
        nonlocal steps
        steps += 1
        return content(*args)

    monkeypatch.setattr(meta_columns, "_content", counted)
    columns = walked([GOOD, GOOD + field * 16_000, GOOD], ["a"], [])
    assert columns.is_odd.tolist() == [False, True, False]
    assert steps <= 210
