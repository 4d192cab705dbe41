"""A segment: one file of the commit log, named by the offset of its first byte.

    byte   size  contents
       0     64  file header (storage.files.file_header), type LS, base = start offset
      64      n  record batches, one behind the other; none spans two segments

An offset of the log is the address of a byte among the record batches of all segments:
`position in the file = offset - start offset + 64`.

A segment's file is made, durably and with its header, only after the segment before it is durable
to its end. That a segment exists therefore proves that the ones before it were whole, and only the
last can have a torn tail; and a file that is longer than its header had a good header once.

A new version of the record batch needs a new version of the segment: an older node then refuses the
file, where it would otherwise take the batch for a torn tail and cut it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch, unpack_header
from hourwheel.types import FIRST_OFFSET, Offset
from storage.files import atomic_file
from storage.files.disk import Disk, File, join, parent_of
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)
from storage.log.scan import LOG_BATCH_BYTES_MAX, BatchWalk, corrupt_log, verify_batch
from storage.log.sparse_index import NO_STORE_MS, SparseIndex

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
_NAME_DIGITS: Final = 20
_FIRST_READ_BYTES: Final = 4096
_OPEN_FILE_COUNT_MAX: Final = 64


class SegmentInfo(NamedTuple):
    """A segment as retention and inspection see it."""

    path: str
    start_offset: Offset
    end_offset: Offset
    store_ms_max: int
    """Latest store time in it; -1 where it is empty."""


def segment_path(directory: str, start_offset: Offset) -> str:
    """The path of a segment of the log in `directory`."""
    return join(directory, f"{start_offset:0{_NAME_DIGITS}}{LOG_SUFFIX}")


def find_start_offset(name: str, suffix: str = LOG_SUFFIX) -> Offset | None:
    """The start offset in a file's name; None for other files."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != _NAME_DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    return Offset(int(stem))


