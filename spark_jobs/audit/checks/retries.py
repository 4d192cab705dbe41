"""Follow what is tried again: the queues of retries and dead letters, by the log alone.

What a RESOLVE retry schedules depends on the entries it names, and in a retry queue on what was
scheduled before it; so this goes through the RESOLVE rows in the order of the log, one by one. Acks
of a topic's own queues are not among them: only what is tried again costs time here (about 10 us a
retry) and memory (about 300 bytes).
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Outcome
from hourwheel.priorities import retry_queue
from hourwheel.types import QUEUE_BITS, topic_of
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.dispatch import DispatchTable
from spark_jobs.audit.checks.ledger import BY_DISPATCH, NEVER, RELEASE
from spark_jobs.audit.checks.releases import AGAIN, EXPIRED, LETTERS, Slice
from spark_jobs.audit.checks.retention import Trims
from storage.queues.ack_state import AckWindow

Array = NDArray[Any]
_NEVER: Final = int(NEVER)
_BY_DISPATCH: Final = int(BY_DISPATCH)
_REDRIVEN_ATTEMPT: Final = 2


class Unit(NamedTuple):
    """A message that is tried again, or a dead letter."""

    due_ms: int
    sequence: int
    store_ms: int
    facts: int
    origin_topic: int
    attempt: int
    place: int
    """Offset of the log at which the message lies; a delay log may have it by now."""

    @property
    def tried(self) -> int:
        """How often it was released: the first time `attempt` is 0 where it was moved before."""
        return max(1, self.attempt)


class Scheduled(NamedTuple):
    """A retry that went into the wheel."""

    created: int
    """Offset of the RESOLVE record."""
    end: int
    """Offset of the DISPATCH that released or discarded it; `NEVER`: pending."""
    topic_queue: int
    unit: Unit
    is_discarded: bool = False
    """Its topic was deleted before it was due."""


class Dead(NamedTuple):
    """A dead letter."""

    group_id: int
    topic_id: int
    """Whose queue it was given up from."""
    offset: int
    unit: Unit


@dataclass
class DynamicQueue:
    """A queue of retries or dead letters."""

    entries: list[Unit] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Of the record that released each, with `BY_DISPATCH`."""
    waiting: list[tuple[int, int, int, int, Unit]] = field(default_factory=list)
    """A heap: (release offset, due_ms, sequence, serial, unit)."""
    start: int = 0
    """What is below was trimmed."""
    starts: list[tuple[int, int]] = field(default_factory=list)
    """(offset of a TRIM record, `start` behind it), ascending."""

    def release_below(self, offset: int) -> None:
        """Release what DISPATCH records below an offset have released."""
        while self.waiting and self.waiting[0][0] < offset:
            at, _, _, _, unit = heapq.heappop(self.waiting)
            self.entries.append(unit)
            self.offsets.append(at | _BY_DISPATCH)

    def trim(self, offset: int, from_ms: int, chunk_entries: int) -> None:
        """A TRIM record."""
        before = self.start
        self._trim(from_ms, chunk_entries)
        if self.start > before:
            self.starts.append((offset, self.start))

    def _trim(self, from_ms: int, chunk_entries: int) -> None:
        while self.start + chunk_entries <= len(self.entries):
            chunk = self.entries[self.start : self.start + chunk_entries]
            if max(max(one.due_ms, one.store_ms) for one in chunk) >= from_ms:
                return
            self.start += chunk_entries

    def as_slice(self, topic_queue: int) -> Slice:
        """All entries that it ever had."""
        rows = np.zeros(len(self.entries), RELEASE)
        rows["offset"] = np.array(self.offsets, np.uint64)
        for name in ("due_ms", "sequence", "store_ms", "place", "facts"):
            rows[name] = [getattr(one, name) for one in self.entries]
        rows["topic_queue"] = topic_queue
        attempts = np.array([one.attempt for one in self.entries], np.uint32)
        origins = np.array([one.origin_topic for one in self.entries], np.uint32)
        return Slice(topic_queue, 0, rows, attempts, origins)


