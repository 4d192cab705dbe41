"""A set of integers as pages of 64 Ki bits, of which only those exist that have a bit set.

Pages lie in one pool, and a table says at which place of the pool each page lies. Place 0 is a page
of zeros that stands for all that do not exist. So asking for thousands of members is a few numpy
gathers, wherever they lie, and the memory is that of the pages which are touched: 8 KiB each.

    member   page = member >> 16     byte = (member & 65,535) >> 3     bit = member & 7
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from storage.views.sorting import sorted_unique

U64: TypeAlias = NDArray[np.uint64]

PAGE_BITS_LOG2: Final = 16
PAGE_BYTES: Final = 1 << PAGE_BITS_LOG2 >> 3
_PAGE_BYTES_LOG2: Final = PAGE_BITS_LOG2 - 3
_PAGE_SHIFT: Final = np.uint64(PAGE_BITS_LOG2)
_BYTE_SHIFT: Final = np.uint64(3)
_BIT_MASK: Final = np.uint64(7)
_BYTE_MASK: Final = np.int64(PAGE_BYTES - 1)
_POOL_PAGES_MIN: Final = 16
_TABLE_PAGES_MIN: Final = 1_024
_TABLE_PAGES_MAX: Final = 1 << 28
"""Members further apart than 2**44 are no sequences of one shard: a table for them is refused."""


def page_of(members: U64) -> U64:
    """uint64[n]: the page that each member lies in."""
    return members >> _PAGE_SHIFT


class BitPages:
    """See the top of this file. Not for two threads at once."""

    def __init__(self) -> None:
        """Make an empty set."""
        self._bits: NDArray[np.uint8] = np.zeros((_POOL_PAGES_MIN, PAGE_BYTES), np.uint8)
        """Place -> bits."""
        self._pages: U64 = np.zeros(_POOL_PAGES_MIN, np.uint64)
        """Place -> number of the page."""
        self._used = 1
        """Places below are taken; 0 is the page of zeros."""
        self._table: NDArray[np.int32] = np.zeros(0, np.int32)
        """Page - base -> place, 0 for pages that do not exist."""
        self._base = 0

    @property
    def page_count(self) -> int:
        """How many pages exist."""
        return self._used - 1

    def page_numbers(self) -> U64:
        """uint64[n]: the pages that exist, ascending."""
        return np.sort(self._pages[1 : self._used])

    def member_count(self) -> int:
        """How many members there are; counts all bits."""
        return int(np.bitwise_count(self._bits[1 : self._used]).sum(dtype=np.uint64))

    def _places(self, pages: U64) -> NDArray[np.int32]:
        size = len(self._table)
        if not size:
            return np.zeros(len(pages), np.int32)
        # Pages below the base wrap around to numbers far beyond the table's end.
        index = pages - np.uint64(self._base)
        places = self._table.take(index.view(np.int64), mode="clip")
        places[index >= np.uint64(size)] = 0
        return places

    def contains(self, members: U64) -> NDArray[np.bool_]:
        """bool[n]: which of these are members."""
        places = self._places(page_of(members))
        if not places.any():
            return np.zeros(len(members), np.bool_)
        found = self._bits.reshape(-1).take(self._byte_index(places, members))
        shift = (members & _BIT_MASK).astype(np.uint8)
        is_member: NDArray[np.bool_] = ((found >> shift) & np.uint8(1)).view(np.bool_)
        return is_member

    def _byte_index(self, places: NDArray[np.int32], members: U64) -> NDArray[np.int64]:
        in_page = (members >> _BYTE_SHIFT).view(np.int64) & _BYTE_MASK
        return (places.astype(np.int64) << _PAGE_BYTES_LOG2) | in_page

    def add(self, members: U64) -> U64:
        """Put members in; those that were not in yet, ascending, each once."""
        fresh = sorted_unique(members[~self.contains(members)])
        if not len(fresh):
            return fresh
        pages = page_of(fresh)
        places = self._places(pages)
        if not places.all():
            self._make(sorted_unique(pages[places == 0]))
            places = self._places(pages)
        bits = np.uint8(1) << (fresh & _BIT_MASK).astype(np.uint8)
        # Not `bits[...] |= bits`: several members share a byte.
        np.bitwise_or.at(self._bits.reshape(-1), self._byte_index(places, fresh), bits)
        return fresh

    def _make(self, pages: U64) -> None:
        """Make these pages, ascending and each once, none of which exists."""
        self._cover(int(pages[0]), int(pages[-1]) + 1)
        end = self._used + len(pages)
        if end > len(self._pages):
            capacity = max(end, 2 * len(self._pages))
            # Zeros from the operating system cost nothing until they are touched.
            bits = np.zeros((capacity, PAGE_BYTES), np.uint8)
            bits[: self._used] = self._bits[: self._used]
            self._bits = bits
            self._pages = np.concatenate(
                (self._pages[: self._used], np.zeros(capacity - self._used, np.uint64))
            )
        self._pages[self._used : end] = pages
        index = (pages - np.uint64(self._base)).view(np.int64)
        self._table[index] = np.arange(self._used, end, dtype=np.int32)
        self._used = end

    def _cover(self, first: int, end: int) -> None:
        """Let the table reach over pages [first, end)."""
        size = len(self._table)
        if size and self._base <= first and end <= self._base + size:
            return
        low = min(first, self._base) if size else first
        high = max(end, self._base + size, low + _TABLE_PAGES_MIN)
        if end > self._base + size:  # ahead of its growth, so that growing is rare
            high = max(high, low + 2 * size)
        errors.invariant(high - low <= _TABLE_PAGES_MAX, "members are too far apart", page=end)
        table = np.zeros(high - low, np.int32)
        if size:
            table[self._base - low :][:size] = self._table
        self._table, self._base = table, low

    def copy_of(self, pages: U64) -> NDArray[np.uint8]:
        """uint8[n, 8192]: the bits of pages; zeros for those that do not exist."""
        return self._bits[self._places(pages)]

    def put(self, pages: U64, bits: NDArray[np.uint8]) -> None:
        """Replace whole pages; where one is listed twice, the last one stays."""
        new = sorted_unique(pages[self._places(pages) == 0])
        if len(new):
            self._make(new)
        self._bits[self._places(pages)] = bits

    def exists(self, pages: U64) -> NDArray[np.bool_]:
        """bool[n]: which of these pages exist."""
        return self._places(pages).astype(np.bool_)

    def members_of(self, page: int) -> U64:
        """uint64[n], ascending: the members in a page."""
        bits = self.copy_of(np.array([page], np.uint64))[0]
        found = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        return (np.uint64(page) << _PAGE_SHIFT) | found.astype(np.uint64)

    def remove(self, page: int, members: U64) -> None:
        """Take members out that lie in one page, each once; let go of the page if it is empty."""
        place = int(self._places(np.array([page], np.uint64))[0])
        errors.invariant(place > 0, "nothing of this page is a member", page=page)
        bits = np.uint8(1) << (members & _BIT_MASK).astype(np.uint8)
        at = (members >> _BYTE_SHIFT).view(np.int64) & _BYTE_MASK
        np.bitwise_and.at(self._bits[place], at, ~bits)
        if not self._bits[place].any():
            self._let_go(place)

    def _let_go(self, place: int) -> None:
        """The last page of the pool takes the place of one."""
        last = self._used - 1
        self._table[int(self._pages[place]) - self._base] = 0
        if place != last:
            self._bits[place], self._pages[place] = self._bits[last], self._pages[last]
            self._table[int(self._pages[place]) - self._base] = place
        self._bits[last] = 0
        self._used = last
        if 4 * self._used <= len(self._pages) and len(self._pages) > _POOL_PAGES_MIN:
            kept = max(_POOL_PAGES_MIN, 2 * self._used)
            self._bits, self._pages = self._bits[:kept].copy(), self._pages[:kept].copy()

    def empty_pages(self) -> U64:
        """The pages that exist without a member, ascending."""
        is_empty = ~self._bits[1 : self._used].any(axis=1)
        return np.sort(self._pages[1 : self._used][is_empty])

    def drop(self, pages: U64) -> None:
        """Let go of pages and their memory. Costs a copy of those that stay."""
        stay = np.setdiff1d(self.page_numbers(), pages, assume_unique=True)
        bits = self.copy_of(stay)
        kept = BitPages()
        if len(stay):
            kept.put(stay, bits)
        self._bits, self._pages, self._used = kept._bits, kept._pages, kept._used
        self._table, self._base = kept._table, kept._base
