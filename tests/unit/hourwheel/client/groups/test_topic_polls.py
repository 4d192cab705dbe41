"""One consumer of several topics: whose turn it is, and which topics a pattern means."""

import re
from fnmatch import translate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.groups import topic_polls as module
from hourwheel.client.groups.topic_polls import TopicChoice
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.channel import Channel
from tests.support.fake_node import FakeNode

TOPICS = [f"orders-{number}" for number in range(5)]


@given(pattern=st.text("ab*?", min_size=1, max_size=12), name=st.text("ab", max_size=12))
def test_pattern_means_what_a_glob_means(pattern: str, name: str) -> None:
    expected = re.match(translate(pattern), name) is not None
    assert TopicChoice(pattern=pattern).matches(name) is expected


def test_pattern_of_many_stars_takes_no_time() -> None:
    assert not TopicChoice(pattern="*a" * 60 + "b").matches("a" * 127)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"topics": "orders"},
        {"topics": ["a"], "pattern": "*"},
        {"topics": ["a"] * (module.TOPICS_MAX + 1)},
        {"pattern": "*" * 128},
        {"topic": "a", "topics": ["b"]},
        {"topics": ["a"], "prefetch_messages": 0},
    ],
)
async def test_choice_is_refused_when_it_is_none(channel: Channel, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        AsyncConsumer(channel, group="g", **wrong)


@pytest.fixture
async def filled(channel: Channel, node: FakeNode) -> Channel:
    """Of a node with three messages in each topic."""
    async with AsyncAdmin(channel) as admin, AsyncProducer(channel) as producer:
        for topic in TOPICS:
            await admin.create_topic(topic)
            await producer.publish_many(topic, [Message(topic.encode())] * 3)
    return channel


async def drain(consumer: AsyncConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = await consumer.receive(1, wait_ms=30_000)
        assert messages
        found += [one.body for one in messages]
        await consumer.ack(messages)
    return found


@pytest.mark.parametrize("chosen", [{"topics": TOPICS}, {"pattern": "orders-*"}])
async def test_messages_of_all_topics_come(filled: Channel, chosen: dict[str, Any]) -> None:
    async with AsyncConsumer(filled, group="g", **chosen) as consumer:
        found = await drain(consumer, 15)
    assert sorted(found) == sorted([topic.encode() for topic in TOPICS] * 3)


async def test_topics_share_few_polls(
    filled: Channel, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.client.consumer.TOPIC_POLLS", 2)
    monkeypatch.setattr(module, "SHORT_WAIT_MS", 1.0)
    async with AsyncConsumer(filled, group="g", topics=TOPICS) as consumer:
        found = await drain(consumer, 15)
    assert sorted(found) == sorted([topic.encode() for topic in TOPICS] * 3)
    first = [one.topic for one in node.calls["Receive"]][:5]
    assert sorted(first) == TOPICS, "each has its turn before one has a second"


async def test_pattern_finds_topics_that_are_made_later(
    filled: Channel, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFRESH_MS", 1.0)
    monkeypatch.setattr("hourwheel.client.consumer.POLL_WAIT_MS", 20)
    async with AsyncConsumer(filled, group="g", pattern="orders-*") as consumer:
        await drain(consumer, 15)
        async with AsyncAdmin(filled) as admin, AsyncProducer(filled) as producer:
            for topic in ("orders-new", "others"):
                await admin.create_topic(topic)
                await producer.publish(topic, Message(topic.encode()))
        assert await drain(consumer, 1) == [b"orders-new"]


@pytest.mark.parametrize("why", [errors.UnknownTopic(), errors.PermissionDenied()])
async def test_topic_of_a_pattern_comes_back_when_it_was_refused_for_a_while(
    filled: Channel, node: FakeNode, monkeypatch: pytest.MonkeyPatch, why: errors.HourwheelError
) -> None:
    """Deleted and made again, or forbidden and allowed again, between two look-ups."""
    monkeypatch.setattr(module, "REFRESH_MS", 1.0)
    monkeypatch.setattr("hourwheel.client.consumer.POLL_WAIT_MS", 20)
    node.fail_next("Receive", *[why] * len(TOPICS))
    async with AsyncConsumer(filled, group="g", pattern="orders-*") as consumer:
        found = await drain(consumer, 15)
    assert sorted(found) == sorted([topic.encode() for topic in TOPICS] * 3)


async def test_topic_of_a_pattern_is_left_alone_until_it_is_looked_up(
    filled: Channel, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.client.consumer.POLL_WAIT_MS", 20)
    node.fail_next("Receive", errors.UnknownTopic())
    async with AsyncConsumer(filled, group="g", pattern="orders-*") as consumer:
        found = await drain(consumer, 12)
        refused = node.calls["Receive"][0].topic
        assert refused.encode() not in found
        assert [one.topic for one in node.calls["Receive"]].count(refused) == 1
