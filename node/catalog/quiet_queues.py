"""Queues into which nothing was released for as long as what is released is retained.

A queue loses what is past retention a whole chunk at a time, so a short one keeps its last entries
for ever. No group was promised them. Whether all entries of a queue are that old, its end tells: it
has not moved for so long, while this master looked on. So no file is read.
"""

from collections.abc import Callable

from hourwheel.types import TopicQueue
from storage.queues.consume_queues import ConsumeQueues


class QuietQueues:
    """Ends of queues, and since when they are known.

    A walk through all queues that matter calls `turn_over` at the end, so that those of
    topics that are gone are forgotten. A new master counts from its own beginning.
    """

    def __init__(self, queues: ConsumeQueues, retention_ms: Callable[[TopicQueue], int]) -> None:
        """Nothing is known yet of `queues`; `retention_ms` tells that of one."""
        self._queues, self._retention_ms = queues, retention_ms
        self._known: dict[TopicQueue, tuple[int, int]] = {}
        """Queue -> (its end, when that was seen first)."""
        self._known_next: dict[TopicQueue, tuple[int, int]] = {}
        """The same without those that are not needed any more."""

    def is_over(self, topic_queue: TopicQueue, now_ms: int) -> bool:
        """Whether nothing in it is retained: it is empty, or all of it is older than that."""
        start, end = self._queues.bounds(topic_queue)
        if start == end:
            return True
        known = self._known.get(topic_queue)
        if known is None or known[0] != end:
            known = self._known[topic_queue] = end, now_ms
        self._known_next[topic_queue] = known
        return now_ms - known[1] > self._retention_ms(topic_queue)

    def turn_over(self) -> None:
        """All were asked for: what was not is forgotten."""
        self._known, self._known_next = self._known_next, {}
