"""Which RESOLVE rows an acknowledgement, a negative one, or a lease that ended stands for."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import RESOLVE_ROW, Outcome
from node.delivery.message_lease import Part, runs_of
from node.shard.group_queue import GroupQueue
from node.shard.views import Views
from storage.views.catalog_items import Group

_DOUBLINGS_MAX: Final = 30


def retry_delay_ms(group: Group, attempt: int) -> int:
    """Delay before the next delivery: doubles with each attempt, up to the group's cap."""
    doublings = min(max(attempt - 1, 0), _DOUBLINGS_MAX)
    return min(group.retry_delay_ms << doublings, group.retry_delay_ms_max)


Ranges: TypeAlias = Sequence[tuple[int, int]] | NDArray[np.int64]
"""[first, end) of positions; where they may be many, int64[n, 2]."""


def ack_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[Any]:
    """Rows that acknowledge positions [first, end)."""
    return _rows(group_queue, ranges, Outcome.ACK)


def ack_picked_rows(
    group_queue: GroupQueue, span: tuple[int, int], runs: NDArray[np.int64]
) -> NDArray[Any]:
    """Rows that acknowledge `runs` and resolve the rest of [first, end) as filtered.

    They ascend: each raises a group's floor.

    Args:
        group_queue: which group and queue.
        span: what is finished.
        runs: int64[n, 2]: where the messages stand in it, ascending.
    """
    cuts = np.concatenate((span[:1], runs.reshape(-1), span[1:]))
    counts = np.diff(cuts)
    is_there = counts > 0  # not the rest between the span and a run that it begins or ends with
    outcomes = np.full(len(counts), Outcome.FILTERED, np.uint32)
    outcomes[1::2] = Outcome.ACK
    rows = np.zeros(np.count_nonzero(is_there), RESOLVE_ROW)
    rows["group_id"], rows["topic_queue"] = group_queue
    rows["first_position"], rows["count"] = cuts[:-1][is_there], counts[is_there]
    rows["outcome"] = outcomes[is_there]
    return rows


def dead_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[Any]:
    """Rows that make dead letters of positions [first, end)."""
    return _rows(group_queue, ranges, Outcome.DEAD)


def filtered_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[Any]:
    """Rows that resolve positions [first, end) as filtered."""
    return _rows(group_queue, ranges, Outcome.FILTERED)


def give_back_rows(
    views: Views, group: Group, group_queue: GroupQueue, parts: Sequence[Part], now_ms: int
) -> NDArray[Any]:
    """Rows that give back what is left of parts of leases; as `retry_rows`.

    In parts with gaps the messages become retries; then the rest, whatever is still unresolved by
    then, is resolved as filtered.
    """
    runs: list[tuple[int, int]] = []
    rests: list[tuple[int, int]] = []
    for part in parts:
        if part.messages is None:
            runs += unresolved_of(views, group_queue, part)
        else:
            runs += runs_of(np.array(part.messages, np.int64)).tolist()
            rests.append((part.first, part.end))
    rows = retry_rows(views, group, group_queue, runs, now_ms, None)
    return np.concatenate([rows, filtered_rows(group_queue, rests)]) if rests else rows


def retry_rows(
    views: Views,
    group: Group,
    group_queue: GroupQueue,
    ranges: Ranges,
    now_ms: int,
    delay_ms: int | None,
) -> NDArray[Any]:
    """Rows that give positions [first, end) back: after `delay_ms`, or the group's own delay.

    The group's delay depends on the attempt, so a range is cut where the attempts change.
    """
    if delay_ms is not None:
        return _rows(group_queue, ranges, Outcome.RETRY, now_ms + delay_ms)
    # All at once: what a filter picked are thousands of ranges.
    queue = views.queues.get(group_queue.topic_queue)
    bounds = np.clip(_pairs(ranges), queue.start_position, queue.end_position)
    counts = bounds[:, 1] - bounds[:, 0]
    begins = np.cumsum(counts) - counts
    positions = np.repeat(bounds[:, 0] - begins, counts) + np.arange(int(counts.sum()))
    if not len(positions):
        return _rows(group_queue, (), Outcome.RETRY)
    attempts = queue.pick(positions)["attempt"]
    cuts = np.flatnonzero(attempts[1:] != attempts[:-1]) + 1
    begins = np.union1d(begins[begins < len(positions)], cuts)
    lasts = positions[np.append(begins[1:], len(positions)) - 1]
    delays = {each: retry_delay_ms(group, each) for each in np.unique(attempts).tolist()}
    due = [now_ms + delays[attempt] for attempt in attempts[begins].tolist()]
    return _rows(group_queue, np.stack((positions[begins], lasts + 1), axis=1), Outcome.RETRY, due)


def unresolved_of(views: Views, group_queue: GroupQueue, part: Part) -> list[tuple[int, int]]:
    """What of a part of a lease is still to be resolved."""
    return list(views.acks.get(*group_queue).unresolved(part.first, part.end))


def _pairs(ranges: Ranges) -> NDArray[np.int64]:
    """int64[n, 2]."""
    return np.asarray(ranges, np.int64).reshape(-1, 2)


def _rows(
    group_queue: GroupQueue, ranges: Ranges, outcome: Outcome, due_ms: int | list[int] = 0
) -> NDArray[Any]:
    pairs = _pairs(ranges)
    rows = np.zeros(len(pairs), RESOLVE_ROW)
    rows["group_id"], rows["topic_queue"] = group_queue
    rows["first_position"], rows["count"] = pairs[:, 0], pairs[:, 1] - pairs[:, 0]
    rows["outcome"], rows["retry_due_ms"] = outcome, due_ms
    return rows
