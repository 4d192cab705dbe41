"""One shard: its log, its views, and everything that may be proposed to it. No I/O but files.

    propose (publish, cancel, ...) --> log.append --> take_write --[thread: write, fdatasync]-->
    finish_write --> apply in log order --> answers

The shell (node/broker/engine.py) gives the time, runs `LogWrite`s and background jobs on other
threads, and delivers `Answer`s. A token is whatever the shell wants to find again in an answer.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import invariant
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    EXPIRE_ROW,
    FEATURE_LEVEL_ROW,
    RESOLVE_ROW,
    TRIM_ROW,
    Kind,
    RecordBatch,
    Stamp,
    build_blob,
    build_rows,
    stamp,
    unpack_header,
)
from hourwheel.internal.v1.state_pb2 import ConfigChange, EpochStart
from hourwheel.types import Key
from node.delivery.receiver import Receiver
from node.shard.apply import Applier, Verdict
from node.shard.dispatcher import DispatchConfig, Dispatcher
from node.shard.views import FEATURE_LEVEL, FEATURE_LEVEL_MIN, Views
from storage.log.commit_log import CommitLog, LogWrite
from storage.log.recent_batches import RecentBatches
from storage.log.scan import verify_batch
from timewheel.bodies import Bodies


class Answer(NamedTuple):
    """What became of a proposal: the verdict of its own record's apply, or why there is none."""

    token: Any
    verdict: Verdict
    error: errors.HourwheelError | None = None


class Proposal(NamedTuple):
    """A batch that is appended and not yet applied."""

    batch: RecordBatch
    token: Any


