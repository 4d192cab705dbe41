"""Which RESOLVE rows an acknowledgement, a negative one, or a lease that ended stands for."""

from collections.abc import Sequence
from typing import Any, Final

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


def ack_rows(held: GroupQueue, ranges: list[tuple[int, int]]) -> NDArray[Any]:
    """Rows that acknowledge positions [first, end)."""
    return _rows(held, [(first, end, 0) for first, end in ranges], Outcome.ACK)


def ack_picked_rows(
    held: GroupQueue, runs: list[tuple[int, int]], gaps: list[tuple[int, int]]
) -> NDArray[Any]:
    """Rows that acknowledge `runs` and pass over `gaps`, ascending: each raises a group's floor."""
    marked = np.array(runs + gaps, np.int64)
    order = np.argsort(marked[:, 0])
    rows = np.zeros(len(marked), RESOLVE_ROW)
    rows["group_id"], rows["topic_queue"] = held
    rows["first_position"], rows["count"] = marked[order, 0], (marked[:, 1] - marked[:, 0])[order]
    rows["outcome"] = np.where(order < len(runs), Outcome.ACK, Outcome.FILTERED)
    return rows


def dead_rows(held: GroupQueue, ranges: list[tuple[int, int]]) -> NDArray[Any]:
    """Rows that make dead letters of positions [first, end)."""
    return _rows(held, [(first, end, 0) for first, end in ranges], Outcome.DEAD)


def filtered_rows(held: GroupQueue, ranges: list[tuple[int, int]]) -> NDArray[Any]:
    """Rows that pass over positions [first, end)."""
    return _rows(held, [(first, end, 0) for first, end in ranges], Outcome.FILTERED)


def give_back_rows(
    views: Views, group: Group, held: GroupQueue, parts: Sequence[Part], now_ms: int
) -> NDArray[Any]:
    """Rows that give back what is left of parts of leases; as `retry_rows`.

    Of parts with gaps the messages are to be tried again; then the rest, whatever is still
    unresolved by then, is passed over.
    """
    runs: list[tuple[int, int]] = []
    rests: list[tuple[int, int]] = []
    for part in parts:
        if part.messages is None:
            runs += unresolved_of(views, held, part)
        else:
            runs += runs_of(np.array(part.messages, np.int64))
            rests.append((part.first, part.end))
    rows = retry_rows(views, group, held, runs, now_ms, None)
    return np.concatenate([rows, filtered_rows(held, rests)]) if rests else rows


def retry_rows(
    views: Views,
    group: Group,
    held: GroupQueue,
    ranges: list[tuple[int, int]],
    now_ms: int,
    delay_ms: int | None,
) -> NDArray[Any]:
    """Rows that give positions [first, end) back: after `delay_ms`, or the group's own delay.

    The group's delay depends on the attempt, so a range is cut where the attempts change.
    """
    if delay_ms is not None:
        due_ms = now_ms + delay_ms
        return _rows(held, [(first, end, due_ms) for first, end in ranges], Outcome.RETRY)
    queue = views.queues.get(held.topic_queue)
    start, end = queue.start_position, queue.end_position
    spans = [np.arange(max(low, start), min(high, end), dtype=np.int64) for low, high in ranges]
    positions = np.concatenate(spans) if spans else np.empty(0, np.int64)
    if not len(positions):
        return _rows(held, [], Outcome.RETRY)
    attempts = queue.pick(positions)["attempt"]
    # All at once: what a filter picked are thousands of ranges.
    begins = np.concatenate(([0], np.cumsum([len(span) for span in spans])[:-1]))
    cuts = np.flatnonzero(attempts[1:] != attempts[:-1]) + 1
    begins = np.union1d(begins[begins < len(positions)], cuts)
    lasts = positions[np.append(begins[1:], len(positions)) - 1]
    delays = {each: retry_delay_ms(group, each) for each in np.unique(attempts).tolist()}
    due = [now_ms + delays[attempt] for attempt in attempts[begins].tolist()]
    cut = zip(positions[begins].tolist(), (lasts + 1).tolist(), due, strict=True)
    return _rows(held, list(cut), Outcome.RETRY)


def unresolved_of(views: Views, held: GroupQueue, part: Part) -> list[tuple[int, int]]:
    """What of a part of a lease is still to be resolved."""
    return list(views.acks.get(*held).unresolved(part.first, part.end))


def _rows(held: GroupQueue, ranges: list[tuple[int, int, int]], outcome: Outcome) -> NDArray[Any]:
    rows = np.zeros(len(ranges), RESOLVE_ROW)
    rows["group_id"] = held.group_id
    rows["topic_queue"] = held.topic_queue
    rows["outcome"] = outcome
    if ranges:
        first, end, due_ms = np.array(ranges, np.int64).T
        rows["first_position"], rows["count"], rows["retry_due_ms"] = first, end - first, due_ms
    return rows
