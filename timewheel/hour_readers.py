"""Read one hour of all runs in one key order, piece by piece: a merge of sorted ranges."""

from typing import Final

from hourwheel.types import Key
from storage.views.unit import NO_UNITS, Units, count_to
from timewheel.run import Run
from timewheel.run_set import Piece

_BUFFER_UNITS_MIN: Final = 256
_AHEAD_UNITS: Final = 65_536
"""How far the disk is asked to read ahead of what is parsed: 4 MiB a run."""


class _Reader:
    """A range [at, end) of one run, with the next units buffered.

    Invariants: `buffer` are the units just below `at`, not yet taken; units of one key (a message
    that several groups gave back) are buffered together.
    """

    def __init__(self, piece: Piece, after: Key) -> None:
        self.run, first, self._end = piece
        self._at = self.run.find_after(first, self._end, *after)
        self.buffer: Units = NO_UNITS
        self.run.will_need(self._at, min(self._end, self._at + _AHEAD_UNITS))

    def fill(self, count: int) -> None:
        """Have at least one unit buffered, if any is left."""
        if len(self.buffer) or self._at >= self._end:
            return
        until = min(self._end, self._at + count)
        buffer = self.run.read(self._at, until)
        last = _key_of(buffer[-1])
        if until < self._end and _key_of(self.run.read(until, until + 1)[0]) == last:
            until = self.run.find_after(until, self._end, *last)
            buffer = self.run.read(self._at, until)
        self.buffer, self._at = buffer, until
        self.run.will_need(until, min(self._end, until + _AHEAD_UNITS))

    @property
    def bound(self) -> Key | None:
        """Last key that is buffered, or None where all that is left is buffered."""
        if self._at >= self._end:
            return None
        return _key_of(self.buffer[-1])

    @property
    def is_exhausted(self) -> bool:
        """Nothing is left."""
        return not len(self.buffer) and self._at >= self._end


def _key_of(unit: Units) -> Key:
    """The key of one unit."""
    return Key(int(unit["due_ms"]), int(unit["sequence"]))


class HourReaders:
    """The runs' units of one hour with keys > a frontier.

    Which runs are read is fixed when the hour is opened; only flushes add to it (`add`). Merges and
    cascades do not: their output is already being read, in the runs that they replace.
    """

    def __init__(
        self,
        hour: int,
        pieces: list[Piece],
        after: Key,
        *,
        buffer_units_min: int = _BUFFER_UNITS_MIN,
    ) -> None:
        """Position every piece behind `after`; each read takes `buffer_units_min` or more."""
        self.hour, self._buffer_units_min = hour, buffer_units_min
        self._readers = [_Reader(piece, after) for piece in pieces if piece[2] > piece[1]]

    def add(self, piece: Piece, after: Key) -> None:
        """Read a new run, too, from behind `after`."""
        if piece[2] > piece[1]:
            self._readers.append(_Reader(piece, after))

    def runs(self) -> set[Run]:
        """The runs being read: their files must stay."""
        return {reader.run for reader in self._readers}

    def take(self, limit: Key, count: int) -> tuple[list[Units], Key]:
        """Take about `count` units at most, in keys <= `limit`.

        Returns:
            (parts, bound): every unit of the hour with key <= bound is in them or was taken
            before; bound == limit when the hour has no more up to there.
        """
        self._readers = [reader for reader in self._readers if not reader.is_exhausted]
        if not self._readers:
            return [], limit
        each = max(self._buffer_units_min, count // len(self._readers))
        for reader in self._readers:
            reader.fill(each)
        bounds = [bound for reader in self._readers if (bound := reader.bound) is not None]
        bound = min([limit, *bounds])
        taken = []
        for reader in self._readers:
            end = count_to(reader.buffer, *bound)
            if end:
                taken.append(reader.buffer[:end])
                reader.buffer = reader.buffer[end:]
        return taken, bound
