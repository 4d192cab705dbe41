r"""The wheel: memtable, runs and the near level behind one face; a pure function of the log.

    insert --> memtable --flush--> runs (hours, days) --HourReaders--> near --take--> release
                   \______________________ if key <= frontier _________/^

Threads: everything here runs on the thread that applies the log. Flush, merge and cascade jobs run
elsewhere on what `freeze` and the run set hand them, and come back through `install`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hourwheel.errors import invariant, required
from hourwheel.instants import earliest
from hourwheel.types import SEQUENCE_MAX, Key
from storage.views.unit import UNIT, UNIT_BYTES, Units, join, pick, sort_by_key
from timewheel.hour_readers import HourReaders
from timewheel.levels import HOUR_MS, SECOND_MS, hour_of
from timewheel.memtable import Memtable, within
from timewheel.near import Near
from timewheel.run import Run
from timewheel.run_set import RunSet


@dataclass(frozen=True)
class WheelConfig:
    """What the wheel may use. Local: it changes nothing that anyone can see."""

    near_bytes_max: int = 32 << 20
    """The near level is cut back above this."""
    near_ahead_ms: int = 10_000
    """The near level is loaded this far ahead, where the bytes allow."""
    load_units: int = 8_192
    """The near level is loaded about this many units at a time."""
    memtable_units_max: int = 262_144
    """A flush begins above this many units."""
    memtable_span_bytes_max: int = 64 << 20
    """A flush begins when the log from the last checkpoint on is longer than this."""
    hour_level_days: int = 2
    """Days from today that are held as hours; later ones are held as days."""
    merge_run_count: int = 8
    """So many adjacent runs of about one size are merged into one."""
    job_units_per_slice: int = 65_536
    """Merges and cascades move this many units between two pauses."""


class Wheel:
    """Everything pending, by key.

    Invariants: near is complete for cursor < key <= near.frontier; every pending unit above the
    cursor is in exactly one of memtable, frozen memtable and runs, and a copy is in near if its key
    is <= near.frontier.
    """

    def __init__(self, config: WheelConfig, cursor: Key) -> None:
        """An empty wheel whose cursor stands at `cursor`; runs are added by `recover`."""
        self.config = config
        self.runs = RunSet()
        self.near = Near(cursor)
        self.memtable = self._new_memtable()
        self.frozen: Memtable | None = None
        self._spare: Memtable | None = None
        """The last one flushed, empty: its memory is touched already."""
        self._readers: HourReaders | None = None
        self._is_loading = False
        """The last `load_ahead` left something to the next one."""

    def _new_memtable(self) -> Memtable:
        return Memtable(self.config.memtable_units_max + self.config.memtable_units_max // 4)

    # -- in -----------------------------------------------------------------------------------

    def insert(self, units: Units) -> None:
        """Schedule `units`, whose keys are all > the cursor."""
        if not len(units):
            return
        self.memtable.insert(units)
        frontier = self.near.frontier
        due = units["due_ms"]
        close = due <= frontier.due_ms
        if close.any():
            close &= (due < frontier.due_ms) | (units["sequence"] <= frontier.sequence)
            near = units if close.all() else pick(units, close)
            if len(near):
                self.near.insert(near)

    # -- out ----------------------------------------------------------------------------------

    def take(self, to: Key) -> Units:
        """Remove and return every unit with key <= `to`, in key order."""
        while self.near.frontier < to:
            self._load(to)
        return self.near.take(to)

    def load_ahead(self, cursor: Key, now_ms: int) -> bool:
        """Load more of the near level, up to `near_ahead_ms` from now; cut it back to its bytes.

        Returns whether there is more to load: soon, but all at once would hold up others.
        """
        self._cut_back(max(cursor, Key(now_ms + SECOND_MS, SEQUENCE_MAX)))
        start_ms, ahead_ms = max(now_ms, cursor.due_ms), self.config.near_ahead_ms
        if not self._is_loading and self.near.frontier.due_ms > start_ms + ahead_ms // 2:
            return False  # in steps of seconds, not with every tick
        target = Key(start_ms + ahead_ms, SEQUENCE_MAX)
        if self._has_more(target):
            self._load(target)
        self._is_loading = self._has_more(target)
        return self._is_loading

    def _has_more(self, target: Key) -> bool:
        """Whether the near level does not reach the target, and has room for a piece more."""
        piece_bytes = self.config.load_units * UNIT_BYTES
        has_room = self.near.size_bytes + piece_bytes <= self.config.near_bytes_max
        return has_room and self.near.frontier < target

    def _cut_back(self, keep: Key) -> None:
        """Drop what the near level has too much of, but nothing up to `keep`.

        The hour's readers stand where the near level ended before, so they are opened again.
        """
        before = self.near.frontier
        self.near.cut_back(self.config.near_bytes_max, keep)
        if self.near.frontier < before:
            self._readers = None

    def load_for_plan(self, after: Key, target: Key, limit: int) -> Key:
        """Load until (after, target] is in the near level or it holds `limit` units of it.

        Returns:
            The largest key <= target that the near level is complete for.
        """
        while self.near.frontier < target:
            if self.near.plan(after, self.near.frontier, limit)[1] >= limit:
                break
            self._load(target)
        return min(target, self.near.frontier)

    def find(
        self,
        due_ms: NDArray[np.int64],
        sequences: NDArray[np.uint64],
        attempts: NDArray[np.uint16],
    ) -> Units:
        """The units of n messages that are pending: array[n], copies.

        Args:
            due_ms: where each is due.
            sequences: of the messages.
            attempts: of the units.

        Raises:
            CorruptFile: a run is damaged.
            InvariantViolated: one is not in the wheel.
        """
        here, units = self.find_some(due_ms, sequences, attempts)
        left = np.delete(np.arange(len(sequences)), here)
        if len(left):
            self._verify_around(int(due_ms[left[0]]))
        invariant(not len(left), "what is pending is in the wheel", sequences=sequences[left][:8])
        found = np.zeros(len(sequences), UNIT)
        found[here] = units
        return found

    def find_some(
        self,
        due_ms: NDArray[np.int64],
        sequences: NDArray[np.uint64],
        attempts: NDArray[np.uint16],
    ) -> tuple[NDArray[np.int64], Units]:
        """(which of n are here, their units), as `find`; the others are pending no more.

        Some that are not pending may still be here.

        Raises:
            CorruptFile: a run is damaged.
        """
        left = np.arange(len(sequences))
        places, found = [np.empty(0, np.int64)], [np.empty(0, UNIT)]
        sources: list[Memtable | Run] = [*self._memtables(), *reversed(self.runs.all())]
        for source in sources:
            if not len(left):
                break
            here, units = source.find(due_ms[left], sequences[left], attempts[left])
            if len(here):
                places.append(left[here])
                found.append(units)
                left = np.delete(left, here)
        return np.concatenate(places), join(found)

    def find_everywhere(
        self,
        due_ms: NDArray[np.int64],
        sequences: NDArray[np.uint64],
        attempts: NDArray[np.uint16],
    ) -> tuple[NDArray[np.int64], Units]:
        """As `find_some`, but each table and run is asked for all of them, found or not.

        So what is done does not tell which are here.
        """
        are_here, found = np.zeros(len(sequences), np.bool_), np.zeros(len(sequences), UNIT)
        sources: list[Memtable | Run] = [*self._memtables(), *reversed(self.runs.all())]
        for source in sources:
            places, units = source.find(due_ms, sequences, attempts)
            fresh = ~are_here[places]
            found[places[fresh]] = units[fresh]
            are_here[places] = True
        here = np.flatnonzero(are_here)
        return here, pick(found, here)

    def _verify_around(self, due_ms: int) -> None:
        """Raises CorruptFile where what the runs have of an hour is damaged."""
        for run, first, end in self.runs.pieces_of_hour(hour_of(due_ms)):
            for at in range(first, end, self.config.load_units):
                run.read(at, min(at + self.config.load_units, end))

    def _load(self, target: Key) -> None:
        """Move the frontier towards `target` by about one chunk."""
        after = self.near.frontier
        limit, readers = self._open_hour(after, target)
        parts: list[Units] = []
        if readers is not None:
            parts, limit = readers.take(limit, self.config.load_units)
        fresh, bound = [], limit
        for table in self._memtables():
            units, bound = table.select_some(after, bound, self.config.load_units)
            fresh.append(units)
        if bound < limit:
            limit = bound
            parts = self._put_back(readers, parts, limit)
            fresh = [within(units, after, limit) for units in fresh]
        found = [units for units in (*parts, *fresh) if len(units)]
        self.near.extend(sort_by_key(join(found)), limit)

    def _put_back(self, readers: HourReaders | None, parts: list[Units], limit: Key) -> list[Units]:
        """Start the hour's readers again at a lower limit than they were read to."""
        if readers is None or not parts:
            return parts
        self._readers = HourReaders(
            readers.hour, self.runs.pieces_of_hour(readers.hour), self.near.frontier
        )
        found: list[Units] = []
        bound = self.near.frontier
        while bound < limit:
            more, bound = self._readers.take(limit, self.config.load_units)
            found += more
        return found

    def _memtables(self) -> list[Memtable]:
        return [self.memtable] if self.frozen is None else [self.frozen, self.memtable]

    def _open_hour(self, after: Key, target: Key) -> tuple[Key, HourReaders | None]:
        """The readers of the hour that follows `after`, and how far they can tell."""
        hour = hour_of(after.due_ms + 1 if after.sequence >= SEQUENCE_MAX else after.due_ms)
        if self._readers is None or self._readers.hour != hour:
            self._readers = None
            occupied = self.runs.next_hour(hour)
            if occupied != hour:
                gap_end = target if occupied is None else _end_of_hour(occupied - 1)
                return min(target, gap_end), None
            self._readers = HourReaders(hour, self.runs.pieces_of_hour(hour), after)
        return min(target, _end_of_hour(hour)), self._readers

    def next_pending_ms(self, after: Key) -> int | None:
        """When to look again: a time <= the due time of the first unit > `after`; None for none.

        Exact where the near level has the unit; else the start of an occupied slot.
        """
        found = self.near.first_due_ms_after(after)
        if found is not None:
            return found
        after = max(after, self.near.frontier)
        candidates = [table.next_due_ms(after) for table in self._memtables()]
        return earliest(*candidates, self._next_occupied_ms(after))

    def _next_occupied_ms(self, after: Key) -> int | None:
        hour = self.runs.next_hour(hour_of(max(after.due_ms, 0)))
        while hour is not None:
            seconds = np.flatnonzero(self.runs.occupied_seconds(hour))
            starts = hour * HOUR_MS + seconds * SECOND_MS
            later = starts[starts + SECOND_MS > after.due_ms]
            if len(later):
                return max(int(later[0]), after.due_ms)
            hour = self.runs.next_hour(hour + 1)
        return None

    # -- flush, merge, cascade ----------------------------------------------------------------

    def freeze(self) -> Memtable:
        """Set the memtable aside for a flush; inserts go to a new one from now on."""
        invariant(self.frozen is None, "one flush at a time")
        spare, self._spare = self._spare, None
        self.frozen, self.memtable = self.memtable, spare or self._new_memtable()
        return self.frozen

    def install_flush(self, runs: list[Run]) -> None:
        """The frozen memtable's units above the cursor at the freeze are in `runs` now."""
        self._spare, self.frozen = required(self.frozen, "a flush has a frozen memtable"), None
        self._spare.clear()
        for run in runs:
            self.runs.add(run)
            readers = self._readers
            if readers is not None:
                for piece in self.runs.pieces_of_hour(readers.hour):
                    if piece[0] is run:
                        readers.add(piece, self.near.frontier)

    def abandon_flush(self) -> None:
        """The flush failed for want of room: its units go back in front of the newer ones."""
        table = required(self.frozen, "a flush has a frozen memtable")
        table.insert(self.memtable.units)
        self.memtable, self.frozen = table, None

    def units_in_memory(self) -> list[Units]:
        """Every array of units that may point into files: the near level and the memtables."""
        return [*self.near.arrays(), *(table.units for table in self._memtables())]

    def runs_in_use(self) -> set[Run]:
        """Runs being read; their files are closed and removed later."""
        return set() if self._readers is None else self._readers.runs()


def _end_of_hour(hour: int) -> Key:
    return Key((hour + 1) * HOUR_MS - 1, SEQUENCE_MAX)
