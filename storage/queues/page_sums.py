"""Checksums in memory over the rows of a mapped file: what is read there is what was stored.

The kernel may drop a page of a mapped file and read it from the disk again, long after its file was
verified. So rows are summed when they are stored, and each read of a row verifies its pages first.

    rows   |  page 0  |  page 1  |  page 2  |  page 3 ..
    sums         s0         s1         s2         s3      s[p] = CRC32C of pages 0 to p

Each sum goes on from the one before it. So neighbouring pages are verified by one computation from
the sum before the first of them to that of the last, and the last sum is that of all rows, as a
seal has it. 4 bytes for 128 rows; verifying one page takes about 1 us, 128 of them about 50 us.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c
from storage.views.unit import UNIT_BYTES

PAGE_ROWS: Final = 128
_PAGE_BYTES: Final = PAGE_ROWS * UNIT_BYTES


class PageSums:
    """CRC32C of the rows that were stored one behind the other, as it stands behind each page."""

    __slots__ = ("_crcs", "crc", "row_count")

    def __init__(self, row_count_max: int) -> None:
        """No rows yet; room for `row_count_max`."""
        self._crcs: NDArray[np.uint32] = np.zeros(-(-row_count_max // PAGE_ROWS), np.uint32)
        """Invariant: that of the page with the last row is `crc`."""
        self.row_count = 0
        """So many are summed."""
        self.crc = 0
        """CRC32C of all of them."""

    def copy(self) -> "PageSums":
        """As of now: for another thread, while this one goes on."""
        copied = PageSums(0)
        copied._crcs, copied.row_count = self._crcs.copy(), self.row_count
        copied.crc = self.crc
        return copied

    def extend(self, raw: memoryview) -> None:
        """Sum whole rows that follow."""
        size = len(raw)
        if not size:
            return
        page, begun = divmod(self.row_count, PAGE_ROWS)
        crc, crcs = self.crc, []
        for at in range(-begun * UNIT_BYTES, size, _PAGE_BYTES):
            crc = crc32c(raw[max(at, 0) : at + _PAGE_BYTES], crc)
            crcs.append(crc)
        self._crcs[page : page + len(crcs)] = crcs
        self.crc = crc
        self.row_count += size // UNIT_BYTES

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
        low, high = first // PAGE_ROWS, -(-end // PAGE_ROWS)
        if low >= high or self._is_sound(rows, low, high, base):
            return None
        for page in range(low, high):
            if not self._is_sound(rows, page, page + 1, base):
                return page * PAGE_ROWS
        return None  # it came back sound when it was read again

    def _is_sound(self, rows: memoryview | bytes, low: int, high: int, base: int) -> bool:
        """Whether the pages [low, high) are what was summed."""
        first, end = low * PAGE_ROWS - base, min(high * PAGE_ROWS, self.row_count) - base
        begun = int(self._crcs[low - 1]) if low else 0
        piece = memoryview(rows)[first * UNIT_BYTES : end * UNIT_BYTES]
        return crc32c(piece, begun) == int(self._crcs[high - 1])
