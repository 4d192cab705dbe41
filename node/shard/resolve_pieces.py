"""Rows of RESOLVE that apply takes together: which ones, and what they give back."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import NO_GROUP, GroupId, TopicQueue
from storage.queues.ack_state import AckWindow
from storage.views.unit import Units

_ROWS_MIN: Final = 16
"""Fewer rows than this are resolved sooner one by one."""
LETTERS: Final = frozenset({Outcome.DEAD, Outcome.EXPIRED_LETTER})
"""Outcomes that make dead letters, however few the attempts."""
AGAIN: Final = frozenset({Outcome.RETRY, Outcome.REDRIVE, *LETTERS})
"""Outcomes that put messages elsewhere: again for the group, or among its dead letters."""
ResolveRow: TypeAlias = tuple[GroupId, TopicQueue, int, int, int, int]
"""(group, queue, first position, count, outcome, retry_due_ms): a row of RESOLVE as a tuple."""


def pieces_of(rows: NDArray[Any]) -> Iterator[tuple[int, int, bool]]:
    """[low, high) of rows of RESOLVE, all of them in order; whether many ascend.

    Those are rows that only finish positions of one queue for one group, each behind the one before
    it: so a consumer acknowledges what a filter picked, a row a message and a row for what lies
    between two.
    """
    at, count = 0, len(rows)
    if count >= _ROWS_MIN:
        first, group, queue = rows["first_position"], rows["group_id"], rows["topic_queue"]
        outcomes = rows["outcome"]
        finishes = (outcomes == Outcome.ACK) | (outcomes == Outcome.FILTERED)
        finishes |= outcomes == Outcome.EXPIRED
        follows = np.zeros(count + 1, np.bool_)
        follows[1:-1] = first[1:] >= first[:-1] + rows["count"][:-1]
        follows[1:-1] &= (group[1:] == group[:-1]) & (queue[1:] == queue[:-1])
        follows[1:-1] &= finishes[1:] & finishes[:-1]
        edges = np.flatnonzero(follows[1:] != follows[:-1])
        for low, last in edges.reshape(-1, 2).tolist():
            if last + 1 - low < _ROWS_MIN:
                continue
            if at < low:
                yield at, low, False
            yield low, last + 1, True
            at = last + 1
    if at < count:
        yield at, count, False


@dataclass(slots=True)
class Again:
    """Neighbouring rows of RESOLVE that give back messages of one queue in the same way."""

    store_ms: int
    """Of the batch."""
    kind: tuple[GroupId, TopicQueue, int, int] = (NO_GROUP, TopicQueue(0), 0, 0)
    """(group_id, topic_queue, outcome, retry_due_ms)."""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """[first, end) of what they resolved, in their order."""
    failure_counts: dict[int, int] = field(default_factory=dict)
    """Position -> how often an ordered group has given it back, where it stands as at its first
    attempt."""


def failure_counts_of(window: AckWindow, first: int, end: int) -> dict[int, int]:
    """How often the messages in [first, end) were given back that an ordered group holds there."""
    held = window.held.items()
    return {at: one.failure_count for at, one in held if first <= at < end}


def add_failures(units: Units, again: Again) -> None:
    """Count in the attempts of dead letters how often each was given back in its place."""
    ordinal = 0
    for first, end in again.ranges:
        for position in range(first, end):
            failure_count = again.failure_counts.get(position, 0)
            if failure_count:  # the first of them was of the attempt that the unit tells of
                attempt = max(1, int(units["attempt"][ordinal]))
                units["attempt"][ordinal] = attempt + failure_count - 1
            ordinal += 1
