"""Rows of RESOLVE cut into pieces: those that can be resolved together, and the others."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Outcome

_ROWS_MIN: Final = 16
"""Fewer rows than this are resolved sooner one by one."""


def pieces_of(rows: NDArray[Any]) -> Iterator[tuple[int, int, bool]]:
    """[low, high) of rows of RESOLVE, all of them in order; whether many ascend.

    Those are rows that only finish positions of one queue for one group, each behind the one before
    it: so a consumer acknowledges what a filter picked, a row a message and a row for what lies
    between two.
    """
    at, count = 0, len(rows)
    if count >= _ROWS_MIN:
        first, group, queue = rows["first_position"], rows["group_id"], rows["topic_queue"]
        finishes = (rows["outcome"] == Outcome.ACK) | (rows["outcome"] == Outcome.FILTERED)
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
