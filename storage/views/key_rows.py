"""Keys of messages as rows of fixed size: a 128-bit hash of topic and key, and whose it is.

    byte  size  field
       0     8  high      u64   first half of the hash
       8     8  low       u64   second half
      16     8  sequence  u64   of a message that has the key
      24     8  due_ms    i64   when it was to be released as it was published

The hash is XXH3 (128 bits) of the key's UTF-8 bytes, seeded with the topic's number. Rows are in
the order of `high`, and of `sequence` where that is the same: two keys with one `high` (of 10
million it happens once in 400,000 times) differ in `low` when they are read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from hourwheel import limits
from hourwheel.v1.meta_pb2 import MessageMeta

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]

ROW: Final = np.dtype([("high", "<u8"), ("low", "<u8"), ("sequence", "<u8"), ("due_ms", "<i8")])
ROW_BYTES: Final = 32
assert ROW.itemsize == ROW_BYTES

_KEYS_FIELD: Final = 0x12
"""Number and wire type of `MessageMeta.keys`."""
_KEYS_BYTE: Final = b"\x12"
_ONE_BYTE: Final = 0x80
_SHORT_HEAD_BYTES: Final = 2
"""Of a field of less than 128 bytes."""


class Hashes(NamedTuple):
    """n keys, hashed."""

    high: U64
    low: U64

    def take(self, chosen: NDArray[Any]) -> "Hashes":
        """Some of them."""
        return Hashes(self.high[chosen], self.low[chosen])


class KeyRows(NamedTuple):
    """n rows as columns; each array has memory of its own, and so is searched quickly."""

    high: U64
    low: U64
    sequence: U64
    due_ms: I64

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.high)

    def take(self, chosen: "NDArray[Any] | slice") -> "KeyRows":
        """Some of them."""
        return KeyRows(
            self.high[chosen], self.low[chosen], self.sequence[chosen], self.due_ms[chosen]
        )

    def packed(self) -> NDArray[Any]:
        """Structured array[n] of `ROW`."""
        rows = np.empty(self.size, ROW)
        for name, column in zip(self._fields, self, strict=True):
            rows[name] = column
        return rows


def unpacked(rows: NDArray[Any]) -> KeyRows:
    """The columns of a structured array[n] of `ROW`: copies."""
    columns: list[Any] = [np.ascontiguousarray(rows[name]) for name in KeyRows._fields]
    return KeyRows(*columns)


def no_rows() -> KeyRows:
    """None."""
    return unpacked(np.empty(0, ROW))


def joined(parts: Sequence[KeyRows]) -> KeyRows:
    """All rows of several, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    columns: list[Any] = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return KeyRows(*columns) if parts else no_rows()


def in_order(rows: KeyRows, *, by_sequence: bool = True) -> KeyRows:
    """The rows in the order of runs.

    Args:
        rows: in any order.
        by_sequence: those of one key have come in the order of their sequences, which costs half.
    """
    if by_sequence:
        return rows.take(np.argsort(rows.high, kind="stable"))
    return rows.take(np.lexsort((rows.sequence, rows.high)))


def hash_keys(topics: Iterable[int], keys: Iterable[bytes]) -> Hashes:
    """Hash n keys, each of the topic of this number."""
    raw = b"".join(map(xxh3_128_digest, keys, topics))
    halves: U64 = np.frombuffer(raw, ">u8").reshape(-1, 2).astype(np.uint64)
    return Hashes(np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1]))


def spread(low: I64, high: I64) -> tuple[I64, I64]:
    """(ordinal of its range, member) of each member of n ranges [low, high), in their order."""
    counts = high - low
    ordinals = np.repeat(np.arange(len(counts)), counts)
    members = np.arange(len(ordinals)) + np.repeat(low - (np.cumsum(counts) - counts), counts)
    return ordinals, members


def keys_in(meta: bytes) -> list[bytes]:
    """The keys in an encoded `MessageMeta`, each once, in their order.

    What protobuf cannot read has none, and keys that cannot be asked for are left out. Nothing is
    decided by the index, so that two versions of the library may differ here.
    """
    size = len(meta) - _SHORT_HEAD_BYTES
    if 0 < size < _ONE_BYTE and meta[0] == _KEYS_FIELD and meta[1] == size:
        return [meta[_SHORT_HEAD_BYTES:]]  # the only field
    if _KEYS_BYTE not in meta:
        return []
    try:
        found = dict.fromkeys(key.encode() for key in MessageMeta.FromString(meta).keys)
    except DecodeError:
        return []
    keys = [key for key in found if 0 < len(key) <= limits.KEY_BYTES_MAX]
    return keys[: limits.MESSAGE_KEY_COUNT_MAX]


def find_keys(
    blobs: memoryview, starts: I64, meta_lengths: NDArray[np.uint32]
) -> tuple[I64, list[bytes]]:
    """(ordinal of the message, key) of each key of n messages, as two columns.

    Args:
        blobs: what the metas lie in.
        starts: int64[n]: where each begins.
        meta_lengths: uint32[n]: its bytes; 0 for none.
    """
    ordinals: list[int] = []
    keys: list[bytes] = []
    barren: set[bytes] = set()
    """Metas without a key are often many of few kinds."""
    chosen = np.flatnonzero(meta_lengths)
    alike = _keys_of_one_length(blobs, starts[chosen], meta_lengths[chosen])
    if alike:
        return chosen, alike
    rows = zip(chosen.tolist(), starts[chosen].tolist(), meta_lengths[chosen].tolist(), strict=True)
    for ordinal, start, length in rows:
        meta = bytes(blobs[start : start + length])
        if meta in barren:
            continue
        found = keys_in(meta)
        if not found:
            barren.add(meta)
        for key in found:
            ordinals.append(ordinal)
            keys.append(key)
    return np.array(ordinals, np.int64), keys


def _keys_of_one_length(
    blobs: memoryview, starts: I64, meta_lengths: NDArray[np.uint32]
) -> list[bytes]:
    """The key of each of n metas, if each has one of the same length and nothing else; else none.

    So it is of most producers that have keys at all, and it takes a third of the time.
    """
    length = int(meta_lengths[0]) if len(meta_lengths) else 0
    size = length - _SHORT_HEAD_BYTES
    if not 0 < size < _ONE_BYTE or (meta_lengths != length).any():
        return []
    metas = np.frombuffer(blobs, np.uint8)[starts[:, None] + np.arange(length)]
    if (metas[:, 0] != _KEYS_FIELD).any() or (metas[:, 1] != size).any():
        return []
    raw = metas[:, _SHORT_HEAD_BYTES:].tobytes()
    keys: list[bytes] = np.frombuffer(raw, f"V{size}").tolist()
    return keys
