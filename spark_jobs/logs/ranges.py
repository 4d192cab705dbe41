"""Ranges of a log that can be read apart: where they begin, where a batch begins, how to cut.

A range begins and ends where a batch does, so that its reader reports all damage in it, and no
damage is reported twice. The points are found near multiples of a size: by the sparse index where
there is one, and by looking for the next bytes that are a batch's header in all they say (magic,
version, sizes, address, CRC). Nothing of the log in between is read.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.formats import record_batch
from hourwheel.formats.record_batch import HEADER_BYTES, Header, header_crc, unpack_header
from hourwheel.types import Offset
from spark_jobs.logs.replica import Replica, SegmentFile, ShardCopy
from storage.files import atomic_file
from storage.files.disk import Disk, File
from storage.files.file_header import FILE_HEADER_BYTES
from storage.log.scan import LOG_BATCH_BYTES_MAX
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX
from storage.log.sparse_index import SparseIndex

PARTITION_BYTES: Final = 64 * 1024 * 1024
_WINDOW_BYTES: Final = 256 * 1024
_ALIGNMENT: Final = 8
_MAGIC: Final = record_batch.MAGIC.to_bytes(4, "little")


class SegmentRange(NamedTuple):
    """Batches of one segment of one node: [from_offset, to_offset), picklable."""

    uri: str
    """The node's directory."""
    node: str
    shard: int
    cluster: str
    """The cluster's id, 32 hexadecimal digits; empty: unknown."""
    path: str
    """The segment's file in the directory."""
    segment_start: int
    """Offset of the segment's first batch."""
    from_offset: int
    """A batch begins here."""
    to_offset: int
    """A batch ends here, or with `is_tail` the file ended here when it was looked at."""
    durable_offset: int = 0
    """Of a tail: bad bytes below it are damage, not half a write."""
    is_tail: bool = False
    """It ends where the log's last file ended: there may be half a batch."""

    def position(self, offset: int) -> int:
        """The byte of the file at which an offset lies."""
        return offset - self.segment_start + FILE_HEADER_BYTES


def plan_ranges(
    replica: Replica,
    copy: ShardCopy,
    *,
    partition_bytes: int = PARTITION_BYTES,
    from_offset: int = 0,
    to_offset: int | None = None,
) -> list[SegmentRange]:
    """Cut one node's log of a shard into ranges, in the order of the log.

    Segments that cannot be read, or not by this version, are left out: a `Problem` reports each.

    Args:
        replica: the node.
        copy: its log.
        partition_bytes: ranges are about so long.
        from_offset: where a batch begins; what lies below is left out.
        to_offset: where a batch ends; None: up to the last whole batch.
    """
    disk, found = replica.open_disk(), []
    for index, segment in enumerate(copy.segments):
        low, high = max(segment.start_offset, from_offset), segment.end_offset
        is_tail = index == len(copy.segments) - 1
        if to_offset is not None and to_offset <= high:
            high, is_tail = to_offset, False
        if segment.fault or low >= high:
            continue
        points = _split_points(disk, segment, low, high, partition_bytes)
        for begin, end in zip([low, *points], [*points, high], strict=True):
            found.append(
                SegmentRange(
                    replica.uri,
                    replica.node,
                    copy.shard,
                    replica.cluster_id.hex(),
                    segment.path,
                    segment.start_offset,
                    begin,
                    end,
                    copy.durable_offset,
                    is_tail and end == high,
                )
            )
    return found


def _split_points(
    disk: Disk, segment: SegmentFile, low: int, high: int, partition_bytes: int
) -> list[int]:
    """Where batches begin, about `partition_bytes` apart, inside (low, high)."""
    points: list[int] = []
    if high - low <= partition_bytes + partition_bytes // 4:
        return points
    hints = _index_hints(disk, segment)
    try:
        with closing(disk.open(segment.path)) as file:
            want = low + partition_bytes
            while high - want > partition_bytes // 4:
                aligned = -(-want // _ALIGNMENT) * _ALIGNMENT
                start = next(hints(aligned), aligned)
                point = find_batch(file, segment.start_offset, min(start, high), high)
                if point is None:
                    break
                points.append(point)
                want = point + partition_bytes
    except (errors.HourwheelError, OSError):
        return points  # the readers of the ranges come upon it too, and report it
    return points


class _Hints:
    """Offsets of batches by a sparse index; `hints(offset)` yields those at or behind an offset."""

    def __init__(self, index: SparseIndex | None) -> None:
        self._offsets = [] if index is None else index.entries["offset"].tolist()

    def __call__(self, offset: int) -> Iterator[int]:
        return (one for one in self._offsets if one >= offset)


def _index_hints(disk: Disk, segment: SegmentFile) -> _Hints:
    if not segment.has_index:
        return _Hints(None)
    path = segment.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
    try:
        payload = atomic_file.read_any(disk, path).payload
        return _Hints(SparseIndex.unpack(payload, Offset(segment.start_offset), path))
    except (errors.HourwheelError, OSError):
        return _Hints(None)  # a hint for speed, no more


def find_batch(file: File, segment_start: int, from_: int, to: int) -> int | None:
    """The first offset in [from_, to) at which a batch begins; None where none does.

    What counts as a batch: magic, version and sizes, its own offset, and the header's CRC. `from_`
    is a multiple of 8 from the segment's start, as all batches are. The file is read from there to
    the batch that is found, and no further.
    """
    shift, at = FILE_HEADER_BYTES - segment_start, from_
    while at < to:
        window = file.pread(min(_WINDOW_BYTES, to - at), at + shift)
        if not window:
            return None
        place = window.find(_MAGIC)
        while place >= 0:
            if place % _ALIGNMENT == 0 and is_batch_at(file, segment_start, at + place):
                return at + place
            place = window.find(_MAGIC, place + 1)
        at += len(window)
    return None


def is_batch_at(file: File, segment_start: int, offset: int) -> bool:
    """Whether a batch begins at `offset`, by its header and the CRC of header and due times."""
    shift = FILE_HEADER_BYTES - segment_start
    raw = file.pread(HEADER_BYTES, offset + shift)
    try:
        header: Header = unpack_header(raw)
    except errors.InvalidBatch:
        return False
    if header.offset != offset or header.total_bytes > LOG_BATCH_BYTES_MAX:
        return False
    head = raw + file.pread(header.stamped_bytes, offset + shift + HEADER_BYTES)
    return len(head) == HEADER_BYTES + header.stamped_bytes and (
        header_crc(head) == header.header_crc
    )
