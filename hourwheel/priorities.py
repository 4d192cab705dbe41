"""Priorities, and the queues of a topic in which messages that have one are released.

A message's priority is 0 to 9; 0 is that of most, and of what says none. A topic's own queues have
the messages of priority 0. Those of each other priority have one queue more, near the end of a
topic's numbers, which exists once something was released there:

    queue    0 ... queue count - 1        247  248  ...  255
    priority         0                      1    2  ...    9

The same holds of the topic of a group's retries. So an entry's queue says its priority, without the
message. A topic with more queues than 247 has no room for priorities.
"""

from typing import Final

from hourwheel.types import QUEUE_COUNT_MAX, TopicId, TopicQueue, queue_of, topic_queue

NO_PRIORITY: Final = 0
"""The lowest priority, and that of messages that say none."""
PRIORITY_MAX: Final = 9
FIRST_PRIORITY_QUEUE: Final = QUEUE_COUNT_MAX - PRIORITY_MAX
"""The queue of priority 1."""


def has_room(queue_count: int) -> bool:
    """Whether messages of a topic with so many queues may have a priority."""
    return queue_count <= FIRST_PRIORITY_QUEUE


def priority_queue(topic_id: TopicId, priority: int) -> TopicQueue:
    """Where messages of a topic are released that have this priority, 1 to 9."""
    return topic_queue(topic_id, FIRST_PRIORITY_QUEUE - 1 + priority)


def priority_of(number: int, queue_count: int) -> int:
    """The priority of what is released to a queue, whose topic has so many queues of its own."""
    above = queue_of(number) - FIRST_PRIORITY_QUEUE + 1
    return above if above > 0 and has_room(queue_count) else NO_PRIORITY


def retry_queue(retry_topic_id: TopicId, number: int, queue_count: int) -> TopicQueue:
    """Where a message from queue `number` is released that is tried again.

    Args:
        retry_topic_id: the topic of the group's retries.
        number: the queue in which it was leased.
        queue_count: how many queues of its own that queue's topic has.
    """
    priority = priority_of(number, queue_count)
    return priority_queue(retry_topic_id, priority) if priority else topic_queue(retry_topic_id, 0)


def is_priority_queue(number: int) -> bool:
    """Whether a queue is that of a priority, if its topic has room for priorities."""
    return queue_of(number) >= FIRST_PRIORITY_QUEUE
