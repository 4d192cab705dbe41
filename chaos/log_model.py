"""What a shard's log means, by a naive model: a dict for the messages, a list a queue, no files.

A second reading of the log beside node/shard/apply.py, written from docs/ARCHITECTURE.md and the
record batch's format, one message at a time. What it says is what the views must hold and what
callers must have got.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from chaos.log_parts.deals import Deals
from chaos.log_parts.entries import IN_PLACE, Entry, Log, Sent, hold, letters_left, place_of
from chaos.log_parts.expiry import LETTERS, Expiries, expiry_fault
from chaos.log_parts.order import Turns, is_wanted, metas_at
from chaos.log_parts.owners import Owners
from chaos.log_parts.priority import Priorities
from chaos.log_parts.requests import requests_of
from chaos.log_parts.resets import Resets
from chaos.log_parts.retention import Retentions, is_rejected, trimmed
from chaos.log_parts.unique_keys import UniqueKeys
from chaos.recurring.model import RecurrenceModel
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.formats.record_batch import Flag, Kind, Outcome, RecordBatch
from hourwheel.internal.v1.state_pb2 import (
    ConfigChange,
    GroupConfig,
    RecurrenceChange,
    Subscription,
    TopicConfig,
)
from hourwheel.outcomes import CancelOutcome, RescheduleOutcome


@dataclass
class LogModel:
    """See the top of this file. Equal models have read equal logs, as far as anyone can see."""

    chunk_entries: int = 16_384
    """Entries of a file of a queue: trimming goes by whole files."""
    offset: int = 0
    """Read up to here."""
    next_sequence: int = 0
    cursor: tuple[int, int] = (-1, 0)
    messages: dict[int, int] = field(default_factory=dict)
    """Sequence -> due_ms of each accepted message."""
    released: set[int] = field(default_factory=set)
    """Sequences that were released for the first time."""
    cancelled: set[int] = field(default_factory=set)
    discarded: set[int] = field(default_factory=set)
    """Sequences whose topic was deleted when they fell due."""
    discarded_count: int = 0
    """Those, and retries to which the same happened."""
    waiting: dict[tuple[int, int], Entry] = field(default_factory=dict)
    """(sequence, queue of a retry or 0) -> what is in the wheel, cancelled ones not."""
    queues: dict[int, list[Entry]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """topic_queue -> first position that is not trimmed."""
    resolved: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """(group, topic_queue) -> positions."""
    held: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    """(group, topic_queue, position) -> (how often it failed there, until when it waits)."""
    done: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """Group -> (topic_queue, position) of what it acknowledged while that counted."""
    passed: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """Group -> (topic_queue, position) of what its filter passed over."""
    redriven: set[tuple[int, int]] = field(default_factory=set)
    """(topic_queue, position) of dead letters that their groups were given again."""
    metas: dict[int, bytes] = field(default_factory=dict)
    """Sequence -> encoded metadata of each message that has any."""
    origins: dict[int, int] = field(default_factory=dict)
    """Sequence -> number of the topic that the message was published to."""
    producers: dict[int, deque[Sent]] = field(default_factory=dict)
    topics: dict[int, str] = field(default_factory=dict)
    """Id -> name, of those that are there."""
    deleted: dict[int, str] = field(default_factory=dict)
    """Id -> name of topics that are there no longer."""
    dead_lettered: dict[int, list[int]] = field(default_factory=dict)
    """Group -> sequences of dead letters that went with their topic."""
    owners: Owners = field(default_factory=Owners)
    groups: dict[int, GroupConfig] = field(default_factory=dict)
    gone_groups: set[int] = field(default_factory=set)
    """Ids of groups that were deleted."""
    subscriptions: list[Subscription] = field(default_factory=list)
    filters: dict[tuple[int, int], list[FilterExpression]] = field(default_factory=dict)
    """(group, topic) -> what the group wanted of the topic, one after the other."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(first sequence, epoch)."""
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence -> (when it is due now, the latest due time that it ever had)."""
    leaving: set[int] = field(default_factory=set)
    """Sequences of what was released or thrown away by the record that moved it."""
    deals: Deals = field(default_factory=Deals)
    """Transactions."""
    recurring: RecurrenceModel = field(default_factory=RecurrenceModel)
    unique: UniqueKeys = field(default_factory=UniqueKeys)
    expiries: Expiries = field(default_factory=Expiries)
    retentions: Retentions = field(default_factory=Retentions)
    priorities: Priorities = field(default_factory=Priorities)
    sequence_floor: int = 0
    """Of messages below it only those are known that are not past."""
    results: dict[int, Any] = field(default_factory=dict)
    """Offset of a record -> what its proposer must get."""
    turns: Turns = field(default_factory=Turns, compare=False)
    resets: Resets = field(default_factory=Resets)
    _wheel: list[Entry] = field(default_factory=list, compare=False)
    """A heap of what is waiting, and of what no longer is."""

    @property
    def pending(self) -> list[Entry]:
        """In the wheel, retries included, cancelled ones not; sorted."""
        return sorted(self.waiting.values())

    def follow(self, log: Log, to: int) -> None:
        """Read on up to an offset."""
        for batch in log.scan(self.offset, to):
            self.read(batch)

    def read(self, batch: RecordBatch) -> None:
        """Read the next record."""
        header = batch.header
        assert header.offset == self.offset
        handlers: dict[int, Callable[[RecordBatch], Any]] = {
            Kind.PUBLISH: self._publish,
            Kind.DISPATCH: self._dispatch,
            Kind.CANCEL: self._cancel,
            Kind.RESCHEDULE: self._reschedule,
            Kind.RESOLVE: self._resolve,
            Kind.CONFIG: self._configure,
            Kind.TRIM: self._trim,
            Kind.EXPIRE: self._expire,
            Kind.EPOCH_START: self._epoch_start,
            Kind.FEATURE_LEVEL: self.unique.raise_level,
            Kind.TRIM_SEQUENCES: self._trim_sequences,
            Kind.PREPARE: self.deals.prepare,
            Kind.TRANSACT: self.deals.transact,
            Kind.RECURRENCE: self._recur,
        }
        self.results[header.offset] = handlers[header.kind](batch)
        self.offset += header.total_bytes

    # -- publish ----------------------------------------------------------------------------------

    def _publish(self, batch: RecordBatch) -> list[tuple[str, int, int]]:
        """(what, base sequence, count) of each request in the batch."""
        header = batch.header
        assert header.base_sequence == self.next_sequence
        results = []
        answers = self.unique.answers[header.offset] = {}
        for at, end, producer, first in requests_of(batch):
            own = header.base_sequence + at
            result: tuple[str, int, int] = ("unknown topic", 0, 0)
            if header.flags & Flag.TRANSACTION:
                result = self.deals.commit(batch, self.topics)
            elif int(batch.topic_queue[at]) >> 8 not in self.topics:
                pass
            elif header.flags & Flag.OCCURRENCES:
                is_next = self.recurring.take(producer, first, int(batch.due_ms[at]), own)
                result = ("new", own, 1) if is_next else ("out of order", 0, 0)
            else:
                result = self._deduplicate(producer, first, end - at, own, header.store_ms)
            results.append(result)
            if result[0] == "new":
                for ordinal in range(at, end):
                    if self.unique.stores(batch, ordinal, self.waiting, self.cancelled):
                        self._accept(batch, ordinal)
            answers |= self.unique.answers_from(*result[1:], at=at)
        self.next_sequence += header.count
        return results

    def _deduplicate(
        self, producer: int, first: int, count: int, own: int, store_ms: int
    ) -> tuple[str, int, int]:
        sent = self.producers.get(producer)
        if producer and sent is None and first:
            return "unknown producer", 0, 0
        if producer and sent is not None and first != sent[-1].end:
            for one in sent:
                if one.first <= first and first + count <= one.end:
                    return "duplicate", one.base_sequence + first - one.first, count
            return "out of order", 0, 0
        if producer:
            memory = self.producers.setdefault(producer, deque(maxlen=5))
            memory.append(Sent(first, count, own, store_ms))
        return "new", own, count

    def _accept(self, batch: RecordBatch, ordinal: int) -> None:
        sequence = batch.header.base_sequence + ordinal
        due_ms = int(batch.due_ms[ordinal])
        self.messages[sequence] = due_ms
        self.origins[sequence] = int(batch.topic_queue[ordinal]) >> 8
        meta_len = int(batch.meta_len[ordinal])
        if meta_len:
            sizes = batch.meta_len[:ordinal].sum() + batch.body_len[:ordinal].sum()
            self.metas[sequence] = bytes(batch.blobs[int(sizes) :][:meta_len])
        store_ms, queue = batch.header.store_ms, int(batch.topic_queue[ordinal])
        self.priorities.check(queue, self.metas.get(sequence, b""), sequence)
        self._schedule(Entry(due_ms, sequence, 1, queue, store_ms), store_ms)

    def _schedule(self, entry: Entry, store_ms: int) -> None:
        if entry.due_ms <= store_ms or entry[:2] <= self.cursor:
            self._release(entry)
        else:
            self.waiting[place_of(entry)] = entry
            heapq.heappush(self._wheel, entry)

    def _release(self, entry: Entry) -> None:
        if entry.attempt == 1:
            assert entry.sequence not in self.released, "released twice"
            self.released.add(entry.sequence)
        self.queues.setdefault(entry.topic_queue, []).append(entry)

    # -- dispatch, cancel, resolve ----------------------------------------------------------------

    def _dispatch(self, batch: RecordBatch) -> int:
        row = batch.rows[0]
        to = (int(row["to_due_ms"]), int(row["to_sequence"]))
        assert self.cursor == (int(row["prev_due_ms"]), int(row["prev_sequence"]))
        assert to > self.cursor
        self.cursor = to
        count = 0
        while self._wheel and self._wheel[0][:2] <= to:
            entry = heapq.heappop(self._wheel)
            place = place_of(entry)
            if self.waiting.get(place) != entry:
                continue  # cancelled, moved, or moved away and back
            del self.waiting[place]
            count += self._release_or_discard(entry)
        return count

    def _release_or_discard(self, entry: Entry) -> bool:
        if entry.topic_queue >> 8 in self.topics:
            self._release(entry)
            return True
        self.discarded_count += 1
        if entry.attempt == 1:
            self.discarded.add(entry.sequence)
        return False

    def _cancel(self, batch: RecordBatch) -> list[int]:
        outcomes: list[int] = []
        for row in batch.rows:
            sequence, outcome = int(row["sequence"]), self._too_late(row)
            if outcome is None:
                outcome = CancelOutcome.CANCELLED
                self.cancelled.add(sequence)
                self.waiting.pop((sequence, 0), None)  # cancelled twice: the same answer
            outcomes.append(outcome)
        return outcomes

    def _recur(self, batch: RecordBatch) -> bool:
        waiting = {sequence for sequence, queue in self.waiting if not queue}
        self._cancel(batch)
        gone = waiting - {sequence for sequence, queue in self.waiting if not queue}
        change, header = RecurrenceChange.FromString(bytes(batch.blobs)), batch.header
        return self.recurring.change(change, header.offset, header.store_ms, gone)

    def _too_late(self, row: Any) -> CancelOutcome | None:
        """Why nothing can be done to the message that a row names; None: it is not released."""
        sequence, due_ms = int(row["sequence"]), int(row["due_ms"])
        is_right = self.messages.get(sequence) == due_ms
        is_right &= self.epoch_of(sequence) == int(row["epoch"])
        is_known = is_right and self.is_known(sequence)
        if sequence < self.sequence_floor and row["epoch"] and not is_known:
            return CancelOutcome.EXPIRED
        if not is_right:
            return CancelOutcome.UNKNOWN
        if sequence in self.released or sequence in self.discarded:
            return CancelOutcome.ALREADY_RELEASED
        return None

    def _reschedule(self, batch: RecordBatch) -> list[tuple[int, int]]:
        """(outcome, new due time or 0) of each row."""
        results: list[tuple[int, int]] = []
        leaving: dict[int, Entry] = {}
        store_ms = batch.header.store_ms
        for row in batch.rows:
            sequence, late = int(row["sequence"]), self._too_late(row)
            if late is not None:
                results.append((RescheduleOutcome[late.name], 0))
            elif sequence in self.cancelled:
                results.append((RescheduleOutcome.CANCELLED, 0))
            elif sequence in leaving:
                results.append((RescheduleOutcome.ALREADY_RELEASED, 0))
            else:
                due_ms = max(int(row["new_due_ms"]), store_ms)
                results.append((RescheduleOutcome.RESCHEDULED, due_ms))
                entry = self.waiting.pop((sequence, 0))._replace(due_ms=due_ms)
                _, last_ms = self.moved.get(sequence, (0, self.messages[sequence]))
                self.moved[sequence] = due_ms, max(last_ms, due_ms)
                if due_ms <= store_ms or entry[:2] <= self.cursor:
                    leaving[sequence] = entry
                else:
                    self._schedule(entry, store_ms)
        for sequence, entry in sorted(leaving.items()):
            self.leaving.add(sequence)
            self._release_or_discard(entry)
        return results

    def is_known(self, sequence: int) -> bool:
        """Whether a message is young enough, or not yet past: else it may be forgotten."""
        if sequence in self.moved:
            is_past = (self.moved[sequence][1], sequence) <= self.cursor
            return sequence >= self.sequence_floor or not is_past
        is_past = sequence in self.released or sequence in self.discarded
        is_past |= (self.messages[sequence], sequence) <= self.cursor
        return sequence >= self.sequence_floor or not is_past

    def _trim_sequences(self, batch: RecordBatch) -> None:
        self.sequence_floor = max(self.sequence_floor, int(batch.rows[0]["sequence_floor"]))

    def epoch_of(self, sequence: int) -> int:
        """The epoch in which a sequence was given."""
        return max([0, *(epoch for first, epoch in self.epochs if first <= sequence)])

    def _resolve(self, batch: RecordBatch) -> list[int]:
        counts = []
        for group, queue, first, count, outcome, retry_due_ms in batch.rows.tolist():
            counts.append(0)
            if outcome == Outcome.REDRIVE:
                named = (group, queue, first, first + count)
                counts[-1] = self._redrive(named, retry_due_ms, batch.header.store_ms)
                continue
            subscription = self._subscription(group, queue >> 8)
            if subscription is None:
                continue
            entries = self.queues.get(queue, [])
            if outcome in IN_PLACE:
                low, high = max(first, self.starts.get(queue, 0)), min(first + count, len(entries))
                left = set(range(low, high)) - self.resolved.get((group, queue), set())
                if outcome == Outcome.HELD:
                    self._check_turns(subscription, queue, sorted(left))
                counts[-1] = hold(self.held, (group, queue), left, outcome, retry_due_ms)
                continue
            fresh = self._take(group, queue, first, first + count)
            counts[-1] = len(fresh)
            held = {at: self.held.pop((group, queue, at), (0, 0)) for at in fresh}
            for at in fresh:
                self.see_resolved(subscription, outcome, (queue, at), batch.header.store_ms)
            if outcome in {Outcome.ACK, Outcome.DEAD}:
                self._check_turns(subscription, queue, fresh)
            if outcome in {Outcome.ACK, Outcome.SKIPPED, Outcome.EXPIRED}:
                places = self.done if outcome == Outcome.ACK else self.passed
                places.setdefault(group, set()).update((queue, at) for at in fresh)
                continue
            if outcome == Outcome.FILTERED:
                self._resolve_filtered(subscription, queue, fresh)
                continue
            for at in fresh:
                dead, entry = outcome in LETTERS, entries[at]
                if dead and held[at][0]:
                    entry = entry._replace(attempt=max(1, entry.attempt) + held[at][0] - 1)
                self._retry(subscription, entry, retry_due_ms, batch.header.store_ms, is_dead=dead)
        return counts

    def see_resolved(
        self, reads: Subscription, outcome: int, place: tuple[int, int], store_ms: int
    ) -> None:
        """A group is done with what is at (queue, position), or with an attempt at it."""
        entry, topic = self.queues[place[0]][place[1]], self.topics[reads.topic_id]
        fault = expiry_fault(outcome, topic, entry, self.metas.get(entry.sequence, b""), store_ms)
        self.expiries.see(reads.group_id, outcome, entry, store_ms, fault)

    def _check_turns(self, subscription: Subscription, queue: int, ended: list[int]) -> None:
        """An ordered group ends, or gives back, nothing behind an unfinished one of its key."""
        group, topic = subscription.group_id, subscription.topic_id
        if not self.groups[group].order or queue >> 8 != topic:
            return  # a dead letter that was given again has no place
        entries, place = self.queues.get(queue, []), (group, queue)
        done, start = self.resolved.get(place, set()), self.starts.get(queue, 0)
        meta_at = metas_at(self.metas, entries)
        filters = self.filters.get((group, topic), ())
        for at, before in self.turns.overtaken(place, ended, done, start, meta_at, filters):
            self.overtakes(entries[at].sequence, at, entries[before].sequence)

    def overtakes(self, sequence: int, position: int, before: int) -> None:
        """A message of an ordered group was done with before an earlier one of its key."""
        raise AssertionError(f"{sequence} at {position} overtakes {before}")

    def _take(self, group: int, queue: int, first: int, end: int) -> list[int]:
        """Resolve what is there and not resolved yet; which positions these are."""
        resolved = self.resolved.setdefault((group, queue), set())
        low, high = self.starts.get(queue, 0), len(self.queues.get(queue, []))
        span = range(max(first, low), min(end, high))
        fresh = [at for at in span if at not in resolved]
        resolved.update(fresh)
        return fresh

    def owns_letters(self, group_id: int, queue: int) -> bool:
        """Whether the dead letters of a group stand in a queue."""
        group = self.groups.get(group_id)
        letters = 0 if group is None else group.dead_letter_topic_id
        return letters > 0 and queue == letters << 8

    def _redrive(self, places: tuple[int, int, int, int], due_ms: int, store_ms: int) -> int:
        """How many dead letters at (group, queue, first, end) leave it, or its front."""
        group, queue, *_ = places
        if not self.owns_letters(group, queue):
            return 0
        fresh = self._take(*places)
        self.redriven.update((queue, at) for at in fresh)
        for at in fresh:
            entry = self.queues[queue][at]
            topic = self.origins[entry.sequence]
            found = [one for one in self.subscriptions if one.group_id == group]
            own = next((one for one in found if one.topic_id == topic), None)
            if own is None:  # no consumer would get it: a dead letter again
                self.queues[queue].append(entry)
            else:
                retries = own.retry_topic_id << 8
                again = Entry(due_ms, entry.sequence, 2, retries, entry.store_ms)
                self._schedule(again, store_ms)
        return len(fresh)

    def _resolve_filtered(self, subscription: Subscription, queue: int, fresh: list[int]) -> None:
        group, topic = subscription.group_id, subscription.topic_id
        self.passed.setdefault(group, set()).update((queue, at) for at in fresh)
        assert queue >> 8 == topic or not fresh, "a retry is passed over"
        for at in fresh:
            sequence = self.queues[queue][at].sequence
            assert not self.is_wanted(group, topic, sequence), "a message that matches is lost"

    def is_wanted(self, group: int, topic: int, sequence: int) -> bool:
        """Whether a message matches all that the group ever wanted of the topic."""
        return is_wanted(self.metas.get(sequence, b""), self.filters.get((group, topic), ()))

    def _subscription(self, group: int, topic: int) -> Subscription | None:
        for one in self.subscriptions:
            if one.group_id == group and topic in {one.topic_id, one.retry_topic_id}:
                return one
        return None

    def _retry(
        self, subscription: Subscription, entry: Entry, due_ms: int, store_ms: int, *, is_dead: bool
    ) -> None:
        group = self.groups[subscription.group_id]
        if is_dead or entry.attempt >= group.attempts_max:
            letters = group.dead_letter_topic_id << 8
            self.queues.setdefault(letters, []).append(entry._replace(topic_queue=letters))
            if not letters:  # no group can read them
                self.dead_lettered.setdefault(group.group_id, []).append(entry.sequence)
            return
        retries = self.priorities.retries(subscription.retry_topic_id, entry.topic_queue)
        again = Entry(due_ms, entry.sequence, entry.attempt + 1, retries, entry.store_ms)
        self._schedule(again, store_ms)

    # -- the rest ---------------------------------------------------------------------------------

    def _configure(self, batch: RecordBatch) -> bool:
        change = ConfigChange.FromString(bytes(batch.blobs))
        if not self.owners.may_change(self.topics, change):
            return False
        reset = partial(self.resets.begin_anew, self, self._delete_topic, self._letters_of)
        handlers: dict[str, Callable[[Any], bool]] = {
            "put_topic": self._put_topic,
            "put_group": self._put_group,
            "put_subscription": self._subscribe,
            "delete_topic_id": self._delete_topic,
            "delete_group_id": self._delete_group,
            "reset_subscription": reset,
            "adopt_control_state": bool,
        }
        what = change.WhichOneof("change") or "nothing"
        done = handlers[what](getattr(change, what))
        return self.owners.note(change.control_revision, is_done=done)

    def _put_topic(self, config: TopicConfig) -> bool:
        """Void: another topic has the name, the number was passed by, or `is_rejected`."""
        number, name = config.topic_id, config.name
        if self.topics.get(number, name) != name or is_rejected(config):
            return False
        may_take = self.owners.take
        if number not in self.topics and not may_take(number, name, self.topics, self.deleted):
            return False
        self.topics[number] = name
        self.retentions.note(config)
        self.priorities.note(config)
        return True

    def _put_group(self, group: GroupConfig) -> bool:
        """Void: the same of groups; or its topic for dead letters is not there."""
        number, letters = group.group_id, group.dead_letter_topic_id
        if letters and self.topics.get(letters) != f"%DLQ%{group.name}":
            return False
        if self.groups.get(number, group).name != group.name:
            return False
        is_late = number <= max([0, *self.groups, *self.gone_groups])
        names = {one.name for one in self.groups.values()}
        if number not in self.groups and (is_late or group.name in names):
            return False
        self.groups[number] = group
        return True

    def _delete_topic(self, number: int) -> bool:
        if number not in self.topics:
            return False
        for one in [one for one in self.subscriptions if one.topic_id == number]:
            self._unsubscribe(one)
        self.subscriptions = [one for one in self.subscriptions if one.retry_topic_id != number]
        self._drop_topic(number)
        return True

    def _delete_group(self, number: int) -> bool:
        """Its dead letters stay."""
        if self.groups.pop(number, None) is None:
            return False
        self.gone_groups.add(number)
        for one in [one for one in self.subscriptions if one.group_id == number]:
            self._unsubscribe(one)
        self.resolved = {key: at for key, at in self.resolved.items() if key[0] != number}
        self.held = {key: one for key, one in self.held.items() if key[0] != number}
        return True

    def _unsubscribe(self, subscription: Subscription) -> None:
        """A subscription goes, and its retries with it, and who receives these."""
        self.subscriptions.remove(subscription)
        if subscription.retry_topic_id in self.topics:
            self._delete_topic(subscription.retry_topic_id)

    def _drop_topic(self, number: int) -> None:
        """Its queues go, and what was resolved of them; what waits stays until it falls due."""
        self.deleted[number] = self.topics.pop(number)
        for group in self.groups.values():
            if group.dead_letter_topic_id == number:
                lost = letters_left(self.queues, self.redriven, number << 8)
                self.dead_lettered.setdefault(group.group_id, []).extend(lost)
                group.dead_letter_topic_id = 0
        self.queues = {key: one for key, one in self.queues.items() if key >> 8 != number}
        self.starts = {key: one for key, one in self.starts.items() if key >> 8 != number}
        self.resolved = {key: at for key, at in self.resolved.items() if key[1] >> 8 != number}
        self.held = {key: one for key, one in self.held.items() if key[1] >> 8 != number}
        for places in (self.done, self.passed):
            for group_id, every in places.items():
                places[group_id] = {one for one in every if one[0] >> 8 != number}

    def _subscribe(self, subscription: Subscription) -> bool:
        """Void: something of it is not there."""
        named = {subscription.topic_id, subscription.retry_topic_id}
        if subscription.group_id not in self.groups or not named <= self.topics.keys():
            return False
        key = subscription.group_id, subscription.topic_id
        others = [one for one in self.subscriptions if (one.group_id, one.topic_id) != key]
        self.subscriptions = [*others, subscription]
        self.filters.setdefault(key, []).append(filter_from_wire(subscription.filter))
        return True

    def _trim(self, batch: RecordBatch) -> None:
        known = batch, self.subscriptions, self.unique.level
        for queue, entries in self.queues.items():
            start, from_ms = self.starts.get(queue, 0), self.retentions.from_ms(*known, queue >> 8)
            self.starts[queue] = trimmed(entries, start, from_ms, self.chunk_entries)

    def _expire(self, batch: RecordBatch) -> None:
        idle_before_ms = int(batch.rows[0]["producer_idle_before_ms"])
        known = self.producers.items()
        self.producers = {one: sent for one, sent in known if sent[-1].store_ms >= idle_before_ms}

    def _epoch_start(self, batch: RecordBatch) -> None:
        assert all(epoch < batch.header.epoch for _, epoch in self.epochs)
        self.epochs.append((self.next_sequence, batch.header.epoch))

    def check(self) -> None:
        """I1 and I3: each message is in one place, and so is each group's copy of it."""
        waiting = {entry.sequence for entry in self.waiting.values() if entry.attempt == 1}
        for sequence in self.messages:
            ends = (self.released, self.cancelled, self.discarded)
            places = (sequence in waiting, *(sequence in end for end in ends))
            assert sum(places) == 1, f"message {sequence} is in places {places}"
        self.unique.check(waiting)
        for subscription in self.subscriptions:
            self._check_group(subscription)

    def _check_group(self, subscription: Subscription) -> None:
        group = self.groups[subscription.group_id]
        own = [queue for queue in self.queues if queue >> 8 == subscription.topic_id]
        retry_topic, waiting = subscription.retry_topic_id, self.waiting.values()
        retries = [queue for queue in self.queues if queue >> 8 == retry_topic]
        places = [one.sequence for one in waiting if one.topic_queue >> 8 == retry_topic]
        places += self._letters_of(group.group_id)
        for queue in (*own, *retries):
            resolved = self.resolved.get((group.group_id, queue), set())
            for position, entry in enumerate(self.queues.get(queue, [])):
                place = queue, position
                is_done = place in self.done.get(group.group_id, set())
                is_done |= place in self.passed.get(group.group_id, set())
                if is_done or position not in resolved:
                    places.append(entry.sequence)
        expected = [entry.sequence for queue in own for entry in self.queues[queue]]
        expected += self.resets.letters.get((group.group_id, subscription.topic_id), [])
        assert sorted(places) == sorted(expected), "a group's message is lost or doubled"

    def _letters_of(self, group_id: int) -> list[int]:
        number = self.groups[group_id].dead_letter_topic_id << 8
        left = letters_left(self.queues, self.redriven, number) if number else []
        return left + self.dead_lettered.get(group_id, [])
