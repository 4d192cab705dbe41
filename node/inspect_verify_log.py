"""`inspect --verify` of the commit log: every byte of it, and that its parts fit together.

    each batch       both CRCs, shape, padding, address; each message's own CRC
    in a row         no gap between batches or segments; sequences dense; epochs never fall
    beside it        index entries, epoch history, flushed mark and manifest say the same

A node may go on writing. What lies below the flushed mark, which is read first, was durable then
and must be good; what lies above it may be half written.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hourwheel.crc32c import crc32c
from hourwheel.record_batch import Kind, RecordBatch
from hourwheel.types import Offset
from hourwheel.wire.state_pb2 import Checkpoint
from node.inspect_files import ShardFiles
from node.inspect_log import (
    EPOCHS,
    LOG,
    MARK,
    end_of,
    find_mark,
    index_path,
    is_unfinished,
    read_epochs,
    read_index,
    segment_file,
    segment_starts,
)
from node.inspect_report import READ_ERRORS, Report
from storage.disk import File
from storage.epoch_file import EpochEntry
from storage.file_header import FILE_HEADER_BYTES, FileType
from storage.scan import BatchWalk
from storage.segment import Segment, SegmentList
from storage.sparse_index import SparseIndex

_KINDS: Final = frozenset(Kind)


@dataclass
class LogFacts:
    """What a verified log tells those who check the views."""

    start_offset: int = 0
    end_offset: int = 0
    batches: int = 0
    messages: int = 0
    next_sequence: int | None = None
    """Behind the last batch; None before the first."""
    sequence_at_applied: int | None = None
    """`next_sequence` of the log at the manifest's applied offset, where that is in the log."""


@dataclass
class _Walked:
    """Where the walk is, and what the batches must agree with."""

    report: Report
    facts: LogFacts
    mark: int
    applied: int | None
    epochs: tuple[EpochEntry, ...] = ()
    epoch: int = 0
    is_first: bool = True
    has_applied: bool = False
    indexed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of the segment's index: offset -> (base sequence, store time)."""

    def epoch_at(self, offset: int) -> int:
        """The epoch that the history gives a batch; 0 without any."""
        return max((one.epoch for one in self.epochs if one.start_offset <= offset), default=0)


def verify_log(files: ShardFiles, report: Report, manifest: Checkpoint | None) -> LogFacts:
    """Verify the whole log of a shard."""
    facts = LogFacts()
    applied = manifest.applied_offset if manifest else None
    walked = _Walked(report, facts, find_mark(files, report), applied)
    try:
        walked.epochs = read_epochs(files)
    except READ_ERRORS as error:
        report.caught(error, files.path(EPOCHS))
    starts = segment_starts(files)
    facts.start_offset = facts.end_offset = starts[0] if starts else 0
    for start in starts:
        _verify_segment(files, start, starts, walked)
    _verify_ends(files, walked, starts)
    return facts


def _verify_ends(files: ShardFiles, walked: _Walked, starts: list[int]) -> None:
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
    if applied is None or not report.is_good:
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


def _verify_segment(files: ShardFiles, start: int, starts: list[int], walked: _Walked) -> None:
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
        _walk_all(file, path, start, end, walked, is_last=start == starts[-1])
        _verify_index(files, path, index, end, walked)


def _walk_all(
    file: File, path: str, start: int, end: int, walked: _Walked, *, is_last: bool
) -> None:
    """Walk over a segment, also behind what is damaged, and note all that is wrong."""
    facts, report, at = walked.facts, walked.report, start
    while True:
        walk = BatchWalk(file, start, at, end)
        for batch in walk:
            _verify_batch(batch, path, start, walked)
        facts.end_offset = int(walk.next_offset)
        if walk.fault is None:
            return
        position = facts.end_offset - start + FILE_HEADER_BYTES
        if is_last and facts.end_offset >= walked.mark and not _was_durable(path, start, walk, end):
            report.remarks.append(
                f"{path}, byte {position}: {end - facts.end_offset} bytes that nobody was told are"
                f" durable: being written, or torn by a crash ({walk.fault})"
            )
            return
        report.damaged(path, position, f"{walk.fault}, at offset {facts.end_offset}")
        resumed = _find_next(file, start, int(walk.next_offset), end)
        if resumed is None:
            return
        at = resumed
        walked.is_first = True  # what was lost had sequences and epochs that nobody knows


