"""Record batches, one by one: verified, described, and down to a single message."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Flag, Header, Kind, RecordBatch
from hourwheel.internal.v1.state_pb2 import ConfigChange, EpochStart, Prepared, RecurrenceChange
from hourwheel.types import Offset, SequenceNumber
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.log import (
    HeaderWalk,
    end_of,
    find_mark,
    kind_name,
    segment_file,
    segment_starts,
    tell_fault,
)
from node.tools.inspect.report import READ_ERRORS, Report, Row, instant
from storage.files.file_header import FILE_HEADER_BYTES, FileType
from storage.log.scan import verify_batch

_QUEUES_SHOWN: Final = 4


def find_segment(
    files: ShardFiles, offset: Offset | None, sequence: SequenceNumber | None
) -> str | None:
    """Path of the segment that holds an offset or a sequence, or of the first; None for none.

    Raises:
        CorruptFile, ForeignDirectory, IncompatibleFormat: a segment's header is damaged.
    """
    starts = segment_starts(files)
    if not starts:
        return None
    chosen = starts[0]
    for start in starts[1:]:
        if offset is not None and start <= offset:
            chosen = start
        if sequence is not None and _first_sequence(files, start) <= sequence:
            chosen = start
    return segment_file(files, chosen)


def _first_sequence(files: ShardFiles, start: Offset) -> float:
    """Base sequence of a segment's first batch; infinite where there is none."""
    file, _ = files.open_checked(segment_file(files, start), FileType.LOG_SEGMENT)
    with closing(file):
        for header in HeaderWalk(file, start, start, end_of(file, start)):
            return header.base_sequence
    return float("inf")


def batches(
    files: ShardFiles,
    path: str,
    report: Report,
    *,
    offset: Offset | None = None,
    sequence: SequenceNumber | None = None,
) -> Iterator[Row]:
    """Rows of a segment's batches from the one that holds `offset` or `sequence` on, verified."""
    file, head = files.open_checked(path, FileType.LOG_SEGMENT)
    with closing(file):
        start = Offset(head.base)
        walk = HeaderWalk(file, start, start, end_of(file, start))
        for header in walk:
            if offset is not None and walk.next_offset <= offset:
                continue
            if sequence is not None and not _reaches(header, sequence):
                continue
            position = header.offset - start + FILE_HEADER_BYTES
            raw = file.pread(header.total_bytes, position)
            yield batch_row(raw, header, path, position, report)
        if walk.fault is not None:
            is_last = segment_starts(files)[-1:] == [start]
            mark = find_mark(files, report) if is_last else None
            ends = (walk.next_offset, end_of(file, start))
            tell_fault(report, path, start, ends, walk.fault, mark)


def _reaches(header: Header, sequence: SequenceNumber) -> bool:
    """Whether the batch has this sequence, or a later one."""
    count = header.count if header.kind == Kind.PUBLISH else 0
    return header.base_sequence + count > sequence


def batch_row(raw: bytes, header: Header, path: str, position: int, report: Report) -> Row:
    """One batch, verified."""
    row: Row = {
        "offset": header.offset,
        "byte": position,
        "kind": kind_name(header.kind),
        "count": header.count,
        "epoch": header.epoch,
        "base_sequence": header.base_sequence,
        "stored": instant(header.store_ms),
        "bytes": header.total_bytes,
        "durable_to": header.flushed_end_offset,
    }
    try:
        batch = RecordBatch(raw, header)
        verify_batch(batch, header.offset)
        row["what"] = _DESCRIBERS.get(header.kind, _describe_nothing)(batch)
    except READ_ERRORS as error:
        report.caught(errors.CorruptFile(str(error), file=path, position=position), path)
        row["what"] = f"DAMAGED: {error}"
    return row


def _describe_nothing(_: RecordBatch) -> str:
    return ""


def _describe_publish(batch: RecordBatch) -> str:
    due = batch.due_ms
    queues = [f"{queue:08x}" for queue in sorted(set(batch.topic_queue.tolist()))]
    if len(queues) > _QUEUES_SHOWN:
        queues[_QUEUES_SHOWN:] = ["..."]
    found = f"due {instant(int(due.min()))} .. {instant(int(due.max()))}, to {' '.join(queues)}"
    is_commit = batch.header.flags & Flag.TRANSACTION
    return f"{found}, prepared at {batch.header.producer_id}" if is_commit else found


