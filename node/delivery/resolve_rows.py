"""RESOLVE rows of an ack, a nack, a lease that ended; and the positions that a receipt names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.joined_rows import join_rows
from hourwheel.formats.record_batch import RESOLVE_ROW, Outcome
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import Position, SequenceNumber, TopicQueue, numbers_from, topic_of
from node.contracts.broker import Selection
from node.contracts.ending import Ending
from node.delivery.message_lease import SPARSE_ID, Part, runs_of
from node.delivery.receiver import Receiver
from node.delivery.retry_delays import retry_delay_ms, spread_delay_ms
from node.shard.group_queue import GroupQueue
from node.shard.shard import Shard
from node.shard.views import Views
from storage.queues.ack_state import BLOCKED_MS
from storage.views.catalog_items import Group, GroupOrder
from storage.views.sorting import sorted_unique

_SPREAD_TOGETHER: Final = 64
"""Neighbours that one jitter goes for, so that thousands of messages stay hundreds of rows."""

Ranges: TypeAlias = Sequence[tuple[int, int]] | NDArray[np.int64]
"""[first, end) of positions; where they may be many, int64[n, 2]."""


def ack_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[np.void]:
    """Rows that acknowledge positions [first, end)."""
    return _rows(group_queue, ranges, Outcome.ACK)


def ack_picked_rows(
    group_queue: GroupQueue, span: tuple[int, int], runs: NDArray[np.int64]
) -> NDArray[np.void]:
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


def dead_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[np.void]:
    """Rows that make dead letters of positions [first, end)."""
    return _rows(group_queue, ranges, Outcome.DEAD)


def skipped_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[np.void]:
    """Rows that let a group go on behind positions [first, end).

    The log's feature level must be `REDRIVE_LEVEL` at least.
    """
    return _rows(group_queue, ranges, Outcome.SKIPPED)


def redrive_rows(group_queue: GroupQueue, ranges: Ranges, due_ms: int) -> NDArray[np.void]:
    """Rows that give a group its dead letters at positions [first, end) again.

    The log's feature level must be `REDRIVE_LEVEL` at least.
    """
    return _rows(group_queue, ranges, Outcome.REDRIVE, due_ms)


def freed_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[np.void]:
    """Rows that let an ordered group have the messages at positions [first, end) again, at once.

    The log's feature level must be `ORDER_LEVEL` at least.
    """
    return _rows(group_queue, ranges, Outcome.FREED)


def filtered_rows(group_queue: GroupQueue, ranges: Ranges) -> NDArray[np.void]:
    """Rows that resolve positions [first, end) as filtered."""
    return _rows(group_queue, ranges, Outcome.FILTERED)


def expired_rows(group_queue: GroupQueue, ranges: Ranges, *, kept: bool) -> NDArray[np.void]:
    """Rows that resolve positions [first, end) as expired; `kept`: as dead letters.

    The log's feature level must be `EXPIRY_LEVEL` at least.
    """
    return _rows(group_queue, ranges, Outcome.EXPIRED_LETTER if kept else Outcome.EXPIRED)


def give_back_rows(
    views: Views, group: Group, group_queue: GroupQueue, parts: Sequence[Part], now_ms: int
) -> NDArray[np.void]:
    """Rows that give back what is left of parts of leases; as `retry_rows`.

    In parts with gaps the messages become retries; then the rest, whatever is still unresolved by
    then, is resolved as filtered.
    """
    if group.is_ordered:
        own = [run for part in parts for run in _message_runs(part)]
        return held_rows(views, group, group_queue, own, now_ms, None)
    runs: list[tuple[int, int]] = []
    rests: list[tuple[int, int]] = []
    for part in parts:
        if part.messages is None:
            runs += unresolved_of(views, group_queue, part)
        else:
            runs += runs_of(np.array(part.messages, np.int64)).tolist()
            rests.append((part.first, part.end))
    rows = retry_rows(views, group, group_queue, runs, now_ms, None)
    return join_rows([rows, filtered_rows(group_queue, rests)]) if rests else rows


def retry_rows(
    views: Views,
    group: Group,
    group_queue: GroupQueue,
    ranges: Ranges,
    now_ms: int,
    delay_ms: int | None,
) -> NDArray[np.void]:
    """Rows that give positions [first, end) back: after `delay_ms`, or the group's own delay.

    The group's delay depends on the attempt, so a range is cut where the attempts change; and again
    where the group spreads its retries.
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
    attempts = np.maximum(queue.pick(positions)["attempt"], 1)
    cuts = np.flatnonzero(attempts[1:] != attempts[:-1]) + 1
    if group.retry_jitter_percent:
        cuts = np.append(cuts, np.arange(0, len(positions), _SPREAD_TOGETHER))
    begins = sorted_unique(np.append(begins[begins < len(positions)], cuts))
    lasts = positions[np.append(begins[1:], len(positions)) - 1]
    delays = {each: retry_delay_ms(group, each) for each in sorted_unique(attempts).tolist()}
    due = [
        now_ms + spread_delay_ms(group, delays[attempt], position, attempt)
        for position, attempt in zip(
            positions[begins].tolist(), attempts[begins].tolist(), strict=True
        )
    ]
    return _rows(group_queue, np.stack((positions[begins], lasts + 1), axis=1), Outcome.RETRY, due)


