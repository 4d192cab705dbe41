"""The end of the log: what was appended, in memory, and the one write that takes it to the disk.

    append --> LogTail: parts, one for each segment --take--> LogWrite: run, and synced, at once

The tail decides which segment a batch goes into. A segment that it begins is known to the log only
when the write that makes it is finished. The thread that owns the log makes a write and finishes
it; another thread runs it in between. All that both touch is either given away (the pieces) or left
alone meanwhile (the segments that exist).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer
from hourwheel.types import FIRST_OFFSET, Offset
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, Identity
from storage.log.scan import LOG_BATCH_BYTES_MAX
from storage.log.segment import Segment
from storage.log.sparse_index import SparseIndex

_STAMP: Final = Struct("<8xI4xQQq")
"""Of a record batch's header: total_bytes, offset, base_sequence, store_ms."""


@dataclass(frozen=True)
class LogConfig:
    """How the log is cut into files."""

    segment_bytes: int = 1 << 30
    """A segment ends before the batch that would make it longer; one batch may be longer alone."""
    index_interval_bytes: int = 65_536
    """Bytes of log from one entry of the sparse index to the next, at least."""


class LogPart:
    """The part of a write that goes into one segment.

    Attributes:
        segment: where to; not known to the log yet where `is_new`.
        is_new: the segment is made by this write.
        position: byte in the file at which the part begins.
        pieces: what to write.
        bytes: their sizes' sum.
        index: of the part's batches, to be joined to the segment's.
    """

    __slots__ = ("bytes", "index", "is_new", "pieces", "position", "segment")

    def __init__(
        self, segment: Segment, index: SparseIndex, position: int, *, is_new: bool
    ) -> None:
        """Begin an empty part."""
        self.segment = segment
        self.is_new = is_new
        self.position = position
        self.pieces: list[Buffer] = []
        self.bytes = 0
        self.index = index


class LogTail:
    """See the top of this file.

    Attributes:
        end_offset: the address of the next batch.
        is_open: the log was recovered, so that appending is allowed.
    """

    __slots__ = (
        "_batch_count",
        "_config",
        "_directory",
        "_disk",
        "_identity",
        "_index",
        "_part",
        "_parts",
        "_roll_behind",
        "_segment",
        "end_offset",
        "is_open",
    )

    def __init__(self, disk: Disk, directory: str, config: LogConfig, identity: Identity) -> None:
        """A tail that is not open yet. See `reset`."""
        self._disk = disk
        self._directory = directory
        self._config = config
        self._identity = identity
        self.is_open = False
        self._roll_behind = -1
        self.reset(None)

    def reset(self, last: Segment | None) -> None:
        """Forget what was not handed out, and go on behind `last`."""
        self._segment = last
        self._index = None if last is None else last.index
        self.end_offset = FIRST_OFFSET if last is None else last.end_offset
        self._take()

    def _take(self) -> None:
        self._parts: list[LogPart] = []
        self._part: LogPart | None = None
        self._batch_count = 0

    @property
    def has_parts(self) -> bool:
        """Whether there is something to hand out: batches, or a segment without any yet."""
        return bool(self._parts)

    def take(self) -> tuple[list[LogPart], int]:
        """Hand out what was appended: (parts, number of batches)."""
        taken = self._parts, self._batch_count
        self._take()
        return taken

    def roll_behind(self, offset: Offset) -> None:
        """Begin a segment with the next write, if what is appended would share one with `offset`.

        That write need not have a batch: then it only makes the file.
        """
        segment = self._segment
        if offset >= self.end_offset or segment is None or segment.start_offset > offset:
            return
        self._roll_behind = max(self._roll_behind, offset)
        if self.is_open:
            self._next_part(0)

    def append(self, pieces: Sequence[Buffer]) -> Offset:
        """See `CommitLog.append`."""
        size = sum(map(len, pieces))
        total_bytes, offset, base_sequence, store_ms = _STAMP.unpack_from(pieces[0])
        if (
            offset != self.end_offset
            or total_bytes != size
            or size > LOG_BATCH_BYTES_MAX
            or not self.is_open
        ):
            self._refuse(size, total_bytes, offset)
        part = self._part
        end = Offset(offset + size)
        if (
            part is None
            or end - part.segment.start_offset > self._config.segment_bytes
            or part.segment.start_offset <= self._roll_behind
        ):
            part = self._next_part(size)
        part.pieces += pieces
        part.bytes += size
        part.index.add(offset, end, base_sequence, store_ms)
        self.end_offset = end
        self._batch_count += 1
        return Offset(offset)

    def _refuse(self, size: int, total_bytes: int, offset: Offset) -> None:
        errors.invariant(self.is_open, "appending before recovery")
        errors.invariant(total_bytes == size, "pieces are not one batch", size=size)
        errors.invariant(size <= LOG_BATCH_BYTES_MAX, "a batch is too large", size=size)
        errors.violated(
            "a batch is stamped for another place", offset=offset, end_offset=self.end_offset
        )

    def _next_part(self, size: int) -> LogPart:
        """Begin the part of the next write that takes a batch of `size` bytes."""
        segment, index, end = self._segment, self._index, self.end_offset
        room = self._config.segment_bytes
        is_new = (
            segment is None
            or index is None
            or (end + size - segment.start_offset > room and end > segment.start_offset)
            or segment.start_offset <= self._roll_behind < end
        )
        if segment is None or index is None or is_new:
            segment = Segment(self._disk, self._directory, end, self._identity)
            segment.adopt_index(SparseIndex(end, self._config.index_interval_bytes))
            index = SparseIndex(end, self._config.index_interval_bytes)
        else:
            index = index.successor()
        position = FILE_HEADER_BYTES + end - segment.start_offset
        part = LogPart(segment, index, position, is_new=is_new)
        self._segment, self._index, self._part = segment, index, part
        self._parts.append(part)
        return part


