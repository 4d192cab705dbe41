"""The commit log as an inspection shows it: segments, indexes, epochs, the flushed mark.

Segments are read by headers alone, from one to the next: quick, and it goes on behind a batch whose
contents are damaged. Contents are verified where batches are listed one by one
(node/tools/inspect/batches.py) and by `--verify` (node/tools/inspect/verify_log.py).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.formats.record_batch import HEADER_BYTES, Header, Kind, unpack_header
from hourwheel.types import FIRST_OFFSET, Offset
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.report import READ_ERRORS, Report, Row, instant
from storage.files import atomic_file
from storage.files.disk import File
from storage.files.file_header import FILE_HEADER_BYTES, FileType
from storage.log.epochs import EpochEntry, EpochFile
from storage.log.scan import LOG_BATCH_BYTES_MAX
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, find_start_offset
from storage.log.sparse_index import SparseIndex

LOG: Final = "log"
EPOCHS: Final = "epochs"
MARK: Final = "flushed.mark"
_WINDOW_BYTES: Final = 1 << 20
_SMALL_BATCH_BYTES: Final = 64 * 1024
_MARK_SLOT: Final = Struct("<QQ")
_MARK_SLOTS: Final = 2
_ONES: Final = (1 << 64) - 1


class HeaderWalk:
    """The headers of a segment's batches from `from_` on, without reading what they head.

    Attributes:
        next_offset: behind the last batch that was yielded.
        fault: what is wrong at `next_offset`; None where the walk came to the end.
    """

    def __init__(
        self,
        file: File,
        start_offset: Offset,
        from_: Offset,
        end: Offset,
        *,
        small_batch_bytes: int = _SMALL_BATCH_BYTES,
    ) -> None:
        """A batch must begin at `from_`; `end` is where the file ends.

        `small_batch_bytes`: it reads ahead of batches below that.
        """
        self._small_batch_bytes = small_batch_bytes
        self.next_offset = from_
        self.fault: str | None = None
        self._file, self._start, self._end = file, start_offset, end
        self._window, self._window_at = b"", from_
        self._window_bytes = _WINDOW_BYTES

    def __iter__(self) -> Iterator[Header]:
        while self.next_offset < self._end:
            try:
                header = self._header_at(self.next_offset)
            except errors.InvalidBatch as error:
                self.fault = error.message
                return
            self.next_offset = header.end_offset
            yield header

    def _header_at(self, offset: Offset) -> Header:
        inside = offset - self._window_at
        if inside + HEADER_BYTES > len(self._window):
            at = offset - self._start + FILE_HEADER_BYTES
            self._window = self._file.pread(self._window_bytes, at)
            self._window_at, inside = offset, 0
        header = unpack_header(self._window, inside)
        if header.offset != offset:
            raise errors.InvalidBatch(f"a record batch of offset {header.offset}")
        if header.total_bytes > min(LOG_BATCH_BYTES_MAX, self._end - offset):
            raise errors.InvalidBatch("a record batch is cut off, or its size is wrong")
        # Where batches are large, most of a window would be read for nothing.
        is_small = header.total_bytes < self._small_batch_bytes
        self._window_bytes = _WINDOW_BYTES if is_small else HEADER_BYTES
        return header


def kind_name(number: int) -> str:
    """Name of a batch's kind; of an unknown one its number."""
    return Kind(number).name if number in set(Kind) else str(number)


