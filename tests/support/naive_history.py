"""What became of each message, as a naive reading of the log tells it, beside what a node tells."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chaos.log_model import LogModel
from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch
from hourwheel.internal.v1.state_pb2 import Subscription
from hourwheel.outcomes import EventKind, RescheduleOutcome
from hourwheel.types import SequenceNumber
from node.shard.history import KINDS, Event, History, begin, find_publish
from node.shard.shard import Shard
from storage.views.catalog_names import DEAD_LETTER_PREFIX

_LETTERS: Final = {Outcome.DEAD, Outcome.EXPIRED_LETTER}


class Told(NamedTuple):
    """An event, with what both know of it."""

    kind: EventKind
    group: int
    attempt: int
    at_ms: int


@dataclass
class Chronicle(LogModel):
    """A model that takes down what each record does to messages of topics that stay."""

    told: dict[int, list[Told]] = field(default_factory=dict, compare=False)
    """By sequence."""

    def read(self, batch: RecordBatch) -> None:
        """Read the next record, and see what has changed."""
        messages, cancelled, redriven = set(self.messages), set(self.cancelled), set(self.redriven)
        lengths = {queue: len(entries) for queue, entries in self.queues.items()}
        super().read(batch)
        kind, at_ms = batch.header.kind, batch.header.store_ms
        for sequence in self.messages.keys() - messages:
            self._tell(sequence, EventKind.PUBLISHED, at_ms)
        gone = EventKind.REPLACED if kind == Kind.PUBLISH else EventKind.CANCELLED
        for sequence in self.cancelled - cancelled:
            self._tell(sequence, gone, at_ms)
        if kind == Kind.RESCHEDULE:
            outcomes = self.results[batch.header.offset]
            for row, (outcome, _) in zip(batch.rows, outcomes, strict=True):
                if outcome == RescheduleOutcome.RESCHEDULED:
                    self._tell(int(row["sequence"]), EventKind.RESCHEDULED, at_ms)
        for queue, at in self.redriven - redriven:
            entry = self.queues[queue][at]
            owners = (one for one in self.groups if self.owns_letters(one, queue))
            self._tell(entry.sequence, EventKind.REDRIVEN, at_ms, next(owners, 0), entry.attempt)
        for queue, entries in self.queues.items():
            if self.topics.get(queue >> 8, DEAD_LETTER_PREFIX).startswith(DEAD_LETTER_PREFIX):
                continue
            for entry in entries[lengths.get(queue, 0) :]:
                readers = [one for one in self.subscriptions if one.retry_topic_id == queue >> 8]
                group = readers[0].group_id if readers else 0
                self._tell(entry.sequence, EventKind.RELEASED, at_ms, group, entry.attempt)

    def see_resolved(
        self, reads: Subscription, outcome: int, place: tuple[int, int], store_ms: int
    ) -> None:
        """A group is done with an attempt."""
        super().see_resolved(reads, outcome, place, store_ms)
        entry, group = self.queues[place[0]][place[1]], reads.group_id
        is_spent = outcome == Outcome.RETRY and entry.attempt >= self.groups[group].attempts_max
        kinds = [KINDS[outcome]]
        if outcome == Outcome.EXPIRED_LETTER:
            kinds.append(EventKind.DEAD)
        elif outcome in _LETTERS or is_spent:
            kinds = [EventKind.DEAD]
        for kind in kinds:
            self._tell(entry.sequence, kind, store_ms, group, entry.attempt)

    def _tell(
        self, sequence: int, kind: EventKind, at_ms: int, group: int = 0, attempt: int = 0
    ) -> None:
        self.told.setdefault(sequence, []).append(Told(kind, group, attempt, at_ms))

    def is_all_there(self, sequence: int) -> bool:
        """Whether no entry of a message was trimmed, nor its row in the views."""
        trimmed = {
            entry.sequence
            for queue, start in self.starts.items()
            for entry in self.queues.get(queue, [])[:start]
        }
        return sequence >= self.sequence_floor and sequence not in trimmed


def history_of(shard: Shard, sequence: int) -> tuple[list[Event], bool] | None:
    """(what a node tells of a message, whether that is all); None: its log has no publish of it."""
    number = SequenceNumber(sequence)
    for batch in find_publish(shard, number):
        if batch is not None:
            trail, events = begin(shard, batch, number)
            if events:
                for found in History(shard, trail).steps():
                    events += found
            return events, trail.is_complete
    return None


def check_history(shard: Shard, model: Chronicle, sequence: int) -> None:
    """A node tells of a message what its log says; its log has all."""
    found = history_of(shard, sequence)
    assert found is not None, f"nothing is told of {sequence}"
    events, is_complete = found
    assert is_complete
    times_ms = [one.at_ms for one in events]
    assert times_ms == sorted(times_ms), events
    told = Counter(Told(one.kind, one.group_id, one.attempt, one.at_ms) for one in events)
    assert told == Counter(model.told[sequence]), (
        f"of {sequence} is told {events}, and the log says {model.told[sequence]}"
    )