@dataclass
class Shard:
    """The core of a node. Used from one thread.

    Invariants: `views.applied_offset <= log.flushed_end_offset <= log.end_offset`; `_proposals` are
    the batches in [applied_offset, end_offset), in order; `_next_sequence` is the sequence behind
    the last appended batch.
    """

    log: CommitLog
    views: Views
    bodies: Bodies
    epoch: int
    dispatch: DispatchConfig
    cluster: int
    """First 4 bytes of the cluster's id, as receipts carry it."""
    shard_id: int = 0
    is_durable: bool = True
    """Whether the high watermark waits for fdatasync (the asynchronous mode does not)."""
    committed_offset: int | None = None
    """What is below is on the in-sync replicas; None for a shard without any others."""

    def __post_init__(self) -> None:
        """Build the parts around the views."""
        self.applier = Applier(self.views)
        self.receiver = Receiver(self.views, self.bodies)
        self.dispatcher = Dispatcher(self.dispatch, self.views.cursor.key)
        self.recent: RecentBatches | None = None
        """What was appended last, for followers; None for a shard without any."""
        self._proposals: deque[Proposal] = deque()
        self._next_sequence = self.views.next_sequence
        self.dispatches_in_flight = 0
        """DISPATCH records appended and not yet applied."""
        self.is_stalled = False
        """The next batch has found no room in the views. It is applied when there is some."""

    # -- appending ------------------------------------------------------------------------------

    def begin_epoch(
        self,
        node_id: str,
        boot_id: str,
        now_ms: int,
        token: Any = None,
        *,
        level_max: int = FEATURE_LEVEL,
    ) -> None:
        """Append what opens a reign; the shell writes and applies it before it serves anyone.

        `level_max`: the highest feature level that all nodes know; the log's never falls.
        """
        level = max(min(level_max, FEATURE_LEVEL), FEATURE_LEVEL_MIN)
        if self.views.feature_level < level:
            row = np.zeros(1, FEATURE_LEVEL_ROW)
            row["level"] = level
            self._append(RecordBatch(build_rows(Kind.FEATURE_LEVEL, row)), now_ms, None)
        start = EpochStart(node_id=node_id, boot_id=boot_id)
        blob = start.SerializeToString(deterministic=True)
        self._append(RecordBatch(build_blob(Kind.EPOCH_START, blob)), now_ms, token)

    def _append(
        self,
        batch: RecordBatch,
        now_ms: int,
        token: Any,
        *,
        due_ms: NDArray[np.int64] | None = None,
        topic_queue: NDArray[np.uint32] | None = None,
    ) -> None:
        """Stamp and append a batch; its verdict comes with `token` (None: nobody asks)."""
        at = Stamp(
            offset=self.log.end_offset,
            base_sequence=self._next_sequence,
            store_ms=now_ms,
            flushed_end_offset=min(self.log.durable_end_offset, self.high_watermark),
            epoch=self.epoch,
        )
        head, payload = stamp(batch, at, due_ms=due_ms, topic_queue=topic_queue)
        self.log.append((head, payload))
        if batch.header.kind == Kind.PUBLISH:
            self._next_sequence += batch.header.count
        stamped = RecordBatch.from_pieces(head, payload)
        self._proposals.append(Proposal(stamped, token))
        if self.recent is not None:
            self.recent.append(stamped)

    @property
    def next_sequence(self) -> int:
        """Sequence that the next published message gets, if everything appended is kept."""
        return self._next_sequence

    def publish(
        self,
        batch: RecordBatch,
        due_ms: NDArray[np.int64],
        topic_queue: NDArray[np.uint32],
        now_ms: int,
        token: Any,
    ) -> None:
        """Append a verified PUBLISH batch with its resolved due times and queues."""
        self._append(batch, now_ms, token, due_ms=due_ms, topic_queue=topic_queue)

    def configure(self, change: ConfigChange, now_ms: int, token: Any) -> None:
        """Append a change of the configuration; its verdict is whether it took effect."""
        blob = change.SerializeToString(deterministic=True)
        self._append(RecordBatch(build_blob(Kind.CONFIG, blob)), now_ms, token)

    def cancel(
        self,
        ids: NDArray[Any],
        now_ms: int,
        token: Any,
    ) -> None:
        """Append a cancel by id: array[n] of ID_DTYPE. The verdict: CancelOutcome[n]."""
        rows = np.zeros(len(ids), CANCEL_ROW)
        rows["due_ms"] = ids["due_ms"]
        rows["sequence"] = ids["sequence"]
        rows["epoch"] = np.where(ids["shard"] == self.shard_id, ids["epoch"], 0)
        self._append(RecordBatch(build_rows(Kind.CANCEL, rows)), now_ms, token)

    def resolve(self, rows: NDArray[Any], now_ms: int, token: Any) -> None:
        """Append RESOLVE rows; the verdict counts what each newly resolved."""
        invariant(rows.dtype == RESOLVE_ROW, "rows of RESOLVE")
        self._append(RecordBatch(build_rows(Kind.RESOLVE, rows)), now_ms, token)

    def trim(self, retain_from_ms: int, now_ms: int) -> None:
        """Append a TRIM: entries released before an instant leave their queues."""
        rows = np.zeros(1, TRIM_ROW)
        rows["retain_from_ms"] = retain_from_ms
        self._append(RecordBatch(build_rows(Kind.TRIM, rows)), now_ms, None)

    def expire_producers(self, idle_before_ms: int, now_ms: int) -> None:
        """Append an EXPIRE: producers idle since an instant are forgotten."""
        rows = np.zeros(1, EXPIRE_ROW)
        rows["producer_idle_before_ms"] = idle_before_ms
        self._append(RecordBatch(build_rows(Kind.EXPIRE, rows)), now_ms, None)

    def dispatch_due(self, now_ms: int) -> int:
        """Append a DISPATCH if something is due within the lead. Returns how many were (0 or 1)."""
        planned = self.dispatcher.plan(self.views, now_ms)
        if planned is None:
            return 0
        self._append(RecordBatch(planned), now_ms, None)
        self.dispatches_in_flight += 1
        return 1

    # -- writing and applying -------------------------------------------------------------------

    def take_write(self) -> LogWrite | None:
        """What is appended and not yet handed out to be written, or None."""
        return self.log.take_write()

    def finish_write(self, write: LogWrite) -> None:
        """`write` is on disk as durably as configured: its batches may be applied."""
        self.log.finish_write(write)

    def apply_some(self, batches_max: int) -> list[Answer]:
        """Apply up to so many committed batches. Fewer come back when there are no more.

        Or when one finds no room: then `is_stalled`, until `try_again`.
        """
        answers: list[Answer] = []
        high_watermark = self.high_watermark
        while self._proposals and len(answers) < batches_max:
            batch, token = self._proposals[0]
            if batch.header.offset + batch.header.total_bytes > high_watermark:
                break
            try:
                verdict = self.applier.apply(batch)
            except errors.DiskFull:
                self.is_stalled = True
                break
            self._proposals.popleft()
            answers.append(Answer(token, verdict))
            if batch.header.kind == Kind.DISPATCH:
                self.dispatches_in_flight -= 1
        return answers

    @property
    def high_watermark(self) -> int:
        """What may be applied: durable here and, in a cluster, committed."""
        flushed = self.log.flushed_end_offset
        return flushed if self.committed_offset is None else min(flushed, self.committed_offset)

    @property
    def uncommitted_bytes(self) -> int:
        """How much is appended and not committed on other nodes; 0 for a shard without any."""
        if self.committed_offset is None:
            return 0
        return max(0, self.log.end_offset - self.committed_offset)

    @property
    def oldest_unapplied_ms(self) -> int | None:
        """When the oldest batch was stored that is appended and not applied; None without any."""
        return self._proposals[0].batch.header.store_ms if self._proposals else None

    @property
    def has_appended(self) -> bool:
        """Whether something is appended and not committed yet."""
        return self.log.end_offset > self.log.flushed_end_offset

    @property
    def has_committed(self) -> bool:
        """Whether `apply_some` has something to do."""
        if not self._proposals or self.is_stalled:
            return False
        header = self._proposals[0].batch.header
        return header.offset + header.total_bytes <= self.high_watermark

    def try_again(self) -> None:
        """There may be room for what `apply_some` found none for."""
        self.is_stalled = False

    def abandon_write(self, write: LogWrite, error: errors.HourwheelError) -> list[Answer]:
        """`write` found no room: it and everything behind it never happened."""
        self.log.abandon_write(write)
        if self.recent is not None:
            self.recent.truncate(self.log.end_offset)
        answers = []
        while self._proposals:
            last = self._proposals[-1]
            if last.batch.header.offset < self.log.end_offset:
                break
            self._proposals.pop()
            answers.append(Answer(last.token, None, error))
            if last.batch.header.kind == Kind.PUBLISH:
                self._next_sequence -= last.batch.header.count
            if last.batch.header.kind == Kind.DISPATCH:
                self.dispatches_in_flight -= 1
                self.dispatcher.take_back(last.batch.rows[0])
        return answers[::-1]

    def replay(self) -> Iterator[int]:
        """Apply the log from the applied offset to its end, at start; yields each batch's offset.

        The shard may be used only when the iterator is exhausted.
        """
        for batch in self.log.recover(self.views.applied_offset):
            committed = self.committed_offset
            if committed is None or batch.header.offset + batch.header.total_bytes <= committed:
                self.applier.apply(batch)
            else:  # a batch keeps the chunk alive that it was read in
                raw = b"".join((batch.head, batch.payload))
                self._proposals.append(Proposal(RecordBatch(raw, batch.header), None))
            yield batch.header.offset
        self.applier.touched.clear()
        self._take_bearings()

    # -- a replica's part -----------------------------------------------------------------------

    def append_copies(self, raw: bytes) -> list[RecordBatch]:
        """Append batches of the master's log as they are: the next ones, whole, one by one.

        Raises:
            InvalidBatch: one is damaged or is not the next; nothing was appended.
        """
        found: list[RecordBatch] = []
        view, at, offset = memoryview(raw), 0, int(self.log.end_offset)
        while at < len(view):
            header = unpack_header(view, at)
            batch = RecordBatch(view[at : at + header.total_bytes], header)
            verify_batch(batch, offset)
            found.append(batch)
            at += header.total_bytes
            offset += header.total_bytes
        for batch in found:
            self.log.append((batch.head, batch.payload))
            self._proposals.append(Proposal(batch, None))
            if self.recent is not None:
                self.recent.append(batch)
        return found

    def begin_reign(self, epoch: int) -> None:
        """Be the master in `epoch`: go on where the log ends, whoever wrote it."""
        self.epoch = epoch
        self.receiver = Receiver(self.views, self.bodies)
        self._take_bearings()

    def end_reign(self, error: errors.HourwheelError) -> list[Answer]:
        """Not the master any more: nobody is told what becomes of what is not applied."""
        answers = [
            Answer(one.token, None, error) for one in self._proposals if one.token is not None
        ]
        self._proposals = deque(one._replace(token=None) for one in self._proposals)
        return answers

    def truncate(self, offset: int) -> None:
        """Cut the log to `offset`, durably. No write is under way.

        Raises:
            FsyncFailed, DiskFailed: stop the process.
        """
        invariant(
            offset >= self.views.applied_offset,
            "what is applied is never cut",
            offset=offset,
            applied=self.views.applied_offset,
        )
        self.log.truncate(offset)
        if self.recent is not None:
            self.recent.truncate(offset)
        while self._proposals and self._proposals[-1].batch.header.offset >= offset:
            self._proposals.pop()

    def _take_bearings(self) -> None:
        """Find the next sequence and the append cursor from what is applied and what waits."""
        self._next_sequence = self.views.next_sequence
        self.dispatcher.append_cursor = self.views.cursor.key
        self.dispatches_in_flight = 0
        for batch, _ in self._proposals:
            if batch.header.kind == Kind.PUBLISH:
                self._next_sequence = batch.header.base_sequence + batch.header.count
            elif batch.header.kind == Kind.DISPATCH:
                row = batch.rows[-1]
                cursor = Key(int(row["to_due_ms"]), int(row["to_sequence"]))
                self.dispatcher.append_cursor = max(self.dispatcher.append_cursor, cursor)
                self.dispatches_in_flight += 1

    def check(self) -> None:
        """Assert the shard's invariants, those of its views included. Reads much: for tests."""
        views, log = self.views, self.log
        invariant(
            views.applied_offset <= log.flushed_end_offset <= log.end_offset,
            "applied <= flushed <= end",
            applied=views.applied_offset,
            flushed=log.flushed_end_offset,
            end=log.end_offset,
        )
        views.check()