def _message_runs(part: Part) -> list[tuple[int, int]]:
    """[first, end) of the runs of neighbours in a part's messages."""
    if part.messages is None:
        return [(part.first, part.end)]
    found: list[tuple[int, int]] = runs_of(np.array(part.messages, np.int64)).tolist()
    return found


def held_rows(
    views: Views,
    group: Group,
    group_queue: GroupQueue,
    ranges: Ranges,
    now_ms: int,
    delay_ms: int | None,
    *,
    is_spent: bool = False,
) -> NDArray[np.void]:
    """Rows that give positions [first, end) back to an ordered group, in their place.

    Each waits for `delay_ms`, or the group's own delay. One that has used up its attempts blocks
    its key, or becomes a dead letter: as the group wants it. `is_spent`: so do all.
    """
    queue, window = views.queues.get(group_queue.topic_queue), views.acks.get(*group_queue)
    start, end = queue.start_position, queue.end_position
    unresolved = [
        one
        for low, high in _pairs(ranges).tolist()
        for one in window.unresolved(max(low, start), min(high, end))
    ]
    positions = [at for low, high in unresolved for at in numbers_from(Position(low), high - low)]
    if not positions:
        return _rows(group_queue, (), Outcome.HELD)
    firsts = queue.pick(np.array(positions, np.int64))["attempt"].tolist()
    rows: list[tuple[int, int, int, int, int, int]] = []
    for position, first_attempt in zip(positions, firsts, strict=True):
        held = window.held.get(position)
        attempt = max(1, first_attempt) + (0 if held is None else held.failure_count)
        each = delay_ms
        if each is None:
            own_ms = retry_delay_ms(group, attempt)
            each = spread_delay_ms(group, own_ms, position, attempt)
        until_ms, is_last = now_ms + each, is_spent or attempt >= group.attempts_max
        if is_last and group.order == GroupOrder.BLOCK:
            until_ms = BLOCKED_MS
        rows.append((*group_queue, position, 1, Outcome.HELD, until_ms))
        if is_last and group.order == GroupOrder.DEAD_LETTER:
            rows.append((*group_queue, position, 1, Outcome.DEAD, 0))
    return np.array(rows, RESOLVE_ROW)


def unresolved_of(views: Views, group_queue: GroupQueue, part: Part) -> list[tuple[int, int]]:
    """What of a part of a lease is still to be resolved."""
    return list(views.acks.get(*group_queue).unresolved(part.first, part.end))


def _pairs(ranges: Ranges) -> NDArray[np.int64]:
    """int64[n, 2]."""
    return np.asarray(ranges, np.int64).reshape(-1, 2)


def _rows(
    group_queue: GroupQueue, ranges: Ranges, outcome: Outcome, due_ms: int | list[int] = 0
) -> NDArray[np.void]:
    if isinstance(ranges, list) and len(ranges) == 1 and isinstance(due_ms, int):
        (first, end), (group_id, number) = ranges[0], group_queue  # nearly all acks
        return np.array([(group_id, number, first, end - first, outcome, due_ms)], RESOLVE_ROW)
    pairs = _pairs(ranges)
    rows = np.zeros(len(pairs), RESOLVE_ROW)
    rows["group_id"], rows["topic_queue"] = group_queue
    rows["first_position"], rows["count"] = pairs[:, 0], pairs[:, 1] - pairs[:, 0]
    rows["outcome"], rows["retry_due_ms"] = outcome, due_ms
    return rows