@dataclass
class Retries:
    """What came of all RESOLVE rows that are no acks, and of acks of retries."""

    queues: dict[int, DynamicQueue] = field(default_factory=dict)
    scheduled: list[Scheduled] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    retried: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(group, topic of the queue) -> retries that took effect."""
    acked: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(group, topic_queue) -> entries of a dynamic queue resolved by acks."""
    filtered: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The same, passed over by the group's filter."""
    windows: dict[tuple[int, int], AckWindow] = field(default_factory=dict)
    """(group, topic_queue) of dynamic queues."""
    filtered_units: list[tuple[int, Unit]] = field(default_factory=list)
    """(index of the RESOLVE row, entry of a dynamic queue) that a filter is said to have left out:
    there are no filters for what is tried again."""
    expired_units: list[tuple[int, int, Unit]] = field(default_factory=list)
    """(index of the RESOLVE row, position, entry) of what is said to have expired, ..."""
    acked_units: list[tuple[int, int, Unit]] = field(default_factory=list)
    """... and of what was acknowledged, dead letters not."""
    undelivered: list[tuple[int, int]] = field(default_factory=list)
    """(index of the RESOLVE row, end of its queue then): it names what was never released."""

    def releases(self) -> tuple[Array, Array]:
        """(uint64[n] offsets, uint64[n] sequences) of all entries of dynamic queues."""
        offsets = [at & ~_BY_DISPATCH for queue in self.queues.values() for at in queue.offsets]
        sequences = [one.sequence for queue in self.queues.values() for one in queue.entries]
        return np.array(offsets, np.uint64), np.array(sequences, np.uint64)


def follow(
    resolves: Array,
    holds: Array,
    named: Array,
    trims: Trims,
    line: Timeline,
    dispatch: DispatchTable,
    end_offset: int,
    chunk_entries: int,
) -> Retries:
    """Follow all retries of a shard.

    Args:
        resolves: `audit_records.RESOLVE`[n], in the order of the log.
        holds: the same of rows that resolve nothing: what ordered groups gave back in its place.
        named: `audit_releases.NAMED`: of rows about topics' own queues the entries that are given
            back by them, and by none before.
        trims: the TRIM records.
        line: topics, groups and subscriptions.
        dispatch: the dispatch table.
        end_offset: of the audited log.
        chunk_entries: entries of a chunk of a queue.
    """
    follower = _Follower(named, _Holds(holds), line, dispatch, chunk_entries)
    return follower.run(resolves, trims, end_offset)


class _Holds:
    """How often ordered groups gave messages back in their place."""

    def __init__(self, rows: Array) -> None:
        keys = rows["group_id"].astype(np.int64) << 32 | rows["topic_queue"]
        self._rows_of = {int(key): rows[keys == key] for key in np.unique(keys)}

    def counted(self, unit: Unit, position: int, row: Array) -> Unit:
        """The unit of a dead letter, whose attempt tells of them as well."""
        key = int(row["group_id"]) << 32 | int(row["topic_queue"])
        rows = self._rows_of.get(key)
        if rows is None:
            return unit
        place = (int(row["offset"]), int(row["row"]))
        before = rows["offset"] < place[0]
        before |= (rows["offset"] == place[0]) & (rows["row"] < place[1])
        before &= (rows["first"] <= position) & (position < rows["end"])
        outcomes = rows["outcome"][before]
        freed = np.flatnonzero(outcomes == Outcome.FREED)
        count = len(outcomes) if not len(freed) else len(outcomes) - 1 - int(freed[-1])
        return unit._replace(attempt=unit.tried + count - 1) if count else unit


