"""`inspect --verify` of the commit log: every byte of it, and that its parts fit together.

    each batch       both CRCs, shape, padding, address; each message's own CRC
    in a row         no gap between batches or segments; sequences dense; epochs never fall
    beside it        index entries, epoch history, flushed mark and manifest say the same

A node may go on writing. What lies below the flushed mark, which is read first, was durable then
and must be good; what lies above it may be half written.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats import record_batch
from hourwheel.formats.record_batch import HEADER_BYTES, Header, Kind, RecordBatch, unpack_header
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import FIRST_OFFSET, NO_EPOCH, Epoch, Offset, SequenceNumber
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.log import (
    EPOCHS,
    LOG,
    end_of,
    find_mark,
    index_path,
    is_unfinished,
    read_epochs,
    read_index,
    segment_file,
    segment_starts,
)
from node.tools.inspect.report import READ_ERRORS, Report
from storage.files.disk import File
from storage.files.file_header import FILE_HEADER_BYTES, FileType
from storage.log.epochs import EpochEntry
from storage.log.scan import CHUNK_BYTES, LOG_BATCH_BYTES_MAX, BatchWalk
from storage.log.sparse_index import SparseIndex

_KINDS: Final = frozenset(Kind)
_MAGIC: Final = record_batch.MAGIC.to_bytes(4, "little")
_ALIGNMENT: Final = 8
"""Every batch begins at a multiple of it."""
_BAD_MESSAGES_REPORTED: Final = 3


@dataclass
class LogFacts:
    """What a verified log tells those who check the views."""

    start_offset: Offset = FIRST_OFFSET
    end_offset: Offset = FIRST_OFFSET
    batches: int = 0
    messages: int = 0
    next_sequence: SequenceNumber | None = None
    """Behind the last batch; None before the first."""
    sequence_at_applied: SequenceNumber | None = None
    """`next_sequence` of the log at the manifest's applied offset, where that is in the log."""


@dataclass
class _Walked:
    """Where the walk is, and what the batches must agree with."""

    report: Report
    facts: LogFacts
    mark: Offset
    applied: Offset | None
    epochs: tuple[EpochEntry, ...] = ()
    epoch: Epoch = NO_EPOCH
    is_known: bool = False
    """There was a batch before, and nothing is lost in between."""
    has_applied: bool = False
    indexed: dict[Offset, tuple[int, int]] = field(default_factory=dict)
    """Of the segment's index: offset -> (base sequence, store time)."""

    def epoch_at(self, offset: Offset) -> Epoch:
        """The epoch that the history gives a batch; 0 without any."""
        found = bisect_right(self.epochs, offset, key=lambda one: one.start_offset)
        return self.epochs[found - 1].epoch if found else NO_EPOCH


def verify_log(files: ShardFiles, report: Report, manifest: Checkpoint | None) -> LogFacts:
    """Verify the whole log of a shard."""
    facts = LogFacts()
    applied = Offset(manifest.applied_offset) if manifest else None
    walked = _Walked(report, facts, find_mark(files, report), applied)
    try:
        walked.epochs = read_epochs(files, files.path(EPOCHS))
    except READ_ERRORS as error:
        report.caught(error, files.path(EPOCHS))
    starts = segment_starts(files)
    facts.start_offset = facts.end_offset = starts[0] if starts else FIRST_OFFSET
    for start in starts:
        _verify_segment(files, start, starts, walked)
    _verify_ends(files, walked, starts)
    return facts


def verify_segment(files: ShardFiles, path: str, report: Report) -> None:
    """Verify one segment by itself."""
    file, header = files.open_checked(path, FileType.LOG_SEGMENT)
    with closing(file):
        start = Offset(header.base)
        is_last = segment_starts(files)[-1:] == [start]
        walked = _Walked(report, LogFacts(), find_mark(files, report), None)
        durable_to = walked.mark if is_last else None
        _walk_all(file, path, start, end_of(file, start), walked, durable_to=durable_to)