class LogWrite:
    """Made by `CommitLog.take_write`, run once, then finished or abandoned.

    Attributes:
        start_offset, end_offset: what it writes.
        bytes: how much that is.
        batch_count: how many batches.
        is_run: it ran, and all of it is in the files.
        is_durable: and synced.
    """

    __slots__ = (
        "_begun",
        "_parts",
        "_sealed",
        "batch_count",
        "bytes",
        "end_offset",
        "is_durable",
        "is_run",
        "start_offset",
    )

    def __init__(
        self, parts: list[LogPart], sealed: Segment | None, start_offset: Offset, batch_count: int
    ) -> None:
        """Take `parts` over. `sealed` is the log's last segment, or None in an empty log."""
        self._parts = parts
        self._sealed = sealed
        self._begun: list[LogPart] = []
        self.start_offset = start_offset
        self.bytes = sum(part.bytes for part in parts)
        self.end_offset = Offset(start_offset + self.bytes)
        self.batch_count = batch_count
        self.is_run = False
        self.is_durable = False

    @property
    def parts(self) -> list[LogPart]:
        """One part for each segment that is written to, in order."""
        return self._parts

    def run(self, durable: bool) -> None:  # noqa: FBT001 - the name says it at each call
        """Write, and sync where `durable`. For any one thread; everything happens, or nothing.

        Raises:
            DiskFull: the files are durably what they were before.
            FsyncFailed, DiskFailed: stop the process.
        """
        errors.invariant(not self._begun, "a log write is run twice")
        try:
            self._write(durable=durable)
        except errors.DiskFull:
            self._undo()
            raise
        self.is_run = True
        self.is_durable = durable

    def _write(self, *, durable: bool) -> None:
        before = self._sealed
        for part in self._parts:
            self._begun.append(part)
            if part.is_new:
                # In this order, also without `durable`: see the top of storage.log.segment.
                if before is not None:
                    before.open_file().datasync()
                part.segment.create()
            part.segment.open_file().pwrite(part.pieces, part.position)
            before = part.segment
        if durable and before is not None:
            before.open_file().datasync()

    def _undo(self) -> None:
        """Take everything back, last first. Durably: what is refused must not come back."""
        for part in reversed(self._begun):
            if part.is_new:
                part.segment.remove()
            else:
                file = part.segment.open_file()
                file.truncate(part.position)
                file.datasync()


class LogSync:
    """Makes durable what was written without. Made by `CommitLog.begin_sync`, run, then finished.

    Attributes:
        end_offset: up to where.
        is_run: it ran.
    """

    __slots__ = ("_segment", "end_offset", "is_run")

    def __init__(self, segment: Segment, end_offset: Offset) -> None:
        """`segment` is the last one that was written to: those before it are durable."""
        self._segment = segment
        self.end_offset = end_offset
        self.is_run = False

    def run(self) -> None:
        """For any one thread, also while a write is run by another.

        Raises:
            FsyncFailed: stop the process.
        """
        self._segment.open_file().datasync()
        self.is_run = True
