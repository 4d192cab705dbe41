"""Dedup keys, by the log alone: of a topic and a key one message is pending at any place in it.

Each message with a dedup key is looked at in the order of the log, as apply does: where one with
the same name is pending at its place, it is no message, or cancels that one, as it says itself.
Whether one is pending at a place, DISPATCH, CANCEL and RESCHEDULE records before it tell. What
comes of it joins the messages that are rejected and the rows that cancel; the ledger has no other
rules for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Flag
from hourwheel.outcomes import IfPending
from spark_jobs.audit.checks.dispatch import DispatchTable
from spark_jobs.audit.facts.records import CANCEL
from spark_jobs.audit.facts.requests import RejectedRanges
from spark_jobs.logs.block_table import BlockTable

Array = NDArray[Any]
DEDUP: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("store_ms", "<i8"),
        ("sequence", "<u8"),
        ("due_ms", "<i8"),
        ("high", "<u8"),
        ("low", "<u8"),
        ("topic_id", "<u4"),
        ("epoch", "<u4"),
        ("if_pending", "<u4"),
    ]
)
"""A message with a dedup key."""
LEVEL: Final = 8
"""The feature level from which on dedup keys mean something."""
_REPLACE: Final = int(IfPending.REPLACE)
Name = tuple[int, int, int]


def dedups_of(table: BlockTable) -> Array:
    """DEDUP[n]: the messages with a dedup key of a piece of a log, in its order."""
    messages = table.messages
    if not len(messages) or not ((messages.of_batch("flags") & int(Flag.DEDUP_KEYS)) != 0).any():
        return np.empty(0, DEDUP)
    chosen = np.flatnonzero(messages.column("if_pending"))
    found = np.zeros(len(chosen), DEDUP)
    for name, source in {
        **{field: field for field in ("offset", "store_ms", "sequence", "due_ms", "epoch")},
        "high": "dedup_high",
        "low": "dedup_low",
        "topic_id": "topic_id",
        "if_pending": "if_pending",
    }.items():
        found[name] = messages.column(source)[chosen]
    return found


@dataclass(frozen=True)
class Known:
    """What of the log decides about dedup keys."""

    dispatch: DispatchTable
    cancels: Array
    """`records.CANCEL`, by sequence, then offset."""
    moves: Array
    """`records.MOVE`, by sequence, then offset, then row."""
    rejected: RejectedRanges
    """By producers' numbers."""
    born: Array
    died: Array
    """uint64[t]: `Timeline.lives`."""
    levels: list[tuple[int, int]]
    """(offset, feature level) of the records that raise it."""
    is_whole: bool
    """The log begins at 0."""


class Uniqueness(NamedTuple):
    """What became of messages with dedup keys."""

    refused: Array
    """uint64[m], ascending: sequences of those that are no messages."""
    replaced: Array
    """`records.CANCEL`[m]: each pending message that a later one took the place of."""
    answers: dict[int, tuple[int, int]]
    """Sequence of a message whose dedup key a pending one had -> (what became of it, that)."""


class _Holder(NamedTuple):
    """The message that had a name last."""

    sequence: int
    due_ms: int
    epoch: int
    offset: int
    is_at_once: bool


def play(
    dedups: Array, known: Known, look_up: Callable[[Array], set[int]] | None = None
) -> Uniqueness:
    """Decide about all messages with dedup keys of a log.

    Args:
        dedups: DEDUP[n], in the order of the log.
        known: the rest of it.
        look_up: of a log that does not begin at 0: which of some sequences the nodes took for no
            messages. It is asked about names of which the log has no message before.
    """
    if not len(dedups):
        return Uniqueness(np.empty(0, np.uint64), np.empty(0, CANCEL), {})
    is_out = known.rejected.contains(dedups["sequence"])
    topic = np.minimum(dedups["topic_id"], len(known.born) - 1)
    is_out |= (known.born[topic] > dedups["offset"]) | (known.died[topic] < dedups["offset"])
    is_out |= dedups["offset"] < np.uint64(_begin_of(known))
    rows = dedups[~is_out]
    by_nodes = look_up(rows["sequence"]) if look_up is not None and len(rows) else set[int]()
    holders: dict[Name, _Holder] = {}
    refused: list[int] = []
    answers: dict[int, tuple[int, int]] = {}
    replaced: list[tuple[int, int, int, int]] = []
    for offset, store_ms, sequence, due_ms, high, low, topic_id, epoch, if_pending in rows.tolist():
        name = (topic_id, high, low)
        other = holders.get(name)
        if other is None and sequence in by_nodes:
            refused.append(sequence)
            continue
        if other is not None and _is_pending(other, offset, known):
            answers[sequence] = (if_pending, other.sequence)
            if if_pending != _REPLACE:
                refused.append(sequence)
                continue
            replaced.append((offset, other.sequence, other.due_ms, other.epoch))
        is_at_once = due_ms <= store_ms or (due_ms, sequence) <= known.dispatch.cursor_at(offset)
        holders[name] = _Holder(sequence, due_ms, epoch, offset, is_at_once)
    return Uniqueness(np.array(sorted(refused), np.uint64), np.array(replaced, CANCEL), answers)


def _begin_of(known: Known) -> int:
    """Offset from which on dedup keys mean something."""
    raised = [offset for offset, level in known.levels if level >= LEVEL]
    if raised:
        return raised[0]
    return 1 << 63 if known.is_whole or known.levels else 0


def _is_pending(one: _Holder, offset: int, known: Known) -> bool:
    """Whether a message that is one, and not replaced, is pending where a record is applied."""
    if one.is_at_once:
        return False
    due_ms = one.due_ms
    for at, new_due_ms, store_ms in _events_of(one, known):
        if at >= offset:
            break
        cursor = known.dispatch.cursor_at(at)
        if new_due_ms is None or (due_ms, one.sequence) <= cursor:
            return False
        due_ms = max(new_due_ms, store_ms)
        if due_ms <= store_ms or (due_ms, one.sequence) <= cursor:
            return False
    return (due_ms, one.sequence) > known.dispatch.cursor_at(offset)


def _events_of(one: _Holder, known: Known) -> list[tuple[int, int | None, int]]:
    """(offset, new due time or None: it is cancelled, store_ms) of records that name a message."""
    cancels, moves = _rows_of(known.cancels, one), _rows_of(known.moves, one)
    found: list[tuple[int, int | None, int]] = [(at, None, 0) for at in cancels["offset"].tolist()]
    found += zip(
        *(moves[name].tolist() for name in ("offset", "new_due_ms", "store_ms")), strict=True
    )
    found.sort(key=lambda event: event[0])
    return found


def _rows_of(rows: Array, one: _Holder) -> Array:
    sequence = np.uint64(one.sequence)
    low, high = (np.searchsorted(rows["sequence"], sequence, side) for side in ("left", "right"))
    found = rows[low:high]
    is_right = (found["due_ms"] == one.due_ms) & (found["epoch"] == one.epoch)
    chosen: Array = found[is_right & (found["offset"] > np.uint64(one.offset))]
    return chosen


def with_refused(rejected: RejectedRanges, refused: Array) -> RejectedRanges:
    """With more messages that are none."""
    if not len(refused):
        return rejected
    starts = np.concatenate((rejected.starts, refused))
    ends = np.concatenate((rejected.ends, refused + np.uint64(1)))
    order = np.argsort(starts, kind="stable")
    return RejectedRanges(starts[order], ends[order], rejected.is_certain)
