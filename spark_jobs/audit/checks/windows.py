"""What each group has resolved of each queue at some place of the log, in one go for all rows.

The order of RESOLVE rows does not matter for *what* is resolved, only for whose outcome counts: a
window is the union of its rows' positions, without what was trimmed when a row came, and with what
a TRIM let go after the group had begun.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import FOREVER, Timeline

Array = NDArray[Any]
Window: TypeAlias = tuple[int, ...]
"""(floor, first, end, first, end, ...): all below the floor, and ranges above it, ascending."""
Starts: TypeAlias = Sequence[tuple[int, int]]
"""(offset of a TRIM record, first position that is left behind it), ascending."""


def windows_at(
    resolves: Array,
    counts: Array,
    queues: Mapping[int, tuple[int, Starts]],
    line: Timeline,
    applied: int,
) -> dict[tuple[int, int], Window]:
    """(group, topic_queue) -> its window, of all in which something is resolved.

    Args:
        resolves: `audit_records.RESOLVE`[n], in the order of the log.
        counts: bool[n]: rows of groups that read the queue.
        queues: topic_queue -> (entries that it ever got, where TRIM records have moved its start).
        line: topics and groups.
        applied: records below this offset count.
    """
    rows = resolves[counts & (resolves["offset"] < np.uint64(applied))]
    keys = rows["group_id"].astype(np.int64) << 32 | rows["topic_queue"]
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    firsts = np.flatnonzero(
        np.concatenate((np.ones(min(1, len(keys)), np.bool_), keys[1:] != keys[:-1]))
    )
    found: dict[tuple[int, int], Window] = {}
    for low, high in zip(firsts.tolist(), [*firsts[1:].tolist(), len(keys)], strict=False):
        group_id, topic_queue = int(keys[low]) >> 32, int(keys[low]) & 0xFFFFFFFF
        life = line.topics.get(topic_queue >> QUEUE_BITS)
        if line.group_at(group_id, applied) is None or life is None or life.died < applied:
            continue
        if line.window_ends.get((group_id, topic_queue >> QUEUE_BITS), FOREVER) < applied:
            continue
        released, starts = queues.get(topic_queue, (0, ()))
        starts = [one for one in starts if one[0] < applied]
        window = _window(rows[low:high], released, starts)
        if window:
            found[line.real_groups.get(group_id, group_id), topic_queue] = window
    return found


def _window(rows: Array, released: int, starts: Starts) -> Window:
    offsets = np.array([-1, *(offset for offset, _ in starts)], np.int64)
    begins = np.array([0, *(start for _, start in starts)], np.int64)
    at = rows["offset"].astype(np.int64)
    start = begins[np.searchsorted(offsets, at, "left") - 1]
    first = np.maximum(np.minimum(rows["first"], np.uint64(FOREVER)).astype(np.int64), start)
    end = np.minimum(rows["end"], np.uint64(released)).astype(np.int64)
    is_some = first < end
    if not is_some.any():
        return ()
    trimmed = [start for offset, start in starts if offset > int(at[is_some].min())]
    first, end = first[is_some], end[is_some]
    if trimmed:
        first, end = np.append(first, 0), np.append(end, max(trimmed))
    order = np.argsort(first, kind="stable")
    first, end = first[order], np.maximum.accumulate(end[order])
    is_new = np.concatenate(([True], first[1:] > end[:-1]))
    cuts = np.flatnonzero(is_new)
    lows, highs = first[cuts].tolist(), end[np.append(cuts[1:], len(end)) - 1].tolist()
    floor = highs.pop(0) if lows[0] == 0 else 0
    lows = lows[1:] if floor else lows
    return (floor, *(one for pair in zip(lows, highs, strict=True) for one in pair))
