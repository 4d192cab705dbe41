"""One epoch of one shard on the node that is its master. Made by a takeover, closed, never reused.

    taking over   EPOCH_START is appended; followers agree where the logs part, and acknowledge it
    serving       it dispatches, leases and answers, while it has the lease and the cluster clock
    closed        everything that waited was answered, and nothing is accepted any more

It holds what only a master has: the rules of replication with lease, clock and in-sync set
(`rules`), the dispatcher, the message leases (`receiver`), the proposers that wait for the result
of a record, and what else waits (`hold`). Log and views are the shard's, whichever node leads.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError, invariant
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    EXPIRE_ROW,
    FEATURE_LEVEL_ROW,
    PREPARE_ROW,
    RESCHEDULE_ROW,
    RESOLVE_ROW,
    TRANSACT_ROW,
    TRIM_ROW,
    TRIM_SEQUENCES_ROW,
    Kind,
    RecordBatch,
    Stamp,
    build_blob,
    build_rows,
    stamp,
)
from hourwheel.internal.v1.state_pb2 import ConfigChange, EpochStart, RecurrenceChange
from hourwheel.types import Epoch, Key, NodeId, Offset, SequenceNumber
from node.delivery.receiver import Receiver
from node.shard.deduplication import PublishResults
from node.shard.dispatcher import DispatchConfig, Dispatcher
from node.shard.named_messages import rows_of
from node.shard.shard import Applied, Shard
from node.shard.transaction_apply import Prepare
from node.shard.views import FEATURE_LEVEL, FEATURE_LEVEL_MIN, Views
from replication.rules.master import Master

NEVER: Final = float("-inf")
_DISPATCHES_AHEAD: Final = 4
OUTCOME_UNKNOWN: Final = "the node ceased to be master: the outcome is unknown"


Result_contra = TypeVar("Result_contra", contravariant=True)


class Proposer(Protocol[Result_contra]):
    """A caller that waits for the result of a record."""

    def answer(self, result: Result_contra | None, error: HourwheelError | None) -> None:
        """The result of applying the record; or None, and why there is none. Called once."""
        ...


class Waiting(Protocol):
    """Callers that wait for something else than a record: long polls, the next group commit."""

    def close(self, error: HourwheelError) -> None:
        """Answer all of them with an error. Nothing was done for them, and nothing will be."""
        ...


class _Proposal(NamedTuple):
    offset: Offset
    """Of the record."""
    proposer: Proposer[Any]
    """Of what apply makes of such a record."""


class Mastership:
    """See the top of this file. Used from one thread.

    Invariants: `_proposals` are in the order of the log, and none is applied; `next_sequence` is
    the sequence behind the last batch in the log; once closed it is closed for good.
    """

    def __init__(self, shard: Shard, rules: Master, dispatch: DispatchConfig) -> None:
        """Go on where the log ends, whichever master wrote it. Nothing is being written."""
        self.shard, self.rules = shard, rules
        self.epoch: Epoch = rules.start.epoch
        self.dispatcher = Dispatcher(dispatch, shard.views.cursor.key)
        self.receiver = Receiver(shard.views, shard.bodies, self.epoch)
        self.is_serving = False
        """It has committed and applied all that it inherited, and had a lease and a clock then."""
        self.is_closed = False
        self.act_until_ms = NEVER
        """Until when it may act if no follower answers any more; monotonic, in ms. See `renew`."""
        self.next_sequence = shard.views.next_sequence
        self.release_due: Callable[[int], object] = lambda _: None
        """Appends, by the time now, the dispatch of what is due and still pending. It is called
        before records that release messages as they are applied: those would overtake it."""
        self._dispatched: deque[int] = deque()
        """Units of each DISPATCH record that is appended and not applied; 0: a former master's."""
        self._proposals: deque[_Proposal] = deque()
        self._waiting: list[Waiting] = []
        for batch in shard.unapplied:
            self._inherit(batch)

    def _inherit(self, batch: RecordBatch) -> None:
        """A batch of a former master, in the log and not applied."""
        if batch.header.kind == Kind.PUBLISH:
            self.next_sequence = SequenceNumber(batch.header.base_sequence + batch.header.count)
        elif batch.header.kind == Kind.DISPATCH:
            row = batch.rows[-1]
            cursor = Key(int(row["to_due_ms"]), int(row["to_sequence"]))
            self.dispatcher.append_cursor = max(self.dispatcher.append_cursor, cursor)
            self._dispatched.append(0)

    # -- whether it may act -----------------------------------------------------------------------

    def may_act(self, monotonic_ms: float) -> bool:
        """Whether to dispatch and to answer at this instant."""
        return (
            self.is_serving
            and not self.is_closed
            and self.rules.lease.is_valid(monotonic_ms)
            and self.rules.clock.update(monotonic_ms) is not None
        )

    def renew(self, monotonic_ms: float) -> float | None:
        """Note how long it may act, as of what it has heard by now. Returns the clock's offset.

        None: the cluster clock is not known, or nothing is served.
        """
        self.act_until_ms = NEVER
        if not self.is_serving or self.is_closed:
            return None
        offset_ms = self.rules.clock.update(monotonic_ms)
        if offset_ms is not None:
            self.act_until_ms = self.rules.lease.until_ms()
        return offset_ms

    # -- appending --------------------------------------------------------------------------------

    def open_epoch(self, records: list[RecordBatch], now_ms: int) -> None:
        """Append what opens the epoch: see `opening_records`."""
        for one in records:
            self._append(one, now_ms, None)

    def _append(
        self,
        batch: RecordBatch,
        now_ms: int,
        proposer: Proposer[Any] | None,
        *,
        due_ms: NDArray[np.int64] | None = None,
        topic_queue: NDArray[np.uint32] | None = None,
    ) -> None:
        """Stamp and append a batch; `proposer` hears its result (None: no caller waits)."""
        shard = self.shard
        log = shard.log
        offset = log.end_offset
        at = Stamp(
            offset=offset,
            base_sequence=self.next_sequence,
            store_ms=now_ms,
            flushed_end_offset=min(log.durable_end_offset, shard.high_watermark),
            epoch=self.epoch,
        )
        head, payload = stamp(batch, at, due_ms=due_ms, topic_queue=topic_queue)
        shard.append(RecordBatch.from_pieces(head, payload))
        if batch.header.kind == Kind.PUBLISH:
            self.next_sequence = SequenceNumber(self.next_sequence + batch.header.count)
        if proposer is not None:
            self._proposals.append(_Proposal(offset, proposer))

    def publish(
        self,
        batch: RecordBatch,
        due_ms: NDArray[np.int64],
        topic_queue: NDArray[np.uint32],
        now_ms: int,
        proposer: Proposer[PublishResults] | None,
    ) -> None:
        """Append a verified PUBLISH batch with its resolved due times and queues.

        Where they are due and may be in an order, what fell due before is released first.
        """
        if len(due_ms) and int(due_ms.min()) <= now_ms and batch.key_hash.any():
            self.release_due(now_ms)
        self._append(batch, now_ms, proposer, due_ms=due_ms, topic_queue=topic_queue)

    def configure(self, change: ConfigChange, now_ms: int, proposer: Proposer[bool] | None) -> None:
        """Append a change of the configuration; its result is whether it took effect."""
        blob = change.SerializeToString(deterministic=True)
        self._append(RecordBatch(build_blob(Kind.CONFIG, blob)), now_ms, proposer)

    def cancel(
        self, ids: NDArray[np.void], now_ms: int, proposer: Proposer[NDArray[np.uint8]] | None
    ) -> None:
        """Append a cancel by id: array[n] of ID_DTYPE. The result: CancelOutcome[n]."""
        rows = rows_of(ids, self.shard.shard_id)
        self._append(RecordBatch(build_rows(Kind.CANCEL, rows)), now_ms, proposer)

    def reschedule(
        self, rows: NDArray[np.void], now_ms: int, proposer: Proposer[NDArray[np.void]] | None
    ) -> None:
        """Append RESCHEDULE rows; the result is array[n] of RESCHEDULED.

        The log's feature level must be `RESCHEDULE_LEVEL` at least.
        """
        invariant(rows.dtype == RESCHEDULE_ROW, "rows of RESCHEDULE")
        if bool((rows["new_due_ms"] <= now_ms).any()):
            self.release_due(now_ms)
        self._append(RecordBatch(build_rows(Kind.RESCHEDULE, rows)), now_ms, proposer)

    def prepare(
        self, rows: NDArray[np.void], blob: bytes, now_ms: int, proposer: Proposer[Prepare] | None
    ) -> None:
        """Append a PREPARE: a row for each topic, and a `Prepared` message.

        The log's feature level must be `TRANSACTION_LEVEL` at least. Its end is a PUBLISH batch
        with the flag TRANSACTION (`publish`), or a row of TRANSACT.
        """
        invariant(rows.dtype == PREPARE_ROW, "rows of PREPARE")
        self._append(RecordBatch(build_rows(Kind.PREPARE, rows, blob)), now_ms, proposer)

    def transact(
        self, rows: NDArray[np.void], now_ms: int, proposer: Proposer[NDArray[np.bool_]] | None
    ) -> None:
        """Append TRANSACT rows; the result is which of them have changed something."""
        invariant(rows.dtype == TRANSACT_ROW, "rows of TRANSACT")
        self._append(RecordBatch(build_rows(Kind.TRANSACT, rows)), now_ms, proposer)

    def recur(
        self,
        change: RecurrenceChange,
        ids: NDArray[np.void],
        now_ms: int,
        proposer: Proposer[bool] | None,
    ) -> None:
        """Append a change of a recurrence, which cancels messages: CANCEL_ROW[n].

        The result is whether the recurrence was changed. The log's feature level must be
        `RECURRENCE_LEVEL` at least.
        """
        invariant(ids.dtype == CANCEL_ROW, "rows of CANCEL")
        blob = change.SerializeToString(deterministic=True)
        self._append(RecordBatch(build_rows(Kind.RECURRENCE, ids, blob)), now_ms, proposer)

    def resolve(
        self, rows: NDArray[np.void], now_ms: int, proposer: Proposer[list[int]] | None
    ) -> None:
        """Append RESOLVE rows; the result counts what each newly resolved."""
        invariant(rows.dtype == RESOLVE_ROW, "rows of RESOLVE")
        self._append(RecordBatch(build_rows(Kind.RESOLVE, rows)), now_ms, proposer)

    def trim(self, retain_from_ms: int, now_ms: int) -> None:
        """Append a TRIM: entries released before an instant leave their queues."""
        rows = np.zeros(1, TRIM_ROW)
        rows["retain_from_ms"] = retain_from_ms
        self._append(RecordBatch(build_rows(Kind.TRIM, rows)), now_ms, None)

    def trim_sequences(self, sequence_floor: SequenceNumber, now_ms: int) -> None:
        """Append a TRIM_SEQUENCES: of messages below a sequence only those not yet due are known.

        The log's feature level must be `TRIM_SEQUENCES_LEVEL` at least.
        """
        rows = np.zeros(1, TRIM_SEQUENCES_ROW)
        rows["sequence_floor"] = sequence_floor
        self._append(RecordBatch(build_rows(Kind.TRIM_SEQUENCES, rows)), now_ms, None)

    def expire_producers(self, idle_before_ms: int, now_ms: int) -> None:
        """Append an EXPIRE: producers idle since an instant are forgotten."""
        rows = np.zeros(1, EXPIRE_ROW)
        rows["producer_idle_before_ms"] = idle_before_ms
        self._append(RecordBatch(build_rows(Kind.EXPIRE, rows)), now_ms, None)

    def dispatch_due(self, now_ms: int, *, is_urgent: bool = False) -> int:
        """Append a DISPATCH if something is due within the lead. Returns how many were (0 or 1).

        `is_urgent`: however short ago the last one was.
        """
        planned = self.dispatcher.plan(self.shard.views, now_ms, is_urgent=is_urgent)
        if planned is None:
            return 0
        self._append(RecordBatch(planned), now_ms, None)
        self._dispatched.append(self.dispatcher.planned_count)
        return 1

    @property
    def dispatches_in_flight(self) -> int:
        """DISPATCH records appended and not yet applied."""
        return len(self._dispatched)

    @property
    def may_dispatch_more(self) -> bool:
        """Whether the next DISPATCH may be appended before those in flight are applied.

        A commit takes as long for some as for one. But all are applied in one go, and meanwhile
        nothing that is visible already is on its way to its consumer.
        """
        is_few = self.dispatches_in_flight < _DISPATCHES_AHEAD
        return is_few and sum(self._dispatched) < 2 * self.dispatcher.units_max

    # -- what becomes of it -----------------------------------------------------------------------

    def on_applied(self, applied: list[Applied]) -> None:
        """Answer the proposers of these with the results of their apply."""
        proposals = self._proposals
        for batch, result in applied:
            if batch.header.kind == Kind.DISPATCH:
                self._dispatched.popleft()
            if proposals and proposals[0].offset == batch.header.offset:
                proposals.popleft().proposer.answer(result, None)

    def on_abandoned(self, dropped: list[RecordBatch], error: HourwheelError) -> None:
        """These found no room on the disk and left the log: their proposers get `error`."""
        for batch in reversed(dropped):
            if batch.header.kind == Kind.PUBLISH:
                self.next_sequence = SequenceNumber(self.next_sequence - batch.header.count)
            elif batch.header.kind == Kind.DISPATCH:
                self._dispatched.pop()
                self.dispatcher.take_back(batch.rows[0])
        end_offset, lost = self.shard.log.end_offset, deque[_Proposal]()
        while self._proposals and self._proposals[-1].offset >= end_offset:
            lost.appendleft(self._proposals.pop())
        for one in lost:
            one.proposer.answer(None, error)

    # -- the end ----------------------------------------------------------------------------------

    def hold(self, waiting: Waiting) -> None:
        """`waiting` is of this epoch: it is answered when that ends."""
        self._waiting.append(waiting)

    def release(self) -> None:
        """The epoch is over: never act again. `close` is next, before anything else is waited for.

        (The last messages to followers go between the two: they are free as soon as possible.)
        """
        self.is_closed, self.act_until_ms = True, NEVER
        self.rules.lease.release()

    def close(self, error: HourwheelError) -> None:
        """Step down: answer everything that waits, once.

        Args:
            error: where to go instead, for callers of calls that were not begun. The proposer of a
                record that is not applied gets a Timeout: its outcome is unknown.
        """
        self.release()
        proposals, self._proposals = self._proposals, deque()
        waiting, self._waiting = self._waiting, []
        unknown = errors.Timeout(OUTCOME_UNKNOWN)
        for one in proposals:
            one.proposer.answer(None, unknown)
        for each in waiting:
            each.close(error)


def opening_records(
    views: Views, node_id: NodeId, boot_id: str, level_max: int
) -> list[RecordBatch]:
    """What opens an epoch: its EPOCH_START, behind the feature level where that is a new one.

    Args:
        views: what the log says so far.
        node_id: the master.
        boot_id: of its process.
        level_max: the highest feature level that all nodes know; the log's never falls.
    """
    records = []
    level = max(min(level_max, FEATURE_LEVEL), FEATURE_LEVEL_MIN)
    if views.feature_level < level:
        row = np.zeros(1, FEATURE_LEVEL_ROW)
        row["level"] = level
        records.append(RecordBatch(build_rows(Kind.FEATURE_LEVEL, row)))
    start = EpochStart(node_id=node_id, boot_id=boot_id)
    blob = start.SerializeToString(deterministic=True)
    return [*records, RecordBatch(build_blob(Kind.EPOCH_START, blob))]
