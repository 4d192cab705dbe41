"""The positions that a receipt names, and the RESOLVE rows that finish them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hourwheel.outcomes import ReceiptOutcome
from node.contracts.broker import Selection
from node.delivery.message_lease import SPARSE_ID
from node.delivery.receiver import Receiver
from node.delivery.retries import ack_picked_rows, ack_rows, filtered_rows, retry_rows
from node.shard.group_queue import GroupQueue
from node.shard.shard import Shard
from node.shard.views import Views
from storage.views.catalog_items import Group


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

    def ack_rows(self) -> NDArray[Any]:
        """Rows that acknowledge the messages, and resolve the rest of the ranges as filtered.

        In queue order. What the filter did not match is not acknowledged: the log must tell which
        messages a consumer got (decision 26).
        """
        if self.picked is None:
            return ack_rows(self.group_queue, self.ranges)
        return ack_picked_rows(self.group_queue, self.ranges[0], self.picked)

    def nack_rows(self, group: Group, now_ms: int, delay_ms: int | None) -> NDArray[Any]:
        """Rows that give the messages back, and then resolve the rest of the ranges as filtered."""
        runs = self.ranges if self.picked is None else self.picked
        rows = retry_rows(self.views, group, self.group_queue, runs, now_ms, delay_ms)
        if self.picked is None:
            return rows
        return np.concatenate([rows, filtered_rows(self.group_queue, self.ranges)])


def find_positions(
    shard: Shard,
    receiver: Receiver,
    group: Group,
    one: Selection,
    *,
    reads: Callable[[Group, int], bool],
) -> SelectedPositions:
    """The positions of a selection. `reads`: whether a group receives from a queue.

    A receipt names neighbours by itself, even after their lease is over. Only their lease knows
    where messages stand that a filter picked: without it nothing is done, and they come again.
    """
    receipt = one.receipt
    group_queue = GroupQueue(group.group_id, receipt.topic_queue)
    invalid = SelectedPositions(ReceiptOutcome.INVALID, shard.views, group_queue)
    if receipt.cluster != shard.cluster or receipt.group_id != group.group_id or one.count <= 0:
        return invalid
    if receipt.epoch > receiver.epoch or not reads(group, receipt.topic_queue):
        return invalid
    picked: NDArray[np.int64] | None = None
    leases, is_of_epoch = receiver.leases, receipt.epoch == receiver.epoch
    if is_of_epoch:
        lease = leases.get(receipt.lease_id)
    else:
        lease = leases.find_former(receipt.epoch, receipt.lease_id)
    high = one.first + one.count
    if receipt.lease_id & SPARSE_ID:
        if lease is None:
            return SelectedPositions(ReceiptOutcome.STALE, shard.views, group_queue)
        if lease.group_queue != group_queue or high > lease.count:
            return invalid
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
            return invalid
        ranges = [(first, first + one.count)]
    return SelectedPositions(
        ReceiptOutcome.OK,
        shard.views,
        group_queue,
        ranges,
        picked,
        one.count,
        lease.lease_id if lease is not None else 0,
        lease is not None and one.count >= lease.count,
    )
