"""A second audit, as plain as can be: dicts and lists, one message at a time, one process.

    errors, is_whole, late = naive_audit([tmp_path / "node-1", tmp_path / "node-2"])

It says what `spark_jobs.audit.delivery` must say of small logs, and shares nothing with it. What
records mean is `chaos.log_model`'s word, which is taken further here: a log that no node could have
written does not end it. It knows no retention, no unknown records and no filters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from chaos.log_model import LogModel
from chaos.log_parts.entries import Entry
from chaos.log_parts.expiry import expiry_fault
from chaos.log_parts.priority import Priorities
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch
from hourwheel.internal.v1.state_pb2 import Subscription
from storage.queues.ack_state import IN_PLACE
from tests.support.log_copies import Expected
from tests.support.naive_replica import Found, NaiveReplica, Unit

_MASK: Final = (1 << 64) - 1
_LEAD_MS: Final = 1_000
_EARLY_MS: Final = 1_000
LATE_MS: Final = 1_000
_STARTS: Final = {Kind.EPOCH_START, Kind.FEATURE_LEVEL}
"""Their store_ms may be another clock's."""


def naive_audit(directories: Sequence[Path]) -> tuple[list[Expected], bool, Counter[int]]:
    """(all errors, sorted; whether everything could be checked; sequences of what was late)."""
    return _Audit([NaiveReplica(one) for one in sorted(directories)]).run()


class Facts(NamedTuple):
    """What a message's entries must say."""

    crc: int
    body_len: int
    meta_len: int


class Moment(NamedTuple):
    """The model's state at a checkpoint's offset."""

    ends: dict[int, int]
    """Queue -> entries."""
    waiting: Counter[tuple[int, int, int]]
    stored_ms: dict[int, int]
    """Sequence -> store_ms, of what waits."""
    cursor: tuple[int, int]
    released: tuple[int, int]
    is_cancelled: set[int]
    is_released: set[int]


@dataclass
class LenientPriorities(Priorities):
    """Notes what is in a queue of another priority."""

    misplaced: list[int] = field(default_factory=list)
    """Sequences."""

    def check(self, queue: int, raw: bytes, sequence: int) -> None:
        """See `Priorities`."""
        if not self.is_right(queue, raw):
            self.misplaced.append(sequence)


