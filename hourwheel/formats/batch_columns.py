"""Columns of a PUBLISH batch as it is built (hourwheel/formats/record_batch.py)."""

from collections.abc import Sequence as Seq
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c
from hourwheel.formats.expiry_field import EXPIRES_BYTES, EXPIRES_KEY
from hourwheel.formats.priority_field import PRIORITY_BYTES, PRIORITY_KEY, priority_field

_EXPIRES_FIRST: Final = bytes((EXPIRES_KEY,))
_PRIORITY_FIRST: Final = bytes((PRIORITY_KEY,))


class Requested(NamedTuple):
    """What metas ask of a node, beside carrying them: each has a flag of the batch."""

    expiry: bool = False
    """Some message expires."""
    priority: bool = False
    """Some message has a priority."""


NOTHING_REQUESTED: Final = Requested()


def pad8(size: int) -> int:
    """`size` rounded up to a multiple of 8."""
    return (size + 7) & ~7


def blobs_of(
    bodies: Seq[bytes], metas: Seq[bytes] | None
) -> tuple[list[int], Seq[int] | NDArray[Any], bytes]:
    """(CRC of each message, length of each meta, all blobs in order)."""
    if metas is None:
        return list(map(crc32c, bodies)), np.zeros(len(bodies), "<u4"), b"".join(bodies)
    crcs = [crc32c(body, crc32c(meta)) for meta, body in zip(metas, bodies, strict=True)]
    parts: list[bytes] = [b""] * (2 * len(bodies))
    parts[0::2] = metas
    parts[1::2] = bodies
    return crcs, list(map(len, metas)), b"".join(parts)


def wide_column(column: Seq[int] | NDArray[np.uint64] | None, count: int) -> bytes:
    """A column of u64; zeros where it is not given."""
    return bytes(8 * count) if column is None else np.asarray(column, "<u8").tobytes()


def requested_by(metas: Seq[bytes]) -> Requested:
    """What any of n encoded metas asks."""
    firsts = {meta[:1] for meta in metas}
    does_expire = _EXPIRES_FIRST in firsts
    has_priority = _PRIORITY_FIRST in firsts or (does_expire and any(map(priority_field, metas)))
    return Requested(does_expire, has_priority)


def expires_column(
    blobs: bytes | bytearray | memoryview,
    starts: NDArray[np.int64],
    meta_lens: NDArray[np.int64],
) -> NDArray[np.int64]:
    """int64[n]: `MessageMeta.expires_ms` of n metas that begin at `starts` in `blobs`; else 0."""
    found = np.zeros(len(starts), np.int64)
    content = np.frombuffer(blobs, np.uint8)
    rows = np.flatnonzero(meta_lens >= EXPIRES_BYTES)
    rows = rows[content[starts[rows]] == EXPIRES_KEY]
    if len(rows):
        places = starts[rows, np.newaxis] + np.arange(1, EXPIRES_BYTES)
        found[rows] = content[places].view("<i8")[:, 0]
    return found


def expires_of(
    blobs: memoryview, meta_len: NDArray[np.uint32], body_len: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """int64[n]: `MessageMeta.expires_ms` of the messages that `blobs` are of; see there."""
    lengths = meta_len.astype(np.int64)
    sizes = lengths + body_len
    return expires_column(blobs, np.cumsum(sizes) - sizes, lengths)


def priorities_of(
    blobs: memoryview, meta_len: NDArray[np.uint32], body_len: NDArray[np.uint32]
) -> NDArray[np.uint8]:
    """uint8[n]: `MessageMeta.priority` of the messages that `blobs` are of; 0 without one."""
    lengths = meta_len.astype(np.int64)
    sizes = lengths + body_len
    return priorities_column(blobs, np.cumsum(sizes) - sizes, lengths)


def priorities_column(
    blobs: bytes | bytearray | memoryview,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """uint8[n]: `MessageMeta.priority` of n metas that begin at `starts` in `blobs`; else 0."""
    found, content = np.zeros(len(starts), np.uint8), np.frombuffer(blobs, np.uint8)
    rows = np.flatnonzero(lengths >= PRIORITY_BYTES)
    expire = (content[starts[rows]] == EXPIRES_KEY) & (lengths[rows] >= EXPIRES_BYTES)
    at = np.where(expire, EXPIRES_BYTES, 0)
    is_there = at + PRIORITY_BYTES <= lengths[rows]
    rows, places = rows[is_there], (starts[rows] + at)[is_there]
    is_there = content[places] == PRIORITY_KEY
    found[rows[is_there]] = content[places[is_there] + 1]
    return found
