"""Which queues a group reads for a topic, and in which order.

Asked several times for each poll, and the same as long as topics, groups and priorities stay as
they are: so it is remembered until any of these changes.
"""

from itertools import chain
from typing import Final, NamedTuple

from hourwheel.types import GroupId, TopicId, TopicQueue, queue_of, topic_queue
from node.delivery.resets import Resets
from node.shard.group_queue import GroupQueue
from node.shard.views import Views


class Reading(NamedTuple):
    """What a Receive of a group and a topic reads. Its lists are not changed."""

    levels: list[list[GroupQueue]]
    """Queues of each priority, the highest first; in each, the retries first."""
    queues: list[TopicQueue]
    """All of them, in this order."""
    group_queues: list[GroupQueue]
    """The same, with the group."""
    is_ordered: bool
    """Whether the group keeps the order of keys."""
    is_filtered: bool
    """Whether the subscription has a filter."""

    @property
    def is_plain(self) -> bool:
        """Whether what stands next in each queue is what the group gets."""
        return not self.is_ordered and not self.is_filtered


_NOTHING: Final = Reading([], [], [], is_ordered=False, is_filtered=False)


class ReadingOrder:
    """The readings of one shard's groups.

    Invariant: what is remembered is of the catalog and of the queues of priorities as they were
    after `_changes` changes.
    """

    def __init__(self, views: Views, resets: Resets) -> None:
        """Of these views; a group gets nothing of a topic in which its reset is on its way."""
        self._views, self._resets = views, resets
        self._changes = 0, 0
        self._known: dict[tuple[GroupId, TopicId], Reading] = {}

    def find(self, group_id: GroupId, topic_id: TopicId) -> Reading:
        """What a group reads for a topic; nothing without a subscription, or while it is reset."""
        if self._resets.is_under_way(group_id, topic_id):
            return _NOTHING
        views = self._views
        changes = views.catalog.change_count, views.queues.priority_changes
        if changes != self._changes:
            self._known.clear()
            self._changes = changes
        interest = group_id, topic_id
        found = self._known.get(interest)
        if found is None:
            found = self._make(group_id, topic_id)
            if found.queues:  # others are not asked for again and again
                self._known[interest] = found
        return found

    def _make(self, group_id: GroupId, topic_id: TopicId) -> Reading:
        catalog = self._views.catalog
        levels = [
            [GroupQueue(group_id, one) for one in level]
            for level in self._levels(group_id, topic_id)
        ]
        group_queues = list(chain.from_iterable(levels))
        group, subscription = (
            catalog.find_group_by_id(group_id),
            catalog.find_subscription(group_id, topic_id),
        )
        return Reading(
            levels,
            [one.topic_queue for one in group_queues],
            group_queues,
            is_ordered=group is not None and group.is_ordered,
            is_filtered=subscription is not None and subscription.filter is not None,
        )

    def _levels(self, group_id: GroupId, topic_id: TopicId) -> list[list[TopicQueue]]:
        catalog = self._views.catalog
        subscription = catalog.find_subscription(group_id, topic_id)
        topic = catalog.find_topic_by_id(topic_id)
        if subscription is None or topic is None:
            return []
        own = [topic_queue(topic_id, queue) for queue in range(topic.queue_count)]
        own.insert(0, topic_queue(subscription.retry_topic_id, 0))
        retries = self._views.queues.priority_queues_of(subscription.retry_topic_id)
        others = self._views.priority_queues_of(topic)
        if not retries and not others:
            return [own]
        levels: dict[int, list[TopicQueue]] = {}
        for number in (*retries, *others):
            levels.setdefault(queue_of(number), []).append(TopicQueue(number))
        return [*(levels[one] for one in sorted(levels, reverse=True)), own]
