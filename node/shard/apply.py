"""Apply: what each kind of record does to the views. A pure function of the log, in log order.

Every decision is taken here and nowhere else: whether a batch is a duplicate, a cancel too late, an
acknowledgement of something resolved. What proposers look at before they append only saves records.
No clock, no Raft state, no configuration: what apply needs is in the log.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import invariant
from hourwheel.formats.batch_columns import expires_of
from hourwheel.formats.record_batch import Flag, Kind, Outcome, RecordBatch
from hourwheel.internal.v1.state_pb2 import ConfigChange, EpochState, RecurrenceChange
from hourwheel.outcomes import CancelOutcome, RescheduleOutcome
from hourwheel.types import (
    QUEUE_BITS,
    GroupId,
    Key,
    Offset,
    Position,
    SequenceNumber,
    TopicQueue,
    topic_of,
)
from node.shard.deduplication import PublishResults, check_keys, deduplicate, units_of, with_deduped
from node.shard.message_keys import rows_of_batch
from node.shard.named_messages import Named, look_up
from node.shard.resolve_pieces import (
    AGAIN,
    LETTERS,
    Again,
    ResolveRow,
    add_failures,
    failure_counts_of,
    pieces_of,
)
from node.shard.transaction_apply import Prepare, apply_prepare, apply_steps
from node.shard.views import EXPIRY_LEVEL, Views, check_feature_level
from storage.queues.ack_state import IN_PLACE, WINDOW_POSITIONS, AckWindow
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.consume_queues import Touched
from storage.views.catalog_items import Subscription
from storage.views.moved import AT_ONCE_MS
from storage.views.sequence_index import SlotState
from storage.views.sorting import sorted_unique
from storage.views.unit import Units, equal_spans, pick

REDRIVEN_ATTEMPT: Final = 2
"""Of a message that was re-driven: it is a retry, and begins to count anew."""
RESCHEDULED: Final = np.dtype([("outcome", "u1"), ("due_ms", "<i8")])
"""What became of a row of RESCHEDULE: a RescheduleOutcome, and where the message is due now."""

RowResults: TypeAlias = NDArray[np.void] | NDArray[np.uint8] | NDArray[np.bool_]
ApplyResult: TypeAlias = PublishResults | RowResults | list[int] | Prepare | int | None
"""What became of a record, for its proposer: by kind, see the handlers. A CONFIG's is a bool."""


