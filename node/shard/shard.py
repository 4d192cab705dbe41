"""One shard: its log, and the views that apply makes of it. No I/O but files.

    append, append_copies --> take_write --[thread: write, fdatasync]--> finish_write
    what is committed --> apply_some, in log order --> results

The log is the same on the master and on its followers, and so are the views. What only a master
has (leases, the dispatcher, callers that wait for a result) is its `Mastership`
(node/replica/mastership.py). The shell (node/broker/engine.py) gives the time, and runs `LogWrite`s
and background jobs on other threads.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel import errors
from hourwheel.errors import invariant
from hourwheel.formats.record_batch import RecordBatch, unpack_header
from hourwheel.types import FIRST_OFFSET, FIRST_SHARD, Offset, ShardId
from node.shard.apply import Applier, ApplyResult
from node.shard.views import Views
from storage.log.commit_log import CommitLog, LogWrite
from storage.log.recent_batches import RecentBatches
from storage.log.scan import verify_batch
from timewheel.bodies import Bodies


class Applied(NamedTuple):
    """A batch that was applied, and its result for the proposer."""

    batch: RecordBatch
    result: ApplyResult


@dataclass
class Shard:
    """The core of a node. Used from one thread.

    Invariants: `views.applied_offset <= high_watermark <= log.flushed_end_offset <=
    log.end_offset`; `_unapplied` are the batches in [applied_offset, end_offset), in order.
    """

    log: CommitLog
    views: Views
    bodies: Bodies
    cluster: int
    """First 4 bytes of the cluster's id, as receipts carry it."""
    shard_id: ShardId = FIRST_SHARD
    committed_offset: Offset = FIRST_OFFSET
    """What is below is on the in-sync replicas."""
    recent: RecentBatches = field(default_factory=lambda: RecentBatches(0))
    """What was appended last, for followers."""

    def __post_init__(self) -> None:
        """Build what applies batches to the views."""
        self.applier = Applier(self.views)
        self._unapplied: deque[RecordBatch] = deque()
        self.is_stalled = False
        """The next batch has found no room in the views. It is applied when there is some."""

    # -- appending ------------------------------------------------------------------------------

    def append(self, batch: RecordBatch) -> None:
        """Append the master's next batch: stamped for the log's end."""
        self.log.append((batch.head, batch.payload))
        self._unapplied.append(batch)
        self.recent.append(batch)

    def append_copies(self, raw: bytes) -> list[RecordBatch]:
        """Append batches of the master's log as they are: the next ones, whole, one by one.

        Raises:
            InvalidBatch: one is damaged or is not the next; nothing was appended.
        """
        found: list[RecordBatch] = []
        view, at, offset = memoryview(raw), 0, self.log.end_offset
        while at < len(view):
            header = unpack_header(view, at)
            batch = RecordBatch(view[at : at + header.total_bytes], header)
            verify_batch(batch, offset)
            found.append(batch)
            at += header.total_bytes
            offset = header.end_offset
        for batch in found:
            self.append(batch)
        return found

    def truncate(self, offset: Offset) -> None:
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
        self._drop_behind(offset)

    def _drop_behind(self, offset: Offset) -> list[RecordBatch]:
        """Forget the batches from an offset on. Returns them, in order."""
        self.recent.truncate(offset)
        dropped = []
        while self._unapplied and self._unapplied[-1].header.offset >= offset:
            dropped.append(self._unapplied.pop())
        return dropped[::-1]

    # -- writing and applying -------------------------------------------------------------------

    def take_write(self) -> LogWrite | None:
        """What is appended and not yet handed out to be written, or None."""
        return self.log.take_write()

    def finish_write(self, write: LogWrite) -> None:
        """`write` is on disk as durably as configured."""
        self.log.finish_write(write)

    def abandon_write(self, write: LogWrite) -> list[RecordBatch]:
        """`write` found no room: it and everything behind it never happened. Returns all that."""
        self.log.abandon_write(write)
        return self._drop_behind(self.log.end_offset)

    def apply_some(self, batches_max: int) -> list[Applied]:
        """Apply up to so many committed batches. Fewer come back when there are no more.

        Or when one finds no room: then `is_stalled`, until `try_again`.
        """
        applied: list[Applied] = []
        high_watermark = self.high_watermark
        while self._unapplied and len(applied) < batches_max:
            batch = self._unapplied[0]
            if batch.header.end_offset > high_watermark:
                break
            try:
                result = self.applier.apply(batch)
            except errors.DiskFull:
                self.is_stalled = True
                break
            self._unapplied.popleft()
            applied.append(Applied(batch, result))
        return applied

    @property
    def unapplied(self) -> Sequence[RecordBatch]:
        """What is appended and not applied, in order."""
        return self._unapplied

    @property
    def high_watermark(self) -> Offset:
        """What may be applied: durable here, and committed."""
        return min(self.log.flushed_end_offset, self.committed_offset)

    @property
    def uncommitted_bytes(self) -> int:
        """How much is appended and not committed."""
        return max(0, self.log.end_offset - self.committed_offset)

    @property
    def oldest_unapplied_ms(self) -> int | None:
        """When the oldest batch was stored that is appended and not applied; None without any."""
        return self._unapplied[0].header.store_ms if self._unapplied else None

    @property
    def newest_store_ms(self) -> int:
        """The latest store time of all that is in the log; 0 where nothing ever was."""
        return max(self.views.store_ms, *(one.header.store_ms for one in self._unapplied), 0)

    @property
    def has_appended(self) -> bool:
        """Whether something is appended and not durable yet."""
        return self.log.end_offset > self.log.flushed_end_offset

    @property
    def has_committed(self) -> bool:
        """Whether `apply_some` has something to do."""
        if not self._unapplied or self.is_stalled:
            return False
        header = self._unapplied[0].header
        return header.end_offset <= self.high_watermark

    def try_again(self) -> None:
        """There may be room for what `apply_some` found none for."""
        self.is_stalled = False

    def replay(self) -> Iterator[Offset]:
        """Apply the log from the applied offset to where it is known to be committed, at start.

        Yields each batch's offset. The shard may be used only when the iterator is exhausted.
        """
        for batch in self.log.recover(self.views.applied_offset):
            if batch.header.end_offset <= self.committed_offset:
                self.applier.apply(batch)
            else:  # a batch keeps the chunk alive that it was read in
                raw = b"".join((batch.head, batch.payload))
                self._unapplied.append(RecordBatch(raw, batch.header))
            yield batch.header.offset
        self.applier.take_touched()

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
