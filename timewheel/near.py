"""The near level: the next units in key order, in memory, up to a frontier; bounded in bytes.

`Near` is a cache. Everything pending with cursor < key <= frontier is in it; beyond the frontier
nothing is. So it can always be cut back (lower the frontier, drop what lies behind it) and loaded
again from memtable and runs, and a second with a million units passes through it piece by piece.

Units lie in buckets of 32 ms, each a list of arrays in order of arrival. A bucket is put into key
order when its time comes (`_settle`), so that neither a publish nor a load sorts what is not needed
yet, and no sort is ever large: a million units due in one second are 32,000 in a bucket.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Final, NamedTuple

import numpy as np

from hourwheel.errors import invariant
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from storage.views.unit import UNIT_BYTES, Units, count_to, equal_spans, join, pick, sort_by_key
from timewheel.memtable import within

_BUCKET_BITS: Final = 5
NEAR_BUCKET_MS: Final = 1 << _BUCKET_BITS
_ARRAYS_MAX: Final = 32
"""A bucket of more arrays is put into order when it is asked for its first unit."""


class _First(NamedTuple):
    """What was found of the first unit behind a key."""

    after: Key
    due_ms: int | None


class Near:
    """Units of the near future. All keys in it are > the cursor and <= `frontier`.

    Invariants: `_order` are the keys of `_buckets`, ascending; no bucket is empty; a bucket in
    `_settled` is one array in key order; `_first`, if known, is true.
    """

    def __init__(self, frontier: Key = KEY_MIN) -> None:
        """Empty, complete up to `frontier`."""
        self.frontier = frontier
        self._buckets: dict[int, list[Units]] = {}
        self._order: list[int] = []
        self._settled: set[int] = set()
        self._first: _First | None = None
        """Each turn asks for it, and most turns change nothing near."""
        self.count = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the units in it."""
        return self.count * UNIT_BYTES

    def extend(self, units: Units, frontier: Key) -> None:
        """Take `units`, in key order, all in (self.frontier, frontier], and move the frontier."""
        invariant(frontier >= self.frontier, "extending moves the frontier on")
        if len(units):
            self._add(units, units["due_ms"] >> _BUCKET_BITS)
        self.frontier = frontier

    def insert(self, units: Units) -> None:
        """Take newly scheduled units with keys <= frontier, in any order."""
        buckets = units["due_ms"] >> _BUCKET_BITS
        if not bool((buckets[1:] >= buckets[:-1]).all()):
            order = np.argsort(buckets, kind="stable")
            units, buckets = pick(units, order), buckets[order]
        self._add(units, buckets)

    def _add(self, units: Units, buckets: np.ndarray) -> None:
        """Put units into buckets: `buckets` is the ascending bucket of each."""
        self.count += len(units)
        self._note_first(units)
        for low, high in equal_spans(buckets):
            bucket = int(buckets[low])
            arrays = self._buckets.get(bucket)
            if arrays is None:
                self._buckets[bucket] = [units[low:high]]
                insort(self._order, bucket)
            else:
                arrays.append(units[low:high])
                self._settled.discard(bucket)

    def _note_first(self, units: Units) -> None:
        """These come in."""
        first = self._first
        if first is None or not len(units):
            return
        due_ms = int(units["due_ms"].min())
        if due_ms <= first.after.due_ms:
            self._first = None  # it is their sequences that tell
        elif first.due_ms is None or due_ms < first.due_ms:
            self._first = first._replace(due_ms=due_ms)

    def _settle(self, bucket: int) -> Units:
        """A bucket's units in key order."""
        arrays = self._buckets[bucket]
        if bucket not in self._settled:
            units = join(arrays)
            self._buckets[bucket] = arrays = [sort_by_key(units)]
            self._settled.add(bucket)
        return arrays[0]

    def _remove(self, bucket: int) -> None:
        del self._buckets[bucket]
        self._settled.discard(bucket)
        self._first = None
        del self._order[bisect_left(self._order, bucket)]

    def _buckets_up_to(self, to: Key) -> list[int]:
        return self._order[: bisect_right(self._order, to.due_ms >> _BUCKET_BITS)]

    def take(self, to: Key) -> Units:
        """Remove and return all units with key <= `to`, in key order."""
        invariant(to <= self.frontier, "taking beyond the frontier", to=to, frontier=self.frontier)
        found: list[Units] = []
        for bucket in self._buckets_up_to(to):
            units = self._settle(bucket)
            end = count_to(units, *to)
            if end == len(units):
                found.append(units)
                self._remove(bucket)
            elif end:
                found.append(units[:end])
                self._buckets[bucket] = [units[end:]]
                self._first = None
        taken = join(found)
        self.count -= len(taken)
        return taken

    def plan(self, after: Key, target: Key, limit: int) -> tuple[Key, int]:
        """Choose how far one dispatch may go.

        Returns:
            (to, count): `target` and how many units are in (after, target], if at most `limit` are;
            else the key of the last one that fits, and `limit`.
        """
        count, to = 0, after
        for bucket in self._buckets_up_to(target):
            units = self._settle(bucket)
            start = bucket << _BUCKET_BITS
            low = count_to(units, *after) if start <= after.due_ms else 0
            whole = start + NEAR_BUCKET_MS <= target.due_ms
            high = len(units) if whole else count_to(units, *target)
            if high <= low:
                continue
            fits = min(high - low, limit - count)
            if fits:
                last = units[low + fits - 1]
                to = Key(int(last["due_ms"]), int(last["sequence"]))
                count += fits
            if fits < high - low:
                return to, count
        return target, count

    def first_due_ms_after(self, after: Key) -> int | None:
        """Due time of the first unit with key > `after`, or None."""
        known = self._first
        if known is not None and known.after <= after:
            due_ms = known.due_ms
            if due_ms is None or after.due_ms < due_ms or after == known.after:
                return due_ms
        found = self._look_after(after)
        self._first = _First(after, found)
        return found

    def _look_after(self, after: Key) -> int | None:
        first = bisect_left(self._order, after.due_ms >> _BUCKET_BITS)
        for bucket in self._order[first:]:
            if len(self._buckets[bucket]) > _ARRAYS_MAX:
                self._settle(bucket)  # else thousands of single retries are looked at each time
            later = [within(units, after, self.frontier) for units in self._buckets[bucket]]
            dues = [int(units["due_ms"].min()) for units in later if len(units)]
            if dues:
                return min(dues)
        return None

    def cut_back(self, bytes_max: int, keep: Key) -> None:
        """Lower the frontier until at most `bytes_max` remain; never below `keep`.

        What is dropped stays in memtable and runs and is loaded again when its time nears. Whole
        buckets go, the last one first.
        """
        while self.size_bytes > bytes_max and self._order:
            bucket = self._order[-1]
            frontier = Key((bucket << _BUCKET_BITS) - 1, SEQUENCE_MAX)
            if frontier < keep:
                return
            self.count -= sum(map(len, self._buckets[bucket]))
            self._remove(bucket)
            self.frontier = frontier

    def arrays(self) -> list[Units]:
        """Everything in it, in no order."""
        return [units for arrays in self._buckets.values() for units in arrays]
