"""Which runs exist, and what they hold of an hour: the occupied buckets and the slot heads."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.errors import invariant
from timewheel.levels import DAY_LEVEL, HOUR_LEVEL, SLOTS, SLOTS_PER_DAY
from timewheel.run import Run

_OCCUPIED_MAX: Final = 8

Piece = tuple[Run, int, int]
"""(run, first, end): a stretch of a run in key order."""


def _order(run: Run) -> tuple[int, int]:
    return run.order


class RunSet:
    """The runs that the manifest names.

    Invariants: within a level the ranges [covers_first, run_id] are disjoint; `_by_bucket` and
    `_buckets` hold exactly the buckets that some run has units of. A change costs what the run has
    of buckets, whatever there is of other runs.
    """

    def __init__(self) -> None:
        """Empty."""
        self._levels: tuple[list[Run], list[Run]] = ([], [])
        self._by_bucket: tuple[dict[int, list[Run]], dict[int, list[Run]]] = ({}, {})
        self._buckets: tuple[list[int], list[int]] = ([], [])
        """Those of `_by_bucket`, ascending."""
        self._occupied: dict[int, NDArray[np.bool_]] = {}
        """`occupied_seconds` of the hours asked for lately."""
        self.version = 0
        """Another one after each change of what runs there are, or what they hold."""

    def all(self) -> list[Run]:
        """Every run, oldest first within a level."""
        return [*self._levels[HOUR_LEVEL], *self._levels[DAY_LEVEL]]

    def of_level(self, level: int) -> list[Run]:
        """The runs of a level, oldest first."""
        return list(self._levels[level])

    def add(self, run: Run) -> None:
        """Take a run in."""
        level = run.footer.level
        runs = self._levels[level]
        at = bisect_left(runs, run.order, key=_order)
        for older, newer in pairwise((*runs[max(0, at - 1) : at], run, *runs[at : at + 1])):
            invariant(
                older.footer.run_id < newer.footer.covers_first,
                "runs of a level cover disjoint ranges",
                older=older.path,
                newer=newer.path,
            )
        runs.insert(at, run)
        for bucket in run.buckets():
            self._enter(level, bucket, run)
        self._note_change()

    def remove(self, gone: Iterable[Run]) -> None:
        """Forget runs; the caller closes and removes them when nothing reads them any more."""
        gone = set(gone)
        found = [run for run in self.all() if run in gone]
        for run in found:
            level = run.footer.level
            self._levels[level].remove(run)
            for bucket in run.buckets():
                self._leave(level, bucket, run)
        if found:
            self._note_change()

    def mark_cascaded(self, run: Run, day: int) -> None:
        """A day's units have left `run` for hour-level runs."""
        if run in self.with_bucket(DAY_LEVEL, day):
            self._leave(DAY_LEVEL, day, run)
        run.cascaded_days.add(day)
        self._note_change()

    def _enter(self, level: int, bucket: int, run: Run) -> None:
        runs = self._by_bucket[level].get(bucket)
        if runs is None:
            self._by_bucket[level][bucket] = [run]
            insort(self._buckets[level], bucket)
        else:
            insort(runs, run, key=_order)

    def _leave(self, level: int, bucket: int, run: Run) -> None:
        runs = self._by_bucket[level][bucket]
        runs.remove(run)
        if not runs:
            del self._by_bucket[level][bucket]
            buckets = self._buckets[level]
            del buckets[bisect_left(buckets, bucket)]

    def _note_change(self) -> None:
        self._occupied.clear()
        self.version += 1

    def with_bucket(self, level: int, bucket: int) -> list[Run]:
        """Runs of a level that hold units of a bucket, oldest first."""
        return list(self._by_bucket[level].get(bucket, ()))

    def first_day(self) -> int | None:
        """The first day that day-level runs hold units of, or None."""
        return next(iter(self._buckets[DAY_LEVEL]), None)

    def pieces_of_hour(self, hour: int) -> list[Piece]:
        """What the runs of both levels hold of an hour."""
        found: list[Piece] = [
            (run, *run.section(hour)) for run in self.with_bucket(HOUR_LEVEL, hour)
        ]
        day, slot = divmod(hour, SLOTS_PER_DAY)
        for run in self.with_bucket(DAY_LEVEL, day):
            directory = run.directory(day)
            if directory is not None and directory[slot]["count"]:
                first = int(directory[slot]["first"])
                found.append((run, first, first + int(directory[slot]["count"])))
        return found

    def hours_of_day(self, day: int) -> list[int]:
        """Hours that day-level runs hold units of in a day, ascending."""
        counts = np.zeros(SLOTS_PER_DAY, np.int64)
        for run in self.with_bucket(DAY_LEVEL, day):
            directory = run.directory(day)
            if directory is not None:
                counts += directory["count"]
        return [day * SLOTS_PER_DAY + int(slot) for slot in np.flatnonzero(counts)]

    def next_hour(self, hour: int) -> int | None:
        """The first hour >= `hour` that any run holds units of, or None."""
        hours = self._buckets[HOUR_LEVEL]
        at = bisect_left(hours, hour)
        best = hours[at] if at < len(hours) else None
        days = self._buckets[DAY_LEVEL]
        for day in days[bisect_left(days, hour // SLOTS_PER_DAY) :]:
            if best is not None and day * SLOTS_PER_DAY > best:
                break
            later = [found for found in self.hours_of_day(day) if found >= hour]
            if later:
                return later[0] if best is None else min(best, later[0])
        return best

    def occupied_seconds(self, hour: int) -> NDArray[np.bool_]:
        """bool[3600]: slots that may hold units. A day-level run occupies its whole hour."""
        found = self._occupied.get(hour)
        if found is None:  # asked with every commit, for the next wake-up
            if len(self._occupied) >= _OCCUPIED_MAX:
                self._occupied.clear()
            found = self._occupied[hour] = self._find_occupied(hour)
        return found

    def _find_occupied(self, hour: int) -> NDArray[np.bool_]:
        taken = np.zeros(SLOTS[HOUR_LEVEL], np.bool_)
        for run, first, end in self.pieces_of_hour(hour):
            if run.footer.level == DAY_LEVEL:
                taken[:] = end > first
                return taken
            directory = run.directory(hour)
            if directory is not None:
                taken |= directory["count"] > 0
        return taken

    def heads(self, level: int, bucket: int, before: int) -> NDArray[np.uint32]:
        """uint32[slots]: newest run with id < `before` that has units in each slot, 0 for none.

        One directory tells it: that of the newest run with the bucket, whose own chain goes on.
        """
        for run in reversed(self.with_bucket(level, bucket)):
            if run.footer.run_id < before:
                directory = run.directory(bucket)
                if directory is not None:
                    own = directory["count"] > 0
                    return np.where(own, run.footer.run_id, directory["previous_run"]).astype(
                        np.uint32
                    )
        return np.zeros(SLOTS[level], np.uint32)

    def resolve(self, level: int, run_id: int) -> Run | None:
        """The run that stands for `run_id` today (itself or what it was merged into), or None."""
        for run in self._levels[level]:
            if run.footer.covers_first <= run_id <= run.footer.run_id:
                return run
        return None

    def chain(self, hour: int, slot: int) -> list[Run]:
        """Runs with units in a second, newest first, found by following the chain.

        Where it leads to a run that is gone, or was merged without this hour (which was past by
        then), it goes on with the next older run that has the hour.
        """
        found: list[Run] = []
        number = int(self.heads(HOUR_LEVEL, hour, 1 << 32)[slot])
        while number:
            run = self.resolve(HOUR_LEVEL, number)
            directory = run.directory(hour) if run else None
            if run is None or directory is None:
                number = int(self.heads(HOUR_LEVEL, hour, number)[slot])
                continue
            if directory[slot]["count"]:
                found.append(run)
            number = int(directory[slot]["previous_run"])
        return found
