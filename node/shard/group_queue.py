"""A consumer group and one queue of a topic: what leases, marks and lags are kept for."""

from typing import NamedTuple

from hourwheel.types import GroupId, TopicQueue


class GroupQueue(NamedTuple):
    """A group and one of its queues."""

    group_id: GroupId
    topic_queue: TopicQueue

    @classmethod
    def of(cls, group_id: int, topic_queue: int) -> "GroupQueue":
        """From numbers as units and messages carry them."""
        return cls(GroupId(group_id), TopicQueue(topic_queue))
