"""A consumer group and one queue of a topic: what leases, marks and lags are kept for."""

from typing import NamedTuple


class GroupQueue(NamedTuple):
    """A group and one of its queues."""

    group_id: int
    topic_queue: int