def _verify_ends(files: ShardFiles, walked: _Walked, starts: list[Offset]) -> None:
    facts, report = walked.facts, walked.report
    where = segment_file(files, starts[-1]) if starts else files.path(LOG)
    if walked.mark > facts.end_offset and report.is_good:
        at = facts.end_offset - (starts[-1] if starts else 0) + FILE_HEADER_BYTES
        report.damaged(
            where, at, f"the log ends at {facts.end_offset}, and was durable up to {walked.mark}"
        )
    if facts.batches and not walked.epochs and report.is_good:
        report.damaged(files.path(EPOCHS), None, "there is a log, and no epoch")
    applied = walked.applied
    if not report.is_good:
        return
    if applied is None:
        if facts.start_offset:
            report.damaged(where, None, "the log does not begin at 0, and there is no checkpoint")
        return
    if not facts.start_offset <= applied <= facts.end_offset:
        report.damaged(
            where,
            None,
            f"the log has [{facts.start_offset}, {facts.end_offset}), and {applied} was applied",
        )
    elif applied == facts.end_offset:
        facts.sequence_at_applied = facts.next_sequence
    elif not walked.has_applied:
        report.damaged(where, None, f"no record batch begins at {applied}, which was applied")


def _verify_segment(
    files: ShardFiles, start: Offset, starts: list[Offset], walked: _Walked
) -> None:
    path, report, facts = segment_file(files, start), walked.report, walked.facts
    if start != facts.end_offset and report.is_good:
        at = min(facts.end_offset, start)
        report.damaged(path, 0, f"begins at {start}, and the log before it ends at {at}")
    facts.end_offset = start
    index = _find_index(files, start, report)
    try:
        file, _ = files.open_checked(path, FileType.LOG_SEGMENT)
    except READ_ERRORS as error:
        if not is_unfinished(files, path, start, starts, walked.mark, report):
            report.caught(error, path)
        return
    with closing(file):
        end = end_of(file, start)
        walked.indexed = _entries_of(index)
        durable_to = None
        if start == starts[-1]:
            covered = index.end_offset if index else FIRST_OFFSET
            durable_to = max(walked.mark, walked.applied or FIRST_OFFSET, covered)
        _walk_all(file, path, start, end, walked, durable_to=durable_to)
        _verify_index(files, start, index, walked)


def _walk_all(
    file: File,
    path: str,
    start: Offset,
    end: Offset,
    walked: _Walked,
    *,
    durable_to: Offset | None,
) -> None:
    """Walk over a segment, also behind what is damaged, and note all that is wrong.

    `durable_to`: of the last segment, which may have a torn tail above it; None of others.
    """
    facts, report, at, given_up = walked.facts, walked.report, start, -1
    while True:
        walk = BatchWalk(file, start, at, end)
        for batch in walk:
            _verify_batch(batch, path, start, walked)
        bad = facts.end_offset = walk.next_offset
        if walk.fault is None:
            return
        position = bad - start + FILE_HEADER_BYTES
        if durable_to is not None and bad >= durable_to:
            if bad > given_up:  # it may have been half written just then: look again
                given_up, at, end = bad, bad, max(end, end_of(file, start))
                continue
            if _find_proof(file, start, bad, end) is None:
                report.remark(
                    f"{path}, byte {position}: {end - bad} bytes above the known durable end:"
                    f" being written, or torn by a crash ({walk.fault})"
                )
                return
        report.damaged(path, position, f"{walk.fault}, at offset {bad}")
        resumed = _find_next(file, start, bad, end)
        if resumed is None:
            return
        at = resumed
        walked.is_known = False  # what was lost had unknown sequences and epochs


def _headers_behind(file: File, start: Offset, bad: Offset, end: Offset) -> Iterator[Header]:
    """Headers behind `bad` that stand where they say they do."""
    at = bad + _ALIGNMENT
    while at < end:
        # Chunks are aligned, so that a magic which counts never lies across two of them.
        raw = file.pread(min(CHUNK_BYTES, end - at), at - start + FILE_HEADER_BYTES)
        if not raw:
            return
        found = raw.find(_MAGIC)
        while found >= 0:
            if found % _ALIGNMENT == 0:
                header = _header_at(file, start, Offset(at + found))
                if header is not None:
                    yield header
            found = raw.find(_MAGIC, found + 1)
        at += len(raw)


def _header_at(file: File, start: Offset, offset: Offset) -> Header | None:
    try:
        header = unpack_header(file.pread(HEADER_BYTES, offset - start + FILE_HEADER_BYTES))
    except errors.InvalidBatch:
        return None
    return header if header.offset == offset else None


def _find_next(file: File, start: Offset, bad: Offset, end: Offset) -> Offset | None:
    """Where the next batch begins behind a bad one; None where there is none."""
    return next((header.offset for header in _headers_behind(file, start, bad, end)), None)


