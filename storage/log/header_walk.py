"""Which batches lie in a range of the log, from their headers: what is in them is not read."""

from collections.abc import Iterator
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.formats.record_batch import HEADER_BYTES, Header, unpack_header
from hourwheel.types import Offset

_WINDOW_BYTES: Final = 64 * 1024
"""Of one read: many small batches, or the head of a large one."""


class Log(Protocol):
    """What is needed of the commit log."""

    def read(self, offset: Offset, length: int) -> bytes:
        """So many bytes from `offset` on."""
        ...

    def locate(self, offset: Offset) -> tuple[str, int]:
        """The file that an offset lies in, and the byte there."""
        ...


def walk_headers(log: Log, from_: Offset, to: Offset) -> Iterator[Header]:
    """The headers of the batches in [from_, to), which are borders of batches.

    A header is believed for its magic, its sizes and its own offset. No checksum is verified: who
    wants what a batch says reads it with `CommitLog.read_batch`.

    Raises:
        CorruptLog: no batch begins where one should.
    """
    at, start, window = from_, from_, b""
    while at < to:
        if at + HEADER_BYTES > start + len(window):
            start, window = at, log.read(at, min(_WINDOW_BYTES, to - at))
        try:
            header = unpack_header(window, at - start)
        except errors.InvalidBatch as error:
            raise _damaged(log, at, error.message) from error
        if header.offset != at:
            raise _damaged(log, at, "it says that it lies elsewhere")
        yield header
        at = header.end_offset


def _damaged(log: Log, offset: Offset, why: str) -> errors.CorruptLog:
    path, _ = log.locate(offset)
    return errors.CorruptLog(
        f"{path}: no batch at offset {offset}: {why}", file=path, offset=offset
    )
