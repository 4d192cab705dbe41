"""One group commit: everything that was appended since the last, written and synced at once.

The thread that owns the log makes it and finishes it; another thread runs it in between. All that
both touch is either given away (the pieces) or left alone meanwhile (the segments that exist).
"""

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer
from hourwheel.types import Offset
from storage.log.segment import Segment
from storage.log.sparse_index import SparseIndex


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
