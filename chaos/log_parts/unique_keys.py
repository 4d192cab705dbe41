"""Dedup keys, a part of `chaos.log_model`: of topic and key one message is pending."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.outcomes import DedupOutcome, IfPending

LEVEL: Final = 8
"""The feature level from which on dedup keys mean something."""
Name: TypeAlias = tuple[int, int, int]
"""Topic, and both halves of the key's hash."""


@dataclass
class UniqueKeys:
    """See the top of this file."""

    level: int = 0
    """The log's feature level."""
    holders: dict[Name, int] = field(default_factory=dict)
    """The message that had each last."""
    names: dict[int, Name] = field(default_factory=dict)
    """Sequence -> name, of each stored message that has one."""
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence of each message whose key a pending one had -> (`DedupOutcome`, that one)."""
    answers: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Offset of a record -> ordinal in it -> the same: what callers must get."""

    def raise_level(self, batch: RecordBatch) -> None:
        """The log's feature level rises."""
        self.level = int(batch.rows[0]["level"])

    def stores(
        self,
        batch: RecordBatch,
        ordinal: int,
        waiting: dict[tuple[int, int], Any],
        cancelled: set[int],
    ) -> bool:
        """Whether a message is stored, by its dedup key; what it replaces is cancelled."""
        is_stored, replaced = self.decide(batch, ordinal, waiting)
        if replaced is not None:
            cancelled.add(replaced)
            del waiting[replaced, 0]
        return is_stored

    def decide(
        self, batch: RecordBatch, ordinal: int, waiting: Collection[tuple[int, int]]
    ) -> tuple[bool, int | None]:
        """(whether a message is stored, the message that it replaces); `waiting`: what is pending.

        The members of `waiting` are sequences, with 0 beside them where it is a first release.
        """
        if not batch.header.flags & Flag.DEDUP_KEYS or self.level < LEVEL:
            return True, None
        columns, sequence = batch.dedup, batch.header.base_sequence + ordinal
        if_pending = int(columns.if_pending[ordinal])
        if not if_pending:
            return True, None
        topic = int(batch.topic_queue[ordinal]) >> 8
        name = topic, int(columns.high[ordinal]), int(columns.low[ordinal])
        other = self.holders.get(name)
        replaced = None
        if other is not None and (other, 0) in waiting:
            if if_pending == IfPending.REJECT:
                self.taken[sequence] = int(DedupOutcome.REJECTED), other
                return False, None
            if if_pending == IfPending.KEEP:
                self.taken[sequence] = int(DedupOutcome.KEPT), other
                return False, None
            self.taken[sequence] = int(DedupOutcome.REPLACED), other
            replaced = other
        self.holders[name], self.names[sequence] = sequence, name
        return True, replaced

    def answers_from(
        self, base_sequence: int, count: int, *, at: int = 0
    ) -> dict[int, tuple[int, int]]:
        """The answers for messages published from a sequence on, by ordinal from `at`."""
        every = range(base_sequence, base_sequence + count)
        return {at + one - base_sequence: self.taken[one] for one in every if one in self.taken}

    def check(self, pending: Collection[int]) -> None:
        """No two pending messages have one name."""
        held = [self.names[one] for one in pending if one in self.names]
        assert len(set(held)) == len(held), "two pending messages have one dedup key"
