"""Walk over record batches in a file of the log and verify each: recovery, readers, auditors.

Batches are cut out of chunks of 4 MiB without copying, and nothing is done per message; the two
CRCs are most of the work. A batch keeps the chunk that it lies in alive: copy one to
store it.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.formats.record_batch import (
    HEADER_BYTES,
    Buffer,
    Header,
    Kind,
    RecordBatch,
    header_crc,
    unpack_header,
)
from hourwheel.types import Offset
from storage.files.disk import File
from storage.files.file_header import FILE_HEADER_BYTES

CHUNK_BYTES: Final = 4 * 1024 * 1024
LOG_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""No batch in a log is larger. A damaged size is then never read, nor allocated."""


def corrupt_log(why: str, path: str, offset: Offset, position: int) -> errors.CorruptLog:
    """The error for bytes that cannot be served: it names file, offset and place in the file."""
    return errors.CorruptLog(
        f"{path}: {why}, at offset {offset}, byte {position} of the file",
        file=path,
        offset=offset,
        position=position,
    )


def verify_batch(batch: RecordBatch, offset: Offset) -> None:
    """Check all of a batch that was read from the log at `offset`.

    Raises:
        InvalidBatch: it fails a CRC, contradicts itself, or belongs elsewhere.
    """
    header = batch.header
    if header.offset != offset:
        raise errors.InvalidBatch(f"a record batch of offset {header.offset}")
    batch.verify()


def find_half_sound(raw: Buffer, offset: Offset) -> RecordBatch | None:
    """The PUBLISH batch at the beginning of `raw`, if its head is sound and its lengths add up.

    Its messages may be damaged: each is under a CRC32C of its own. None: it is not to be used.
    """
    try:
        batch = RecordBatch(raw)
    except errors.InvalidBatch:
        return None
    header = batch.header
    if (header.offset, header.kind) != (offset, Kind.PUBLISH):
        return None
    if header_crc(batch.head) != header.header_crc:
        return None
    sizes = batch.body_len.sum(dtype=np.uint64) + batch.meta_len.sum(dtype=np.uint64)
    return batch if int(sizes) == header.blob_bytes else None


class BatchWalk:
    """Verified batches of [from_, to), in order; ends in front of the first that fails.

    Attributes:
        next_offset: behind the last batch that was yielded.
        fault: what is wrong at `next_offset`; None where the walk came to `to`.
    """

    def __init__(self, file: File, start_offset: Offset, from_: Offset, to: Offset) -> None:
        """`start_offset` is the segment's; a batch must begin at `from_`, and one end at `to`."""
        self.next_offset = from_
        self.fault: str | None = None
        self._file = file
        self._shift = FILE_HEADER_BYTES - start_offset
        self._to = to

    def __iter__(self) -> Iterator[RecordBatch]:
        size = 0
        while self.fault is None and self.next_offset < self._to:
            expected = min(max(CHUNK_BYTES, size), self._to - self.next_offset)
            chunk = self._read(expected)
            at = 0
            while at < len(chunk):
                try:
                    header = _find_header(chunk, at)
                    size = HEADER_BYTES if header is None else header.total_bytes
                    if header is None or at + size > len(chunk):
                        break
                    batch = RecordBatch(chunk[at : at + size], header)
                    verify_batch(batch, self.next_offset)
                except errors.InvalidBatch as error:
                    self.fault = error.message
                    return
                at += size
                self.next_offset = Offset(self.next_offset + size)
                yield batch
            if len(chunk) < expected:
                self.fault = "the file ends too early"
            elif at < len(chunk) and self.next_offset + size > self._to:
                self.fault = "a record batch is cut off"

    def _read(self, length: int) -> memoryview:
        position = self.next_offset + self._shift
        chunk = self._file.pread(length, position)
        self._file.will_need(position + length, CHUNK_BYTES)
        return memoryview(chunk)


def _find_header(chunk: memoryview, at: int) -> Header | None:
    """The header at `at`; None where not all of it is in the chunk."""
    if len(chunk) - at < HEADER_BYTES:
        return None
    header = unpack_header(chunk, at)
    if header.total_bytes > LOG_BATCH_BYTES_MAX:
        raise errors.InvalidBatch(f"a record batch of {header.total_bytes} bytes")
    return header
