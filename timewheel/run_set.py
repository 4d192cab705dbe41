"""Which runs exist, and what they hold of an hour: the occupied buckets and the slot heads."""

from bisect import bisect_left
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


class RunSet:
    """The runs that the manifest names.

    Invariants: within a level the ranges [covers_first, run_id] are disjoint; `_hours` and `_days`
    hold exactly the buckets that some run has units of.
    """

    def __init__(self) -> None:
        """Empty."""
        self._levels: tuple[list[Run], list[Run]] = ([], [])
        self._by_bucket: tuple[dict[int, list[Run]], dict[int, list[Run]]] = ({}, {})
        self._sorted_buckets: list[list[int] | None] = [None, None]
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
        runs.append(run)
        runs.sort(key=lambda one: one.order)
        for older, newer in pairwise(runs):
            invariant(
                older.footer.run_id < newer.footer.covers_first,
                "runs of a level cover disjoint ranges",
                older=older.path,
                newer=newer.path,
            )
        self._reindex(level)

    def remove(self, gone: Iterable[Run]) -> None:
        """Forget runs; the caller closes and removes them when nothing reads them any more."""
        gone = set(gone)
        for level in (HOUR_LEVEL, DAY_LEVEL):
            kept = [run for run in self._levels[level] if run not in gone]
            self._levels[level][:] = kept
            self._reindex(level)

    def mark_cascaded(self, run: Run, day: int) -> None:
        """A day's units have left `run` for hour-level runs."""
        run.cascaded_days.add(day)
        self._reindex(DAY_LEVEL)

    def _reindex(self, level: int) -> None:
        index = self._by_bucket[level]
        index.clear()
        for run in self._levels[level]:
            for bucket in run.buckets():
                index.setdefault(bucket, []).append(run)
        self._sorted_buckets[level] = None
        self._occupied.clear()
        self.version += 1

    def _buckets(self, level: int) -> list[int]:
        buckets = self._sorted_buckets[level]
        if buckets is None:
            buckets = self._sorted_buckets[level] = sorted(self._by_bucket[level])
        return buckets

    def with_bucket(self, level: int, bucket: int) -> list[Run]:
        """Runs of a level that hold units of a bucket, oldest first."""
        return list(self._by_bucket[level].get(bucket, ()))

    def days(self) -> list[int]:
        """Days that day-level runs hold units of, ascending."""
        return list(self._buckets(DAY_LEVEL))

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
        hours = self._buckets(HOUR_LEVEL)
        at = bisect_left(hours, hour)
        best = hours[at] if at < len(hours) else None
        days = self._buckets(DAY_LEVEL)
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
