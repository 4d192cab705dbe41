"""Verifies old log that is not read: which segment is next, and one segment in small pieces. Pure.

A message is verified when it is read, and the end of the log at each start. What lies between may
rot for years: it is found when a follower needs it, or the message is due, and then the other
copies may have rotted as well.

Only what is committed, in the segment that is written to as well: nothing there is ever written
again, nor cut.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.types import FIRST_OFFSET, Offset
from storage.files.disk import Disk, File
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.log.scan import BatchWalk, corrupt_log
from storage.log.segment import SegmentInfo

_UNREADABLE: Final = "the disk cannot read it"


def find_next(
    segments: Sequence[SegmentInfo], committed_offset: Offset, at: Offset
) -> SegmentInfo | None:
    """The first segment from `at` on that can be verified, as far as it can; None: there is none.

    Args:
        segments: of the log, oldest first.
        committed_offset: end of a batch; what lies below is the same for ever.
        at: an offset.
    """
    found = next((one for one in segments if one.start_offset >= at), None)
    if found is None or found.start_offset >= committed_offset:
        return None
    return found._replace(end_offset=min(found.end_offset, committed_offset))


def find_begin(segments: Sequence[SegmentInfo], number: int) -> Offset:
    """An offset to begin at: that of a segment, another one for another `number` (0 or more).

    A node that is started often would else verify the beginning of its log each time, and the rest
    never.
    """
    return segments[number % len(segments)].start_offset if segments else FIRST_OFFSET


class SegmentCheck:
    """Verifies one segment, up to the end offset it is given. One thread at a time.

    The file is opened for it alone: what the log's readers have open is theirs to close.
    """

    def __init__(self, disk: Disk, identity: Identity, segment: SegmentInfo) -> None:
        """Nothing is opened yet."""
        self._disk, self._identity, self._segment = disk, identity, segment
        self._file: File | None = None
        self._walk: BatchWalk | None = None
        self._batches: Iterator[RecordBatch] = iter(())

    def run(self, bytes_max: int) -> int:
        """Verify the next batches, until they are `bytes_max` or the segment is at its end.

        Returns:
            How many bytes they were; 0: all of it is well.

        Raises:
            CorruptLog: the next batch, or the file's header, is damaged or cannot be read.
            FileNotFoundError: the file was removed.
        """
        segment = self._segment
        try:
            walk = self._walk or self._begin()
            start = walk.next_offset
            while walk.next_offset - start < bytes_max:
                if next(self._batches, None) is None:
                    break
        except errors.DiskFailed as error:
            at = segment.start_offset if self._walk is None else self._walk.next_offset
            raise self._corrupt(_UNREADABLE, at) from error
        if walk.fault is not None:
            raise self._corrupt(walk.fault, walk.next_offset)
        return walk.next_offset - start

    def _begin(self) -> BatchWalk:
        segment = self._segment
        file = self._file = self._disk.open(segment.path)
        raw = file.pread(FILE_HEADER_BYTES, 0)
        try:
            check_file_header(
                raw, segment.path, FileType.LOG_SEGMENT, self._identity, segment.start_offset
            )
        except errors.HourwheelError as error:  # also one of another cluster: it was ours once
            raise corrupt_log(
                "the file header is damaged", segment.path, segment.start_offset, 0
            ) from error
        walk = BatchWalk(file, segment.start_offset, segment.start_offset, segment.end_offset)
        self._walk, self._batches = walk, iter(walk)
        return walk

    def _corrupt(self, why: str, offset: Offset) -> errors.CorruptLog:
        segment = self._segment
        position = offset - segment.start_offset + FILE_HEADER_BYTES
        return corrupt_log(why, segment.path, offset, position)

    def close(self) -> None:
        """Let go of the file."""
        self._batches = iter(())
        if self._file is not None:
            self._file.close()
            self._file = None