class Applier:
    """Applies batches to views, one by one.

    It collects the queues that were touched; the shell takes them and wakes their readers.
    """

    def __init__(self, views: Views) -> None:
        """Apply to `views`, from its applied offset on."""
        self.views = views
        self._touched = Touched(set(), set())
        self.make_room: Callable[[], bool] | None = None
        """Asked where a view finds no room: gives up what was kept back; whether there was any."""
        self._begun: tuple[ApplyResult] | None = None
        """Of the batch that is applied but for what follows."""
        self._waiting: deque[tuple[TopicQueue, Units]] = deque()
        """Entries, and their queues, that have found no room yet. In order: they have to be there
        before the next batch is looked at."""
        self._handlers: dict[Kind, Callable[[RecordBatch], ApplyResult]] = {
            Kind.PUBLISH: self._publish,
            Kind.DISPATCH: self._dispatch,
            Kind.CANCEL: self._cancel,
            Kind.RESCHEDULE: self._reschedule,
            Kind.RESOLVE: self._resolve,
            Kind.CONFIG: self._configure,
            Kind.TRIM: self._trim,
            Kind.EXPIRE: self._expire,
            Kind.FEATURE_LEVEL: self._feature_level,
            Kind.EPOCH_START: self._epoch_start,
            Kind.TRIM_SEQUENCES: self._trim_sequences,
            Kind.PREPARE: partial(apply_prepare, views),
            Kind.TRANSACT: partial(apply_steps, views),
            Kind.RECURRENCE: self._recur,
        }

    def apply(self, batch: RecordBatch) -> ApplyResult:
        """Fold one batch into the views.

        Raises:
            IncompatibleFormat: a kind or feature level that this binary does not know: it stops.
            InvariantViolated: the log contradicts itself or us.
            DiskFull: also after `make_room`. Nothing is lost: when there may be room, call this
                again with the same batch, before anything else. Until then the views are not whole.
        """
        views, header = self.views, batch.header
        is_sound = views.is_whole or self._begun is not None
        invariant(is_sound, "nothing is applied behind a batch that failed half-way")
        invariant(header.offset == views.applied_offset, "batches are applied in log order")
        handler = self._handlers.get(Kind(header.kind)) if header.kind in _KINDS else None
        if handler is None:
            raise errors.IncompatibleFormat(
                f"record kind {header.kind} is not known to this version", offset=header.offset
            )
        if self._begun is None:
            views.is_whole = False
            self._begun = (handler(batch),)
        if self._waiting:
            self._append_waiting()
        (result,), self._begun = self._begun, None
        views.is_whole = True
        views.applied_offset = header.end_offset
        views.store_ms = max(views.store_ms, header.store_ms)
        views.remember_check()
        return result

    # -- publish ------------------------------------------------------------------------------

    def _publish(self, batch: RecordBatch) -> PublishResults:
        """Results by the ordinal of the first message that each is about."""
        views, header = self.views, batch.header
        invariant(
            header.base_sequence == views.next_sequence,
            "sequences are dense",
            expected=views.next_sequence,
            found=header.base_sequence,
        )
        views.next_sequence = SequenceNumber(views.next_sequence + header.count)
        results, accepted = deduplicate(views, batch)
        decided = check_keys(views, batch, accepted)
        if decided is not None:
            if len(decided.outcomes):
                results = with_deduped(views, batch, results, decided.outcomes)
            if len(decided.refused):
                accepted = np.ones(header.count, np.bool_) if accepted is None else accepted
                accepted[decided.refused] = False
        if header.flags & Flag.EXPIRY and views.feature_level >= EXPIRY_LEVEL:
            self._note_expiring(batch)
        if accepted is None or accepted.any():
            rows = rows_of_batch(batch, accepted)
            if rows is not None:
                views.keys.insert(rows)
        if accepted is None:
            self._store(units_of(views.catalog, batch), header.store_ms)
        else:
            states = np.full(header.count, SlotState.REJECTED, np.uint8)
            if accepted.any():
                units = pick(units_of(views.catalog, batch), accepted)
                states[accepted] = self._schedule(units, header.store_ms)
            views.sequences.append(batch.due_ms, states)
        if decided is not None:
            views.dedup_keys.put(decided.rows)
            views.mark_cancelled(decided.replaced)
        return results

    def _note_expiring(self, batch: RecordBatch) -> None:
        """Remember to which topics it publishes messages that expire, be they accepted or not."""
        expire = expires_of(batch.blobs, batch.meta_len, batch.body_len) != 0
        topics = sorted_unique(batch.topic_queue[expire] >> QUEUE_BITS).tolist()
        alive = self.views.catalog.find_topic_by_id
        self.views.expiring_topics.update(one for one in topics if alive(one) is not None)

    def take_touched(self) -> Touched:
        """The queues that were touched since they were taken last."""
        found, self._touched = self._touched, Touched(set(), set())
        return found

    def _append(self, topic_queue: TopicQueue, units: Units) -> None:
        """Append to a queue; where there is no room, later and in this order."""
        self._waiting.append((topic_queue, units))
        if len(self._waiting) == 1:
            with suppress(errors.DiskFull):
                self._append_waiting()

    def _append_waiting(self) -> None:
        while self._waiting:
            topic_queue, units = self._waiting[0]
            self._with_room(partial(self.views.queues.get(topic_queue).append, units))
            self._waiting.popleft()
            self._touched.grown.add(topic_queue)

    def _with_room(self, append: Callable[[], object]) -> None:
        """Call what changes nothing where it finds no room; make room, and call it again, once."""
        try:
            append()
        except errors.DiskFull:
            if self.make_room is None or not self.make_room():
                raise
            append()

    def _store(self, units: Units, store_ms: int) -> None:
        """Schedule accepted messages and index their sequences."""
        due, states = units["due_ms"].copy(), self._schedule(units, store_ms)
        self.views.sequences.append(due, states)

    def _schedule(self, units: Units, store_ms: int) -> NDArray[np.uint8]:
        """The release rule (timewheel/cursor.py). Returns uint8[n]: SlotState of each unit."""
        views = self.views
        at_once = views.cursor.is_due(units["due_ms"], units["sequence"], store_ms)
        states = np.where(at_once, SlotState.RELEASED_AT_APPLY, SlotState.WHEEL).astype(np.uint8)
        waiting = units
        if at_once.any():
            self._release(pick(units, at_once))
            waiting = pick(units, ~at_once)
        if len(waiting):
            views.counters.pending += len(waiting)
            views.wheel.insert(waiting)
        return states

    def _release(self, units: Units) -> None:
        """Append units, in this order, to their queues."""
        views = self.views
        views.cursor.count_release(units)
        queues = units["topic_queue"]
        first = TopicQueue(int(queues[0]))
        if bool((queues == first).all()):
            self._append(first, units)
            return
        order = np.argsort(queues, kind="stable")
        units, queues = pick(units, order), queues[order]
        for low, high in equal_spans(queues):
            self._append(TopicQueue(int(queues[low])), units[low:high])

    # -- dispatch and cancel --------------------------------------------------------------------

    def _dispatch(self, batch: RecordBatch) -> int:
        """How many units it released."""
        views, row = self.views, batch.rows[0]
        previous = Key(int(row["prev_due_ms"]), int(row["prev_sequence"]))
        to = Key(int(row["to_due_ms"]), int(row["to_sequence"]))
        invariant(previous == views.cursor.key, "dispatches follow on one another", record=previous)
        views.compare_check(
            Offset(int(row["check_offset"])), int(row["check_count"]), int(row["check_mix"])
        )
        units = views.wheel.take(to)
        if len(units):
            live = views.are_live(units)
            if not live.all():
                units = pick(units, live)
        views.counters.pending -= len(units)
        units = self._without_deleted_topics(units)
        views.cursor.advance(to, units)
        if len(units):
            self._release(units)
        return len(units)

    def _without_deleted_topics(self, units: Units) -> Units:
        topics = units["topic_queue"] >> QUEUE_BITS
        alive = self.views.catalog.find_topic_by_id
        gone = [topic for topic in set(topics.tolist()) if not alive(topic)]
        if not gone:
            return units
        kept = ~np.isin(topics, gone)
        self.views.counters.discarded += len(units) - int(kept.sum())
        return pick(units, kept)

    def _cancel(self, batch: RecordBatch) -> NDArray[np.uint8]:
        """uint8[n]: CancelOutcome of each row."""
        named = look_up(self.views, batch.rows)
        before, waiting = named.cancelled, named.waiting
        self._take_back(named)
        outcomes = np.full(len(waiting), CancelOutcome.UNKNOWN, np.uint8)
        outcomes[named.exist] = CancelOutcome.ALREADY_RELEASED
        outcomes[waiting | before] = CancelOutcome.CANCELLED
        outcomes[named.expired] = CancelOutcome.EXPIRED
        return outcomes

    def _take_back(self, named: Named) -> list[int]:
        """Cancel those of some messages that wait. Returns their sequences."""
        chosen = sorted_unique(named.sequences[named.waiting])
        self.views.mark_cancelled(chosen)
        return list(chosen.tolist())

    def _recur(self, batch: RecordBatch) -> bool:
        """Whether it took effect. Its rows are cancelled in any case."""
        change, header = RecurrenceChange.FromString(bytes(batch.blobs)), batch.header
        taken_back = self._take_back(look_up(self.views, batch.rows)) if header.count else []
        return self.views.recurrences.change(change, header.offset, header.store_ms, taken_back)

    def _reschedule(self, batch: RecordBatch) -> NDArray[Any]:
        """array[n] of RESCHEDULED: what became of each row.

        Of rows that name one message each moves it, up to the first that releases it at once; the
        wheel sees the last of these only.
        """
        views, rows, store_ms = self.views, batch.rows, batch.header.store_ms
        named = look_up(views, rows)
        results = np.zeros(len(rows), RESCHEDULED)
        outcomes = results["outcome"]
        outcomes[:] = RescheduleOutcome.UNKNOWN
        outcomes[named.exist] = RescheduleOutcome.ALREADY_RELEASED
        outcomes[named.cancelled] = RescheduleOutcome.CANCELLED
        outcomes[named.expired] = RescheduleOutcome.EXPIRED
        new_due = np.maximum(rows["new_due_ms"], store_ms)
        at_once = views.cursor.is_due(new_due, named.sequences, store_ms)
        moving = np.flatnonzero(named.waiting)
        moving, chosen = _choose_moves(moving, named.sequences, at_once)
        outcomes[moving] = RescheduleOutcome.RESCHEDULED
        results["due_ms"][moving] = new_due[moving]
        if len(chosen):
            attempts = np.where(named.are_moved[chosen], 0, 1).astype(np.uint16)
            sequences, at_once = named.sequences[chosen], at_once[chosen]
            units = views.wheel.find(named.current_due_ms[chosen], sequences, attempts)
            units["due_ms"], units["attempt"] = new_due[chosen], 0
            last_due = named.last_due_ms[chosen]
            of_each = np.searchsorted(sequences, named.sequences[moving])
            np.maximum.at(last_due, of_each, new_due[moving])
            current = np.where(at_once, AT_ONCE_MS, new_due[chosen])
            views.moved.put(sequences, current, last_due)
            views.counters.pending -= int(at_once.sum())
            views.wheel.insert(pick(units, ~at_once))
            leaving = self._without_deleted_topics(pick(units, at_once))
            if len(leaving):
                self._release(leaving)
        return results

    # -- resolve --------------------------------------------------------------------------------

    def _resolve(self, batch: RecordBatch) -> list[int]:
        """How many positions of each row were unresolved until now."""
        resolved: list[int] = []
        again = Again(batch.header.store_ms)
        for low, high, is_ascending in pieces_of(batch.rows):
            rows = batch.rows[low:high]
            if is_ascending:
                resolved += self._finish(rows, again)
            else:
                resolved += [self._resolve_row(row, again) for row in rows.tolist()]
        self._give_back(again)
        return resolved

    def _resolve_row(self, row: ResolveRow, again: Again) -> int:
        """How many of its positions were unresolved; what it gives back waits in `again`."""
        group_id, topic_queue, first, count, outcome, retry_due_ms = row
        if not self._may_resolve(group_id, topic_queue, outcome):
            return 0
        queue = self.views.queues.get(topic_queue)
        kind = (group_id, topic_queue, outcome, retry_due_ms)
        # What is given back may be released into the very queue that the row reaches beyond.
        if again.kind != kind or first + count > queue.end_position:
            self._give_back(again)
        invariant(
            not self._waiting or first + count <= queue.end_position,
            "a row reaches for entries that wait for room",
            topic_queue=topic_queue,
        )
        end = min(first + count, queue.end_position)
        first = max(first, queue.start_position)
        window = self.views.acks.to_change(group_id, topic_queue)
        if end <= first:
            return 0
        if outcome in IN_PLACE:
            self._touched.freed.add(topic_queue)
            if outcome == Outcome.HELD:
                return window.hold(first, end, retry_due_ms)
            return window.free(first, end)
        floor = window.first_unresolved(queue.start_position)
        failure_counts = failure_counts_of(window, first, end) if outcome in LETTERS else {}
        ranges = window.resolve(first, end - first)
        self._note_finished(queue, window, floor)
        if outcome in AGAIN:
            again.kind = kind
            again.ranges += ranges
            again.failure_counts |= failure_counts
        return sum(high - low for low, high in ranges)

    def _finish(self, rows: NDArray[Any], again: Again) -> list[int]:
        """As `_resolve_row`, of rows that ascend and give nothing back: neighbours as one range."""
        group_id, topic_queue, *_ = rows[0].tolist()
        if not self._is_subscribed(group_id, topic_queue):
            return [0] * len(rows)
        self._give_back(again)
        queue = self.views.queues.get(topic_queue)
        start, limit = queue.start_position, queue.end_position
        first = np.minimum(rows["first_position"], np.uint64(limit)).astype(np.int64)
        end = first + rows["count"]
        invariant(
            not self._waiting or int(end[-1]) <= limit,
            "a row reaches for entries that wait for room",
            topic_queue=topic_queue,
        )
        first, end = np.maximum(first, start), np.clip(end, start, limit)
        window = self.views.acks.to_change(group_id, topic_queue)
        floor = window.first_unresolved(start)
        counts: list[int] = window.count_unresolved_each(first, end).tolist()
        cuts = np.flatnonzero(first[1:] > end[:-1]) + 1
        lows, highs = first[np.append(0, cuts)], end[np.append(cuts - 1, -1)]
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            window.resolve(low, high - low)
        self._note_finished(queue, window, floor)
        return counts

    def _note_finished(self, queue: ConsumeQueue, window: AckWindow, floor: int) -> None:
        """Positions are finished. No window is full (`Leases`) that ended so near its `floor`."""
        may_be_full = queue.end_position > floor + WINDOW_POSITIONS // 2
        if window.changes is not None or (
            may_be_full and window.first_unresolved(queue.start_position) > floor
        ):
            self._touched.freed.add(queue.topic_queue)

    def _give_back(self, again: Again) -> None:
        """Retry or bury what rows of one kind resolved: a filter's messages are a row each."""
        if not again.ranges:
            return
        group_id, topic_queue, outcome, retry_due_ms = again.kind
        units = self._read(topic_queue, again.ranges)
        if again.failure_counts:
            add_failures(units, again)
        again.ranges, again.failure_counts = [], {}
        if outcome == Outcome.REDRIVE:
            self._redrive(group_id, units, retry_due_ms, again.store_ms)
            return
        self._retry(group_id, units, retry_due_ms, again.store_ms, dead=outcome in LETTERS)

    def _may_resolve(self, group_id: GroupId, topic_queue: TopicQueue, outcome: int) -> bool:
        """Whether a group reads a queue; of a re-drive, whether its dead letters stand there."""
        if outcome != Outcome.REDRIVE:
            return self._is_subscribed(group_id, topic_queue)
        group = self.views.catalog.find_group_by_id(group_id)
        letters = 0 if group is None else group.dead_letter_topic_id
        return letters > 0 and topic_queue == letters << QUEUE_BITS

    def _is_subscribed(self, group_id: GroupId, topic_queue: TopicQueue) -> bool:
        return self._find_subscription(group_id, topic_queue) is not None

    def _find_subscription(self, group_id: GroupId, topic_queue: TopicQueue) -> Subscription | None:
        """The subscription by which a group reads a queue: its topic's, or its own retries'."""
        catalog, topic_id = self.views.catalog, topic_of(topic_queue)
        retries = catalog.find_subscription_by_retry(topic_id)
        if retries is not None and retries.group_id == group_id:
            return retries
        return catalog.find_subscription(group_id, topic_id)

    def _read(self, topic_queue: TopicQueue, ranges: list[tuple[int, int]]) -> Units:
        """The units of ranges [first, end), in their order."""
        spans = [np.arange(low, high, dtype=np.int64) for low, high in ranges]
        return self.views.queues.get(topic_queue).pick(np.concatenate(spans))

    def _retry(
        self, group_id: GroupId, units: Units, retry_due_ms: int, store_ms: int, *, dead: bool
    ) -> None:
        """Give units back to the group after a while, or to its dead letters."""
        if not len(units):
            return
        views = self.views
        group = views.catalog.find_group_by_id(group_id)
        subscription = self._find_subscription(group_id, TopicQueue(int(units["topic_queue"][0])))
        if group is None or subscription is None:
            return
        attempts = np.maximum(units["attempt"], 1)  # 0: it was moved before its first release
        spent = np.full(len(units), True) if dead else attempts >= group.attempts_max
        if spent.any():
            letters = pick(units, spent)
            letters["topic_queue"] = group.dead_letter_topic_id << 8
            views.counters.dead_lettered += len(letters)
            self._release(letters)
        again = pick(units, ~spent)
        if len(again):
            number = TopicQueue(int(units["topic_queue"][0]))
            again["topic_queue"] = views.retry_queue_of(subscription, number)
            again["attempt"] = attempts[~spent] + 1
            again["due_ms"] = retry_due_ms
            views.counters.redelivered += len(again)
            self._schedule(again, store_ms)

    def _redrive(self, group_id: GroupId, units: Units, due_ms: int, store_ms: int) -> None:
        """Give dead letters to their group again, each as a retry of the topic it came from.

        What the group does not read any more is its dead letter again, behind the others.
        """
        if not len(units):
            return
        catalog, origins = self.views.catalog, units["origin_topic"]
        targets = units["topic_queue"].copy()
        for topic_id in sorted_unique(origins).tolist():
            subscription = catalog.find_subscription(group_id, topic_id)
            if subscription is not None:
                targets[origins == topic_id] = subscription.retry_topic_id << QUEUE_BITS
        is_left = targets == units["topic_queue"]
        if is_left.any():
            self._release(pick(units, is_left))
        again = pick(units, ~is_left)
        if len(again):
            again["topic_queue"] = targets[~is_left]
            again["attempt"] = REDRIVEN_ATTEMPT
            again["due_ms"] = due_ms
            self.views.counters.redelivered += len(again)
            self._schedule(again, store_ms)

    # -- configuration and clean-up -----------------------------------------------------------

    def _configure(self, batch: RecordBatch) -> bool:
        """Whether the change took effect."""
        change = ConfigChange.FromString(bytes(batch.blobs))
        views = self.views
        doomed = map(views.catalog.find_topic_by_id, views.catalog.topics_deleted_by(change))
        deleted = [topic for topic in doomed if topic is not None]
        done = views.catalog.apply(change)
        if done:
            for topic in deleted:
                views.drop_topic(topic)
            if change.HasField("delete_group_id"):
                views.acks.drop_group(GroupId(change.delete_group_id))
            if change.HasField("reset_subscription"):
                self._touched.freed.update(views.begin_anew(change.reset_subscription))
        return done

    def _trim(self, batch: RecordBatch) -> None:
        """Entries released before an instant leave the queues, read or not.

        It is the record's for most topics; from `RETENTION_LEVEL` on one that has a retention of
        its own goes by that, counted back from when the record was stored.
        """
        views = self.views
        retain_from_ms = int(batch.rows[0]["retain_from_ms"])
        retain_from = views.retain_from(retain_from_ms, batch.header.store_ms)
        for topic_queue in views.queues.trimmable(retain_from):
            queue = views.queues.get(topic_queue)
            position = queue.trim_position_for(retain_from.of(topic_queue))
            if position > queue.start_position:
                queue.trim_to(position)
                self._touched.freed.add(queue.topic_queue)
                self._raise_floors(queue.topic_queue, position)

    def _raise_floors(self, topic_queue: TopicQueue, position: Position) -> None:
        acks = self.views.acks
        for group_id in acks.groups_of(topic_queue):
            window = acks.get(group_id, topic_queue)
            if not window.is_untouched and window.floor < position:
                window = acks.to_change(group_id, topic_queue)
                window.resolve(window.floor, position - window.floor)

    def _trim_sequences(self, batch: RecordBatch) -> None:
        """The floor rises: see `Views.sequence_floor`. What that leaves over goes by and by."""
        views, floor = self.views, SequenceNumber(int(batch.rows[0]["sequence_floor"]))
        invariant(floor <= views.next_sequence, "only what was given is forgotten", floor=floor)
        views.sequence_floor = max(views.sequence_floor, floor)

    def _expire(self, batch: RecordBatch) -> None:
        self.views.producers.expire(int(batch.rows[0]["producer_idle_before_ms"]))

    def _feature_level(self, batch: RecordBatch) -> None:
        level = int(batch.rows[0]["level"])
        check_feature_level(level, offset=batch.header.offset)
        self.views.feature_level = max(self.views.feature_level, level)

    def _epoch_start(self, batch: RecordBatch) -> None:
        header, epochs = batch.header, self.views.epochs
        last = epochs[-1].epoch if epochs else 0
        invariant(header.epoch > last, "epochs only grow", last=last, found=header.epoch)
        epochs.append(
            EpochState(
                epoch=header.epoch,
                start_offset=header.offset,
                start_sequence=self.views.next_sequence,
            )
        )


def _choose_moves(
    moving: NDArray[np.int64], sequences: NDArray[np.uint64], at_once: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of rows that name pending messages: (those that move one, and of each message the last).

    The second by sequence. A row behind one that releases its message comes too late.
    """
    order = moving[np.argsort(sequences[moving], kind="stable")]
    ascending = sequences[order]
    if (ascending[1:] > ascending[:-1]).all():
        return moving, order
    last_of: dict[int, int] = {}
    released: set[int] = set()
    kept: list[int] = []
    for row, sequence in zip(moving.tolist(), sequences[moving].tolist(), strict=True):
        if sequence not in released:
            kept.append(row)
            last_of[sequence] = row
            if at_once[row]:
                released.add(sequence)
    lasts = [row for _, row in sorted(last_of.items())]
    return np.array(kept, np.int64), np.array(lasts, np.int64)


_KINDS = frozenset(Kind)
