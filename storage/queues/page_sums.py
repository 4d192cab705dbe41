"""Checksums in memory over the rows of a mapped file: what is read there is what was stored.

The kernel may drop a page of a mapped file and read it from the disk again, long after its file was
verified. So rows are summed when they are stored, page by page, and whoever reads a row verifies
its pages first. 4 bytes for 128 rows; verifying a page takes about 1 us.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c
from storage.views.unit import UNIT_BYTES

PAGE_ROWS: Final = 128
_PAGE_BYTES: Final = PAGE_ROWS * UNIT_BYTES


class PageSums:
    """CRC32C of each page of rows that were stored one behind the other."""

    __slots__ = ("_crcs", "row_count")

    def __init__(self, row_count_max: int) -> None:
        """No rows yet; room for `row_count_max`."""
        self._crcs: NDArray[np.uint32] = np.zeros(-(-row_count_max // PAGE_ROWS), np.uint32)
        self.row_count = 0
        """So many are summed."""

    def copy(self) -> "PageSums":
        """As of now: for another thread, while this one goes on."""
        copied = PageSums(0)
        copied._crcs, copied.row_count = self._crcs.copy(), self.row_count
        return copied

    def extend(self, raw: memoryview) -> None:
        """Sum whole rows that follow."""
        at, size, crcs = 0, len(raw), self._crcs
        begun = self.row_count % PAGE_ROWS * UNIT_BYTES
        page = self.row_count // PAGE_ROWS
        self.row_count += size // UNIT_BYTES
        while at < size:
            piece = raw[at : at + _PAGE_BYTES - begun]
            crcs[page] = crc32c(piece, int(crcs[page]) if begun else 0)
            at += len(piece)
            page, begun = page + 1, 0

    def find_damage(
        self, rows: memoryview | bytes, first: int, end: int, base: int = 0
    ) -> int | None:
        """The first row of a page with rows of [first, end) that fails its sum; None: none does.

        Args:
            rows: bytes of rows, from row `base` on, at least to the end of these pages.
            first: a row.
            end: behind the last one; at most `row_count`.
            base: first row of a page.
        """
        crcs, limit, view = self._crcs, self.row_count, memoryview(rows)
        for page in range(first // PAGE_ROWS, -(-end // PAGE_ROWS)):
            low = page * PAGE_ROWS
            high = min(low + PAGE_ROWS, limit)
            if crc32c(view[(low - base) * UNIT_BYTES : (high - base) * UNIT_BYTES]) != crcs[page]:
                return low
        return None
