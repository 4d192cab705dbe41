"""Memory into which blocks of one size are read from places that lie apart, again and again.

New memory for some hundred blocks costs as much as reading them: the operating system makes each
page of it, and takes it back. Each thread has slots of its own.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from storage.files.disk import File

_KEPT_BYTES: Final = 4 << 20
"""Of each thread and each size of a block."""


class BlockSlots:
    """Memory for so many blocks."""

    def __init__(self, block_bytes: int, count: int) -> None:
        """Nothing is read yet."""
        self._memory: NDArray[np.uint8] = np.empty(count * block_bytes, np.uint8)
        self._block_bytes, self.count = block_bytes, count
        whole = self._memory.data
        self._slots = [whole[at : at + block_bytes] for at in range(0, len(whole), block_bytes)]

    def read(
        self, file: File, positions: Sequence[int], *, first: int, last_bytes: int
    ) -> tuple[list[memoryview], bool]:
        """Read a block from each of n positions into the slots from number `first` on.

        The last one has only so many bytes. Returns (the blocks, whether the file has all of them).
        """
        slots = self._slots[first : first + len(positions)]
        if last_bytes < self._block_bytes:
            slots[-1] = slots[-1][:last_bytes]
        expected = self._block_bytes * (len(slots) - 1) + last_bytes
        return slots, file.pread_into(slots, positions) == expected

    def rows(self, dtype: "np.dtype[Any]") -> NDArray[Any]:
        """array[n]: the rows that lie in all slots, one behind the other; some may be old."""
        return self._memory.view(dtype)


class _Kept(threading.local):
    def __init__(self) -> None:
        self.of_size: dict[int, BlockSlots] = {}


_kept: Final = _Kept()


def slots_for(block_bytes: int, count: int = 1) -> BlockSlots:
    """Slots for blocks of a size, at least so many: what is in them goes with their next use.

    Up to 4 MiB they are this thread's, and stay.
    """
    kept_count = _KEPT_BYTES // block_bytes
    if count > kept_count:
        return BlockSlots(block_bytes, count)
    kept = _kept.of_size.get(block_bytes)
    if kept is None:
        kept = _kept.of_size[block_bytes] = BlockSlots(block_bytes, kept_count)
    return kept
