"""Transactions, played again by the log alone: which commits count, and what became of each one.

Apply publishes the messages of a commit where its transaction is open and its topics are there;
what it remembers of those that were decided is bounded, and so it is here.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Flag, Kind
from hourwheel.formats.transaction_step import Step
from hourwheel.limits import TRANSACTIONS_DECIDED_MAX
from hourwheel.outcomes import TransactionState
from spark_jobs.logs.block_table import BlockTable

COMMIT: Final = np.dtype(
    [("offset", "<u8"), ("prepare_offset", "<u8"), ("sequence", "<u8"), ("count", "<u8")]
)
"""A PUBLISH batch with the messages of a transaction."""
_FIELDS: Final = {
    "offset": "offset",
    "prepare_offset": "producer_id",
    "sequence": "base_sequence",
    "count": "count",
}
_NEVER: Final = 1 << 63

Array = NDArray[Any]


def commits_of(table: BlockTable) -> Array:
    """COMMIT[n]: those of a piece of a log, in its order."""
    headers = table.headers[table.select(int(Kind.PUBLISH))]
    chosen = headers[(headers["flags"] & int(Flag.TRANSACTION)) != 0]
    found = np.zeros(len(chosen), COMMIT)
    for name, source in _FIELDS.items():
        found[name] = chosen[source]
    return found


class Known(NamedTuple):
    """What is known of a transaction."""

    state: TransactionState
    checks: int
    base_sequence: int


class Followed(NamedTuple):
    """What the log says."""

    rejected: list[tuple[int, int]]
    """Sequences [first, end) of commits that do not count."""
    known: dict[int, Known]
    """By the offset of the PREPARE: those that are open, and those that were decided last."""


class _Begun(NamedTuple):
    token: tuple[int, int]
    topics: tuple[int, ...]


def follow(
    prepares: Array, steps: Array, commits: Array, deleted: dict[int, int], start_offset: int = 0
) -> Followed:
    """Play them again.

    Args:
        prepares: PREPARE[n]: a row a topic.
        steps: STEP[n].
        commits: COMMIT[n].
        deleted: topic id -> offset of the record that deleted it.
        start_offset: where the log begins. The log keeps what is open: of a transaction that was
            prepared before, the first end that is there counts.
    """
    return _Play(deleted, start_offset).run(prepares, steps, commits)


class _Play:
    def __init__(self, deleted: dict[int, int], start_offset: int) -> None:
        self._deleted, self._start_offset = deleted, start_offset
        self._known: dict[int, Known] = {}
        self._begun: dict[int, _Begun] = {}
        self._decided: dict[int, None] = {}
        self._tokens: dict[tuple[int, int], int] = {}
        self._rejected: list[tuple[int, int]] = []

    def run(self, prepares: Array, steps: Array, commits: Array) -> Followed:
        records = [*_begins(prepares), *_records(steps, "step"), *_records(commits, "commit")]
        order = sorted(records, key=lambda one: one[0])
        for offset, what, fields in order:
            if what == "begin":
                self._begin(offset, *fields)
            elif what == "step":
                self._step(*fields)
            else:
                self._commit(offset, *fields)
        return Followed(self._rejected, self._known)

    def _begin(self, offset: int, token: tuple[int, int], topics: tuple[int, ...]) -> None:
        if token not in self._tokens:
            self._tokens[token] = offset
            self._begun[offset] = _Begun(token, topics)
            self._known[offset] = Known(TransactionState.OPEN, 0, 0)

    def _is_open(self, offset: int) -> bool:
        one = self._known.get(offset)
        if one is None and offset < self._start_offset:
            self._known[offset] = Known(TransactionState.OPEN, 0, 0)
            return True
        return one is not None and one.state == TransactionState.OPEN

    def _step(self, prepare_offset: int, step: int) -> None:
        if not self._is_open(prepare_offset):
            return
        one = self._known[prepare_offset]
        if step == Step.CHECK:
            self._known[prepare_offset] = one._replace(checks=one.checks + 1)
        else:
            is_late = step == Step.EXPIRE
            state = TransactionState.EXPIRED if is_late else TransactionState.ROLLED_BACK
            self._decide(prepare_offset, state, 0)

    def _commit(self, offset: int, prepare_offset: int, sequence: int, count: int) -> None:
        begun = self._begun.get(prepare_offset)
        topics = () if begun is None else begun.topics
        is_there = all(offset < self._deleted.get(topic, _NEVER) for topic in topics)
        if self._is_open(prepare_offset) and is_there:
            self._decide(prepare_offset, TransactionState.COMMITTED, sequence)
        else:
            self._rejected.append((sequence, sequence + count))

    def _decide(self, prepare_offset: int, state: TransactionState, base_sequence: int) -> None:
        one = self._known[prepare_offset]
        self._known[prepare_offset] = Known(state, one.checks, base_sequence)
        self._decided[prepare_offset] = None
        if len(self._decided) > TRANSACTIONS_DECIDED_MAX:
            oldest = next(iter(self._decided))
            del self._decided[oldest], self._known[oldest]
            begun = self._begun.pop(oldest, None)
            if begun is not None:
                del self._tokens[begun.token]


def _begins(prepares: Array) -> Iterator[tuple[int, str, Any]]:
    """A record each: (offset, "begin", (token, topics))."""
    offsets = prepares["offset"]
    if not len(offsets):
        return
    starts = np.flatnonzero(np.concatenate(([True], offsets[1:] != offsets[:-1]))).tolist()
    for first, end in zip(starts, [*starts[1:], len(prepares)], strict=True):
        rows = prepares[first:end]
        token = int(rows["token_high"][0]), int(rows["token_low"][0])
        yield int(rows["offset"][0]), "begin", (token, tuple(rows["topic_id"].tolist()))


def _records(rows: Array, what: str) -> Iterator[tuple[int, str, Any]]:
    for row in rows.tolist():
        yield row[0], what, row[1:]