def _find_proof(file: File, start: Offset, bad: Offset, end: Offset) -> Offset | None:
    """A batch behind `bad` which says that `bad` was durable when it was built; see recovery."""
    for header in _headers_behind(file, start, bad, end):
        head_bytes = min(HEADER_BYTES + header.stamped_bytes, LOG_BATCH_BYTES_MAX)
        head = file.pread(head_bytes, header.offset - start + FILE_HEADER_BYTES)
        crc = crc32c(head[HEADER_BYTES:], crc32c(head[: HEADER_BYTES - 4]))
        if crc == header.header_crc and bad < header.flushed_end_offset <= header.offset:
            return header.offset
    return None


def _verify_batch(batch: RecordBatch, path: str, start: Offset, walked: _Walked) -> None:
    """What a batch that is intact by itself must have in common with its neighbours."""
    header, facts = batch.header, walked.facts
    position = header.offset - start + FILE_HEADER_BYTES
    count = header.count if header.kind == Kind.PUBLISH else 0
    wrong = []
    if header.kind not in _KINDS:
        wrong.append(f"kind {header.kind} is not known to this version")
    if walked.is_known and header.base_sequence != facts.next_sequence:
        wrong.append(f"sequence {header.base_sequence} follows on {facts.next_sequence}")
    if walked.is_known and header.epoch < walked.epoch:
        wrong.append(f"epoch {header.epoch} follows on {walked.epoch}")
    if walked.epochs and header.epoch != walked.epoch_at(header.offset):
        wrong.append(f"epoch {header.epoch} where {EPOCHS} has {walked.epoch_at(header.offset)}")
    if header.flushed_end_offset > header.offset:
        wrong.append(f"says that the log was durable up to {header.flushed_end_offset}")
    indexed = walked.indexed.pop(header.offset, None)
    if indexed not in (None, (header.base_sequence, header.store_ms)):
        wrong.append(f"is sequence and time {indexed} by the index")
    if count:
        wrong += _bad_messages(batch)
    if wrong:
        walked.report.damaged(path, position, f"{'; '.join(wrong)}, at offset {header.offset}")
    if header.offset == walked.applied:
        walked.has_applied = True
        facts.sequence_at_applied = header.base_sequence
    walked.is_known, walked.epoch = True, header.epoch
    facts.next_sequence = SequenceNumber(header.base_sequence + count)
    facts.batches += 1
    facts.messages += count


def _bad_messages(batch: RecordBatch) -> list[str]:
    """Messages whose own CRC, which goes with them to the consumer, does not fit their bytes."""
    ends = np.cumsum(batch.body_len.astype(np.int64) + batch.meta_len).tolist()
    blobs, crcs = batch.blobs, batch.crc.tolist()
    bad = [
        index
        for index, (low, high) in enumerate(pairwise([0, *ends]))
        if crc32c(blobs[low:high]) != crcs[index]
    ]
    first = batch.header.base_sequence
    return [f"message {first + index} fails its CRC32C" for index in bad[:_BAD_MESSAGES_REPORTED]]


# --- indexes ------------------------------------------------------------------------------------


def _find_index(files: ShardFiles, start: Offset, report: Report) -> SparseIndex | None:
    path = index_path(files, start)
    if not files.disk.exists(path):
        return None
    try:
        return read_index(files, path)
    except FileNotFoundError:
        return None  # its segment was removed meanwhile
    except READ_ERRORS as error:
        report.caught(error, path)
        return None


def _entries_of(index: SparseIndex | None) -> dict[Offset, tuple[int, int]]:
    entries = [] if index is None else index.entries.tolist()
    return {Offset(offset): (sequence, store_ms) for offset, sequence, store_ms in entries}


def _verify_index(
    files: ShardFiles, start: Offset, index: SparseIndex | None, walked: _Walked
) -> None:
    """After the segment was walked: what the index has and the segment has not."""
    if index is None or not walked.report.is_good:
        return
    path, end = index_path(files, start), walked.facts.end_offset
    if index.end_offset > end:
        walked.report.damaged(
            segment_file(files, start),
            end - start + FILE_HEADER_BYTES,
            f"the segment ends at {end}, and its index covers up to {index.end_offset}",
        )
    elif walked.indexed:
        offset = min(walked.indexed)
        walked.report.damaged(path, None, f"names offset {offset}, where no record batch begins")
