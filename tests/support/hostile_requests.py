"""Requests that no client of ours sends, made from the descriptor of any message.

    for name, raw in hostile_requests(method.input_type, plausible, seed=0):
        ...

Each is a plausible request with one thing wrong, as bytes on the wire: integers at their ends and
beyond, long texts, texts that are no UTF-8, 100,000 repeated items, messages of random bytes, and
plausible values with a bit flipped. A field that is added to the schema is covered by itself.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

Plausible: TypeAlias = Mapping[str, bytes | int]
"""Values of fields by their names; what is not named is left out of a plausible request."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPES: Final = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
    FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED64,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_FIXED32: _FIXED32,
    FieldDescriptor.TYPE_SFIXED32: _FIXED32,
    FieldDescriptor.TYPE_STRING: _BYTES,
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_MESSAGE: _BYTES,
}
"""All others are varints."""
_NUMBERS: Final = (-(1 << 63), -1, 0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)
_ITEMS: Final = 100_000
_LONG: Final = 1 << 20
_DEPTH: Final = 4


def plausible_request(of: Descriptor, plausible: Plausible, depth: int = 0) -> bytes:
    """A message with all fields that are named, one item in each repeated one."""
    if depth == _DEPTH:
        return b""
    return b"".join(
        _field(each, value)
        for each in of.fields
        if (value := _value(each, plausible, depth)) is not None
    )


def hostile_requests(
    of: Descriptor, plausible: Plausible, seed: int
) -> Iterator[tuple[str, bytes]]:
    """(What is wrong, the request). The same ones for the same seed."""
    random = Random(seed)
    whole = plausible_request(of, plausible)
    yield "empty", b""
    yield "plausible", whole
    for size in (1, 10, 1_000, 100_000):
        yield f"{size} random bytes", random.randbytes(size)
    for name, raw in _mutations(whole, random):
        yield name, raw
    yield (
        "unknown fields",
        whole
        + b"".join(_varint(number << 3 | _BYTES) + b"\x03abc" for number in range(1_000, 2_000)),
    )
    yield "groups within groups", whole + _varint(99 << 3 | 3) * 10_000
    for base_name, base in (("alone", b""), ("beside what is plausible", whole)):
        for name, raw in _fields(of, plausible, random, 0):
            yield f"{name} {base_name}", base + raw


def _fields(
    of: Descriptor, plausible: Plausible, random: Random, depth: int
) -> Iterator[tuple[str, bytes]]:
    """(Which field and value, its bytes), of a message and those within it."""
    for field in of.fields:
        for name, raw in _values(field, plausible, random, depth):
            yield f"{field.name}: {name}", raw


def _values(
    field: FieldDescriptor, plausible: Plausible, random: Random, depth: int
) -> Iterator[tuple[str, bytes]]:
    wire_type = _WIRE_TYPES.get(field.type, _VARINT)
    if wire_type != _BYTES:
        for number in _NUMBERS:
            yield str(number), _field(field, number)
        yield "as text", _tagged(field, _BYTES, b"text")
        return
    for name, raw in (
        ("empty", b""),
        ("1 MiB", b"a" * _LONG),
        ("zero byte", b"a\0b"),
        ("no UTF-8", b"\xff\xfe"),
        ("half a character", b"\xed\xa0\x80"),
        ("random", random.randbytes(48)),
        ("percent", b"%DLQ%"),
    ):
        yield name, _tagged(field, _BYTES, raw)
    yield "as a number", _varint(field.number << 3 | _VARINT) + _varint(7)
    value = _value(field, plausible, depth)
    if isinstance(value, bytes):
        for name, raw in _mutations(value, random):
            yield name, _tagged(field, _BYTES, raw)
    if field.is_repeated:
        for item in (b"", b"a", value):
            if isinstance(item, bytes) and len(item) <= 64:
                yield f"{_ITEMS} of {len(item)} bytes", _tagged(field, _BYTES, item) * _ITEMS
    if field.message_type is not None and depth < _DEPTH:
        others = value if isinstance(value, bytes) else b""
        for name, raw in _fields(field.message_type, plausible, random, depth + 1):
            yield name, _tagged(field, _BYTES, others + raw)


def _mutations(raw: bytes, random: Random) -> Iterator[tuple[str, bytes]]:
    """Bytes that were right, with something changed."""
    if not raw:
        return
    for _ in range(8):
        at = random.randrange(len(raw) * 8)
        flipped = bytearray(raw)
        flipped[at >> 3] ^= 1 << (at & 7)
        yield f"bit {at} flipped", bytes(flipped)
    cut = random.randrange(len(raw))
    yield f"cut at {cut}", raw[:cut]
    yield "twice", raw * 2


def _value(field: FieldDescriptor, plausible: Plausible, depth: int) -> bytes | int | None:
    if field.message_type is not None:
        return plausible_request(field.message_type, plausible, depth + 1)
    return plausible.get(field.name)


def _field(field: FieldDescriptor, value: bytes | int) -> bytes:
    wire_type = _WIRE_TYPES.get(field.type, _VARINT)
    if isinstance(value, bytes):
        return _tagged(field, _BYTES, value)
    if wire_type == _VARINT:
        return _varint(field.number << 3 | _VARINT) + _varint(value)
    size = 8 if wire_type == _FIXED64 else 4
    raw = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return _varint(field.number << 3 | wire_type) + raw


def _tagged(field: FieldDescriptor, wire_type: int, raw: bytes) -> bytes:
    return _varint(field.number << 3 | wire_type) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    """As protobuf writes it; negative numbers as 64 bits."""
    number &= (1 << 64) - 1
    raw = bytearray()
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)
    return bytes(raw)
