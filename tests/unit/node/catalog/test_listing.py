"""What there is, in parts: each bounded, and together everything once."""

from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import ConfigChange, GroupConfig, Subscription, TopicConfig
from node.catalog.listing import QUEUES_AT_ONCE
from node.contracts.lags import GroupLagInfo, LagPlace
from storage.views.catalog import Catalog
from storage.views.catalog_names import retry_topic_name
from tests.support.engine_world import EngineWorld


def put_topic(catalog: Catalog, name: str, queue_count: int = 1, *, internal: bool = False) -> int:
    number = catalog.next_topic_id
    config = TopicConfig(topic_id=number, name=name, queue_count=queue_count, internal=internal)
    assert catalog.apply(ConfigChange(put_topic=config))
    return number


def put_group(catalog: Catalog, name: str, topics: list[str]) -> None:
    number = catalog.next_group_id
    assert catalog.apply(ConfigChange(put_group=GroupConfig(group_id=number, name=name)))
    for topic in topics:
        retries = put_topic(catalog, retry_topic_name(name, topic), internal=True)
        topic_id = catalog.get_topic(topic).topic_id
        made = Subscription(group_id=number, topic_id=topic_id, retry_topic_id=retries)
        assert catalog.apply(ConfigChange(put_subscription=made))


async def test_topics_come_by_name_in_parts_without_the_clusters_own(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        catalog = world.engine.shard.views.catalog
        for name in ("b", "-", "%mine", "a", "Z", "0"):
            put_topic(catalog, name, internal=name[0] == "%")
        told, after = [], ""
        while part := world.engine.topics(after, 2, include_internal=False):
            told.append([topic.name for topic in part])
            after = part[-1].name
        assert told == [["-", "0"], ["Z", "a"], ["b"]]
        assert world.topics(include_internal=True)[0].name == "%mine"


async def test_a_part_of_topics_looks_at_few_queues_however_many_each_has(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        catalog = world.engine.shard.views.catalog
        for number in range(7):
            put_topic(catalog, f"t{number}", 200)
        assert len(world.topics()) == QUEUES_AT_ONCE // 200
        assert [one.name for one in world.engine.topics("t5", 9, include_internal=True)] == ["t6"]


async def test_group_comes_in_parts_with_lag_and_filter_of_each_topic_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        catalog = world.engine.shard.views.catalog
        topics = [f"t{number}" for number in range(7)]
        for topic in topics:
            put_topic(catalog, topic, 18)
        put_group(catalog, "g", topics)
        told, after = [], 0
        while True:
            part = world.engine.group("g", after, 100)
            assert [lag.topic for lag in part.lags] == [one.topic for one in part.subscriptions]
            told.append([lag.topic for lag in part.lags])
            after = part.next_after
            if not after:
                break
        assert told == [["t0", "t1"], ["t2", "t3"], ["t4", "t5"], ["t6"]]
        with pytest.raises(errors.UnknownGroup):
            world.engine.group("h", 0, 1)


async def test_groups_in_a_list_tell_some_of_their_subscriptions(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        catalog = world.engine.shard.views.catalog
        topics = [f"t{number:03}" for number in range(130)]
        for topic in topics:
            put_topic(catalog, topic)
        for name in ("b", "a"):
            put_group(catalog, name, topics)
        found = world.groups()
        assert [(one.name, len(one.subscriptions), one.lags) for one in found] == [
            ("a", 100, ()),
            ("b", 100, ()),
        ]
        assert [one.name for one in world.engine.groups("a", 5)] == ["b"]


async def test_all_lags_are_told_in_bounded_parts_also_when_groups_go_meanwhile(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        catalog = world.engine.shard.views.catalog
        for number in range(5):
            put_topic(catalog, f"t{number}", 60)
        for name in ("a", "b", "c", "d"):
            put_group(catalog, name, [f"t{number}" for number in range(5)])
        first = world.engine.lags(None)
        assert 0 < len(first.lags) < 4
        assert first.place is not None
        gone = catalog.get_group(first.place.group).group_id
        assert catalog.apply(ConfigChange(delete_group_id=gone))
        told, place = list(first.lags), first.place
        while place is not None:
            part = world.engine.lags(place)
            assert len(part.lags) < 4
            told += part.lags
            place = part.place
        names = [name for name, _ in told]
        assert [names.count(name) for name in "cd"] == [5, 5]
        assert len(told) == len(set(told)), "none twice"


async def test_lag_is_that_of_the_group(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 5)
        delivery = await world.leased(count=3)
        await world.ack(world.select(delivery, 0, 1))
        expected = GroupLagInfo("orders", 4, 2, oldest_ms=world.now_ms)
        world.advance(5_000)
        assert expected.age_ms(world.now_ms) == 5_000
        assert world.group().lags == (expected,)
        assert world.engine.lags(None) == ([("billing", expected)], None)
        assert world.engine.lags(LagPlace("billing", 0)) == ([], None)
