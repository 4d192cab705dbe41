"""A shard with ten thousand topics and groups, and a million leased messages, made without calls.

What the log would have made of it is put into the views and the lease table directly. Each group
reads the topic of its own number; one topic has many groups, and one group many topics. Half of the
topics have messages: their files are what takes long to make.
"""

from typing import Final, NamedTuple

import numpy as np

from hourwheel.internal.v1.state_pb2 import ConfigChange, GroupConfig, Subscription, TopicConfig
from hourwheel.types import GroupId, Position, TopicId, topic_queue
from node.replica.mastership import Mastership
from node.shard.group_queue import GroupQueue
from node.shard.views import Views
from storage.queues.consume_queue import CHUNK_ENTRIES, ConsumeQueue
from storage.views.catalog import Catalog
from storage.views.catalog_names import dead_letter_topic_name, retry_topic_name
from storage.views.unit import UNIT, Units

POPULAR: Final = "popular"
"""The topic of many groups."""
BROAD: Final = "broad"
"""The group of many topics."""
OLD: Final = "old"
"""A topic for `release_long_ago`: nothing else may be trimmed."""


_HOUR_MS: Final = 3_600_000
_LEASE_MESSAGES: Final = 20


class Size(NamedTuple):
    """How much there is."""

    topics: int = 10_000
    groups: int = 10_000
    queues: int = 5_000
    """Topics with messages: the first ones."""
    leased_each: int = 200
    """Messages of each that its group holds, by a lease for each twenty: 50,000 of them."""
    crowd: int = 2_000
    """Groups of `POPULAR`, and topics of `BROAD`."""


def topic_name(number: int) -> str:
    """Of the topic that group `number` reads."""
    return f"topic-{number:05}"


def group_name(number: int) -> str:
    """See `topic_name`."""
    return f"group-{number:05}"


def fill(mastership: Mastership, now_ms: int, size: Size) -> None:
    """Make it all, as if by the log. Nothing of it ends or is due before an hour has passed."""
    shard = mastership.shard
    catalog = shard.views.catalog
    topics = [put_topic(catalog, topic_name(number)) for number in range(size.topics)]
    groups = [put_group(catalog, group_name(number)) for number in range(size.groups)]
    popular, broad = put_topic(catalog, POPULAR), put_group(catalog, BROAD)
    for group_id, topic_id in zip(groups, topics, strict=False):
        subscribe(catalog, GroupId(group_id), TopicId(topic_id))
    for group_id in groups[: size.crowd]:
        subscribe(catalog, GroupId(group_id), TopicId(popular))
    for topic_id in topics[: size.crowd]:
        subscribe(catalog, GroupId(broad), TopicId(topic_id))
    entries = released(now_ms, size.leased_each + 2)
    for group_id, topic_id in zip(groups[: size.queues], topics, strict=False):
        _lease(
            mastership, GroupQueue.of(group_id, topic_queue(TopicId(topic_id), 0)), entries, now_ms
        )
    put_topic(catalog, OLD)


def release_long_ago(views: Views) -> ConsumeQueue:
    """Have `OLD` a chunk of messages that nobody retains any more; its queue."""
    queue = views.queues.get(topic_queue(views.catalog.get_topic(OLD).topic_id, 0))
    queue.append(released(1, CHUNK_ENTRIES))
    return queue


def _lease(mastership: Mastership, group_queue: GroupQueue, entries: Units, now_ms: int) -> None:
    """The first is resolved, the last passed over by a filter, and the others are leased."""
    shard, receiver = mastership.shard, mastership.receiver
    units = entries.copy()
    units["topic_queue"] = group_queue.topic_queue
    shard.views.queues.get(group_queue.topic_queue).append(units)
    shard.views.acks.to_change(*group_queue).resolve(0, 1)
    leases, last = receiver.leases, len(units) - 1
    leases.skip_to(group_queue, Position(last))
    for first in range(1, last, _LEASE_MESSAGES):
        leases.hold(
            group_queue, first, min(first + _LEASE_MESSAGES, last), now_ms + _HOUR_MS + first
        )
    leases.skip_to(group_queue, Position(last + 1))
    receiver.filtered_ranges.add(group_queue, last, last + 1, now_ms + _HOUR_MS)


def released(release_ms: int, count: int) -> Units:
    """Entries without bytes anywhere."""
    units = np.zeros(count, UNIT)
    units["due_ms"] = units["store_ms"] = release_ms
    units["position"] = 1 << 40
    units["attempt"] = 1
    return units


def put_topic(catalog: Catalog, name: str, *, is_internal: bool = False) -> int:
    """Make a topic; its number."""
    number = catalog.next_topic_id
    config = TopicConfig(topic_id=number, name=name, queue_count=1, internal=is_internal)
    assert catalog.apply(ConfigChange(put_topic=config))
    return number


def put_group(catalog: Catalog, name: str) -> int:
    """Make a group with its topic for dead letters; its number."""
    letters = put_topic(catalog, dead_letter_topic_name(name), is_internal=True)
    number = catalog.next_group_id
    config = GroupConfig(
        group_id=number,
        name=name,
        attempts_max=16,
        invisible_ms=30_000,
        retry_delay_ms=1_000,
        retry_delay_ms_max=1_000,
        dead_letter_topic_id=letters,
    )
    assert catalog.apply(ConfigChange(put_group=config))
    return number


def subscribe(catalog: Catalog, group_id: GroupId, topic_id: TopicId) -> None:
    """Have a group read a topic."""
    group, topic = catalog.find_group_by_id(group_id), catalog.find_topic_by_id(topic_id)
    assert group is not None
    assert topic is not None
    retries = put_topic(catalog, retry_topic_name(group.name, topic.name), is_internal=True)
    made = Subscription(group_id=group_id, topic_id=topic_id, retry_topic_id=retries)
    assert catalog.apply(ConfigChange(put_subscription=made))
