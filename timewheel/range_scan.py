"""Read what is pending in a range of keys, slice by slice, while the wheel goes on beside it.

Runs and memtables are merged as sorted streams over the whole range. A slice is a few megabytes,
whatever is pending; where a flush, a merge or a cascade changed the runs since the last one, the
streams are opened again behind what was read. So each unit that stays in the wheel is read once,
wherever it lies by then, and the scan keeps no file that the wheel has let go.

A unit may be overtaken: what is inserted behind the key that the scan has reached is not seen.
And the scan goes on only where steps come oftener than the runs change: a step opens some runs, and
after a change it begins with the first again. Steps take milliseconds, changes are seconds apart.
"""

from typing import Final

import numpy as np

from hourwheel.types import Key
from storage.views.unit import NO_UNITS, Units, count_to, join, pick, sort_by_key
from timewheel.memtable import within
from timewheel.run import Run
from timewheel.run_format import BLOCK_UNITS
from timewheel.wheel import Wheel

_KEY_BITS: Final = 62
_ORDINAL_BITS: Final = 20
_OPENED_AT_ONCE: Final = 16
"""Runs that one step opens: each takes some reads to find where it begins."""


class RunStream:
    """A range [at, end) of one run, with the next units buffered.

    Units of one key (a message that several groups gave back) are buffered together: the scan may
    begin again behind any key that it has reached.
    """

    __slots__ = ("_at", "_end", "_run", "buffer", "first_ms", "last")

    def __init__(self, run: Run, first: int, end: int) -> None:
        """Nothing is read yet; `first` and `end` come from `Run.pieces`."""
        self._run, self._at, self._end = run, first, end
        self.buffer: Units = NO_UNITS
        self.first_ms = 0
        """Due time of the first buffered unit."""
        self.last: Key | None = None
        """The last key buffered, or None where nothing comes behind it."""

    def fill(self, count: int) -> bool:
        """Have at least one unit buffered; False where none is left."""
        if not len(self.buffer):
            if self._at >= self._end:
                return False
            until = self._at + count + BLOCK_UNITS - 1
            until = min(self._end, until - until % BLOCK_UNITS)
            self.buffer = self._run.read(self._at, until)
            last = _last_key(self.buffer)
            if until < self._end and _last_key(self._run.read(until, until + 1)) == last:
                until = self._run.find_after(until, self._end, *last)
                self.buffer = self._run.read(self._at, until)
            self._at = until
            self._run.will_need(until, min(self._end, until + count))
            self.last = _last_key(self.buffer) if until < self._end else None
            self.first_ms = int(self.buffer["due_ms"][0])
        return True

    def take(self, bound: Key) -> Units:
        """Remove and return the buffered units with keys <= `bound`."""
        if self.first_ms > bound.due_ms:
            return NO_UNITS
        units = self.buffer
        end = len(units) if _last_key(units) <= bound else count_to(units, *bound)
        self.buffer = units[end:]
        if end < len(units):
            self.first_ms = int(self.buffer["due_ms"][0])
        return units[:end]


class RangeScan:
    """Every unit with after < key <= to, retries included; see the top of this file.

    Invariant: what was pending with a key <= `after`, and above the one that the scan began with,
    was returned.
    """

    def __init__(self, wheel: Wheel, after: Key, to: Key) -> None:
        """Nothing is read yet."""
        self._wheel, self.to = wheel, to
        self.after = after
        self._version = -1
        self._unopened: list[Run] = []
        self._streams: list[RunStream] = []
        self._window = after
        """Up to here the memtables' units are in `_fresh`, in key order."""
        self._fresh: Units = NO_UNITS

    @property
    def is_done(self) -> bool:
        """Nothing is left."""
        return self.after >= self.to

    @property
    def is_stale(self) -> bool:
        """Runs have changed since the last step: its units may point into files that are gone."""
        return self._version != self._wheel.runs.version

    def rewind(self, after: Key) -> None:
        """Go on behind `after`, which is no later than where the scan is."""
        self.after = after
        self._version = -1

    def step(self, count: int) -> list[Units]:
        """The next units: a few arrays in key order each, `count` in all or somewhat more.

        Read-only; their places are good while the scan is not stale. May be none: then it just
        opened files, or there are gaps.

        Raises:
            CorruptFile: a run is damaged.
        """
        if self.is_stale:
            self._begin_again()
        if self._unopened:
            self._open_some()
            return []
        if self.is_done:
            return []
        self._fill_window(count)
        limit = min(self._window, self.to)
        each = max(BLOCK_UNITS, count // max(1, len(self._streams)))
        self._streams = [stream for stream in self._streams if stream.fill(each)]
        bound = min([limit, *(one.last for one in self._streams if one.last is not None)])
        found = [stream.take(bound) for stream in self._streams]
        end = count_to(self._fresh, *bound)
        found.append(self._fresh[:end])
        self._fresh = self._fresh[end:]
        self.after = max(self.after, bound)
        return [units for units in found if len(units)]

    def _begin_again(self) -> None:
        self._version = self._wheel.runs.version
        self._unopened = [run for run in self._wheel.runs.all() if self._overlaps(run)]
        self._streams = []
        self._window, self._fresh = self.after, NO_UNITS

    def _overlaps(self, run: Run) -> bool:
        footer = run.footer
        return footer.due_ms_max >= self.after.due_ms and footer.due_ms_min <= self.to.due_ms

    def _open_some(self) -> None:
        for run in self._unopened[:_OPENED_AT_ONCE]:
            pieces = run.pieces(self.after, self.to)
            self._streams += [RunStream(run, first, end) for first, end in pieces]
        del self._unopened[:_OPENED_AT_ONCE]

    def _fill_window(self, count: int) -> None:
        """Select the memtables' next units, once all of the last ones were returned."""
        if self._window > self.after:
            return
        frozen, table = self._wheel.frozen, self._wheel.memtable
        tables = [table] if frozen is None else [frozen, table]
        parts = [one.select_some(self.after, self.to, count) for one in tables]
        self._window = min(bound for _, bound in parts)
        fresh = [within(units, self.after, self._window) for units, _ in parts if len(units)]
        self._fresh = _in_order(join(fresh))


def _in_order(units: Units) -> Units:
    """As `sort_by_key`, for what is in no order at all: five times as fast."""
    if not len(units):
        return units
    due = units["due_ms"]
    low_ms = int(due.min())
    if int(due.max()) - low_ms >= 1 << (_KEY_BITS - _ORDINAL_BITS) or len(units) >> _ORDINAL_BITS:
        return sort_by_key(units)
    # Numpy sorts plain numbers much faster than it finds their order.
    keys = (due - low_ms << _ORDINAL_BITS) + np.arange(len(units))
    keys.sort()
    return sort_by_key(pick(units, keys & (1 << _ORDINAL_BITS) - 1))


def _last_key(units: Units) -> Key:
    return Key(int(units["due_ms"][-1]), int(units["sequence"][-1]))