@dataclass
class Model(LogModel):
    """Goes on where a log makes no sense, and notes it."""

    errors: list[Expected] = field(default_factory=list)
    place: tuple[str, str] = ("", "")
    """(node, file) of the record that is read."""
    sums: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])
    """(offset of a record, count, mix) of what was released up to it."""
    by: dict[int, list[int]] = field(default_factory=dict)
    """Queue -> offset of the record that released each entry."""
    facts: dict[int, Facts] = field(default_factory=dict)
    topic_of: dict[int, int] = field(default_factory=dict)
    """Sequence -> topic_queue it was published to."""
    reached: tuple[int, int] = (-1, 0)
    """The key that the last DISPATCH reached, were it true or not."""
    last: tuple[int, int, int] = (0, 0, 0)
    """(epoch, store_ms, kind) of the record before."""
    late: Counter[int] = field(default_factory=Counter)
    """Sequence -> how often it was released late."""
    index: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Sequence -> (offset of its record, due_ms, state): what a sequence index must say of it."""
    named: set[int] = field(default_factory=set)
    """Sequences that some record names to be cancelled."""
    repeated: list[tuple[int, int, int]] = field(default_factory=list)
    """(offset, sequence, that of the one before) of occurrences that are not later."""
    priorities: LenientPriorities = field(default_factory=LenientPriorities)
    off: tuple[int, int] = (0, 0)
    """By how much the last DISPATCH's check was wrong."""

    def take(self, found: Found, node: str) -> None:
        """Read the next record of the log."""
        header = found.batch.header
        self.offset, self.place = header.offset, (node, found.file)
        ends = {number: len(entries) for number, entries in self.queues.items()}
        self._check_order(found.batch)
        if header.kind == Kind.PUBLISH:
            self._keep(found.batch)
        if header.kind == Kind.DISPATCH:
            self._check_sums(found.batch)
        if header.kind in {Kind.CANCEL, Kind.RECURRENCE}:
            self.named.update(found.batch.rows["sequence"].tolist())
        occurred = {name: len(every) for name, every in self.recurring.every.items()}
        self.read(found.batch)
        self._note_repeated(occurred)
        for sequence in self.priorities.misplaced:
            self.note("priority-misplaced", sequence=sequence, here=False)
        self.priorities.misplaced.clear()
        _, count, mix = self.sums[-1]
        if header.kind == Kind.PUBLISH:
            self._index(found.batch, ends)
        for number, entries in self.queues.items():
            new = entries[ends.get(number, 0) :]
            if header.kind == Kind.DISPATCH:
                self.late.update(
                    one.sequence for one in new if header.store_ms - one.due_ms > LATE_MS
                )
            self.by.setdefault(number, []).extend([header.offset] * len(new))
            count += len(new)
            mix += sum(mixed(one.sequence) for one in new)
        self.sums.append((header.offset, count, mix & _MASK))

    def _note_repeated(self, before: dict[str, int]) -> None:
        """Occurrences that are not later than the one before."""
        for name, found in self.recurring.every.items():
            for at in range(max(1, before.get(name, 0)), len(found)):
                (old_ms, old), (due_ms, sequence) = found[at - 1], found[at]
                if due_ms <= old_ms:
                    self.repeated.append((self.offset, sequence, old))

    def note(
        self, check: str, *, sequence: int = -1, position: int = -1, here: bool = True
    ) -> None:
        """An error of this record; `here`: in this node's file."""
        node, file = self.place if here else ("", "")
        self.errors.append(Expected(check, node, file, self.offset, sequence, position))

    def sums_below(self, offset: int) -> tuple[int, int]:
        """(count, mix) of what records below an offset have released."""
        return next(one[1:] for one in reversed(self.sums) if one[0] < offset or one == (0, 0, 0))

    def _check_order(self, batch: RecordBatch) -> None:
        header = batch.header
        if header.base_sequence != self.next_sequence:
            self.note("sequence-gap", sequence=self.next_sequence)
            self.next_sequence = header.base_sequence
        epoch, store_ms, kind = self.last
        if header.epoch < epoch:
            self.note("epoch-back")
        if header.epoch == epoch and header.store_ms < store_ms and kind not in _STARTS:
            self.note("store-back")
        if header.flushed_end_offset > header.offset:
            self.note("flushed-ahead")
        self.last = (header.epoch, header.store_ms, header.kind)

    def _keep(self, batch: RecordBatch) -> None:
        columns = (batch.crc.tolist(), batch.body_len.tolist(), batch.meta_len.tolist())
        rows = list(zip(*columns, strict=True))
        base, end = batch.header.base_sequence, 0
        for at, (crc, body_len, meta_len) in enumerate(rows):
            begin, end = end, end + body_len + meta_len
            if crc32c(bytes(batch.blobs[begin:end])) != crc:
                self.note("message-corrupt", sequence=base + at)
        self.facts.update({base + at: Facts(*row) for at, row in enumerate(rows)})
        self.topic_of.update({base + at: int(q) for at, q in enumerate(batch.topic_queue)})

    def _index(self, batch: RecordBatch, ends: dict[int, int]) -> None:
        fresh = [one for key, every in self.queues.items() for one in every[ends.get(key, 0) :]]
        at_once = {one.sequence for one in fresh}
        for sequence, due_ms in enumerate(batch.due_ms.tolist(), batch.header.base_sequence):
            stored = 2 if sequence in at_once else int(sequence in self.messages)
            self.index[sequence] = (self.offset, due_ms, stored)

    def _check_sums(self, batch: RecordBatch) -> None:
        (row,) = batch.rows
        told = (int(row["check_count"]), int(row["check_mix"]))
        mine = self.sums_below(int(row["check_offset"]))
        off = ((told[0] - mine[0]) & _MASK, (told[1] - mine[1]) & _MASK)
        if off not in {self.off, (0, 0)}:
            self.note("dispatch-check", here=False)
        self.off = off

    def _dispatch(self, batch: RecordBatch) -> int:
        (row,) = batch.rows
        before = (int(row["prev_due_ms"]), int(row["prev_sequence"]))
        to = (int(row["to_due_ms"]), int(row["to_sequence"]))
        if before != self.reached or to < self.reached:
            self.note("dispatch-chain", here=False)
        if to[0] - batch.header.store_ms > _LEAD_MS:
            self.note("dispatch-early", here=False)
        self.reached = to
        if to <= self.cursor:
            return 0
        rows = batch.rows.copy()
        rows["prev_due_ms"], rows["prev_sequence"] = self.cursor
        return super()._dispatch(_Rows(batch.header, rows))  # type: ignore[arg-type]

    def _resolve(self, batch: RecordBatch) -> list[int]:
        found = []
        for row in batch.rows:  # one by one: a row may release what the next one names
            group, queue = int(row["group_id"]), int(row["topic_queue"])
            if int(row["outcome"]) in IN_PLACE:
                found += super()._resolve(_Rows(batch.header, row.reshape(1)))  # type: ignore[arg-type]
                continue
            is_redrive = int(row["outcome"]) == Outcome.REDRIVE
            if is_redrive and self.owns_letters(group, queue):
                end = int(row["first_position"]) + int(row["count"])
                self._check_row(batch, queue, int(row["first_position"]), end)
            if not is_redrive and self._subscription(group, queue >> 8) is not None:
                first = int(row["first_position"])
                self._check_row(batch, queue, first, first + int(row["count"]))
            found += super()._resolve(_Rows(batch.header, row.reshape(1)))  # type: ignore[arg-type]
        return found

    def see_resolved(
        self, reads: Subscription, outcome: int, place: tuple[int, int], store_ms: int
    ) -> None:
        """Of an acknowledgement the log shows only for what came again that it was too late."""
        (queue, at), topic = place, self.topics[reads.topic_id]
        entry = self.queues[queue][at]
        fault = expiry_fault(outcome, topic, entry, self.metas.get(entry.sequence, b""), store_ms)
        is_own = not self.topics[queue >> 8].startswith("%")
        if fault == "expired-delivered" and is_own and entry.sequence not in self.moved:
            return
        if fault:
            self.note(fault, sequence=entry.sequence, position=at, here=False)

    def _check_row(self, batch: RecordBatch, queue: int, first: int, end: int) -> None:
        entries = self.queues.get(queue, [])
        if end > len(entries):
            self.note("ack-undelivered", position=first, here=False)
            return
        seen_ms = max((one.release_ms for one in entries[first:end]), default=0)
        is_own = not self.topics[queue >> 8].startswith("%")
        if is_own and seen_ms > batch.header.store_ms + _EARLY_MS:
            self.note("ack-early", position=first, here=False)

    def overtakes(self, sequence: int, position: int, before: int) -> None:
        """One is enough for each message and record."""
        del before
        self.note("order-overtaken", sequence=sequence, position=position, here=False)

    def moment(self) -> Moment:
        """The state as it is."""
        return Moment(
            {number: len(entries) for number, entries in self.queues.items()},
            Counter((one.sequence, one.due_ms, one.topic_queue) for one in self.waiting.values()),
            {one.sequence: one.store_ms for one in self.waiting.values()},
            self.cursor,
            self.sums[-1][1:],
            set(self.cancelled),
            set(self.released),
        )


