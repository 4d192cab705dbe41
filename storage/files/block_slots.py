"""Memory into which blocks of one size are read from places that lie apart, as one array.

Read one by one and joined, each block would be copied once more, into memory made for it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.files.disk import File


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
