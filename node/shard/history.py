"""What became of a message, read from the log: each of its events with its time. Pure.

    PUBLISH --> CANCEL, or a PUBLISH that replaces it
            --> RESCHEDULE, any number of times
            --> DISPATCH, or at once --> entry of a queue --> RESOLVE, for each group
                                              ^                  | retry: waits in the wheel
                                              +---- DISPATCH <---+ dead: an entry of its own,
                                                                   until it is re-driven

The sequence leads to the PUBLISH, its due time to about where it was released, and the queue's
entry is found by when it could be seen. From there on headers are walked, and only records are read
that may name the message. It ends as soon as the views say that nothing more can come: a group that
has not resolved a position has no record about it, unless it is ordered.

What the log does not have: which consumer leased it (leases are in memory), and who cancelled it.
Whether a retry became a dead letter follows from the group's settings as they are now.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from typing import Final, NamedTuple

import numpy as np

from hourwheel.formats.batch_columns import priorities_of
from hourwheel.formats.record_batch import Flag, Header, Kind, Outcome, RecordBatch
from hourwheel.internal.v1.state_pb2 import ConfigChange
from hourwheel.outcomes import EventKind, IfPending
from hourwheel.priorities import NO_PRIORITY
from hourwheel.types import (
    FIRST_OFFSET,
    NO_GROUP,
    NO_TOPIC,
    QUEUE_BITS,
    GroupId,
    Key,
    Offset,
    Position,
    SequenceNumber,
    TopicId,
    TopicQueue,
    topic_of,
    topic_queue,
)
from node.shard.apply import REDRIVEN_ATTEMPT
from node.shard.resolve_pieces import AGAIN, LETTERS
from node.shard.shard import Shard
from node.shard.topic_search import find_publish_header
from storage.log.header_walk import walk_headers
from storage.queues.ack_state import BLOCKED_MS, IN_PLACE
from storage.views.dedup_keys import pack_names
from storage.views.sequence_index import SlotState

LEAD_MS: Final = 10_000
"""A release is in the log no earlier than so long before it is due: the dispatch lead, and what the
clocks of two masters may be apart, are far less."""
CHUNKS_MAX: Final = 64
"""Of a queue that are looked through for one entry: dispatch was late by so many at most."""
PLACES_MAX: Final = 64
"""Deliveries that are followed at one time."""
SEEN_MAX: Final = 1_024
WAITING_MAX: Final = 1_024
"""Units of it in the wheel, which are followed at one time."""
_MERGED: Final = int(Flag.PER_MESSAGE_PRODUCER)
_OCCURRENCES: Final = int(Flag.OCCURRENCES)


class Event(NamedTuple):
    """One event."""

    kind: EventKind
    at_ms: int
    """Cluster clock when its record was appended."""
    group_id: GroupId = NO_GROUP
    attempt: int = 0
    """Of the delivery: 1 for the first."""
    due_ms: int = 0
    topic_id: TopicId = NO_TOPIC
    """Of PUBLISHED: the topic."""
    producer_id: int = 0
    """Of PUBLISHED; 0: unknown."""
    priority: int = 0
    """Of PUBLISHED."""


class Place(NamedTuple):
    """An entry of a queue that has the message."""

    topic_queue: TopicQueue
    position: Position
    attempt: int
    due_ms: int


class Waiting(NamedTuple):
    """A unit of the message in the wheel."""

    group_id: GroupId
    """0: its first release."""
    topic_queue: TopicQueue
    due_ms: int
    attempt: int
    """0: the first release of a message that was moved."""
    since_ms: int
    """When it came into the wheel."""


@dataclass
class Trail:
    """How far a history has been followed: all that a next page needs."""

    sequence: SequenceNumber
    due_ms: int
    """As it was published."""
    store_ms: int
    topic_id: TopicId
    offset: Offset = FIRST_OFFSET
    """Of the next batch to look at."""
    is_complete: bool = True
    """Nothing had to be left out."""
    places: list[Place] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    seen: set[tuple[int, int, int]] = field(default_factory=set)
    """(topic_queue, position, group) that are reported."""
    failures: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The same -> how often an ordered group has given it back, where it keeps its place."""
    name: bytes = b""
    """Its dedup key, as in `storage.views.dedup_keys`; empty: it has none."""


def find_publish(shard: Shard, sequence: SequenceNumber) -> Iterator[RecordBatch | None]:
    """Looks for the batch that published a message: after each step it, or None: not yet.

    It ends without one where the log does not have it any more.
    """
    for header in find_publish_header(shard, sequence):
        yield None if header is None else shard.log.read_batch(header.offset)


