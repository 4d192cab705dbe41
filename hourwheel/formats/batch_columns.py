"""Columns of a PUBLISH batch as it is built (hourwheel/formats/record_batch.py)."""

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c


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
