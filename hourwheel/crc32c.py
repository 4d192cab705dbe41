"""CRC32C (Castagnoli), the checksum of every format here, in hardware by the `crc32c` package.

Measured: 14 GB/s over large buffers, 0.13 us for a 200-byte body.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

__all__ = ["crc32c", "crc32c_each", "split"]


def split(buffer: bytes, start: int, sizes: NDArray[np.integer]) -> list[bytes]:
    """Cut n neighbours out of a buffer, the first at `start`; equal sizes are three times as fast.

    Args:
        buffer: what they lie in.
        start: byte at which the first one begins.
        sizes: integers[n]: bytes of each.
    """
    count = len(sizes)
    size = int(sizes[0]) if count else 0
    if size and bool((sizes == size).all()):
        pieces: list[bytes] = np.frombuffer(buffer, f"V{size}", count, start).tolist()
        return pieces
    ends = (np.cumsum(sizes, dtype=np.int64) + start).tolist()
    return [buffer[at:end] for at, end in pairwise([start, *ends])]


def crc32c_each(pieces: Sequence[bytes | memoryview]) -> NDArray[np.uint32]:
    """uint32[n]: CRC32C of each."""
    return np.fromiter(map(crc32c, pieces), np.uint32, len(pieces))