def mark_offset(
    files: ShardFiles, path: str, file_type: FileType = FileType.FLUSHED_MARK
) -> Offset:
    """The flushed mark: what lies below it was durable. 0 where there is none.

    Raises:
        CorruptFile: the file is damaged.
    """
    if not files.disk.exists(path):
        return FIRST_OFFSET
    file, _ = files.open_checked(path, file_type)
    with closing(file):
        raw = file.pread(_MARK_SLOTS * _MARK_SLOT.size, FILE_HEADER_BYTES)
    found = [
        offset
        for offset, inverse in _MARK_SLOT.iter_unpack(raw[: len(raw) // 16 * 16])
        if offset == inverse ^ _ONES
    ]
    if not found:
        raise errors.CorruptFile("neither slot of the flushed mark is intact", file=path)
    return Offset(max(found))


def find_mark(files: ShardFiles, report: Report) -> Offset:
    """The shard's flushed mark; damage goes into the report."""
    path = files.path(MARK)
    try:
        return mark_offset(files, path)
    except READ_ERRORS as error:
        report.caught(error, path)
        return FIRST_OFFSET


def segment_starts(files: ShardFiles) -> list[Offset]:
    """Start offsets of all segments, by their names, ascending."""
    starts = (find_start_offset(name) for name in files.list(LOG, LOG_SUFFIX))
    return sorted(start for start in starts if start is not None)


def segment_file(files: ShardFiles, start: Offset, suffix: str = LOG_SUFFIX) -> str:
    """Path of a segment, or of its index."""
    return files.path(LOG, f"{start:020d}{suffix}")


def end_of(file: File, start: Offset) -> Offset:
    """The offset at which a segment's file ends now."""
    return Offset(start + max(file.size() - FILE_HEADER_BYTES, 0))


# --- segments -----------------------------------------------------------------------------------


def show_segments(files: ShardFiles, report: Report) -> None:
    """One row a segment."""
    mark = find_mark(files, report)  # first: what is below it now stays below it
    starts = segment_starts(files)

    def rows() -> Iterator[Row]:
        for start in starts:
            path = segment_file(files, start)
            try:
                yield segment_row(files, path, start, report, mark if start == starts[-1] else None)
            except READ_ERRORS as error:
                if not is_unfinished(files, path, start, starts, mark, report):
                    report.caught(error, path)
                yield {"segment": path, "start_offset": start}

    report.add("segments", files.path(LOG), rows())
    if starts:
        report.add("flushed mark", files.path(MARK), [{"durable_to": mark}])


def is_unfinished(
    files: ShardFiles,
    path: str,
    start: Offset,
    starts: list[Offset],
    mark: Offset,
    report: Report,
) -> bool:
    """Whether a segment that cannot be read is being made or removed now; then it is remarked."""
    if not files.disk.exists(path):
        report.remark(f"{path} was removed meanwhile")
        return True
    with closing(files.disk.open(path)) as file:
        is_new = start == starts[-1] and mark <= start and file.size() <= FILE_HEADER_BYTES
    if is_new and (start == 0 or len(starts) > 1):
        report.remark(f"{path}: being made, or its making was interrupted; it holds nothing")
        return True
    return False


def segment_row(
    files: ShardFiles, path: str, start: Offset, report: Report, mark: Offset | None
) -> Row:
    """What one segment holds.

    Args:
        files: of the shard.
        path: of the segment.
        start: its start offset.
        report: for what is wrong with it.
        mark: the flushed mark, for the last segment, which may have a torn tail; None for others.
    """
    file, _ = files.open_checked(path, FileType.LOG_SEGMENT)
    with closing(file):
        end = end_of(file, start)
        walk = HeaderWalk(file, start, start, end)
        kinds, messages, epochs = Counter[str](), 0, list[int]()
        stored, sequences = list[int](), list[int]()
        for header in walk:
            kinds[kind_name(header.kind)] += 1
            stored = [min([header.store_ms, *stored]), max([header.store_ms, *stored])]
            epochs = [min([header.epoch, *epochs]), max([header.epoch, *epochs])]
            if header.kind == Kind.PUBLISH:
                messages += header.count
                first = sequences[0] if sequences else header.base_sequence
                sequences = [first, header.base_sequence + header.count]
    bad = None
    if walk.fault is not None:
        bad = walk.next_offset - start + FILE_HEADER_BYTES
        tell_fault(report, path, start, (walk.next_offset, end), walk.fault, mark)
    return {
        "segment": path,
        "start_offset": start,
        "end_offset": walk.next_offset,
        "batches": sum(kinds.values()),
        "messages": messages,
        "kinds": ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())),
        "epochs": _range(epochs),
        "sequences": _range(sequences),
        "stored": " .. ".join(map(instant, stored)),
        "first_bad_byte": bad,
    }


def tell_fault(
    report: Report,
    path: str,
    start: Offset,
    bad_and_end: tuple[Offset, Offset],
    why: str,
    mark: Offset | None,
) -> None:
    """Bad bytes: damage, or the tail of the last segment (`mark` is given), not durable yet."""
    bad, end = bad_and_end
    position = bad - start + FILE_HEADER_BYTES
    if mark is not None and bad >= mark:
        report.remark(
            f"{path}, byte {position}: {end - bad} bytes above the known durable end: being"
            f" written, or torn by a crash ({why})"
        )
    else:
        report.damaged(path, position, f"{why}, at offset {bad}")


def _range(numbers: list[int]) -> str:
    return "" if not numbers else f"{numbers[0]} .. {numbers[-1]}"


# --- small files --------------------------------------------------------------------------------


def show_index(files: ShardFiles, path: str, report: Report, limit: int) -> None:
    """A sparse index."""
    index = read_index(files, path)
    entries = index.entries
    report.add(
        "index",
        path,
        [
            {
                "covers_from": index.start_offset,
                "covers_to": index.end_offset,
                "entries": len(entries),
                "latest_store": instant(index.store_ms_max),
            }
        ],
    )
    report.add(
        "index entries",
        path,
        (
            {"offset": offset, "base_sequence": sequence, "stored": instant(store_ms)}
            for offset, sequence, store_ms in entries.tolist()
        ),
        limit,
    )


def read_index(files: ShardFiles, path: str) -> SparseIndex:
    """A sparse index. Raises `CorruptFile`."""
    found = atomic_file.read_any(files.disk, path)
    files.check_header(found.header, path, FileType.LOG_INDEX)
    return SparseIndex.unpack(found.payload, Offset(found.header.base), path)


def index_path(files: ShardFiles, start: Offset) -> str:
    """Path of a segment's index."""
    return segment_file(files, start, INDEX_SUFFIX)


def read_epochs(files: ShardFiles, path: str) -> tuple[EpochEntry, ...]:
    """The epochs of a shard. Raises `CorruptFile`."""
    if not files.disk.exists(path):
        return ()
    found = atomic_file.read_any(files.disk, path)
    files.check_header(found.header, path, FileType.EPOCHS)
    return EpochFile.open(files.disk, path, found.header.identity).entries


def show_epochs(files: ShardFiles, path: str, report: Report) -> None:
    """Where each epoch begins."""

    def rows() -> Iterator[Row]:
        for entry in read_epochs(files, path):
            yield {"epoch": int(entry.epoch), "start_offset": int(entry.start_offset)}

    report.add("epochs", path, rows())
