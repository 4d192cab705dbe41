"""Mend a closed segment of the log: find what is damaged, get the right bytes, rewrite the file.

    look_on --> the offset of the next damage --> put the batches that a peer has there --> look_on
    at the end --> rewrite

Logs of replicas are the same, byte for byte, below what is committed. So the batches that belong
behind the last good one are known by their offset alone, and by their own checksums.
"""

from collections.abc import Callable, Iterator
from typing import Final

from hourwheel import errors
from hourwheel.formats.record_batch import HEADER_BYTES, RecordBatch, unpack_header
from hourwheel.types import Offset
from storage.files import rewrite
from storage.files.disk import Disk, File
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, pack_file_header
from storage.files.rewrite import Patch
from storage.log.scan import (
    LOG_BATCH_BYTES_MAX,
    BatchWalk,
    corrupt_log,
    find_half_sound,
    verify_batch,
)
from storage.log.segment import SegmentInfo

_REST_BYTES: Final = 256 << 10


class SegmentMend:
    """See the top of this file. One thread at a time.

    Attributes:
        patch_bytes: what was put, in bytes.
        is_done: all of the segment was looked at; what was damaged in it has been put.
    """

    def __init__(self, disk: Disk, identity: Identity, segment: SegmentInfo) -> None:
        """Nothing is opened yet."""
        self._disk, self._identity, self._segment = disk, identity, segment
        self._file: File | None = None
        self._walk: BatchWalk | None = None
        self._batches: Iterator[RecordBatch] = iter(())
        self._at = segment.start_offset
        self._patches: list[Patch] = []
        self.patch_bytes = 0
        self.is_done = False

    @property
    def is_needed(self) -> bool:
        """Something is damaged."""
        return bool(self._patches)

    def look_on(self, bytes_max: int) -> Offset | None:
        """Verify the next batches, about so many bytes of them; where damage is found, or None.

        Raises:
            FileNotFoundError: the file was removed.
        """
        segment = self._segment
        if self._file is None:
            self._file = self._disk.open(segment.path)
            self._check_header(self._file)
        walk = self._walk
        if walk is None:
            walk = BatchWalk(self._file, segment.start_offset, self._at, segment.end_offset)
            self._walk, self._batches = walk, iter(walk)
        begin = self._at
        try:
            for _ in self._batches:
                self._at = walk.next_offset
                if self._at - begin >= bytes_max:
                    return None
        except errors.DiskFailed:
            return self._at
        if walk.fault is not None:
            return self._at
        self.is_done = True
        return None

    def _check_header(self, file: File) -> None:
        start = self._segment.start_offset
        right = pack_file_header(FileType.LOG_SEGMENT, self._identity, start)
        try:
            raw = file.pread(FILE_HEADER_BYTES, 0)
        except errors.DiskFailed:
            raw = b""
        if raw != right:
            self._patches.append(Patch(0, right))

    def find_half_sound(self) -> RecordBatch | None:
        """The batch where `look_on` found damage, if only messages in it are damaged."""
        if self._file is None:
            return None
        position = self._at - self._segment.start_offset + FILE_HEADER_BYTES
        left = min(self._segment.end_offset - self._at, LOG_BATCH_BYTES_MAX)
        try:
            size = unpack_header(self._file.pread(HEADER_BYTES, position)).total_bytes
            raw = self._file.pread(size, position) if size <= left else b""
        except (errors.InvalidBatch, errors.DiskFailed):
            return None
        return find_half_sound(raw, self._at)

    def fits(self, raw: bytes) -> bool:
        """Whether these are batches that belong where `look_on` found damage."""
        try:
            self._verify(raw)
        except errors.InvalidBatch:
            return False
        return True

    def _verify(self, raw: bytes) -> int:
        """How many bytes of the batches in `raw` belong to this segment. Raises InvalidBatch."""
        segment, view, at = self._segment, memoryview(raw), 0
        while at < len(view) and self._at + at < segment.end_offset:
            header = unpack_header(view, at)
            batch = RecordBatch(view[at : at + header.total_bytes], header)
            verify_batch(batch, Offset(self._at + at))
            at += header.total_bytes
        if not at or self._at + at > segment.end_offset:
            raise errors.InvalidBatch("these are not the batches that belong there")
        return at

    def put(self, raw: bytes) -> None:
        """The batches that belong where `look_on` found damage, one or more, whole.

        Raises:
            InvalidBatch: they are not that; nothing was put.
        """
        segment, view, at = self._segment, memoryview(raw), self._verify(raw)
        position = self._at - segment.start_offset + FILE_HEADER_BYTES
        self._patches.append(Patch(position, bytes(view[:at])))
        self.patch_bytes += at
        self._at = Offset(self._at + at)
        self._walk = None

    def rewrite(self, pause: Callable[[], None] = lambda: None) -> None:
        """Replace the file. Raises as `storage.files.rewrite.rewrite`."""

        def check(copy: File) -> None:
            segment = self._segment
            walk = BatchWalk(copy, segment.start_offset, segment.start_offset, segment.end_offset)
            rested = walk.next_offset
            for _ in walk:
                if walk.next_offset - rested >= _REST_BYTES:
                    rested = walk.next_offset
                    pause()
            if walk.fault is not None:
                position = walk.next_offset - segment.start_offset + FILE_HEADER_BYTES
                raise corrupt_log(walk.fault, copy.path, walk.next_offset, position)

        rewrite.rewrite(self._disk, self._segment.path, self._patches, check=check, pause=pause)

    def close(self) -> None:
        """Let go of the file."""
        self._batches = iter(())
        if self._file is not None:
            self._file.close()
            self._file = None
