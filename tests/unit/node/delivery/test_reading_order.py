"""Which queues a group reads, as what it follows from changes."""

from dataclasses import replace

from hourwheel.filter_language.text import FilterExpression
from hourwheel.internal.v1.state_pb2 import ConfigChange, TopicConfig
from hourwheel.types import TopicQueue
from node.delivery.reading_order import Reading, ReadingOrder
from node.delivery.resets import Resets
from node.shard.recovery import ShardConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import GROUP, QUEUES, RETRIES, TOPIC
from tests.support.shard_world import ShardWorld

RETRY_QUEUE = TopicQueue(RETRIES << 8)
HIGH = TopicQueue(TOPIC << 8 | 250)
"""Of a priority."""


def test_reading_follows_the_catalog_and_priorities() -> None:
    views = ShardWorld(SimulatedDisk(), ShardConfig()).opened.shard.views
    resets = Resets(views.catalog)
    order = ReadingOrder(views, resets)
    own = [RETRY_QUEUE, *QUEUES]
    found = order.find(GROUP, TOPIC)
    assert found.levels == [found.group_queues]
    assert [one.topic_queue for one in found.group_queues] == found.queues == own
    assert order.find(GROUP, TOPIC) is found, "nothing has changed"
    resets.begin(GROUP, TOPIC)
    assert order.find(GROUP, TOPIC).queues == [], "until the record is applied"
    resets.end(GROUP, TOPIC)
    assert order.find(GROUP, TOPIC) is found
    views.queues.get(HIGH)
    assert order.find(GROUP, TOPIC).queues == [HIGH, *own]
    topic = views.catalog.find_topic_by_id(TOPIC)
    assert topic is not None
    put = TopicConfig(topic_id=TOPIC, name=topic.name, queue_count=len(QUEUES) + 1)
    assert views.catalog.apply(ConfigChange(put_topic=put))
    assert order.find(GROUP, TOPIC).queues == [HIGH, *own, TopicQueue(QUEUES[-1] + 1)]
    assert views.catalog.apply(ConfigChange(delete_group_id=GROUP))
    assert order.find(GROUP, TOPIC) == Reading([], [], [], is_ordered=False, is_filtered=False)


def test_reading_knows_whether_the_group_filters() -> None:
    views = ShardWorld(SimulatedDisk(), ShardConfig()).opened.shard.views
    order = ReadingOrder(views, Resets(views.catalog))
    assert order.find(GROUP, TOPIC).is_plain
    subscription = views.catalog.find_subscription(GROUP, TOPIC)
    assert subscription is not None
    put = replace(subscription, filter=FilterExpression.tags("a")).config()
    assert views.catalog.apply(ConfigChange(put_subscription=put))
    assert order.find(GROUP, TOPIC).is_filtered
    assert not order.find(GROUP, TOPIC).is_plain
