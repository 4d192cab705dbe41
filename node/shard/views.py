"""All views of one shard's log together: what the committed prefix means, at one applied offset."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import invariant
from hourwheel.formats.batch_columns import Requested
from hourwheel.internal.v1.state_pb2 import EpochState, SubscriptionReset
from hourwheel.priorities import has_room, retry_queue
from hourwheel.types import (
    FIRST_OFFSET,
    FIRST_POSITION,
    FIRST_SEQUENCE,
    NO_EPOCH,
    QUEUE_COUNT_MAX,
    Epoch,
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
from storage.queues.ack_state import AckStates
from storage.queues.consume_queues import ConsumeQueues, RetainFrom
from storage.views.catalog import Catalog
from storage.views.catalog_items import Subscription, Topic
from storage.views.dedup_keys import DedupKeys
from storage.views.key_index import KeyIndex
from storage.views.moved import Moved, are_above
from storage.views.producer_state import ProducerStates
from storage.views.recurrences import Recurrences
from storage.views.sequence_index import SequenceIndex, SlotState
from storage.views.tombstones import Tombstones
from storage.views.transactions import Transactions
from storage.views.unit import UNIT, Units, copied, join, pick, sort_by_key
from timewheel.cursor import Cursor
from timewheel.memtable import within
from timewheel.wheel import Wheel

CHECKS_KEPT: Final = 4_096

FEATURE_LEVEL: Final = 14
"""The newest apply semantics that this binary knows. 2: filters (RESOLVE filtered, gene_spec)."""
TRIM_SEQUENCES_LEVEL: Final = 3
"""From this level on there are TRIM_SEQUENCES records."""
REDRIVE_LEVEL: Final = 4
"""From this level on RESOLVE may re-drive and skip."""
RESCHEDULE_LEVEL: Final = 5
"""From this level on there are RESCHEDULE records."""
TRANSACTION_LEVEL: Final = 6
"""From this level on there are transactions: PREPARE, TRANSACT, and PUBLISH with TRANSACTION."""
RECURRENCE_LEVEL: Final = 7
"""From this level on there are RECURRENCE records, and occurrences."""
DEDUP_LEVEL: Final = 8
"""From this level on messages may have dedup keys."""
ORDER_LEVEL: Final = 9
"""From this level on RESOLVE may hold messages in their place: groups may be ordered."""
CONTROL_LEVEL: Final = 10
"""From this level on CONFIG may say that topics and groups come from the control state."""
RETENTION_LEVEL: Final = 11
"""From this level on TRIM goes by the retention that a topic has of its own."""
EXPIRY_LEVEL: Final = 12
"""From this level on messages may expire: PUBLISH with EXPIRY, and RESOLVE expired."""
PRIORITY_LEVEL: Final = 13
"""From this level on messages may have priorities: PUBLISH with PRIORITY, queues of priorities."""
RESET_LEVEL: Final = 14
"""From this level on CONFIG may let a group begin anew in a topic."""
FEATURE_LEVEL_MIN: Final = 2
"""The oldest. Genes of level 1 had other bits: a filter would miss messages. It was never released.
"""


@dataclass
class Counters:
    """What apply counts, replayed with it."""

    pending: int = 0
    """Units in the wheel that are neither released nor cancelled, retries included."""
    cancelled: int = 0
    discarded: int = 0
    """Messages of deleted topics, thrown away when they fell due."""
    redelivered: int = 0
    dead_lettered: int = 0
    """These two since the process began: for metrics only, not part of the state."""


@dataclass
class Views:
    """The views, and where in the log they stand.

    Invariant: a pure function of the log below `applied_offset`; two replicas with one applied
    offset have one digest.
    """

    wheel: Wheel
    cursor: Cursor
    queues: ConsumeQueues
    sequences: SequenceIndex
    tombstones: Tombstones
    moved: Moved
    keys: KeyIndex
    """Nothing is decided by it as records are applied: it is in no digest."""
    dedup_keys: DedupKeys
    acks: AckStates
    producers: ProducerStates
    catalog: Catalog
    transactions: Transactions
    recurrences: Recurrences = field(default_factory=Recurrences)
    expiring_topics: set[TopicId] = field(default_factory=set)
    """Those that messages with an expiry were published to: of others none need be looked at."""
    applied_offset: Offset = FIRST_OFFSET
    is_whole: bool = True
    """No record is half applied: else they are lost, and only the log is left."""
    next_sequence: SequenceNumber = FIRST_SEQUENCE
    sequence_floor: SequenceNumber = FIRST_SEQUENCE
    """Of the messages below it only those count as known that are not yet due (`are_ahead`): what
    else the sequence index and the tombstones have of them is left over. At most `next_sequence`.
    """
    store_ms: int = 0
    """Largest store_ms applied: time as the log knows it."""
    feature_level: int = 0
    epochs: list[EpochState] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    _checks: OrderedDict[Offset, tuple[int, int]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        """Nothing is half applied."""
        self._released = (self.cursor.released_count, self.cursor.released_mix)

    # -- the lagged check of DISPATCH -----------------------------------------------------------

    @property
    def released(self) -> tuple[int, int]:
        """(count, mix) of what was released below `applied_offset`.

        The cursor may be further: it has counted what a record releases before there was room for
        the rest of it, and `applied_offset` is still the old one then.
        """
        return self._released

    def remember_check(self) -> None:
        """Keep what was released as of this applied offset, for DISPATCH records to compare."""
        self._released = (self.cursor.released_count, self.cursor.released_mix)
        self._checks[self.applied_offset] = self._released
        if len(self._checks) > CHECKS_KEPT:
            self._checks.popitem(last=False)

    def find_check(self, offset: Offset) -> tuple[int, int] | None:
        """(count, mix) of what was released below an applied offset, while that is remembered."""
        return self._checks.get(offset)

    def compare_check(self, offset: Offset, count: int, mix: int) -> None:
        """Stop where the master that planned a dispatch had released something else than this.

        Raises:
            ReleaseMismatch: it had.
        """
        mine = self._checks.get(offset)
        if mine is not None and mine != (count, mix):
            raise errors.ReleaseMismatch(
                f"by offset {offset} this node has released {mine[0]} messages (sum {mine[1]}), and"
                f' the dispatch in the log says {count} (sum {mix}): see docs/OPERATING.md, "A node'
                ' that says RELEASE_MISMATCH"',
                offset=offset,
                here=mine,
                master=(count, mix),
            )

    # -- questions --------------------------------------------------------------------------------

    def retain_from(self, retain_from_ms: int, now_ms: int) -> RetainFrom:
        """What a TRIM of this instant lets go of; `retain_from_ms` is that of most topics."""
        if self.feature_level < RETENTION_LEVEL:
            return RetainFrom(retain_from_ms)
        of_topics = self.catalog.retentions_ms.items()
        return RetainFrom(retain_from_ms, {one: now_ms - ms for one, ms in of_topics})

    def queues_of(self, topic: Topic) -> list[TopicQueue]:
        """A topic's queues that messages are released to: its own, then those of priorities.

        Of these the ones that had an entry once, the highest priority first.
        """
        own = [topic_queue(topic.topic_id, number) for number in range(topic.queue_count)]
        return [*own, *self.priority_queues_of(topic)]

    def priority_queues_of(self, topic: Topic) -> list[TopicQueue]:
        """Those of priorities, as `queues_of` has them."""
        found = self.queues.priority_queues_of(topic.topic_id)
        return [TopicQueue(one) for one in found] if found and has_room(topic.queue_count) else []

    def mark_cancelled(self, sequences: NDArray[np.uint64]) -> None:
        """Cancel pending messages: uint64[n], ascending."""
        if len(sequences):
            self.tombstones.add(sequences)
            self.counters.cancelled += len(sequences)
            self.counters.pending -= len(sequences)

    def drop_topic(self, topic: Topic) -> None:
        """What queues and groups have of it goes."""
        is_plain = not self.queues.priority_queues_of(topic.topic_id)
        count = topic.queue_count if is_plain else QUEUE_COUNT_MAX
        self.queues.drop_topic(topic.topic_id, count)
        self.acks.drop_topic(topic.topic_id, count)
        self.expiring_topics.discard(topic.topic_id)

    def begin_anew(self, reset: SubscriptionReset) -> list[TopicQueue]:
        """A group has resolved what stands before a position of each queue of a topic, only.

        Returns the queues.
        """
        topic = self.catalog.find_topic_by_id(TopicId(reset.topic_id))
        queues = [] if topic is None else self.queues_of(topic)
        positions = dict(zip(reset.topic_queues, reset.positions, strict=False))
        for number in queues:
            start, end = self.queues.bounds(number)
            first = min(positions.get(number, 0), end)
            # Not what was trimmed: nothing is resolved where all that is there is delivered.
            at = Position(first) if first > start else FIRST_POSITION
            self.acks.begin_at(GroupId(reset.group_id), number, at)
        return queues

    def retry_queue_of(self, subscription: Subscription, number: TopicQueue) -> TopicQueue:
        """Where a group tries again what it was given from a queue: with the same priority."""
        topic = self.catalog.find_topic_by_id(topic_of(number))
        queue_count = 1 if topic is None else topic.queue_count
        return retry_queue(subscription.retry_topic_id, number, queue_count)

    def epochs_of(self, sequences: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """uint32[n]: epoch in which each sequence was given; 0 before the first epoch."""
        starts = np.array([epoch.start_sequence for epoch in self.epochs], np.uint64)
        numbers = np.array([0, *(epoch.epoch for epoch in self.epochs)], np.uint32)
        return numbers[np.searchsorted(starts, sequences, "right")]

    def find_epoch(self, low: int, high: int) -> Epoch | None:
        """The epoch in which all sequences of [low, high] were given; None: there are several."""
        for epoch in reversed(self.epochs):
            if epoch.start_sequence <= low:
                return Epoch(epoch.epoch)
            if epoch.start_sequence <= high:
                return None
        return NO_EPOCH

    def are_ahead(self, sequences: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """bool[n]: of which an entry was put into the wheel above the cursor, live or not."""
        due, states = self.sequences.read_many(sequences)
        moved = self.moved.find(sequences)
        last = np.where(moved.are_moved, moved.last_due_ms, due)
        found: NDArray[np.bool_] = are_above(sequences, last, self.cursor.key)
        found &= states == SlotState.WHEEL
        return found

    def are_pending(self, sequences: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """bool[n]: of which messages the first release is still to come."""
        due, states = self.sequences.read_many(sequences)
        moved = self.moved.find(sequences)
        current = np.where(moved.are_moved, moved.due_ms, due)
        found: NDArray[np.bool_] = are_above(sequences, current, self.cursor.key)
        found &= (states == SlotState.WHEEL) & ~self.tombstones.contains(sequences)
        return found

    def are_live(self, units: Units) -> NDArray[np.bool_]:
        """bool[n]: which units of the wheel, all above the cursor, are not dead.

        Dead are those of cancelled messages, and first releases of messages that were moved, but
        for those at the current due time: these, but for the first of them among `units`.
        """
        sequences = np.ascontiguousarray(units["sequence"])
        live = ~self.tombstones.contains(sequences)
        if self.moved.count:
            rows = self.moved.find(sequences)
            chosen = np.flatnonzero(rows.are_moved & (units["attempt"] <= 1))
            some = units[chosen]
            stays = (some["attempt"] == 0) & (some["due_ms"] == rows.due_ms[chosen])
            _, firsts = np.unique(some["sequence"][stays], return_index=True)
            live[chosen[~stays]] = False
            doubled = np.ones(int(stays.sum()), np.bool_)
            doubled[firsts] = False
            live[chosen[stays][doubled]] = False
        return live

    def are_known(self, sequences: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """bool[n]: of which it is known what became of them; see `sequence_floor`."""
        known: NDArray[np.bool_] = sequences >= np.uint64(self.sequence_floor)
        if not known.all():
            known[~known] = self.are_ahead(sequences[~known])
        return known

    def pending_units(self) -> Units:
        """Every pending unit in key order: reads all runs. For digests and tests."""
        found = [np.empty(0, UNIT)]
        after = self.cursor.key
        top = Key((1 << 62), 0)
        for run in self.wheel.runs.all():
            found += [
                within(run.read(*run.section(bucket)), after, top) for bucket in run.buckets()
            ]
        tables = [self.wheel.frozen, self.wheel.memtable]
        found += [within(copied(one.units), after, top) for one in tables if one is not None]
        units = sort_by_key(join(found))
        return pick(units, self.are_live(units))

    def digest(self) -> str:
        """Canonical logical digest of everything (I5): physical places are left out."""
        hasher = hashlib.blake2b(digest_size=16)
        units = self.pending_units()
        units = pick(units, np.lexsort((units["topic_queue"], units["sequence"], units["due_ms"])))
        for name in UNIT.names or ():
            if name not in ("position", "dlog_id"):
                hasher.update(np.ascontiguousarray(units[name]).tobytes())
        counters = self.counters
        facts = (
            self.applied_offset,
            self.next_sequence,
            self.sequence_floor,
            self.feature_level,
            *self.cursor.key,
            self.cursor.released_count,
            self.cursor.released_mix,
            self.cursor.local_index,
            counters.pending,
            counters.cancelled,
            counters.discarded,
            *((one.epoch, one.start_offset, one.start_sequence) for one in self.epochs),
            *sorted(self.expiring_topics),
        )
        hasher.update(repr(facts).encode())
        self.queues.digest_into(hasher)
        self.sequences.digest_into(hasher, self.sequence_floor, self.are_ahead)
        self.tombstones.digest_into(hasher, self.are_known)
        self.moved.digest_into(hasher, self.cursor.key)
        self.dedup_keys.digest_into(hasher, self.are_pending)
        for view in (
            *(self.acks, self.producers, self.catalog, self.transactions, self.recurrences),
        ):
            view.digest_into(hasher)
        return hasher.hexdigest()

    def check(self) -> None:
        """Assert the invariants that span views. Reads all runs: for tests and `inspect`."""
        pending = len(self.pending_units())
        invariant(
            pending == self.counters.pending,
            "the wheel holds what is pending",
            counted=self.counters.pending,
            held=pending,
        )
        invariant(self.sequences.count == self.next_sequence, "every sequence is indexed")
        invariant(self.sequence_floor <= self.next_sequence, "what is below the floor was given")


def check_feature_level(level: int, **where: int | str) -> None:
    """Raises IncompatibleFormat for a log, or views of it, of another version. 0: not known yet."""
    if level and not FEATURE_LEVEL_MIN <= level <= FEATURE_LEVEL:
        raise errors.IncompatibleFormat(
            f"the log asks for feature level {level}; this version knows "
            f"{FEATURE_LEVEL_MIN} to {FEATURE_LEVEL}",
            **where,
        )


def check_requested(views: Views, requested: Requested) -> None:
    """Raises FeatureLevelTooLow where messages cannot expire yet, or have no priorities."""
    for is_requested, what, level in (
        (requested.expiry, "messages can expire", EXPIRY_LEVEL),
        (requested.priority, "messages can have priorities", PRIORITY_LEVEL),
    ):
        if is_requested and views.feature_level < level:
            raise errors.FeatureLevelTooLow(
                f"{what} when all nodes are of a version that knows how",
                level=views.feature_level,
                level_min=level,
            )
