"""Flush: turn a frozen memtable into runs and delay logs. Runs beside the thread that applies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Buffer
from hourwheel.types import Key, Offset
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.views.unit import Units, equal_spans, pick, sort_by_key
from timewheel.bodies import Bodies, LogReader
from timewheel.delay_log import DelayLogWriter, blob_lengths, copy_each, places_in_log
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_LEVEL
from timewheel.memtable import Memtable
from timewheel.run_format import Footer
from timewheel.run_writer import RunWriter

_CHUNK_UNITS: Final = 16_384
"""Written at once: large enough for numpy, small enough that no copy holds the GIL for long."""

_PIECE_BYTES: Final = 64 << 20
"""A longer stretch of the log is not in memory as a whole, but so much of what is to be written."""
_READ_BYTES: Final = 8 << 20
"""Of such a stretch, at once."""

HeadsOf = Callable[[int, int, int], NDArray[np.uint32]]
"""(level, bucket, before run id) -> slot heads: `RunSet.heads`."""


@dataclass(frozen=True)
class WrittenRun:
    """A run that a job wrote; durable, and nothing until a manifest names it."""

    footer: Footer
    delay_log_id: int
    """The delay log written with it, 0 for none."""
    delay_log_bytes: int


@dataclass(frozen=True)
class Place:
    """Where a job writes."""

    disk: Disk
    directory: str
    identity: Identity


@dataclass(frozen=True)
class FlushSource:
    """What a flush writes out of."""

    table: Memtable
    """Frozen: nothing is put into it any more."""
    cursor: Key
    """What is up to here is dispatched, and is left out."""
    log: LogReader
    span: tuple[Offset, Offset]
    """The range of the log that filled the memtable: [from, to)."""


class _Span:
    """The stretch of the log that filled a memtable, read in pieces where it is long."""

    def __init__(self, log: LogReader, span: tuple[Offset, Offset], piece_bytes: int) -> None:
        self._log, (self._start, self._end) = log, span
        self._piece_bytes = piece_bytes
        self._whole = b""

    def blocks(self, units: Units) -> Iterator[tuple[Units, Buffer, NDArray[np.int64]]]:
        """(some units, bytes of the log, where in them each blob begins), again and again.

        All units at once where the span is short. Else, for each of a few blocks, the span is read
        from its beginning to its end: units in key order point into all of it.
        """
        places, size = places_in_log(units, self._start, self._end), self._end - self._start
        if size <= self._piece_bytes:
            self._whole = self._whole or self._log.read(self._start, size)
            yield units, self._whole, places
            return
        lengths = np.where(places >= 0, blob_lengths(units), 0)
        for low, high in equal_spans((np.cumsum(lengths) - lengths) // self._piece_bytes):
            yield units[low:high], *self._collect(places[low:high], lengths[low:high])

    def _collect(
        self, places: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[Buffer, NDArray[np.int64]]:
        """The blobs that begin at these places of the span, one behind the other; and where."""
        targets = np.where(places >= 0, np.cumsum(lengths) - lengths, -1)
        found = bytearray(int(lengths.sum()))
        pieces = places // min(_READ_BYTES, self._piece_bytes)
        order = np.argsort(pieces, kind="stable")
        order = order[
            np.searchsorted(pieces[order], 0) :
        ]  # those that are not in the span are first
        for low, high in equal_spans(pieces[order]):
            here = order[low:high]
            starts, sizes = places[here], lengths[here]
            first, end = int(starts.min()), int((starts + sizes).max())
            raw = self._log.read(Offset(self._start + first), end - first)
            copy_each(raw, found, starts - first, targets[here], sizes)
        return found, targets


def sections_end_ms(hour_level_end_day: int) -> int:
    """First instant that belongs to the day level."""
    return hour_level_end_day * DAY_MS


class FlushJob:
    """Writes what a frozen memtable holds above the cursor: one run a level, one delay log a run.

    One file for all buckets of a flush, not one a bucket: a flush over a week then costs two
    fdatasyncs and not 336 (docs/decisions has the measurement).
    """

    def __init__(
        self,
        place: Place,
        source: FlushSource,
        *,
        run_ids: tuple[int, int],
        hour_level_end_day: int,
        heads: HeadsOf,
        chunk_units: int = _CHUNK_UNITS,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        """`run_ids`: of the hour level and of the day level; `chunk_units`: written at once.

        `piece_bytes`: of the log that are in memory at once.
        """
        self._place, self._source = place, source
        self._span = _Span(source.log, source.span, piece_bytes)
        self._run_ids, self._chunk_units = run_ids, chunk_units
        self._split_ms, self._heads = sections_end_ms(hour_level_end_day), heads

    def run(self) -> list[WrittenRun]:
        """Write; returns the runs, oldest first. Raises DiskFull, having removed nothing needed."""
        source = self._source
        units, cursor = source.table.units, source.cursor
        due = units["due_ms"]
        ahead = (due > cursor.due_ms) | (
            (due == cursor.due_ms) & (units["sequence"] > cursor.sequence)
        )
        units = sort_by_key(pick(units, ahead))
        split = int(np.searchsorted(units["due_ms"], self._split_ms, "left"))
        others = Bodies(self._place.disk, self._place.directory, source.log)
        try:
            parts = ((HOUR_LEVEL, units[:split]), (DAY_LEVEL, units[split:]))
            written = [
                self._write(level, run_id, part, others)
                for (level, part), run_id in zip(parts, self._run_ids, strict=True)
                if len(part)
            ]
        finally:
            others.close()
        if written:
            self._place.disk.sync_dir(self._place.directory)
        return written

    def _write(self, level: int, run_id: int, units: Units, others: Bodies) -> WrittenRun:
        place = self._place
        delay_log = DelayLogWriter(place.disk, place.directory, place.identity, run_id)
        writer = RunWriter(
            place.disk,
            place.directory,
            place.identity,
            level=level,
            covers_first=run_id,
            run_id=run_id,
            heads=lambda bucket: self._heads(level, bucket, run_id),
        )
        for block, source, starts in self._span.blocks(units):
            for low in range(0, len(block), self._chunk_units):
                some = slice(low, low + self._chunk_units)
                part = delay_log.append_from_log(block[some], source, starts[some], others)
                writer.append(part)
        delay_log.finish()
        return WrittenRun(writer.finish(), run_id, delay_log.size_bytes)
