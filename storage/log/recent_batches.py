"""The last batches that were appended, in memory: for followers that are nearly there.

They get them before, and while, the master's own disk writes them. A follower further behind
reads the log's files.
"""

from collections import deque
from typing import NamedTuple

from hourwheel.formats.record_batch import RecordBatch
from hourwheel.types import NO_EPOCH, Epoch, Offset
from storage.log.commit_log import CommitLog


class Piece(NamedTuple):
    """Whole batches of one epoch, one behind the other."""

    offset: Offset
    epoch: Epoch
    raw: bytes

    @property
    def end_offset(self) -> Offset:
        """Behind the last batch."""
        return Offset(self.offset + len(self.raw))


def read_piece(log: CommitLog, start: Offset, bytes_max: int) -> Piece | None:
    """The same from the log's files: batches from `start` on; None at the log's durable end.

    Raises:
        CorruptLog: the log is damaged there.
    """
    parts: list[bytes] = []
    size, epoch = 0, NO_EPOCH
    for batch in log.scan(start, log.flushed_end_offset):
        if parts and (batch.header.epoch != epoch or size >= bytes_max):
            break
        epoch = batch.header.epoch
        parts.append(b"".join((batch.head, batch.payload)))
        size += batch.header.total_bytes
    return Piece(start, epoch, b"".join(parts)) if parts else None


class RecentBatches:
    """A window on the end of the log, bounded in bytes.

    Invariant: the batches follow on one another without a gap.
    """

    def __init__(self, bytes_max: int) -> None:
        """Keep about so many bytes."""
        self._bytes_max = bytes_max
        self._batches: deque[RecordBatch] = deque()
        self._bytes = 0

    def append(self, batch: RecordBatch) -> None:
        """The next batch; what is oldest goes where there is too much."""
        self._batches.append(batch)
        self._bytes += batch.header.total_bytes
        while self._bytes > self._bytes_max and len(self._batches) > 1:
            self._bytes -= self._batches.popleft().header.total_bytes

    def truncate(self, offset: Offset) -> None:
        """The log was cut there."""
        while self._batches and self._batches[-1].header.offset >= offset:
            self._bytes -= self._batches.pop().header.total_bytes

    def find(self, offset: Offset, bytes_max: int) -> Piece | None:
        """Batches from `offset` on, of one epoch, about `bytes_max` and at least one.

        None where `offset` is not in the window, or is its end.
        """
        batches = self._batches
        if not batches or offset < batches[0].header.offset:
            return None
        first = self._index_of(offset)
        if first is None:
            return None
        epoch, size = batches[first].header.epoch, 0
        parts: list[memoryview] = []
        for index in range(first, len(batches)):
            batch = batches[index]
            if batch.header.epoch != epoch or (parts and size >= bytes_max):
                break
            parts += (batch.head, batch.payload)
            size += batch.header.total_bytes
        return Piece(offset, epoch, b"".join(parts))

    def _index_of(self, offset: Offset) -> int | None:
        """Searched from the end: most readers are nearly there."""
        for index in range(len(self._batches) - 1, -1, -1):
            at = self._batches[index].header.offset
            if at == offset:
                return index
            if at < offset:
                return None
        return None