class _Follower:
    def __init__(
        self,
        named: Array,
        holds: _Holds,
        line: Timeline,
        dispatch: DispatchTable,
        chunk_entries: int,
    ) -> None:
        self.found, self._holds = Retries(), holds
        self._line, self._dispatch, self._chunk_entries = line, dispatch, chunk_entries
        self._named = named[np.lexsort((named["position"], named["index"]))]
        self._serial = 0

    def run(self, resolves: Array, trims: Trims, end_offset: int) -> Retries:
        is_dynamic = np.isin(resolves["topic_queue"] >> QUEUE_BITS, list(self._line.internal))
        rows = np.flatnonzero(is_dynamic | np.isin(resolves["outcome"], AGAIN))
        lows = np.searchsorted(self._named["index"], rows, "left").tolist()
        highs = np.searchsorted(self._named["index"], rows, "right").tolist()
        trimming = [*trims.offsets, _NEVER]
        next_trim = 0
        for index, low, high in zip(rows.tolist(), lows, highs, strict=True):
            row = resolves[index]
            offset = int(row["offset"])
            while trimming[next_trim] < offset:
                self._trim(trims, next_trim)
                next_trim += 1
            self._resolve(index, row, offset, (low, high), is_dynamic=bool(is_dynamic[index]))
        while trimming[next_trim] < end_offset:
            self._trim(trims, next_trim)
            next_trim += 1
        for queue in self.found.queues.values():
            queue.release_below(end_offset)
        return self.found

    def _trim(self, trims: Trims, ordinal: int) -> None:
        offset = trims.offsets[ordinal]
        for topic_queue, queue in self.found.queues.items():
            queue.release_below(offset)
            from_ms = trims.from_ms(ordinal, topic_of(topic_queue))
            queue.trim(offset, from_ms, self._chunk_entries)
            for (_, number), window in self.found.windows.items():
                if number == topic_queue and window.floor < queue.start:
                    window.resolve(window.floor, queue.start - window.floor)

    def _resolve(
        self, index: int, row: Array, offset: int, span: tuple[int, int], *, is_dynamic: bool
    ) -> None:
        group_id, topic_queue = int(row["group_id"]), int(row["topic_queue"])
        topic_id = int(topic_of(topic_queue))
        if int(row["outcome"]) == Outcome.REDRIVE:
            if self._line.owns_letters(group_id, topic_queue, offset):
                self._redrive(self._dynamic(index, row, offset)[0], row, offset)
            return
        subscription = self._line.subscription_at(group_id, topic_id, offset)
        if subscription is None:
            return
        if is_dynamic:
            units, positions = self._dynamic(index, row, offset)
            is_letter = int(subscription.topic_id) in self._line.internal
            self._note_expiry(
                index, row, list(zip(positions, units, strict=True)), is_letter=is_letter
            )
            if int(row["outcome"]) not in AGAIN:
                if int(row["outcome"]) in (Outcome.SKIPPED, Outcome.EXPIRED):
                    return
                is_ack = int(row["outcome"]) == Outcome.ACK
                counts = self.found.acked if is_ack else self.found.filtered
                counts[group_id, topic_queue] += len(units)
                if int(row["outcome"]) == Outcome.FILTERED:
                    self.found.filtered_units += [(index, one) for one in units]
                return
        else:
            units = [
                Unit(
                    int(one["due_ms"]),
                    int(one["sequence"]),
                    int(one["store_ms"]),
                    int(one["facts"]),
                    int(one["origin_queue"]) >> QUEUE_BITS,
                    int(one["attempt"]),
                    int(one["place"]),
                )
                for one in self._named[slice(*span)]
            ]
            positions = self._named["position"][slice(*span)].tolist()
        group = self._line.group_at(group_id, offset)
        if not units or group is None:
            return
        gives_up = int(row["outcome"]) in LETTERS
        if gives_up:
            pairs = zip(units, positions, strict=True)
            units = [self._holds.counted(unit, position, row) for unit, position in pairs]
        dead = [one for one in units if gives_up or one.tried >= group.attempts_max]
        if dead:
            letters = self._queue(int(group.dead_letter_topic_id) << 8, offset)
            letters.entries += dead
            letters.offsets += [offset] * len(dead)
            self.found.dead += [Dead(group_id, topic_id, offset, one) for one in dead]
        again = [one for one in units if not gives_up and one.tried < group.attempts_max]
        self.found.retried[group_id, topic_id] += len(again)
        if again:
            due_ms = int(row["retry_due_ms"])
            again = [one._replace(due_ms=due_ms, attempt=one.tried + 1) for one in again]
            queue_count = self._line.queue_counts.get(topic_id, 1)
            number = retry_queue(subscription.retry_topic_id, topic_queue, queue_count)
            self._schedule(again, number, row, offset)

    def _note_expiry(
        self, index: int, row: Array, units: list[tuple[int, Unit]], *, is_letter: bool
    ) -> None:
        if is_letter:  # they do not expire
            return
        if int(row["outcome"]) in EXPIRED:
            self.found.expired_units += [(index, *one) for one in units]
        elif int(row["outcome"]) == Outcome.ACK:
            self.found.acked_units += [(index, *one) for one in units]

    def _redrive(self, letters: list[Unit], row: Array, offset: int) -> None:
        """A group gets its dead letters again; what it does not read any more stays one."""
        group_id, topic_queue = int(row["group_id"]), int(row["topic_queue"])
        due_ms = int(row["retry_due_ms"])
        queue = self._queue(topic_queue, offset)
        again: dict[int, list[Unit]] = {}
        for one in letters:
            origin = self._line.subscription_at(group_id, one.origin_topic, offset)
            if origin is None:
                queue.entries.append(one)
                queue.offsets.append(offset)
                continue
            self.found.retried[group_id, one.origin_topic] += 1
            retries = again.setdefault(int(origin.retry_topic_id) << QUEUE_BITS, [])
            retries.append(one._replace(due_ms=due_ms, attempt=_REDRIVEN_ATTEMPT))
        for number, units in again.items():
            self._schedule(units, number, row, offset)

    def _queue(self, topic_queue: int, offset: int) -> DynamicQueue:
        queue = self.found.queues.setdefault(topic_queue, DynamicQueue())
        queue.release_below(offset)
        return queue

    def _dynamic(self, index: int, row: Array, offset: int) -> tuple[list[Unit], list[int]]:
        """The entries that a row about a dynamic queue is the first to resolve; their positions."""
        topic_queue = int(row["topic_queue"])
        queue = self._queue(topic_queue, offset)
        low, high = max(int(row["first"]), queue.start), int(row["end"])
        if high > len(queue.entries):
            self.found.undelivered.append((index, len(queue.entries)))
            high = len(queue.entries)
        if high <= low:
            return [], []
        key = (int(row["group_id"]), topic_queue)
        window = self.found.windows.setdefault(key, AckWindow())
        if window.floor < queue.start:
            window.resolve(window.floor, queue.start - window.floor)
        ranges = window.resolve(low, high - low)
        positions = [position for first, end in ranges for position in range(first, end)]
        return [queue.entries[position] for position in positions], positions

    def _schedule(self, units: list[Unit], topic_queue: int, row: Array, offset: int) -> None:
        """The release rule for retries of one RESOLVE row."""
        dispatch, queue = self._dispatch, self._queue(topic_queue, offset)
        due_ms = units[0].due_ms
        sequences = np.array([one.sequence for one in units], np.uint64)
        reached = dispatch.reaching(np.full(len(units), due_ms, np.int64), sequences)
        place = int(dispatch.before(np.array([offset], np.uint64))[0])
        is_due = due_ms <= int(row["store_ms"])
        died = (
            self._line.topics[topic_queue >> QUEUE_BITS].died
            if topic_queue >> QUEUE_BITS in self._line.topics
            else _NEVER
        )
        for unit, at in zip(units, reached.tolist(), strict=True):
            if is_due or at < place:
                queue.entries.append(unit)
                queue.offsets.append(offset)
                continue
            end = int(dispatch.offset[at]) if at < len(dispatch) else _NEVER
            is_discarded = died < end < _NEVER
            self.found.scheduled.append(Scheduled(offset, end, topic_queue, unit, is_discarded))
            if end < _NEVER and end <= died:
                self._serial += 1
                key = (end, unit.due_ms, unit.sequence, self._serial, unit)
                heapq.heappush(queue.waiting, key)