def begin(shard: Shard, batch: RecordBatch, sequence: SequenceNumber) -> tuple[Trail, list[Event]]:
    """The trail of a message that `batch` published, and its first events; none: it refused it."""
    header, views = batch.header, shard.views
    at = sequence - header.base_sequence
    due_ms, topic_queue = int(batch.due_ms[at]), TopicQueue(int(batch.topic_queue[at]))
    topic_id = topic_of(topic_queue)
    trail = Trail(
        sequence,
        due_ms,
        header.store_ms,
        topic_id,
        header.end_offset,
        name=_name_at(batch, at),
    )
    numbers = np.array([sequence], np.uint64)
    slot = int(views.sequences.read_many(numbers)[1][0])
    if slot == SlotState.REJECTED:
        return trail, []
    producer = header.producer_id
    if header.flags & (_MERGED | _OCCURRENCES) == _MERGED:
        producer = int(batch.message_producers[0][at])
    elif header.flags & Flag.TRANSACTION:
        producer = 0  # it names the PREPARE
    events = [
        Event(
            EventKind.PUBLISHED,
            header.store_ms,
            NO_GROUP,
            0,
            due_ms,
            topic_id,
            producer_id=producer,
            priority=_priority_at(batch, at),
        )
    ]
    history = History(shard, trail)
    if slot == SlotState.RELEASED_AT_APPLY:
        first = Waiting(NO_GROUP, topic_queue, due_ms, 1, header.store_ms)
        return trail, events + history.enter(first, header.store_ms)
    trail.waiting.append(Waiting(NO_GROUP, topic_queue, due_ms, 1, header.store_ms))
    replaced = history.replaced_by(batch, at + 1)
    if replaced:
        return trail, events + replaced
    if history.was_never_moved():
        trail.offset = max(trail.offset, shard.log.find_offset_before(due_ms - LEAD_MS))
    return trail, events


