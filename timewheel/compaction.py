"""Merge runs and cascade days: background work that changes where units lie and nothing else.

Merge: adjacent runs of one level and about one size become one run. Only units move; bodies stay in
their delay logs (as in WiscKey: index and values apart). Hours that are past are left out.

Cascade: a day whose time nears leaves the day level: its units, from all day-level runs, become one
hour-level run with 24 sections, and their bodies one delay log in the order in which they fall due.

Both are read through whole, checked and durable before a manifest names the result, and both may be
dropped at any moment before that: a unit is in exactly one bucket at every crash point.
"""

from collections.abc import Callable, Iterator
from typing import Final

from hourwheel.types import SEQUENCE_MAX, Key
from storage.views.unit import Units, join, sort_by_key
from timewheel.bodies import Bodies, LogReader
from timewheel.delay_log import DelayLogWriter
from timewheel.flush import HeadsOf, Place, WrittenRun
from timewheel.hour_readers import HourReaders
from timewheel.levels import BUCKET_MS, DAY_LEVEL, HOUR_LEVEL
from timewheel.run import Run
from timewheel.run_format import run_path
from timewheel.run_set import RunSet
from timewheel.run_writer import RunWriter

Pause = Callable[[], None]
"""Called between two slices of work; the shell sleeps in it to limit the rate."""

_TIER_RATIO: Final = 4
_COPY_UNITS: Final = 4_096


def plan_merge(runs: RunSet, level: int, run_count: int) -> list[Run]:
    """The adjacent runs to merge next, oldest first; empty for none.

    Size-tiered: the first `run_count` neighbours whose sizes are within a factor of each other.
    Merging only neighbours keeps [covers_first, run_id] a range.
    """
    candidates = runs.of_level(level)
    for at in range(len(candidates) - run_count + 1):
        group = candidates[at : at + run_count]
        sizes = [max(1, run.footer.unit_count) for run in group]
        if max(sizes) <= _TIER_RATIO * min(sizes):
            return group
    if len(candidates) >= _TIER_RATIO * run_count:
        smallest = min(
            range(len(candidates) - run_count + 1),
            key=lambda at: sum(run.footer.unit_count for run in candidates[at : at + run_count]),
        )
        return candidates[smallest : smallest + run_count]
    return []


class MergeJob:
    """Merges adjacent runs of one level into one."""

    def __init__(
        self,
        place: Place,
        runs: list[Run],
        cursor: Key,
        *,
        heads: HeadsOf,
        slice_units: int,
    ) -> None:
        """`runs` come from `plan_merge`; `cursor` tells what is past."""
        self.runs = runs
        self._place, self._cursor, self._heads = place, cursor, heads
        self._slice_units = slice_units

    @property
    def path(self) -> str:
        """Where the merged run comes to lie."""
        first, last = self.runs[0].footer.covers_first, self.runs[-1].footer.run_id
        return run_path(self._place.directory, first, last)

    def run(self, pause: Pause) -> WrittenRun:
        """Write the merged run. Its units are the sources' without past buckets."""
        level = self.runs[0].footer.level
        writer = RunWriter(
            self._place.disk,
            self._place.directory,
            self._place.identity,
            level=level,
            covers_first=self.runs[0].footer.covers_first,
            run_id=self.runs[-1].footer.run_id,
            heads=lambda bucket: self._heads(level, bucket, self.runs[0].footer.covers_first),
        )
        bucket_ms = BUCKET_MS[level]
        past = self._cursor.due_ms // bucket_ms
        buckets = sorted({bucket for run in self.runs for bucket in run.buckets()})
        for bucket in buckets:
            if bucket < past:
                continue
            pieces = [(run, *run.section(bucket)) for run in self.runs]
            after = Key(bucket * bucket_ms - 1, SEQUENCE_MAX)
            to = Key((bucket + 1) * bucket_ms - 1, SEQUENCE_MAX)
            for units in _merged(HourReaders(bucket, pieces, after), after, to, self._slice_units):
                writer.append(units)
                pause()
        footer = writer.finish()
        self._place.disk.sync_dir(self._place.directory)
        return WrittenRun(footer, 0, 0)


class CascadeJob:
    """Moves one day from the day level to the hour level."""

    def __init__(
        self,
        place: Place,
        day: int,
        runs: RunSet,
        *,
        run_id: int,
        log: LogReader,
        slice_units: int,
    ) -> None:
        """The sources are the day-level runs that hold units of `day` now."""
        self.day = day
        self.sources = runs.with_bucket(DAY_LEVEL, day)
        self._place, self._run_id, self._log = place, run_id, log
        self._heads = runs.heads
        self._slice_units = slice_units

    def run(self, pause: Pause) -> WrittenRun:
        """Write the hour-level run and its delay log."""
        place = self._place
        bodies = Bodies(place.disk, place.directory, self._log)
        delay_log = DelayLogWriter(place.disk, place.directory, place.identity, self._run_id)
        writer = RunWriter(
            place.disk,
            place.directory,
            place.identity,
            level=HOUR_LEVEL,
            covers_first=self._run_id,
            run_id=self._run_id,
            heads=lambda bucket: self._heads(HOUR_LEVEL, bucket, self._run_id),
        )
        pieces = [(run, *run.section(self.day)) for run in self.sources]
        day_ms = BUCKET_MS[DAY_LEVEL]
        after = Key(self.day * day_ms - 1, SEQUENCE_MAX)
        to = Key((self.day + 1) * day_ms - 1, SEQUENCE_MAX)
        try:
            readers = HourReaders(self.day, pieces, after)
            for units in _merged(readers, after, to, self._slice_units):
                for low in range(0, len(units), _COPY_UNITS):
                    part = units[low : low + _COPY_UNITS]
                    blobs, bad = bodies.read(part)
                    writer.append(delay_log.append_blobs(part, blobs, bad))
                    pause()
        finally:
            bodies.close()
        delay_log.finish()
        footer = writer.finish()
        place.disk.sync_dir(place.directory)
        return WrittenRun(footer, self._run_id, delay_log.size_bytes)


def _merged(readers: HourReaders, after: Key, to: Key, slice_units: int) -> Iterator[Units]:
    """All units of the readers in (after, to], in key order, slice by slice."""
    bound = after
    while bound < to:
        pieces, bound = readers.take(to, slice_units)
        if pieces:
            yield sort_by_key(join(pieces))


def plan_cascade(runs: RunSet, hour_level_end_day: int) -> int | None:
    """The earliest day that should be at the hour level and is not, or None."""
    day = runs.first_day()
    return day if day is not None and day < hour_level_end_day else None
