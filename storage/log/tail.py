"""The end of the log in memory: what was appended and is not yet handed out to be written.

Here it is decided which segment a batch goes into. A segment that is begun here is known to the log
only when the write that makes it is finished.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer
from hourwheel.types import Offset
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, Identity
from storage.log.group_write import LogPart
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
        self.end_offset = Offset(0) if last is None else last.end_offset
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

    def roll_behind(self, offset: int) -> None:
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

    def _refuse(self, size: int, total_bytes: int, offset: int) -> None:
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
