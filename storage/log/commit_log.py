"""The commit log of one shard: record batches, appended, made durable in groups, read by offset.

    <shard directory>/log/00000000000000000000.log     segments (storage.log.segment)
                          00000000000000000000.index   sparse indexes (storage.log.sparse_index)
    <shard directory>/flushed.mark                     the flushed mark (storage.log.flushed_mark)

A batch's way, and the offsets that its end passes:

    append        end_offset          reserved: in memory, its address is fixed
    take_write    |                   ... handed out as part of a LogWrite
    LogWrite.run  |                   ... written and synced, in another thread
    finish_write  flushed_end_offset  can be read; may be acknowledged
                  durable_end_offset  the same, but for writes that were run without `durable`

    invariant: start_offset <= durable_end_offset <= flushed_end_offset <= end_offset

Group commit comes by itself: while one write runs, everything that is appended waits for the next.

Threads: one thread owns the log and calls everything here. `LogWrite.run` and what
`begin_checkpoint` and `begin_delete_below` hand out may run in another; `read`, `read_batch`,
`scan` and `locate` may be called by any, for what is not just being deleted. None of these may be
under way when `truncate` or `close` is called.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer, RecordBatch
from hourwheel.types import FIRST_SEQUENCE, Offset, SequenceNumber
from storage.files.disk import Disk, join
from storage.files.file_header import Identity
from storage.log.flushed_mark import FlushedMark
from storage.log.recovery import FoundLog, Recovery, RecoveryReport, TailCut, find_log
from storage.log.segment import Segment, SegmentInfo
from storage.log.sparse_index import INDEX_ENTRY, NO_STORE_MS
from storage.log.tail import LogConfig, LogSync, LogTail, LogWrite

__all__ = [
    "CommitLog",
    "Identity",
    "LogConfig",
    "LogSync",
    "LogWrite",
    "RecoveryReport",
    "SegmentInfo",
    "TailCut",
]


class CommitLog:
    """See the top of this file.

    Attributes:
        recovery_report: None until `recover` has ended.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        identity: Identity,
        found: FoundLog,
        mark: FlushedMark,
    ) -> None:
        """Use `open`."""
        self._disk = disk
        self._directory = directory
        self._config = config
        self._found = found
        self._segments = found.segments
        self._mark = mark
        self.recovery_report: RecoveryReport | None = None
        self._tail = LogTail(disk, directory, config, identity)
        self._tail.reset(self._segments.last)
        self._flushed_end = self._durable_end = self._tail.end_offset
        self._outstanding: LogWrite | None = None

    @classmethod
    def open(cls, disk: Disk, directory: str, config: LogConfig, identity: Identity) -> "CommitLog":
        """Open the log of the shard whose files are in `directory`; make an empty one if needed.

        Reads only headers and sizes: `recover` is next, before anything is appended.

        Raises:
            CorruptLog: a segment is missing, too short or has a damaged header.
            ForeignDirectory, IncompatibleFormat: a file is not ours to read.
        """
        log_directory = join(directory, "log")
        disk.make_dir(log_directory)
        mark = FlushedMark.open(disk, join(directory, "flushed.mark"), identity)
        found = find_log(disk, log_directory, identity, mark.offset)
        return cls(disk, log_directory, config, identity, found, mark)

    @property
    def start_offset(self) -> Offset:
        """Of the first byte that is still there."""
        return self._segments.start_offset

    @property
    def end_offset(self) -> Offset:
        """Behind everything that was appended: the address of the next batch."""
        return self._tail.end_offset

    @property
    def flushed_end_offset(self) -> Offset:
        """Behind everything whose write was finished: durable, unless it was run without that."""
        return self._flushed_end

    @property
    def durable_end_offset(self) -> Offset:
        """Behind everything that is durable. Batches are stamped with this one.

        Recovery takes the stamp as proof (storage.log.recovery); in asynchronous mode
        `flushed_end_offset` would be a false one.
        """
        return self._durable_end

    # --- starting up

    def recover(self, from_offset: Offset) -> Iterator[RecordBatch]:
        """Verify and hand out the batches of [from_offset, end), then cut a torn tail off.

        To be read to its end once, before anything is appended. What is handed out is durable and
        can be read; the other offsets, `end_offset` above all, may still fall while it runs.

        Raises:
            CorruptLog: storage.log.recovery tells when.
            FsyncFailed, DiskFailed: stop the process.
        """
        errors.invariant(not self._tail.is_open, "the log is recovered already")
        mark_offset = self._mark.offset
        interval_bytes = self._config.index_interval_bytes
        recovery = Recovery(self._found, mark_offset, from_offset, interval_bytes)
        self._disk.sync_dir(self._directory)
        yield from recovery.batches()
        self._tail.reset(self._segments.last)
        self._tail.is_open = True
        end = self._flushed_end = self._durable_end = self._tail.end_offset
        self._mark.store(end)
        self.recovery_report = RecoveryReport(
            from_offset=from_offset,
            end_offset=end,
            batch_count=recovery.batch_count,
            mark_offset=mark_offset,
            mark_was_lost=self._mark.was_lost,
            indexes_rebuilt=recovery.indexes_rebuilt,
            cut=recovery.cut,
        )

    # --- writing

    def append(self, pieces: Sequence[Buffer]) -> Offset:
        """Reserve the place of one batch, stamped with `end_offset`; no I/O.

        `pieces` are flat views of bytes that are not changed until the write is finished; the first
        has the header.
        """
        return self._tail.append(pieces)

    def take_write(self) -> LogWrite | None:
        """Everything that was appended since the last time, and a segment that is to begin.

        None where there is nothing, or where the last write is neither finished nor abandoned.
        """
        if self._outstanding is not None or not self._tail.has_parts:
            return None
        parts, batch_count = self._tail.take()
        write = LogWrite(parts, self._segments.last, self._flushed_end, batch_count)
        self._outstanding = write
        return write

    def finish_write(self, write: LogWrite) -> None:
        """Take note that `write` ran: what is in it can be read, and acknowledged."""
        errors.invariant(write is self._outstanding and write.is_run, "not the running write")
        for part in write.parts:
            segment = part.segment
            if part.is_new:
                self._segments.append(segment)
            if segment.index is not None:
                segment.index.extend(part.index)
                segment.store_ms_max = segment.index.store_ms_max
            segment.end_offset = part.index.end_offset
        self._outstanding = None
        self._flushed_end = write.end_offset
        if write.is_durable:
            self._durable_end = write.end_offset
            self._mark.store(write.end_offset)

    def abandon_write(self, write: LogWrite) -> None:
        """Drop `write`, which raised DiskFull, and everything that was appended behind it.

        Their offsets are used again: the caller must fail all that wait for one of them.
        """
        errors.invariant(write is self._outstanding and not write.is_run, "not a failed write")
        self._outstanding = None
        self._tail.reset(self._segments.last)

    def begin_sync(self) -> LogSync | None:
        """What makes durable what finished writes left undone; None where there is nothing.

        For the asynchronous mode, where no later write may come that does it.
        """
        last = self._segments.last
        if last is None or self._durable_end == self._flushed_end:
            return None
        return LogSync(last, self._flushed_end)

    def finish_sync(self, sync: LogSync) -> None:
        """Take note that `sync` ran: what is below its end is durable."""
        errors.invariant(sync.is_run, "a sync ends that did not run")
        if sync.end_offset > self._durable_end:
            self._durable_end = sync.end_offset
            self._mark.store(sync.end_offset)

    # --- reading

    def _segment_of(self, offset: Offset, end: Offset) -> Segment:
        start = self.start_offset
        if not (start <= offset <= end <= self._flushed_end):
            if 0 <= offset < start:
                why = f"{self._directory}: offset {offset} is deleted, the log begins at {start}"
                raise errors.CorruptLog(why, file=self._directory, offset=offset)
            errors.violated("reading what is not in the log", offset=offset, end=end)
        return self._segments.get(offset)

    def read(self, offset: Offset, length: int) -> bytes:
        """Exactly these bytes, which must lie below `flushed_end_offset`; unverified.

        Raises:
            CorruptLog: a file is shorter than it was, or deleted.
        """
        end = Offset(offset + length)
        if length == 0:
            return b""
        segment = self._segment_of(offset, end)
        if end <= segment.end_offset:
            return segment.read(offset, length)
        parts = []
        while offset < end:
            segment = self._segments.get(offset)
            piece_end = min(end, segment.end_offset)
            parts.append(segment.read(offset, piece_end - offset))
            offset = piece_end
        return b"".join(parts)

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Many small pieces, each inside one batch, at any offsets; unverified.

        A piece that a file is too short for comes short.

        Raises:
            CorruptLog: a piece lies in a file that is deleted.
        """
        found: list[bytes] = []
        low = 0
        while low < len(offsets):
            first, end = Offset(offsets[low]), Offset(offsets[low] + lengths[low])
            segment = self._segment_of(first, end)
            high, start, end = low + 1, segment.start_offset, segment.end_offset
            while high < len(offsets) and start <= offsets[high] < end:
                high += 1
            found += segment.read_many(offsets[low:high], lengths[low:high])
            low = high
        return found

    def read_batch(self, offset: Offset) -> RecordBatch:
        """The verified batch that begins at `offset`, below `flushed_end_offset`.

        Raises:
            CorruptLog: no intact batch begins there.
        """
        return self._segment_of(offset, Offset(offset + 1)).read_batch(offset)

    def scan(self, from_: Offset, to: Offset) -> Iterator[RecordBatch]:
        """The verified batches of [from_, to), read in large pieces.

        Both are borders of batches; `to` is at most `flushed_end_offset`. A batch keeps some
        megabytes alive as long as it lives.

        Raises:
            CorruptLog: at the first batch that fails.
        """
        at = from_
        while at < to:
            segment = self._segment_of(at, to)
            end = min(to, segment.end_offset)
            yield from segment.scan(at, end)
            at = end

    def locate(self, offset: Offset) -> tuple[str, int]:
        """(path, byte in the file) of an offset in the log: for people."""
        if not self._segments:
            return self._directory, 0
        segment = self._segment_of(offset, offset)
        return segment.path, segment.position_of(offset)

    def find_offset(self, sequence: SequenceNumber) -> Offset:
        """Where to start reading for the batch of this sequence: at it, or somewhat before."""
        for segment in reversed(list(self._segments)):
            index = segment.index or segment.find_saved_index()
            found = None if index is None else index.find_offset(sequence)
            if found is not None:
                return found
        return self.start_offset

    def find_offset_before(self, store_ms: int) -> Offset:
        """Where to start reading for what was stored at an instant or later, or somewhat before.

        The clock of a new master may be a little behind that of the last: so much earlier must be
        asked for.
        """
        for segment in self._segments:
            if segment.store_ms_max >= store_ms:
                index = segment.index or segment.find_saved_index()
                entries = np.zeros(0, INDEX_ENTRY) if index is None else index.entries
                at_or_after = np.flatnonzero(entries["store_ms"] >= store_ms)
                first = int(at_or_after[0]) if len(at_or_after) else len(entries)
                if not first:
                    return segment.start_offset
                return Offset(int(entries["offset"][first - 1]))
        return self._flushed_end

    def find_sequence_before(self, store_ms: int) -> SequenceNumber:
        """All messages below this sequence were stored before an instant; 0: unknown.

        It may be lower than it could be by what lies between two entries of a sparse index. The
        clock of a new master may be a little behind that of the last; so much it may be too high.
        """
        older: Segment | None = None
        for segment in self._segments:
            if segment.store_ms_max == NO_STORE_MS:
                continue
            if segment.store_ms_max >= store_ms:
                index = segment.index or segment.find_saved_index()
                entries = np.zeros(0, INDEX_ENTRY) if index is None else index.entries
                before = np.flatnonzero(entries["store_ms"] < store_ms)
                if len(before):
                    return SequenceNumber(int(entries["base_sequence"][before[-1]]))
                if older and len(entries):
                    return SequenceNumber(int(entries["base_sequence"][0]))
                return FIRST_SEQUENCE
            older = segment
        return FIRST_SEQUENCE

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first; the last is the one that is written to."""
        return [segment.info for segment in self._segments]

    # --- keeping house

    def begin_checkpoint(self) -> list[Callable[[], None]]:
        """Work for another thread: bring index files and flushed mark up to now, durably.

        To be done with each checkpoint of the views. Nothing becomes wrong without it, but the next
        start after a kill then reads the whole last segment, and a power cut can hide more damage
        from recovery (see there).
        """
        last = self._segments.last
        work: list[Callable[[], None]] = [self._mark.datasync]
        for segment in self._segments:
            if segment.index is None:
                continue
            if segment is not last:
                segment.drop_saved_index()
            save = segment.begin_save_index()
            if save is not None:
                work.append(save)
        return work

    def roll_behind(self, offset: Offset) -> None:
        """Begin a segment with the next write, which may be empty, if the last one has `offset`.

        So that the file of `offset` is closed, and can be rewritten.
        """
        self._tail.roll_behind(offset)

    def reopen(self, offset: Offset) -> None:
        """Read the closed segment of `offset` from its file anew: another one has its name now."""
        segment = self._segments.get(offset)
        if segment is not self._segments.last:
            segment.file = None  # closed when its last reader is through with it

    def truncate(self, offset: Offset) -> None:
        """Cut the log durably to [start_offset, offset), which ends with a batch.

        What was appended and not written is dropped first.

        Raises:
            FsyncFailed, DiskFailed: stop the process.
        """
        errors.invariant(self._outstanding is None, "truncating while a write is under way")
        errors.invariant(self._tail.is_open, "truncating before recovery")
        self._tail.reset(self._segments.last)
        if offset >= self._flushed_end:
            return
        errors.invariant(offset >= self.start_offset, "truncating below the log", offset=offset)
        # First the mark: what is missing below it is corruption.
        if self._mark.offset > offset:
            self._mark.lower(offset)
        self._segments.truncate(offset, self._config.index_interval_bytes)
        self._flushed_end = offset
        self._durable_end = min(self._durable_end, offset)
        self._tail.reset(self._segments.last)

    def begin_delete_below(self, offset: Offset) -> list[Callable[[], None]]:
        """Forget the segments that lie below `offset` wholly; the last one always stays.

        The log begins behind them at once. What is returned removes their files, one each: work for
        another thread, in this order. After a crash in between some are there again.
        """
        work: list[Callable[[], None]] = []
        while len(self._segments) > 1 and next(iter(self._segments)).end_offset <= offset:
            work.append(self._segments.pop_first().remove)
        return work

    def check(self) -> None:
        """Assert the invariants."""
        ends = (self.start_offset, self._durable_end, self._flushed_end, self.end_offset)
        errors.invariant(list(ends) == sorted(ends), "offsets out of order", ends=ends)
        at = self.start_offset
        for segment in self._segments:
            errors.invariant(segment.start_offset == at, "a gap between segments", at=at)
            at = segment.end_offset
        errors.invariant(at == self._flushed_end, "segments end elsewhere", at=at)

    def close(self) -> None:
        """Save indexes and mark, and let go of the files. What was not written is lost."""
        if self.recovery_report is not None:
            for step in self.begin_checkpoint():
                # An index that finds no room is made again at the next start.
                with suppress(errors.DiskFull):
                    step()
        for segment in self._segments:
            segment.close()
        self._mark.close()
