"""What was released late: which messages, and by which DISPATCH record.

A message is late if the DISPATCH that released it is stamped more than a tolerance after its due
time, or if it is due for so long when the log ends and no DISPATCH has come. Neither says that a
message is lost, and both say that it was not on time: the findings (`checks.gaps`) are warnings,
and the verdict is "late" instead of "clean".

Ranges of the log give a row for each DISPATCH that was late, and their latest messages: bounded,
whatever the log.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
I64 = NDArray[np.int64]
LATE_MS_MAX: Final = 1_000
"""Tolerance by default: one tick of the wheel, which is also the longest dispatch lead. The
objective is a p99 of 5 ms (`hourwheel_delivery_lateness_seconds`): this is no noise of it, but a
pause in which no master dispatched."""
KEPT_MAX: Final = 1_000
"""So many late messages are named, the latest first; all are counted."""
OVERDUE: Final = 1 << 62
"""In the place of a DISPATCH's ordinal: none has come."""

LATE: Final = np.dtype(
    [
        ("sequence", "<u8"),
        ("due_ms", "<i8"),
        ("late_ms", "<i8"),
        ("dispatch", "<i8"),
        ("topic_queue", "<u4"),
        ("attempt", "<u4"),
    ]
)
"""A late message; `dispatch`: ordinal in the table of DISPATCH records."""
LATE_SUM: Final = np.dtype(
    [("dispatch", "<i8"), ("count", "<i8"), ("due_min", "<i8"), ("due_max", "<i8"), ("late", "<i8")]
)
"""Of what one DISPATCH has released late; `late`: the most."""


@dataclass
class LateSums:
    """What was late in a part of the log, or in several together."""

    sums: Array = field(default_factory=lambda: np.empty(0, LATE_SUM))
    """LATE_SUM[m], by `dispatch`."""
    kept: Array = field(default_factory=lambda: np.empty(0, LATE))
    """LATE[k]: the latest, `KEPT_MAX` at most."""

    @classmethod
    def of(cls, rows: Array) -> "LateSums":
        """Of some messages, LATE[n]."""
        sums = np.zeros(len(rows), LATE_SUM)
        sums["dispatch"], sums["count"], sums["late"] = rows["dispatch"], 1, rows["late_ms"]
        sums["due_min"] = sums["due_max"] = rows["due_ms"]
        return cls(_folded(sums), _latest(rows))

    def plus(self, other: "LateSums") -> "LateSums":
        """Of both."""
        if not len(other.sums):
            return self
        if not len(self.sums):
            return other
        return LateSums(
            _folded(np.concatenate((self.sums, other.sums))),
            _latest(np.concatenate((self.kept, other.kept))),
        )

    @property
    def count(self) -> int:
        """How many messages are late."""
        return int(self.sums["count"].sum())


def _folded(sums: Array) -> Array:
    if not len(sums):
        return sums
    sums = sums[np.argsort(sums["dispatch"], kind="stable")]
    numbers = sums["dispatch"]
    firsts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
    found = sums[firsts].copy()
    found["count"] = np.add.reduceat(sums["count"], firsts)
    found["due_min"] = np.minimum.reduceat(sums["due_min"], firsts)
    found["due_max"] = np.maximum.reduceat(sums["due_max"], firsts)
    found["late"] = np.maximum.reduceat(sums["late"], firsts)
    return found


def _latest(rows: Array) -> Array:
    if len(rows) <= KEPT_MAX:
        return rows
    order = np.lexsort((rows["sequence"], -rows["late_ms"]))
    return rows[order[:KEPT_MAX]]


def late_rows(
    sequence: Array, due_ms: I64, topic_queue: Array, dispatch: I64, visible_ms: I64, tolerance: int
) -> Array:
    """LATE[m] of those of some first releases that are late; all arrays of one length.

    Args:
        sequence: of each message.
        due_ms: when it was asked for.
        topic_queue: where it goes.
        dispatch: ordinal of the DISPATCH that released it, or `OVERDUE`.
        visible_ms: store_ms of that DISPATCH; where none has come, of the log's end.
        tolerance: so many ms behind its due time a message still counts as on time.
    """
    late_ms = visible_ms - due_ms
    chosen = np.flatnonzero(late_ms > tolerance)
    rows = np.zeros(len(chosen), LATE)
    rows["sequence"], rows["due_ms"] = sequence[chosen], due_ms[chosen]
    rows["late_ms"], rows["dispatch"] = late_ms[chosen], dispatch[chosen]
    rows["topic_queue"], rows["attempt"] = topic_queue[chosen], 1
    return rows