class History:
    """Follows a trail through the log, batch by batch."""

    def __init__(self, shard: Shard, trail: Trail) -> None:
        """Go on where `trail` is."""
        self._shard, self._views, self.trail = shard, shard.views, trail
        numbers = np.array([trail.sequence], np.uint64)
        self._is_cancelled = bool(self._views.tombstones.contains(numbers)[0])
        self._epoch = int(self._views.epochs_of(numbers)[0])
        self._at, self._dispatch_at = trail.offset, FIRST_OFFSET
        self._is_moved = bool(self._views.moved.find(numbers).are_moved[0])

    def was_never_moved(self) -> bool:
        """Whether it waits, or was released, where it was published to, and was never cancelled."""
        (waiting,) = self.trail.waiting
        if self._is_cancelled or self._is_moved:
            return False
        is_ahead = Key(waiting.due_ms, self.trail.sequence) > self._views.cursor.key
        return is_ahead or self._find_entry(waiting) is not None

    def steps(self) -> Iterator[list[Event]]:
        """Events, a batch of the log at a time; the trail is where it has come to."""
        log, trail = self._shard.log, self.trail
        if not self._may_go_on():
            return
        begin_offset = max(trail.offset, log.start_offset)
        trail.is_complete &= begin_offset == trail.offset
        for header in walk_headers(log, begin_offset, self._views.applied_offset):
            found = self._look_at(header)
            trail.offset = header.end_offset
            yield found
            if found and not self._may_go_on():
                return
        if not self._is_cancelled:
            yield self._release_to(self._views.cursor.key, 0)

    def _may_go_on(self) -> bool:
        """Whether the rest of the log may have a record about the message."""
        trail, views = self.trail, self._views
        too_much = len(trail.places) > PLACES_MAX or len(trail.waiting) > WAITING_MAX
        if too_much or len(trail.seen) + len(trail.failures) > SEEN_MAX:
            trail.is_complete = False
            return False
        cursor = views.cursor.key
        for one in trail.waiting:
            # Where it stands now it may have been moved to before, and away, or once more.
            is_moved = self._is_moved and not one.group_id
            if Key(one.due_ms, trail.sequence) <= cursor or self._is_cancelled or is_moved:
                return True
        return any(self._open_groups(place) for place in trail.places)

    def _open_groups(self, place: Place) -> list[GroupId]:
        """Groups that have resolved an entry, by a record that is not found yet.

        And ordered ones, of which any number of records may tell that they gave it back.
        """
        acks, seen, find = self._views.acks, self.trail.seen, self._views.catalog.find_group_by_id
        return [
            group
            for group in acks.groups_of(place.topic_queue)
            if self._reset_offset(place, group) >= self.trail.offset
            or (
                (*place[:2], group) not in seen
                and (
                    acks.get(group, place.topic_queue).is_resolved(place.position)
                    or ((known := find(group)) is not None and known.is_ordered)
                )
            )
        ]

    def _reset_offset(self, place: Place, group_id: GroupId) -> Offset:
        """Where a group began anew in the topic of an entry the last time; 0: it never did."""
        known = self._views.catalog.find_subscription(group_id, topic_of(place.topic_queue))
        return FIRST_OFFSET if known is None else known.reset.offset

    def _look_at(self, header: Header) -> list[Event]:
        trail, self._at = self.trail, header.offset
        if header.kind == Kind.DISPATCH:
            self._dispatch_at = header.offset
            if trail.waiting:
                return self._dispatched(self._shard.log.read_batch(header.offset))
        cancels = header.kind == Kind.CANCEL or (header.kind == Kind.RECURRENCE and header.count)
        if cancels and self._is_cancelled and trail.waiting:
            rows = self._shard.log.read_batch(header.offset).rows
            is_named = (rows["sequence"] == trail.sequence) & (rows["due_ms"] == trail.due_ms)
            is_named &= rows["epoch"] == self._epoch
            if is_named.any():
                trail.waiting.clear()
                return [Event(EventKind.CANCELLED, header.store_ms)]
        if header.kind == Kind.PUBLISH and header.flags & _DEDUP_KEYS:
            return self.replaced_by(self._shard.log.read_batch(header.offset), 0)
        if header.kind == Kind.RESCHEDULE and any(not one.group_id for one in trail.waiting):
            return self._moved(self._shard.log.read_batch(header.offset))
        if header.kind in {Kind.RESOLVE, Kind.CONFIG} and trail.places:
            is_row = header.kind == Kind.RESOLVE
            tell = self._resolved if is_row else self._configured
            return tell(self._shard.log.read_batch(header.offset))
        return []

    def _configured(self, batch: RecordBatch) -> list[Event]:
        """A group may begin anew in the topic: nothing follows from its earlier events."""
        change, trail = ConfigChange.FromString(bytes(batch.blobs)), self.trail
        reset = change.reset_subscription
        if reset.topic_id != trail.topic_id:
            return []
        former, found = reset.former_retry_topic_id, list[Event]()
        group_id = GroupId(reset.group_id)
        trail.places = [one for one in trail.places if one.topic_queue >> QUEUE_BITS != former]
        trail.waiting = [one for one in trail.waiting if one.topic_queue >> QUEUE_BITS != former]
        positions = dict(zip(reset.topic_queues, reset.positions, strict=False))
        for place in trail.places:
            key = (*place[:2], group_id)
            if place.topic_queue >> QUEUE_BITS != reset.topic_id:
                continue
            if place.position >= positions.get(place.topic_queue, 0):
                trail.seen.discard(key)
                found.append(Event(EventKind.RESET, batch.header.store_ms, group_id))
            elif key not in trail.seen:
                trail.seen.add(key)
                found.append(Event(EventKind.SKIPPED, batch.header.store_ms, group_id))
        return found

    def replaced_by(self, batch: RecordBatch, first: int) -> list[Event]:
        """The event that a message of a batch, from an ordinal on, took the place of this one.

        While this one is pending no other has its dedup key: the first that is stored and has it
        has replaced it.
        """
        trail = self.trail
        is_pending = any(not one.group_id for one in trail.waiting)
        if not trail.name or not self._is_cancelled or not is_pending:
            return []
        if not batch.header.flags & _DEDUP_KEYS:
            return []
        for at in np.flatnonzero(batch.dedup.if_pending == IfPending.REPLACE).tolist():
            if at >= first and _name_at(batch, at) == trail.name:
                numbers = np.array([batch.header.base_sequence + at], np.uint64)
                if int(self._views.sequences.read_many(numbers)[1][0]) != SlotState.REJECTED:
                    trail.waiting.clear()
                    return [Event(EventKind.REPLACED, batch.header.store_ms)]
        return []

    def _moved(self, batch: RecordBatch) -> list[Event]:
        rows, trail, found = batch.rows, self.trail, list[Event]()
        is_named = (rows["sequence"] == trail.sequence) & (rows["due_ms"] == trail.due_ms)
        is_named &= rows["epoch"] == self._epoch
        at_ms = batch.header.store_ms
        for row in rows[is_named]:
            before = next((one for one in trail.waiting if not one.group_id), None)
            if before is None:
                break
            due_ms = max(int(row["new_due_ms"]), at_ms)
            after = before._replace(due_ms=due_ms, attempt=0, since_ms=at_ms)
            trail.waiting.remove(before)
            found.append(Event(EventKind.RESCHEDULED, at_ms, due_ms=due_ms))
            if self._is_due(due_ms, at_ms):
                found += self.enter(after, at_ms)
            else:
                trail.waiting.append(after)
        return found

    def _dispatched(self, batch: RecordBatch) -> list[Event]:
        row = batch.rows[0]
        # What the cursor had passed when it came was released as it came.
        early = self._release_to(Key(int(row["prev_due_ms"]), int(row["prev_sequence"])), 0)
        to = Key(int(row["to_due_ms"]), int(row["to_sequence"]))
        return early + self._release_to(to, batch.header.store_ms)

    def _is_due(self, due_ms: int, at_ms: int) -> bool:
        """Whether what the record that is looked at made due was released with it.

        As timewheel/cursor.py has it: a dispatch is logged ahead of the clock, so what is due
        within its lead has been passed already, and may be acknowledged before the next dispatch.
        """
        if not at_ms < due_ms <= at_ms + LEAD_MS:
            return due_ms <= at_ms
        log = self._shard.log
        if not self._dispatch_at:
            first = max(log.find_offset_before(at_ms - LEAD_MS), log.start_offset)
            for header in walk_headers(log, first, self._at):
                if header.kind == Kind.DISPATCH:
                    self._dispatch_at = header.offset
        if not self._dispatch_at:
            return False
        row = log.read_batch(self._dispatch_at).rows[0]
        to = Key(int(row["to_due_ms"]), int(row["to_sequence"]))
        return Key(due_ms, self.trail.sequence) <= to

    def _release_to(self, key: Key, at_ms: int) -> list[Event]:
        """What waits up to a key was released; `at_ms` 0: as it came."""
        trail, found = self.trail, list[Event]()
        are_due = [Key(one.due_ms, trail.sequence) <= key for one in trail.waiting]
        if any(are_due):
            released = list(compress(trail.waiting, are_due))
            trail.waiting = list(compress(trail.waiting, map(not_, are_due)))
            for one in released:
                # A first release whose record is gone: its time is unknown.
                is_known = one.group_id or not one.attempt
                found += self.enter(one, at_ms or (one.since_ms if is_known else 0))
        return found

    def enter(self, of: Waiting, at_ms: int) -> list[Event]:
        """A unit was released."""
        if not self._follow(of) and of.group_id:
            return []  # it was a dead letter
        return [Event(EventKind.RELEASED, at_ms, of.group_id, max(1, of.attempt), of.due_ms)]

    def _follow(self, of: Waiting) -> bool:
        """Follow a unit's entry; False: it was trimmed, or there is none."""
        position = self._find_entry(of)
        if position is None:
            return False
        self.trail.places.append(Place(of.topic_queue, position, of.attempt, of.due_ms))
        return True

    def _find_entry(self, of: Waiting) -> Position | None:
        start, end = self._views.queues.bounds(of.topic_queue)
        if start == end:
            return None
        queue = self._views.queues.get(of.topic_queue)
        at = queue.first_released_at(max(of.due_ms, self.trail.store_ms))
        for _ in range(CHUNKS_MAX):
            if at >= end:
                return None
            at, position = queue.find_from(at, self.trail.sequence, of.attempt, of.due_ms)
            if position is not None:
                return position
        self.trail.is_complete = False
        return None

    def _resolved(self, batch: RecordBatch) -> list[Event]:
        rows, found = batch.rows, list[Event]()
        for place in list(self.trail.places):
            first = rows["first_position"]
            is_named = (rows["topic_queue"] == place.topic_queue) & (first <= place.position)
            is_named &= place.position - first.astype(np.int64) < rows["count"]
            for row in rows[is_named]:
                group, outcome = GroupId(int(row["group_id"])), int(row["outcome"])
                if (*place[:2], group) in self.trail.seen:
                    continue
                if outcome in IN_PLACE:
                    found += self._in_place(place, row, group, outcome, batch.header.store_ms)
                elif self._counts(place, group):
                    self.trail.seen.add((*place[:2], group))
                    found += self._outcome(place, row, group, outcome, batch.header.store_ms)
        return found

    def _in_place(
        self, place: Place, row: np.void, group_id: GroupId, outcome: int, at_ms: int
    ) -> list[Event]:
        """It failed once more, or what failed is forgotten; nothing, where nothing had failed."""
        failures, key = self.trail.failures, (*place[:2], group_id)
        count, until_ms = failures.get(key, 0), int(row["retry_due_ms"])
        if outcome == Outcome.HELD:
            failures[key] = count + 1
        elif failures.pop(key, None) is None:
            return []
        event = Event(KINDS[outcome], at_ms, group_id, max(1, place.attempt) + count)
        return [event._replace(due_ms=until_ms if until_ms < BLOCKED_MS else 0)]

    def _counts(self, place: Place, group_id: GroupId) -> bool:
        """Whether a row had an effect: unless the group has not resolved the entry to this day."""
        if self._views.catalog.find_group_by_id(group_id) is None:
            return True
        if self._reset_offset(place, group_id) > self.trail.offset:
            return True  # what came before it does not show in the window
        return self._views.acks.get(group_id, place.topic_queue).is_resolved(place.position)

    def _outcome(
        self, place: Place, row: np.void, group_id: GroupId, outcome: int, at_ms: int
    ) -> list[Event]:
        tried = max(1, place.attempt)
        failure_count = self.trail.failures.pop((*place[:2], group_id), 0)
        event = Event(KINDS[outcome], at_ms, group_id, tried + failure_count)
        if outcome not in AGAIN:
            return [event]
        catalog = self._views.catalog
        group = catalog.find_group_by_id(group_id)
        reads = catalog.find_subscription(group_id, self.trail.topic_id)
        if group is None or reads is None or reads.reset.offset > self.trail.offset:
            self.trail.is_complete = False  # deleted since: where it was put is unknown
            return [event]
        is_spent = outcome == Outcome.RETRY and tried >= group.attempts_max
        if outcome in LETTERS or is_spent:
            letters, attempt = topic_queue(group.dead_letter_topic_id, 0), place.attempt
            if failure_count and outcome in LETTERS:  # the last one is that of which it died
                attempt = tried + failure_count - 1
                event = event._replace(attempt=attempt)
            self._follow(Waiting(group_id, letters, place.due_ms, attempt, at_ms))
            first = [event] if outcome == Outcome.EXPIRED_LETTER else []
            return [*first, event._replace(kind=EventKind.DEAD)]
        attempt = REDRIVEN_ATTEMPT if outcome == Outcome.REDRIVE else tried + 1
        due_ms, queue = int(row["retry_due_ms"]), topic_queue(reads.retry_topic_id, 0)
        if outcome != Outcome.REDRIVE:
            queue = self._views.retry_queue_of(reads, place.topic_queue)
        event = event._replace(due_ms=due_ms)
        again = Waiting(group_id, queue, due_ms, attempt, at_ms)
        if self._is_due(due_ms, at_ms):
            return [event, *self.enter(again, at_ms)]
        self.trail.waiting.append(again)
        return [event]


