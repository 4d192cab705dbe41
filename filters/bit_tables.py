"""Which genes have all bits of one of many sets: looked up by the genes' bytes, 64 sets at a time.

A gene has a set's bits where each of its eight bytes has those of the set that lie there. So a
table says, for each place and each value of a byte, which of 64 sets that byte allows: a word with
a bit for each. The AND of a gene's eight words has a bit left for each set that it has.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Mask: TypeAlias = NDArray[np.bool_]

WORD: Final = 8
"""Bytes of a gene."""
TABLE_SETS: Final = 64
"""Sets of bits that are looked up at once: a bit of a word for each."""


class BitTables:
    """Some sets of bits, ready to be looked up. Holds nothing between calls."""

    def __init__(self, sets: Sequence[int]) -> None:
        """Of at least one set; each is bits of 64."""
        self._tables = [
            _table_of(sets[first : first + TABLE_SETS]) for first in range(0, len(sets), TABLE_SETS)
        ]

    @property
    def size_bytes(self) -> int:
        """16 KiB for each 64 sets."""
        return sum(table.nbytes for table in self._tables)

    def find(self, values: NDArray[np.intp], out: Mask) -> None:
        """Write into bool[n] which genes have all bits of one set; `values`: int[8, n] bytes."""
        out[:] = False
        allowed = np.empty(len(out), np.uint64)
        found = np.empty(len(out), np.uint64)
        for table in self._tables:
            np.take(table[0], values[0], out=found, mode="clip")
            for place in range(1, WORD):
                np.take(table[place], values[place], out=allowed, mode="clip")
                np.bitwise_and(found, allowed, out=found)
            np.logical_or(out, found, out=out)


def bytes_of(genes: NDArray[Any]) -> NDArray[np.uint8]:
    """uint8[8, n]: each byte of uint64[n] genes that lie side by side, the lowest first."""
    return genes.astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD).T


def _table_of(sets: Sequence[int]) -> NDArray[np.uint64]:
    """uint64[8, 256] of at most 64 sets; a bit that stands for none is never there."""
    table = np.empty((WORD, 256), np.uint64)
    values = np.arange(256, dtype=np.uint8)[:, None]
    for place, wanted in enumerate(bytes_of(np.array(sets, np.uint64))):
        is_allowed = np.zeros((256, TABLE_SETS), np.bool_)
        is_allowed[:, : len(sets)] = values & wanted == wanted
        table[place] = np.packbits(is_allowed, axis=1, bitorder="little").view("<u8")[:, 0]
    return table