class _Rows(NamedTuple):
    """As much of a batch as the model asks for."""

    header: Any
    rows: Any


def mixed(sequence: int) -> int:
    """splitmix64 of a sequence: what DISPATCH records sum up."""
    z = (sequence + 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


_T = TypeVar("_T")


def _without_last(found: list[_T], count: int, is_behind: list[bool]) -> list[_T]:
    """Without so many of the last ones that are behind what was seen last."""
    gone = min(max(0, count), sum(is_behind))
    return found[: len(found) - gone]


class _Audit:
    def __init__(self, replicas: list[NaiveReplica]) -> None:
        self.replicas = replicas
        self.errors = [error for one in replicas for error in one.errors]
        self.committed = max(max(one.watermark, one.applied) for one in replicas)
        self.model = Model()
        self.moments: dict[int, Moment] = {}
        self.end = 0
        self.kinds: dict[int, int] = {}
        self.begun: dict[int, int] = {}
        self.is_whole = True
        self.base = max(
            replicas,
            key=lambda one: (-one.gaps, max(one.watermark, one.applied), -one.start, -one.problems),
        )

    def run(self) -> tuple[list[Expected], bool, Counter[int]]:
        self._compare()
        self._follow()
        for one in self.replicas:
            self._check_epochs(one)
            self.is_whole &= one.has_checkpoint
            if one.has_checkpoint and one.applied <= self.end:
                self._check_wheel(one, self.moments[one.applied])
                wrong = self.moments[one.applied].is_cancelled ^ one.cancelled()
                floor, found = one.manifest.sequence_floor, one.cancelled()
                wrong = {at for at in wrong if at >= floor or at in found}
                file = f"shard-0/tombstones/{one.manifest.tombstone_file:010}.tomb"
                self.errors += [Expected("tombstone-wrong", one.node, file, -1, at) for at in wrong]
            if one.has_checkpoint:
                self._check_index(one)
            self._check_queues(one)
        for offset, sequence, before in self.model.repeated:
            if before not in self.model.named:
                self.errors.append(Expected("occurrence-repeated", "", "", offset, sequence))
        return sorted([*self.errors, *self.model.errors]), self.is_whole, self._late()

    def _late(self) -> Counter[int]:
        """What was released late, and what waits and is."""
        end_ms = self.model.last[1]
        waiting = (
            one.sequence for one in self.model.waiting.values() if end_ms - one.due_ms > LATE_MS
        )
        return self.model.late + Counter(waiting)

    # -- log --------------------------------------------------------------------------------------

    def _at(self, offset: int) -> dict[str, bytes]:
        """Node -> its bytes at an offset; none where they are the inside of another batch."""
        found = {
            one.node: one.batches[offset].raw for one in self.replicas if offset in one.batches
        }
        if found:
            found |= {one.node: b"" for one in self.replicas if one.is_inside(offset)}
        return found

    def _right(self, every: dict[str, bytes]) -> bytes:
        votes = Counter(every.values())
        top = max(votes.values())
        if votes[every.get(self.base.node, b"?")] == top:
            return every[self.base.node]
        return next(raw for _, raw in sorted(every.items()) if votes[raw] == top)

    def _compare(self) -> None:
        told: set[str] = set()
        for offset in sorted({at for one in self.replicas for at in one.batches}):
            every = self._at(offset)
            if offset >= self.committed or len(set(every.values())) == 1:
                continue
            right = self._right(every)
            for node in sorted(every.keys() - told):
                if every[node] != right:
                    told.add(node)
                    file = self._file(node, offset)
                    self.errors.append(Expected("replica-diverges", node, file, offset))

    def _file(self, node: str, offset: int) -> str:
        (mine,) = (one for one in self.replicas if one.node == node)
        return mine.batches[max(at for at in mine.batches if at <= offset)].file

    def _follow(self) -> None:
        self.moments[0] = self.model.moment()
        at = 0
        while at < self.committed:
            every = self._at(at)
            if not every:
                self.errors.append(Expected("log-hole", offset=at))
                self.is_whole = False
                break
            right = self._right(every)
            order = sorted(self.replicas, key=lambda one: one is not self.base)
            mine = next(one for one in order if every.get(one.node) == right)
            header = mine.batches[at].batch.header
            self.kinds[at] = header.kind
            if header.kind == Kind.EPOCH_START:
                self.begun.setdefault(header.epoch, at)
            self.model.take(mine.batches[at], mine.node)
            at += len(right)
            self.moments[at] = self.model.moment()
        self.end = at

    def _check_epochs(self, one: NaiveReplica) -> None:
        for epoch, start in one.epochs:
            if start >= min(one.end, self.end) or self.begun.get(epoch) == start:
                continue
            if self.kinds.get(start) != Kind.FEATURE_LEVEL:
                file = "shard-0/epochs"
                self.errors.append(Expected("epoch-history", one.node, file, start))

    # -- views ------------------------------------------------------------------------------------

    def _check_wheel(self, one: NaiveReplica, moment: Moment) -> None:
        units, wanted = one.wheel(), moment.waiting
        mine = Counter((unit.sequence, unit.due_ms, unit.topic_queue) for unit in units)
        if mine == wanted:
            self.errors += [
                Expected("wheel-extra", one.node, sequence=unit.sequence)
                for unit in units
                if not self._is_true(unit, moment)
            ]
        for check, rows in (("wheel-missing", wanted - mine), ("wheel-extra", mine - wanted)):
            self.errors += [Expected(check, one.node, sequence=key[0]) for key in rows]
        manifest, cursor = one.manifest, one.manifest.cursor
        for told, true in (
            ((cursor.due_ms, cursor.sequence), moment.cursor),
            (cursor.released_count, moment.released[0]),
            (cursor.released_mix, moment.released[1]),
            (manifest.pending_count, wanted.total()),
        ):
            if told != true:
                file = "shard-0/checkpoint"
                self.errors.append(Expected("checkpoint", one.node, file, one.applied))

    def _check_index(self, one: NaiveReplica) -> None:
        found = one.index()
        for sequence, (offset, *wanted) in self.model.index.items():
            is_there = offset < one.applied and sequence < len(found)
            if is_there and found[sequence] != tuple(wanted):
                name = f"{0:012}.seq" if sequence < len(found) // 128 * 128 else "tail"
                file = f"shard-0/sequences/{name}"
                self.errors.append(Expected("sequence-wrong", one.node, file, -1, sequence))

    def _is_true(self, unit: Unit, moment: Moment) -> bool:
        facts = Facts(unit.crc, unit.body_len, unit.meta_len)
        stored_ms = moment.stored_ms[unit.sequence]
        return facts == self.model.facts[unit.sequence] and unit.store_ms == stored_ms

    def _check_queues(self, one: NaiveReplica) -> None:
        moment = self.moments[min(one.applied, self.end) if one.has_checkpoint else self.end]
        numbers = {state.topic_queue for state in one.manifest.queues} | moment.ends.keys()
        for number in sorted(numbers):
            wanted = self.model.queues.get(number, [])[: moment.ends.get(number, 0)]
            found = one.queue(number)
            if one.applied > self.end or not one.has_checkpoint:
                found = found[: len(wanted)]
            if not one.has_checkpoint:
                wanted = wanted[: len(found)]
            self._check_queue(one, moment, number, wanted, found)

    def _check_queue(
        self,
        one: NaiveReplica,
        moment: Moment,
        number: int,
        wanted: list[Entry],
        found: list[Unit],
    ) -> None:
        file = f"shard-0/queues/{number:08x}/{0:012}.cq"
        theirs: dict[tuple[int, int, int], int] = {}
        seen: Counter[tuple[int, int]] = Counter()
        is_own = not self.model.topics.get(number >> 8, "").startswith("%")
        for at, unit in enumerate(found):
            attempt = 1 if is_own else unit.attempt
            theirs[unit.sequence, attempt, seen[unit.sequence, attempt]] = at
            seen[unit.sequence, attempt] += 1
        seen.clear()
        pairs, missing, last = [], list[Expected](), (-1, -1)
        for at, entry in enumerate(wanted):
            attempt = 1 if is_own else self._attempt(entry)
            key = (entry.sequence, attempt, seen[entry.sequence, attempt])
            seen[entry.sequence, attempt] += 1
            if key in theirs:
                pairs.append((theirs.pop(key), entry))
                last = max(last, (pairs[-1][0], at))
                continue
            offset = self.model.by[number][at]
            place = Expected("queue-missing", one.node, file, offset, entry.sequence, at)
            missing.append(place)
        extra = sorted((at, sequence) for (sequence, _, _), at in theirs.items())
        if not one.has_checkpoint or one.applied > self.end:  # what stands behind is not known
            shift = last[0] - last[1]
            missing = _without_last(missing, shift, [one.position > last[1] for one in missing])
            extra = _without_last(extra, -shift, [at > last[0] for at, _ in extra])
        self.errors += missing
        for at, sequence in extra:
            check = self._why(moment, number, sequence)
            self.errors.append(Expected(check, one.node, file, -1, sequence, at))
        for at, entry in pairs:
            wrong = self._wrong_fields(entry, found[at], number)
            place = Expected("queue-fields", one.node, file, -1, entry.sequence, at)
            self.errors += [place] * wrong
        places = [at for at, _ in pairs]
        if places != sorted(places):
            self.errors.append(Expected("queue-order", one.node))

    def _why(self, moment: Moment, number: int, sequence: int) -> str:
        model = self.model
        if sequence not in model.topic_of:
            return "queue-unknown"
        if model.topics[number >> 8].startswith("%"):
            return "queue-doubled"
        if sequence not in model.messages:
            return "queue-void"
        if sequence in moment.is_cancelled:
            return "queue-cancelled"
        if sequence not in moment.is_released:
            return "queue-early"
        return "queue-doubled" if model.topic_of[sequence] == number else "queue-misplaced"

    def _attempt(self, entry: Entry) -> int:
        """What its unit must say: 0 for the first release of what was moved."""
        is_moved = entry.attempt == 1 and entry.sequence in self.model.moved
        return 0 if is_moved else entry.attempt

    def _wrong_fields(self, entry: Entry, unit: Unit, number: int) -> int:
        """In how many ways an entry is not what it must be."""
        facts = self.model.facts[entry.sequence]
        return (
            (entry.due_ms != unit.due_ms)
            + (self._attempt(entry) != unit.attempt)
            + (entry.store_ms != unit.store_ms)
            + (unit.topic_queue != number)
            + (unit.origin_topic != self.model.topic_of[entry.sequence] >> 8)
            + (facts != Facts(unit.crc, unit.body_len, unit.meta_len))
        )
