"""The memtable: units that are in the log but not yet in a run.

Needs no fsync of its own: the log from the checkpoint on rebuilds it. Appended to in log order,
read by ranges of due time. Due times lie in an array of their own beside the units, so that a range
query over a quarter of a million units reads 2 MB and not 16.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import SEQUENCE_MAX, Key
from storage.views.unit import NO_UNITS, UNIT, Units, pick, put

CAPACITY_DEFAULT: Final = 4_096
_NEVER: Final = 1 << 62
_NOTHING_SEEN_MS: Final = -2
UNSORTED_MAX: Final = 8_192
"""Units that came since they were last put in the order of their sequences."""


class _BySequence(NamedTuple):
    """Some units in the order of their sequences."""

    ordinals: NDArray[np.int64]
    sequences: NDArray[np.uint64]


_NOTHING_SORTED: Final = _BySequence(np.empty(0, np.int64), np.empty(0, np.uint64))


class Memtable:
    """Units in order of arrival.

    Invariants: `_due[i] == _units["due_ms"][i]` for i < count. No unit has a due time in
    (_seen_after_ms, _seen_next_ms), where the latter is that of some unit, or _NEVER. The first
    units are in `_by_sequence`, once `find` needed it.
    """

    def __init__(self, capacity: int = CAPACITY_DEFAULT) -> None:
        """Empty; memory for `capacity` units is reserved, and used as they come."""
        self._units: Units = np.empty(capacity, UNIT)
        self._due: NDArray[np.int64] = np.empty(capacity, np.int64)
        self.count = 0
        self._seen_after_ms = _NOTHING_SEEN_MS
        self._seen_next_ms = _NEVER
        self._by_sequence = _NOTHING_SORTED

    @property
    def units(self) -> Units:
        """All units, in order of arrival: a view."""
        return self._units[: self.count]

    def clear(self) -> None:
        """Forget all units; the memory stays."""
        self.count = 0
        self._seen_after_ms = _NOTHING_SEEN_MS
        self._seen_next_ms = _NEVER
        self._by_sequence = _NOTHING_SORTED

    def insert(self, units: Units) -> None:
        """Add `units`."""
        end = self.count + len(units)
        if end > len(self._due):
            self._grow(end)
        put(self._units, self.count, units)
        due = units["due_ms"]
        self._due[self.count : end] = due
        self.count = end
        later = due[due > self._seen_after_ms]
        if len(later):
            self._seen_next_ms = min(self._seen_next_ms, int(later.min()))

    def _grow(self, least: int) -> None:
        capacity = max(least, 2 * len(self._due))
        units, due = np.empty(capacity, UNIT), np.empty(capacity, np.int64)
        put(units, 0, self.units)
        due[: self.count] = self._due[: self.count]
        self._units, self._due = units, due

    def select(self, after: Key, to: Key) -> Units:
        """Copies of the units with after < key <= to, in order of arrival."""
        if not self.count or self._next_after(after.due_ms - 1) > to.due_ms:
            return NO_UNITS
        due = self._due[: self.count]
        found = np.flatnonzero((due >= after.due_ms) & (due <= to.due_ms))
        if not len(found):
            return NO_UNITS
        return within(pick(self._units, found), after, to)

    def select_some(self, after: Key, to: Key, count: int) -> tuple[Units, Key]:
        """(copies of the units with after < key <= bound, in order of arrival; bound).

        At most `count` of them, but for units that share a key: given back by several groups. The
        bound is in (after, to], and `to` where so many are all.
        """
        low_ms = after.due_ms + (after.sequence >= SEQUENCE_MAX)
        due = self._due[: self.count]
        found = np.flatnonzero((due >= low_ms) & (due <= to.due_ms))
        bound = to
        if len(found) > count:
            dues = due[found]
            cut_ms = int(np.partition(dues, count)[count])
            if cut_ms > low_ms:
                bound, found = Key(cut_ms - 1, SEQUENCE_MAX), found[dues < cut_ms]
            else:
                bound, found = self._bound_in(low_ms, found[dues == low_ms], after, to, count)
        if not len(found):
            return NO_UNITS, bound
        return within(pick(self._units, found), after, bound), bound

    def _bound_in(
        self, due_ms: int, found: NDArray[np.int64], after: Key, to: Key, count: int
    ) -> tuple[Key, NDArray[np.int64]]:
        """(bound, ordinals up to it) where more than `count` are due in one millisecond."""
        sequences = self.units["sequence"][found]
        if due_ms == after.due_ms:
            later = sequences > np.uint64(after.sequence)
            sequences, found = sequences[later], found[later]
        if len(sequences) <= count:
            return min(to, Key(due_ms, SEQUENCE_MAX)), found
        last = np.partition(sequences, count - 1)[count - 1]
        return min(to, Key(due_ms, int(last))), found[sequences <= last]

    def find(
        self,
        due_ms: NDArray[np.int64],
        sequences: NDArray[np.uint64],
        attempts: NDArray[np.uint16],
    ) -> tuple[NDArray[np.int64], Units]:
        """(which of n are here, copies of these units): one unit of each key and attempt."""
        if self.count - len(self._by_sequence.ordinals) > UNSORTED_MAX:
            self._by_sequence = self._sorted_from(0)
        found = np.full(len(sequences), -1, np.int64)
        rest = self._sorted_from(len(self._by_sequence.ordinals))
        for ordinals, ascending in (self._by_sequence, rest):
            low = np.searchsorted(ascending, sequences, "left")
            counts = np.searchsorted(ascending, sequences, "right") - low
            requested = np.repeat(np.arange(len(sequences)), counts)
            steps = np.arange(len(requested)) - np.repeat(np.cumsum(counts) - counts, counts)
            candidates = ordinals[low[requested] + steps]
            is_right = self._due[candidates] == due_ms[requested]
            is_right &= self._units["attempt"][candidates] == attempts[requested]
            found[requested[is_right]] = candidates[is_right]
        here = np.flatnonzero(found >= 0)
        return here, pick(self._units, found[here])

    def _sorted_from(self, first: int) -> "_BySequence":
        """The units from an ordinal on."""
        sequences = self._units["sequence"][first : self.count]
        order = np.argsort(sequences, kind="stable")
        return _BySequence(first + order, sequences[order])

    def dues_after(self, after: Key) -> NDArray[np.int64]:
        """Due times of the units with key > `after`, in order of arrival: a copy."""
        due = self._due[: self.count]
        is_later: NDArray[np.bool_] = due > after.due_ms
        same = np.flatnonzero(due == after.due_ms)
        is_later[same] = self._units["sequence"][same] > np.uint64(after.sequence)
        return due[is_later]

    def next_due_ms(self, after: Key) -> int | None:
        """The least due time of a unit with key > `after`, or None."""
        if len(self.select(after, Key(after.due_ms, SEQUENCE_MAX))):
            return after.due_ms
        found = self._next_after(after.due_ms)
        return None if found == _NEVER else found

    def _next_after(self, due_ms: int) -> int:
        """The least due time > `due_ms`, or _NEVER: looks at the units only where it must."""
        if not self._seen_after_ms <= due_ms < self._seen_next_ms:
            due = self._due[: self.count]
            later = due[due > due_ms]
            self._seen_after_ms = due_ms
            self._seen_next_ms = int(later.min()) if len(later) else _NEVER
        return self._seen_next_ms


def within(units: Units, after: Key, to: Key) -> Units:
    """Those of `units` with after < key <= to."""
    due, sequence = units["due_ms"], units["sequence"]
    low = (due > after.due_ms) | ((due == after.due_ms) & (sequence > after.sequence))
    high = (due < to.due_ms) | ((due == to.due_ms) & (sequence <= to.sequence))
    both = low & high
    return units if both.all() else pick(units, both)
