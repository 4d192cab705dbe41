"""Merging runs of the key index: all of their rows, in order, with little of them in memory.

    run 1  ....[####  ]......   each is read ahead by its share of a slice; what lies at or below
    run 2  ..[######]........   the lowest end of these buffers is complete, and is the next slice
    run 3  .....[###     ]...

A slice is bounded by rows and not by keys: a key may be on more messages than fit in memory.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from hourwheel.types import SequenceNumber
from storage.views.key_rows import KeyRows, in_order, joined, no_rows
from storage.views.key_run import BLOCK_ROWS, KeyRun, block_count


class _Place(NamedTuple):
    """Where a row stands in the order of runs."""

    high: int
    sequence: SequenceNumber


class _Reader:
    """One run, with its next rows at hand."""

    def __init__(self, run: KeyRun, rows: int) -> None:
        self._run, self._at, self._end = run, 0, block_count(run.row_count)
        self._blocks = max(1, rows // BLOCK_ROWS)
        self._rows: Final = self._blocks * BLOCK_ROWS
        self.buffer = no_rows()

    def fill(self) -> bool:
        """Have the share of a slice at hand, or all that is left; False where nothing is."""
        missing = (self._rows - self.buffer.size + BLOCK_ROWS - 1) // BLOCK_ROWS
        end = min(self._at + missing, self._end)
        if end > self._at:
            self.buffer = joined([self.buffer, self._run.read(self._at, end)])
            self._at = end
        return self.buffer.size > 0

    @property
    def last(self) -> _Place | None:
        """The last row at hand, or None where no more come."""
        if self._at == self._end:
            return None
        return _Place(int(self.buffer.high[-1]), SequenceNumber(int(self.buffer.sequence[-1])))

    def take(self, bound: _Place | None) -> KeyRows:
        """Remove and return the rows up to `bound`; None for all."""
        rows = self.buffer
        if bound is None or self.last == bound:  # also where its rows are in no order: it gets on
            self.buffer = no_rows()
            return rows
        high = np.uint64(bound.high)
        low = int(np.searchsorted(rows.high, high, "left"))
        end = int(np.searchsorted(rows.high, high, "right"))
        same = rows.sequence[low:end]
        cut = low + int(np.searchsorted(same, np.uint64(bound.sequence), "right"))
        self.buffer = rows.take(slice(cut, None))
        return rows.take(slice(cut))


def merged(runs: Sequence[KeyRun], slice_rows: int) -> Iterator[KeyRows]:
    """All rows of some runs, in order, slice by slice.

    Args:
        runs: in any order.
        slice_rows: so many rows are in memory at a time, or a block of each run if that is more.

    Raises:
        CorruptFile: a block fails its CRC32C.
    """
    runs = sorted(runs, key=lambda run: run.footer.sequence_min)
    total = sum(run.row_count for run in runs)
    readers = [_Reader(run, slice_rows * run.row_count // max(1, total)) for run in runs]
    bounds = [run.footer for run in runs]
    by_sequence = all(one.sequence_max <= two.sequence_min for one, two in pairwise(bounds))
    while readers := [reader for reader in readers if reader.fill()]:
        bound = min((last for one in readers if (last := one.last) is not None), default=None)
        parts = [reader.take(bound) for reader in readers]
        yield in_order(joined(parts), by_sequence=by_sequence)