class Segment:
    """One segment.

    Attributes:
        path: its file.
        start_offset: offset of its first byte.
        end_offset: behind the last batch that was written and finished.
        store_ms_max: latest store time below `end_offset`; -1 without any.
        index: its sparse index, while not all of it is in the index file; else None.
        file: None until it is needed.
    """

    __slots__ = (
        "_disk",
        "_identity",
        "_saved_end_offset",
        "end_offset",
        "file",
        "index",
        "path",
        "start_offset",
        "store_ms_max",
    )

    def __init__(
        self, disk: Disk, directory: str, start_offset: Offset, identity: Identity
    ) -> None:
        """Name a segment; its file need not exist. See `create` and `open_file`."""
        self._disk = disk
        self._identity = identity
        self._saved_end_offset = -1
        self.path = segment_path(directory, start_offset)
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.store_ms_max = NO_STORE_MS
        self.index: SparseIndex | None = None
        self.file: File | None = None

    @property
    def index_path(self) -> str:
        """The path of its index file."""
        return self.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX

    @property
    def info(self) -> SegmentInfo:
        """What retention sees."""
        return SegmentInfo(self.path, self.start_offset, self.end_offset, self.store_ms_max)

    def position_of(self, offset: Offset) -> int:
        """The byte of the file at which `offset` lies."""
        return offset - self.start_offset + FILE_HEADER_BYTES

    def corrupt(self, why: str, offset: Offset) -> errors.CorruptLog:
        """The error for damage at `offset`."""
        return corrupt_log(why, self.path, offset, self.position_of(offset))

    def open_file(self) -> File:
        """Its open file."""
        file = self.file
        if file is None:
            file = self.file = self._disk.open(self.path)
        return file

    def create(self) -> None:
        """Make its file, durably. The segment before it must be durable to its end.

        Raises:
            DiskFull: call `remove`; the file may be there.
        """
        errors.invariant(not self._disk.exists(self.path), "a segment exists", file=self.path)
        if self._disk.exists(self.index_path):  # of a segment that was cut off
            self._disk.remove(self.index_path)
        self.file = self._disk.open(self.path, create=True)
        header = pack_file_header(FileType.LOG_SEGMENT, self._identity, self.start_offset)
        self.file.pwrite((header,), 0)
        self.file.datasync()
        self._disk.sync_dir(parent_of(self.path))

    def check_header(self) -> None:
        """Demand that the file's header is whole and ours.

        Raises:
            CorruptLog, ForeignDirectory, IncompatibleFormat: it is not.
        """
        raw = self.open_file().pread(FILE_HEADER_BYTES, 0)
        try:
            check_file_header(
                raw, self.path, FileType.LOG_SEGMENT, self._identity, self.start_offset
            )
        except errors.CorruptFile as error:
            why = "the file header is damaged"
            raise corrupt_log(why, self.path, self.start_offset, 0) from error

    def remove(self) -> None:
        """Remove its files, durably. Nothing to do where they are gone."""
        for path in (self.index_path, self.path):
            if self._disk.exists(path):
                self._disk.remove(path)
        self._disk.sync_dir(parent_of(self.path))
        self.file = None

    def truncate(self, offset: Offset) -> None:
        """Cut it durably to [start_offset, offset). Its index begins anew from nothing."""
        if self._disk.exists(self.index_path):
            self._disk.remove(self.index_path)
            self._disk.sync_dir(parent_of(self.path))
        self._saved_end_offset = -1
        file = self.open_file()
        file.truncate(self.position_of(offset))
        file.datasync()
        self.end_offset = offset

    def read(self, offset: Offset, length: int) -> bytes:
        """Exactly `length` bytes, which must lie in this segment.

        Raises:
            CorruptLog: the file is shorter.
        """
        raw = self.open_file().pread(length, offset - self.start_offset + FILE_HEADER_BYTES)
        if len(raw) != length:
            raise self.corrupt("the file ends too early", Offset(offset + len(raw)))
        return raw

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Many small pieces of this segment; one that the file is too short for comes short."""
        shift = FILE_HEADER_BYTES - self.start_offset
        return self.open_file().pread_many(lengths, [offset + shift for offset in offsets])

    def read_batch(
        self, offset: Offset, *, first_read_bytes: int = _FIRST_READ_BYTES
    ) -> RecordBatch:
        """The verified batch at `offset`; one read where it has `first_read_bytes` at most.

        Raises:
            CorruptLog: no intact batch begins there.
        """
        left = min(self.end_offset - offset, LOG_BATCH_BYTES_MAX)
        raw = self.read(offset, min(first_read_bytes, left))
        try:
            size = min(unpack_header(raw).total_bytes, left)
            # A size that is too large is found out by RecordBatch: the bytes are too few then.
            batch = RecordBatch(raw if size <= len(raw) else self.read(offset, size))
            verify_batch(batch, offset)
        except errors.InvalidBatch as error:
            raise self.corrupt(error.message, offset) from error
        return batch

    def walk(self, from_: Offset, to: Offset) -> BatchWalk:
        """Verified batches of [from_, to) up to the first that fails."""
        return BatchWalk(self.open_file(), self.start_offset, from_, to)

    def scan(self, from_: Offset, to: Offset) -> Iterator[RecordBatch]:
        """Verified batches of [from_, to).

        Raises:
            CorruptLog: at the first that fails.
        """
        walk = self.walk(from_, to)
        yield from walk
        if walk.fault is not None:
            raise self.corrupt(walk.fault, walk.next_offset)

    def find_saved_index(self) -> SparseIndex | None:
        """The index from its file; None where that is missing or damaged.

        Raises:
            ForeignDirectory, IncompatibleFormat: the file is intact, and not ours to read.
        """
        path = self.index_path
        if not self._disk.exists(path):
            return None
        try:
            found = atomic_file.read(self._disk, path, FileType.LOG_INDEX, self._identity)
            if found.header.base != self.start_offset:
                return None
            index = SparseIndex.unpack(found.payload, self.start_offset, path)
        except errors.CorruptFile:
            return None  # a hint for speed, made again from the segment: nothing is lost
        self._saved_end_offset = index.end_offset
        return index

    def adopt_index(self, index: SparseIndex) -> None:
        """Use an index that covers the segment to its end."""
        self.index = index
        self.store_ms_max = index.store_ms_max

    def begin_save_index(self) -> Callable[[], None] | None:
        """Work for another thread that brings the index file up to `end_offset`; None if it is."""
        index = self.index
        if index is None or index.end_offset == self._saved_end_offset:
            return None
        end_offset, payload, file = index.end_offset, index.pack(), self.open_file()

        def save() -> None:
            # What an index covers was durable: recovery relies on it, also in asynchronous mode.
            file.datasync()
            header = pack_file_header(FileType.LOG_INDEX, self._identity, self.start_offset)
            atomic_file.write(self._disk, self.index_path, header, payload)
            self._saved_end_offset = end_offset

        return save

    def drop_saved_index(self) -> None:
        """Free the memory of the index, where its file has all of it. For sealed segments."""
        if self.index is not None and self.index.end_offset == self._saved_end_offset:
            self.index = None

    def close(self) -> None:
        """Let go of the file."""
        if self.file is not None:
            self.file.close()
            self.file = None


class SegmentList:
    """The segments of a log, oldest first. Only the last is written to.

    One thread changes the list; others may use `get` meanwhile: they see the list of before the
    change or of after it. Few files are kept open; one that is let go is closed when its last
    reader is through with it.
    """

    __slots__ = ("_now", "_open_count_max", "_opened")

    def __init__(
        self, segments: list[Segment], *, open_count_max: int = _OPEN_FILE_COUNT_MAX
    ) -> None:
        """Own these segments, which follow each other without a gap.

        `open_count_max`: so many that were read stay open, beside the last.
        """
        self._set(segments)
        self._open_count_max = open_count_max
        self._opened: deque[Segment] = deque()

    def _set(self, segments: list[Segment]) -> None:
        # Replaced as one, never changed: a reader must not see starts of one state and segments of
        # the other.
        self._now = ([segment.start_offset for segment in segments], segments)

    def __len__(self) -> int:
        return len(self._now[1])

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._now[1])

    @property
    def start_offset(self) -> Offset:
        """Of the first segment; 0 in an empty log."""
        starts = self._now[0]
        return starts[0] if starts else FIRST_OFFSET

    @property
    def last(self) -> Segment | None:
        """The segment that is written to; None in an empty log."""
        segments = self._now[1]
        return segments[-1] if segments else None

    def get(self, offset: Offset) -> Segment:
        """The segment that has `offset`, which must not be below the first; its file is open."""
        starts, segments = self._now
        segment = segments[bisect_right(starts, offset) - 1]
        if segment.file is None:
            segment.open_file()
            self._note_open(segment)
        return segment

    def _note_open(self, segment: Segment) -> None:
        self._opened.append(segment)
        while len(self._opened) > self._open_count_max:
            oldest = self._opened.popleft()
            if oldest is self.last:
                self._opened.append(oldest)  # in use, perhaps by the thread that writes
            else:
                oldest.file = None

    def append(self, segment: Segment) -> None:
        """Add a segment behind the last."""
        self._set([*self, segment])
        self._note_open(segment)

    def pop_last(self) -> Segment:
        """Take the last segment out."""
        *kept, last = self
        self._set(kept)
        return last

    def pop_first(self) -> Segment:
        """Take the first segment out."""
        first, *kept = self
        self._set(kept)
        return first

    def truncate(self, offset: Offset, index_interval_bytes: int) -> None:
        """Cut the log durably to [start_offset, offset), which ends with a batch.

        From the end, one by one: a missing segment in the middle would be corruption.
        """
        while len(self) > 1 and self._now[0][-1] >= offset:
            self.pop_last().remove()
        last = self._now[1][-1]
        index = last.index or last.find_saved_index()
        if index is None:
            index = SparseIndex(last.start_offset, index_interval_bytes)
        index.truncate(offset)
        for batch in last.scan(index.end_offset, offset):
            index.add_batch(batch.header)
        if last.end_offset > offset:
            last.truncate(offset)
        last.adopt_index(index)
