"""How many units of the wheel are due in each of many ranges of time, without reading units.

    run        bound --> section (units of whole buckets before it) --> slot directory (whole slots)
    memtable   due times, which lie in an array of their own

A run's sections and directories are cumulative counts already, so a bound costs one look into each
run, whatever lies between two bounds: a picture of the next two years, with a hundred million
units, reads some hundred directories. A bound inside a slot that holds units is estimated, as if
they were spread evenly over the slot: seconds on the hour level, hours on the day level. Sums do
not suffer from it: what one range gets too much the next one lacks.

A cancelled message is counted until its due time, because it stays in its run until then. The
caller knows how many are pending: `DueCounts.total` less that is the number of cancelled ones.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.errors import invariant, required
from hourwheel.types import Key
from timewheel.levels import BUCKET_MS, SLOT_MS
from timewheel.run import Run
from timewheel.wheel import Wheel

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_DUES_AT_ONCE: Final = 32_768
"""Due times that one step looks up: a millisecond or two."""
_DIRECTORIES_AT_ONCE: Final = 16
"""Slot directories that one step reads; each has up to 43 KB."""
_RUNS_AT_ONCE: Final = 8


class DueCounts(NamedTuple):
    """Units by due time, those above the cursor, for bounds b[0] < b[1] < ... < b[n]."""

    counts: Counts
    """i64[n]: due in [b[i], b[i + 1])."""
    are_exact: Mask
    """bool[n]: False where a bound lies inside a slot that holds units."""
    earlier_count: int
    """Due before b[0]."""
    later_count: int
    """Due at b[n] or later."""

    @property
    def total(self) -> int:
        """All units above the cursor, whatever the bounds: always exact."""
        return int(self.counts.sum()) + self.earlier_count + self.later_count


class DueCounter:
    """Counts once, step by step, while the wheel goes on beside it.

    The answer is as of the moment of its making, unless runs change meanwhile: then it `is_stale`,
    and another one has to begin. Used from the thread that applies.
    """

    def __init__(self, wheel: Wheel, cursor: Key, bounds_ms: Counts) -> None:
        """Count what lies above `cursor`; `bounds_ms` ascend, and are two or more."""
        invariant(bool((np.diff(bounds_ms) > 0).all()), "bounds ascend")
        invariant(len(bounds_ms) > 1, "a range has two bounds")
        self._wheel, self._cursor, self._bounds = wheel, cursor, bounds_ms
        self._version = wheel.runs.version
        self._before = np.zeros(len(bounds_ms), np.int64)
        """Of each bound: units counted so far that are due before it."""
        self._total = 0
        self._is_exact = np.ones(len(bounds_ms), np.bool_)
        tables = [wheel.memtable] if wheel.frozen is None else [wheel.frozen, wheel.memtable]
        dues = [table.dues_after(cursor) for table in tables]
        self._steps = self._walk(dues, wheel.runs.all())
        self.is_done = False

    @property
    def is_stale(self) -> bool:
        """Runs have changed: what was counted may be counted again, or its file be gone."""
        return self._version != self._wheel.runs.version

    def step(self) -> None:
        """A part of it: some milliseconds at most.

        Raises:
            CorruptFile: a run is damaged.
        """
        invariant(not self.is_stale, "runs stay while they are counted")
        self.is_done = next(self._steps, None) is None

    def result(self) -> DueCounts:
        """What was counted, once it is done."""
        invariant(self.is_done, "all is counted")
        before = self._before
        return DueCounts(
            np.diff(before),
            self._is_exact[1:] & self._is_exact[:-1],
            int(before[0]),
            self._total - int(before[-1]),
        )

    def _walk(self, dues: list[Counts], runs: list[Run]) -> Iterator[bool]:
        """Yields after each part."""
        for of_table in dues:
            for at in range(0, len(of_table), _DUES_AT_ONCE):
                self._count_dues(of_table[at : at + _DUES_AT_ONCE])
                yield True
        for ordinal, run in enumerate(runs, 1):
            if run.footer.due_ms_max >= self._cursor.due_ms:
                yield from self._count_run(run)
            if not ordinal % _RUNS_AT_ONCE:
                yield True

    def _count_dues(self, dues: Counts) -> None:
        places = np.searchsorted(self._bounds, dues, "right")
        self._before += np.cumsum(np.bincount(places, minlength=len(self._bounds) + 1))[:-1]
        self._total += len(dues)

    def _count_run(self, run: Run) -> Iterator[bool]:
        sections = run.sections
        if not len(sections):
            return
        bucket_ms, buckets = BUCKET_MS[run.footer.level], sections["bucket"]
        is_own = ~np.isin(buckets, list(run.cascaded_days))
        ends = np.cumsum(np.where(is_own, sections["count"], 0), dtype=np.int64)
        starts = np.concatenate([[0], ends])  # of each section among the run's own units; the end
        of_bound = self._bounds // bucket_ms
        ordinals = np.searchsorted(buckets, of_bound, "left")
        before = starts[ordinals]
        ordinals = np.minimum(ordinals, len(buckets) - 1)
        inside = (buckets[ordinals] == of_bound) & is_own[ordinals]
        inside &= self._bounds % bucket_ms > 0
        passed = self._count_passed(run, starts)
        inside &= self._bounds > self._cursor.due_ms  # what is up to there lies below `passed`
        requested = np.flatnonzero(inside)
        groups = np.split(requested, np.flatnonzero(np.diff(of_bound[requested])) + 1)
        for read, group in enumerate(groups, 1):
            if len(group):
                self._look_into(run, int(of_bound[group[0]]), group, before)
            if not read % _DIRECTORIES_AT_ONCE:
                yield True
        self._before += np.maximum(before - passed, 0)
        self._total += int(ends[-1]) - passed

    def _look_into(self, run: Run, bucket: int, group: NDArray[np.intp], before: Counts) -> None:
        """Add what lies in `bucket` before those bounds of `group` that lie inside it."""
        directory = required(run.directory(bucket), "a section has a directory", bucket=bucket)
        level = run.footer.level
        into_ms = self._bounds[group] - bucket * BUCKET_MS[level]
        slots, rest_ms = np.divmod(into_ms, SLOT_MS[level])
        counts = directory["count"][slots].astype(np.int64)
        firsts = directory["first"][slots].astype(np.int64) - int(directory["first"][0])
        before[group] += firsts + counts * rest_ms // SLOT_MS[level]
        self._is_exact[group] &= (rest_ms == 0) | (counts == 0)

    def _count_passed(self, run: Run, starts: Counts) -> int:
        """How many of the run's own units the cursor has passed."""
        bucket = self._cursor.due_ms // BUCKET_MS[run.footer.level]
        ordinal = int(np.searchsorted(run.sections["bucket"], bucket, "left"))
        passed = int(starts[ordinal])
        first, end = run.section(bucket)
        if first < end:
            passed += run.find_in_bucket(bucket, self._cursor) - first
        return passed
