"""Starting up: which bytes of the log are good, and what the bad ones are.

A batch that fails its checksum is one of two things. A **torn tail** is what a power cut left of a
write that was never acknowledged: it is cut off, durably, and reported. **Corruption** is damage to
what was durable, and perhaps acknowledged: nothing is cut, `CorruptLog` names the place, and a
person (or a peer's copy) has to decide. It is corruption if any of these shows that the bad bytes
were durable once:

1. They lie below the flushed mark (storage.log.flushed_mark). After `kill -9` the mark is exact.
2. They lie below the offset that recovery begins at: a checkpoint has applied what is below it, and
   only durable batches are applied.
3. They lie below what the segment's index covers (storage.log.sparse_index).
4. They do not lie in the last segment (storage.log.segment).
5. Behind them, in the same segment, stands an intact header whose own address is where it stands
   and whose `flushed_end_offset` lies above them: when that batch was built, they were durable.

Why the fifth asks for `flushed_end_offset` and not just for any intact batch: one `LogWrite` is
many batches and one sync, and a disk writes their sectors in any order. Intact batches behind torn
ones are what an unacknowledged write looks like after a power cut. All that was appended while a
write was under way says that the log was durable up to that write's beginning, at least.

What remains undecidable: damage to one of the last two writes before a power cut, with a mark that
was not written back since. `CommitLog.begin_checkpoint` keeps that window short.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.formats import record_batch
from hourwheel.formats.record_batch import HEADER_BYTES, RecordBatch, header_crc, unpack_header
from hourwheel.types import FIRST_OFFSET, Offset
from storage.files.disk import Disk, join
from storage.files.file_header import FILE_HEADER_BYTES, Identity
from storage.files.rewrite import remove_leftovers
from storage.log.scan import CHUNK_BYTES, LOG_BATCH_BYTES_MAX, BatchWalk, corrupt_log
from storage.log.segment import (
    INDEX_SUFFIX,
    Segment,
    SegmentList,
    find_start_offset,
)
from storage.log.sparse_index import SparseIndex

_MAGIC: Final = record_batch.MAGIC.to_bytes(4, "little")
_ALIGNMENT: Final = 8
"""Every batch begins at a multiple of it, in the log and in the file."""


class TailCut(NamedTuple):
    """A torn tail that was cut off."""

    file: str
    offset: Offset
    """The log ends here now."""
    position: int
    """Byte in the file."""
    bytes: int
    """How many were cut."""
    why: str


class RecoveryReport(NamedTuple):
    """What recovery found."""

    from_offset: Offset
    end_offset: Offset
    batch_count: int
    """How many batches of [from_offset, end_offset) were handed out."""
    mark_offset: Offset
    """The flushed mark as it was found."""
    mark_was_lost: bool
    """Its file was damaged, so that it could not tell damage from a torn tail."""
    indexes_rebuilt: int
    """How many segments had no complete index file."""
    cut: TailCut | None


class FoundLog(NamedTuple):
    """The segments of a log, by their headers."""

    segments: SegmentList
    torn: Segment | None
    """A last file whose making was interrupted; nothing was ever in it."""


def find_log(disk: Disk, directory: str, identity: Identity, mark: Offset) -> FoundLog:
    """Find the segments in `directory`; read nothing but their headers and sizes.

    Raises:
        CorruptLog: a segment is missing, too short or has a damaged header.
        ForeignDirectory, IncompatibleFormat: a segment is of another cluster, shard or version.
    """
    remove_leftovers(disk, directory)
    names = disk.list(directory)
    starts = [start for name in names if (start := find_start_offset(name)) is not None]
    _remove_stray_indexes(disk, directory, names, set(starts))
    segments: list[Segment] = []
    torn = None
    for start in starts:
        segment = Segment(disk, directory, start, identity)
        _check_joint(segments[-1] if segments else None, segment)
        size = segment.open_file().size()
        try:
            segment.check_header()
        except errors.CorruptLog:
            is_torn = start == starts[-1] and size <= FILE_HEADER_BYTES and mark <= start
            if not is_torn or (start > 0 and not segments):
                raise
            torn = segment
            break
        segment.end_offset = Offset(start + size - FILE_HEADER_BYTES)
        segments.append(segment)
        if start != starts[-1]:
            segment.close()
    _check_mark(segments, directory, mark)
    return FoundLog(SegmentList(segments), torn)


def _remove_stray_indexes(
    disk: Disk, directory: str, names: list[str], starts: set[Offset]
) -> None:
    """Remove indexes of segments that were cut off: a segment of that name may come again."""
    strays = [
        name
        for name in names
        if (start := find_start_offset(name, INDEX_SUFFIX)) is not None and start not in starts
    ]
    for name in strays:
        disk.remove(join(directory, name))
    if strays:
        disk.sync_dir(directory)


def _check_joint(before: Segment | None, segment: Segment) -> None:
    if before is not None and before.end_offset != segment.start_offset:
        at = min(before.end_offset, segment.start_offset)
        raise before.corrupt(f"the file does not end where {segment.path} begins", at)


def _check_mark(segments: list[Segment], directory: str, mark: Offset) -> None:
    if segments and mark > segments[-1].end_offset:
        last = segments[-1]
        raise last.corrupt(f"the file ends, but the log was durable up to {mark}", last.end_offset)
    if not segments and mark > 0:
        raise corrupt_log(f"no segment is left of a log up to {mark}", directory, FIRST_OFFSET, 0)


class Recovery:
    """One pass over the log; its results are there when `batches` has ended.

    Attributes:
        batch_count, indexes_rebuilt, cut: see `RecoveryReport`.
    """

    def __init__(
        self, found: FoundLog, mark: Offset, from_offset: Offset, index_interval_bytes: int
    ) -> None:
        """Recover what was `found`, whose flushed mark is `mark`, from `from_offset` on."""
        self._segments = found.segments
        self._torn = found.torn
        self._mark = mark
        self._from = from_offset
        self._interval_bytes = index_interval_bytes
        self.batch_count = 0
        self.indexes_rebuilt = 0
        self.cut: TailCut | None = None

    def batches(self) -> Iterator[RecordBatch]:
        """The verified batches of [from_offset, end); then the torn tail is cut off.

        Raises:
            CorruptLog: see the top of this file.
            FsyncFailed, DiskFailed: stop the process.
        """
        self._check_from()
        if self._segments.last is not None:
            self._make_durable(self._segments.last)
        for segment in self._segments:
            yield from self._recover_segment(segment)
        if self._torn is not None:
            torn = self._torn
            size = torn.open_file().size()
            self.cut = TailCut(
                torn.path, torn.start_offset, 0, size, "the making of the file was interrupted"
            )
            torn.remove()

    def _make_durable(self, last: Segment) -> None:
        """Make what lies above the mark durable: a killed process may have left it unsynced.

        Before anything is handed out, because a checkpoint on the way will rely on it. And by
        writing it again: if that process died of a failed sync, the kernel takes the bytes in its
        cache for synced; they would be read here, "synced" here, and gone after a power cut.
        """
        file, at = last.open_file(), max(self._mark, last.start_offset)
        while at < last.end_offset:
            raw = last.read(at, min(CHUNK_BYTES, last.end_offset - at))
            file.pwrite((raw,), last.position_of(at))
            at = Offset(at + len(raw))
        file.datasync()

    def _check_from(self) -> None:
        segments, from_ = list(self._segments), self._from
        if not segments:
            if from_ > 0:
                raise corrupt_log(f"an empty log, where {from_} was applied", "log", from_, 0)
        elif from_ < segments[0].start_offset:
            raise segments[0].corrupt(
                f"the log is missing from {from_} on; it begins", segments[0].start_offset
            )
        elif from_ > segments[-1].end_offset:
            raise segments[-1].corrupt(
                f"the file ends, where {from_} was applied", segments[-1].end_offset
            )

    def _recover_segment(self, segment: Segment) -> Iterator[RecordBatch]:
        index = self._index_of(segment)
        covered = index.end_offset
        walk = segment.walk(min(covered, max(self._from, segment.start_offset)), segment.end_offset)
        for batch in walk:
            header = batch.header
            if header.offset >= covered:
                index.add_batch(header)
            if header.offset >= self._from:
                self.batch_count += 1
                yield batch
            elif header.end_offset > self._from:
                raise segment.corrupt("no record batch begins", self._from)
        if walk.fault is not None:
            self._cut_or_raise(segment, walk, covered)
        segment.adopt_index(index)
        if segment is not self._segments.last:
            segment.drop_saved_index()
            segment.close()

    def _index_of(self, segment: Segment) -> SparseIndex:
        """The saved index, or an empty one to fill."""
        index = segment.find_saved_index()
        if index is None:
            index = SparseIndex(segment.start_offset, self._interval_bytes)
        if index.end_offset > segment.end_offset:
            raise segment.corrupt(
                f"the file ends, but its index covers up to {index.end_offset}", segment.end_offset
            )
        self.indexes_rebuilt += index.end_offset < segment.end_offset
        return index

    def _cut_or_raise(self, segment: Segment, walk: BatchWalk, covered: Offset) -> None:
        """Decide what the bad bytes are; see the top of this file."""
        bad, why = walk.next_offset, walk.fault or ""
        is_last = segment is self._segments.last and self._torn is None
        if not is_last or bad < max(self._mark, self._from, covered):
            raise segment.corrupt(why, bad)
        proof = find_proof(segment, bad)
        if proof is not None:
            raise segment.corrupt(f"{why} (it was durable when {proof} was appended)", bad)
        self.cut = TailCut(
            segment.path, bad, segment.position_of(bad), segment.end_offset - bad, why
        )
        segment.truncate(bad)


def find_proof(segment: Segment, bad: Offset) -> Offset | None:
    """The offset of a batch behind `bad` that was built when `bad` was durable, or None."""
    at = Offset(bad + _ALIGNMENT)
    while at < segment.end_offset:
        raw = segment.read(at, min(CHUNK_BYTES, segment.end_offset - at))
        found = raw.find(_MAGIC)
        while found >= 0:
            # Chunks are aligned, so that a magic which counts never lies across two of them.
            if found % _ALIGNMENT == 0 and _is_proof(segment, Offset(at + found), bad):
                return Offset(at + found)
            found = raw.find(_MAGIC, found + 1)
        at = Offset(at + len(raw))
    return None


def _is_proof(segment: Segment, offset: Offset, bad: Offset) -> bool:
    """Whether an intact header at `offset` is at home there and says that `bad` was durable.

    Its payload may be torn: the header is under a CRC of its own, and what it says stays true.
    """
    left = segment.end_offset - offset
    if left < HEADER_BYTES:
        return False
    try:
        header = unpack_header(segment.read(offset, HEADER_BYTES))
    except errors.InvalidBatch:
        return False
    if header.offset != offset or not bad < header.flushed_end_offset <= offset:
        return False
    head_bytes = HEADER_BYTES + header.stamped_bytes
    if head_bytes > min(left, LOG_BATCH_BYTES_MAX):
        return False
    return header_crc(segment.read(offset, head_bytes)) == header.header_crc
