"""What leases hold, as a successor is told."""

from hourwheel.internal.v1.replication_pb2 import HeldRange, SparseLease
from hourwheel.types import Epoch
from node.delivery.leases import Leases
from node.shard.group_queue import GroupQueue


def leased_ranges(leases: Leases, group_queue: GroupQueue) -> list[tuple[int, int]]:
    """[first, end) of each part of a lease of a group's queue; some of it may be resolved."""
    table = leases.table(Epoch(1))
    found = [(one.first, one.end) for one in table.ranges if _is_of(one, group_queue)]
    for lease in table.sparse:
        found += [(part.first, part.end) for part in lease.parts if _is_of(lease, group_queue)]
    return found


def _is_of(lease: HeldRange | SparseLease, group_queue: GroupQueue) -> bool:
    return (lease.group_id, lease.topic_queue) == group_queue
