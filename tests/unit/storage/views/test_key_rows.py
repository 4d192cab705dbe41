"""Keys in metas, as our parser finds them and as protobuf does; hashes that must never change."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.v1 import meta_pb2
from storage.views.key_rows import find_keys, hash_keys, keys_in, spread

_texts = st.text(max_size=6)
_keys = st.text(min_size=1, max_size=60)
_metas = st.builds(
    meta_pb2.MessageMeta,
    tags=st.lists(_texts, max_size=3),
    keys=st.lists(_keys, max_size=16),
    client_message_id=_texts,
    content_type=_texts,
    properties=st.lists(st.builds(meta_pb2.Property, name=_texts, value=_texts), max_size=3),
)


@given(_metas, st.integers(0, 1 << 32))
def test_keys_when_fields_come_in_any_order(meta: meta_pb2.MessageMeta, seed: int) -> None:
    pieces = []
    for field, value in meta.ListFields():
        for one in [value] if isinstance(value, str) else value:
            part = meta_pb2.MessageMeta()
            if isinstance(value, str):
                setattr(part, field.name, one)
            else:
                getattr(part, field.name).append(one)
            pieces.append(part.SerializeToString())
    Random(seed).shuffle(pieces)
    raw = b"".join(pieces)
    expected = [key.encode() for key in meta_pb2.MessageMeta.FromString(raw).keys]
    assert keys_in(raw) == list(dict.fromkeys(expected))


@given(st.binary(max_size=40))
def test_keys_when_it_is_garbage(raw: bytes) -> None:
    assert all(0 < len(key) <= 255 for key in keys_in(raw))
    assert all(0 < len(key) <= 255 for key in keys_in(b"\x12\x01k" + raw))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"\x12\x00", []),
        (b"\x12", []),
        (b"\x12\x05abc", []),
        (b"\x12\x01a\x12\x01a\x12\x01b", [b"a", b"b"]),
        (b"\x30\x05\x12\x01a", [b"a"]),  # a number of a later version
        (b"\x39" + bytes(8) + b"\x12\x01a", [b"a"]),
        (b"\x3d" + bytes(4) + b"\x12\x01a", [b"a"]),
        (b"\xa2\x06\x01x\x12\x01a", [b"a"]),
        (b"\x13\x12\x01a", []),  # a group
        (b"\x12\xff\x01" + b"k" * 255, [b"k" * 255]),
        (b"\x12\x80\x02" + b"k" * 256, []),
        (b"\x12\x82" + b"k" * 130, []),
    ],
)
def test_keys_when_it_is_unusual(raw: bytes, expected: list[bytes]) -> None:
    assert keys_in(raw) == expected


@pytest.mark.parametrize("size", [1, 9, 127, 128, 255])
@pytest.mark.parametrize("odd", [None, b"", b"\x12\x02k", b"\x0a\x01t", b"\x12\x01k\x12\x01l"])
def test_keys_of_messages_when_each_has_one_of_one_length(size: int, odd: bytes | None) -> None:
    metas = [encode(MessageMeta(keys=(f"{at:>{size}}"[-size:],))).raw for at in range(30)]
    if odd is not None:
        metas[7] = odd
    bodies = [bytes(at % 5) for at in range(30)]
    raw = b"".join(meta + body for meta, body in zip(metas, bodies, strict=True))
    sizes = np.array([len(meta) for meta in metas])
    whole = sizes + np.array([len(body) for body in bodies])
    found = find_keys(memoryview(raw), np.cumsum(whole) - whole, sizes.astype(np.uint32))
    expected = [(at, key) for at, meta in enumerate(metas) for key in keys_in(meta)]
    assert [*zip(*found, strict=True)] == expected


def test_keys_of_messages_when_some_have_none() -> None:
    texts: list[tuple[str, ...]] = [("a", "b"), (), ("c",)]
    raws = [encode(MessageMeta(tags=("t",), keys=keys)).raw for keys in texts] * 2
    raws.insert(1, b"")
    lengths = np.array(list(map(len, raws)))
    ordinals, keys = find_keys(
        memoryview(b"".join(raws)), np.cumsum(lengths) - lengths, lengths.astype(np.uint32)
    )
    assert (ordinals.tolist(), keys) == ([0, 0, 3, 4, 4, 6], [b"a", b"b", b"c"] * 2)


def test_hash_when_it_is_frozen() -> None:
    found = hash_keys([7, 1], [b"abc", b"order-17"])
    assert found.high.tolist() == [0x8A3C1B87CEB230EE, found.high.tolist()[1]]
    assert found.low.tolist()[0] == 0x48FF56F569E39912
    again = hash_keys([1, 2], [b"order-17"] * 2)
    assert (again.high[0], again.low[0]) == (found.high[1], found.low[1])
    assert again.high[0] != again.high[1], "a key belongs to its topic"
    assert not len(hash_keys([], []).high)


def test_spread_when_ranges_are_empty() -> None:
    ordinals, members = spread(np.array([5, 3, 9]), np.array([7, 3, 10]))
    assert (ordinals.tolist(), members.tolist()) == ([0, 0, 2], [5, 6, 9])