def _name_at(batch: RecordBatch, at: int) -> bytes:
    """The dedup key of a message of a batch; empty: it has none."""
    if not batch.header.flags & _DEDUP_KEYS or not batch.dedup.if_pending[at]:
        return b""
    keys, one = batch.dedup, slice(at, at + 1)
    return pack_names(batch.topic_queue[one] >> QUEUE_BITS, keys.high[one], keys.low[one])[0]


def _priority_at(batch: RecordBatch, at: int) -> int:
    """The priority of a message of a batch, as it says it."""
    if not batch.header.flags & Flag.PRIORITY:
        return NO_PRIORITY
    return int(priorities_of(batch.blobs, batch.meta_len, batch.body_len)[at])


_DEDUP_KEYS: Final = int(Flag.DEDUP_KEYS)
KINDS: Final[dict[int, EventKind]] = {
    Outcome.ACK: EventKind.ACKED,
    Outcome.RETRY: EventKind.RETRIED,
    Outcome.DEAD: EventKind.DEAD,
    Outcome.FILTERED: EventKind.FILTERED,
    Outcome.REDRIVE: EventKind.REDRIVEN,
    Outcome.SKIPPED: EventKind.SKIPPED,
    Outcome.HELD: EventKind.HELD,
    Outcome.FREED: EventKind.FREED,
    Outcome.EXPIRED: EventKind.EXPIRED,
    Outcome.EXPIRED_LETTER: EventKind.EXPIRED,
}