def _describe_dispatch(batch: RecordBatch) -> str:
    row = batch.rows[-1]
    return f"to {instant(int(row['to_due_ms']))} #{int(row['to_sequence'])}"


def _describe_rows(batch: RecordBatch) -> str:
    row = batch.rows[0]
    return "first: " + ", ".join(
        f"{name} {int(row[name])}" for name in row.dtype.names if name != "zero"
    )


def _describe_prepare(batch: RecordBatch) -> str:
    prepared, rows = Prepared.FromString(bytes(batch.blobs)), batch.rows
    messages = f"{int(rows['message_count'].sum())} messages for topics {rows['topic_id'].tolist()}"
    return f"of {prepared.producer_group}: {messages}"


def _describe_config(batch: RecordBatch) -> str:
    change = ConfigChange.FromString(bytes(batch.blobs))
    return " ".join(str(change).split())


def _describe_epoch_start(batch: RecordBatch) -> str:
    return " ".join(str(EpochStart.FromString(bytes(batch.blobs))).split())


def _describe_recurrence(batch: RecordBatch) -> str:
    change = RecurrenceChange.FromString(bytes(batch.blobs))
    if change.HasField("put"):
        change.put.ClearField("body")
    cancelled = [int(row["sequence"]) for row in batch.rows]
    return " ".join(str(change).split()) + (f" cancels {cancelled}" if cancelled else "")


_DESCRIBERS: Final[dict[int, Callable[[RecordBatch], str]]] = {
    Kind.PUBLISH: _describe_publish,
    Kind.DISPATCH: _describe_dispatch,
    Kind.CANCEL: _describe_rows,
    Kind.RESCHEDULE: _describe_rows,
    Kind.RESOLVE: _describe_rows,
    Kind.TRIM: _describe_rows,
    Kind.EXPIRE: _describe_rows,
    Kind.TRIM_SEQUENCES: _describe_rows,
    Kind.FEATURE_LEVEL: _describe_rows,
    Kind.PREPARE: _describe_prepare,
    Kind.TRANSACT: _describe_rows,
    Kind.CONFIG: _describe_config,
    Kind.EPOCH_START: _describe_epoch_start,
    Kind.RECURRENCE: _describe_recurrence,
}


def find_message(files: ShardFiles, path: str, sequence: SequenceNumber) -> Row | None:
    """The message of a sequence in a segment, its bytes checked; None where it is not there.

    Raises:
        InvalidBatch: its batch contradicts itself.
    """
    file, head = files.open_checked(path, FileType.LOG_SEGMENT)
    with closing(file):
        start = Offset(head.base)
        for header in HeaderWalk(file, start, start, end_of(file, start)):
            if header.kind == Kind.PUBLISH and _reaches(header, sequence):
                position = header.offset - start + FILE_HEADER_BYTES
                raw = file.pread(header.total_bytes, position)
                return None if sequence < header.base_sequence else _message(raw, header, sequence)
    return None


def _message(raw: bytes, header: Header, sequence: SequenceNumber) -> Row:
    batch = RecordBatch(raw, header)
    index = sequence - header.base_sequence
    lengths = (batch.body_len.astype("i8") + batch.meta_len).tolist()
    at = batch.blob_offset + sum(lengths[:index])
    blob = raw[at : at + lengths[index]]
    return {
        "sequence": sequence,
        "due": instant(int(batch.due_ms[index])),
        "topic_queue": f"{int(batch.topic_queue[index]):08x}",
        "body_bytes": int(batch.body_len[index]),
        "meta_bytes": int(batch.meta_len[index]),
        "key_hash": f"{int(batch.key_hash[index]):016x}",
        "tag_gene": f"{int(batch.tag_gene[index]):016x}",
        "log_offset": header.offset + at,
        "crc": "good" if crc32c(blob) == int(batch.crc[index]) else "BAD",
    }