@dataclass(slots=True)
class SelectedPositions:
    """The queue positions of one selection of messages."""

    outcome: ReceiptOutcome
    """OK, or why there is nothing to be done."""
    views: Views
    group_queue: GroupQueue
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """[first, end) of the positions that are finished with the messages."""
    picked: NDArray[np.int64] | None = None
    """int64[n, 2]: [first, end) of where the messages stand, all in one range; None: everywhere."""
    message_count: int = 0
    lease_id: int = 0
    """Of this epoch, where the lease lasts."""
    is_whole: bool = False
    """They are all of the lease's messages."""

    @property
    def position_count(self) -> int:
        """How many positions are finished."""
        return sum(end - first for first, end in self.ranges)

    def ack_rows(self) -> NDArray[np.void]:
        """Rows that acknowledge the messages, and resolve the rest of the ranges as filtered.

        In queue order. What the filter did not match is not acknowledged: the log must tell which
        messages a consumer got (decision 26).
        """
        if self.picked is None:
            return ack_rows(self.group_queue, self.ranges)
        return ack_picked_rows(self.group_queue, self.ranges[0], self.picked)

    def sequences(self) -> list[SequenceNumber]:
        """Of the messages that the group has not finished; none where their topic has gone."""
        if self.views.catalog.find_topic_by_id(topic_of(self.group_queue.topic_queue)) is None:
            return []
        queue = self.views.queues.get(self.group_queue.topic_queue)
        window = self.views.acks.get(*self.group_queue)
        spans = [
            np.arange(first, end, dtype=np.int64)
            for low, high in _pairs(self.ranges if self.picked is None else self.picked).tolist()
            for first, end in window.unresolved(max(low, queue.start_position), high)
        ]
        found: list[SequenceNumber] = (
            queue.pick(np.concatenate(spans))["sequence"].tolist() if spans else []
        )
        return found

    def nack_rows(self, group: Group, now_ms: int, ending: Ending) -> NDArray[np.void]:
        """Rows that give the messages back, and then resolve the rest of the ranges as filtered.

        Or that make dead letters of them.
        """
        delay_ms = ending.retry_delay_ms
        if group.is_ordered:
            return held_rows(
                self.views,
                group,
                self.group_queue,
                self.ranges,
                now_ms,
                delay_ms,
                is_spent=ending.is_rejection,
            )
        runs = self.ranges if self.picked is None else self.picked
        if ending.is_rejection:
            rows = dead_rows(self.group_queue, runs)
        else:
            rows = retry_rows(self.views, group, self.group_queue, runs, now_ms, delay_ms)
        if self.picked is None:
            return rows
        return join_rows([rows, filtered_rows(self.group_queue, self.ranges)])


def find_positions(
    shard: Shard,
    receiver: Receiver,
    group: Group,
    one: Selection,
    *,
    reads: Callable[[Group, TopicQueue], bool],
) -> SelectedPositions:
    """The positions of a selection. `reads`: whether a group receives from a queue.

    A receipt names neighbours by itself, even after their lease is over. Only their lease knows
    where messages stand that a filter picked: without it nothing is done, and they come again.
    """
    receipt = one.receipt
    group_queue = GroupQueue.of(group.group_id, receipt.topic_queue)

    def refused(outcome: ReceiptOutcome) -> SelectedPositions:
        return SelectedPositions(outcome, shard.views, group_queue)

    is_ours = receipt.cluster == shard.cluster and receipt.group_id == group.group_id
    if not is_ours or receipt.epoch > receiver.epoch or one.count <= 0:
        return refused(ReceiptOutcome.INVALID)
    is_stale = receiver.resets.is_stale(receipt)
    if is_stale or not reads(group, receipt.topic_queue):
        return refused(ReceiptOutcome.STALE if is_stale else ReceiptOutcome.INVALID)
    picked: NDArray[np.int64] | None = None
    leases, is_of_epoch = receiver.leases, receipt.epoch == receiver.epoch
    if is_of_epoch:
        lease = leases.get(receipt.lease_id)
    else:
        lease = leases.find_former(receipt.epoch, receipt.lease_id)
    high = one.first + one.count
    if receipt.lease_id & SPARSE_ID:
        if lease is None or (group.is_ordered and not lease.holds_all(one.first, high)):
            return refused(ReceiptOutcome.STALE)  # of an ordered group another may have it by now
        if lease.group_queue != group_queue or high > lease.count:
            return refused(ReceiptOutcome.INVALID)
        ranges = lease.ranges(one.first, high)
        if sum(end - first for first, end in ranges) != one.count:
            picked = lease.message_runs(one.first, high)
    else:
        first = receipt.first_position + one.first
        limit: int = shard.views.queues.get(receipt.topic_queue).end_position
        if is_of_epoch:
            limit = leases.delivered_end(group_queue)
        # With the id of another lease it would end one whose messages it does not stand for.
        is_own = lease is None or (lease.group_queue, lease.first) == (
            group_queue,
            receipt.first_position,
        )
        if first + one.count > limit or not is_own:
            return refused(ReceiptOutcome.INVALID)
        ranges = [(first, first + one.count)]
    return SelectedPositions(
        outcome=ReceiptOutcome.OK,
        views=shard.views,
        group_queue=group_queue,
        ranges=ranges,
        picked=picked,
        message_count=one.count,
        lease_id=lease.lease_id if lease is not None else 0,
        is_whole=lease is not None and one.count >= lease.count,
    )
