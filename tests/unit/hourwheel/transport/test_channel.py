import asyncio

import pytest

from hourwheel import errors
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import DELETE_TOPIC, LIST_TOPICS
from hourwheel.transport.retry import Backoff
from hourwheel.v1 import admin_pb2
from tests.support.fake_node import FakeNode

LIST = admin_pb2.ListTopicsRequest()
DELETE = admin_pb2.DeleteTopicRequest(name="t")


async def test_call_when_refused_with_params(node: FakeNode, channel: Channel) -> None:
    node.fail_next("ListTopics", errors.TooManyItems("too many", count=5, count_max=4))
    with pytest.raises(errors.TooManyItems, match="too many") as refused:
        await channel.call(LIST_TOPICS, LIST)
    assert refused.value.params == {"count": "5", "count_max": "4"}


async def test_call_when_refused_for_now(node: FakeNode, channel: Channel) -> None:
    node.fail_next("ListTopics", errors.Overloaded(), errors.ShuttingDown(), errors.Timeout())
    await channel.call(LIST_TOPICS, LIST)
    assert len(node.calls["ListTopics"]) == 4
    node.fail_next("ListTopics", errors.Overloaded())
    with pytest.raises(errors.Overloaded):
        await channel.call(LIST_TOPICS, LIST, is_retried=False)


async def test_call_when_it_must_not_be_repeated(node: FakeNode, channel: Channel) -> None:
    node.topics["t"] = 1
    node.fail_next("DeleteTopic", errors.Overloaded())
    await channel.call(DELETE_TOPIC, DELETE)  # a definite refusal may be tried again
    assert len(node.calls["DeleteTopic"]) == 2
    node.fail_next("DeleteTopic", errors.Timeout())
    with pytest.raises(errors.Timeout):
        await channel.call(DELETE_TOPIC, DELETE)
    assert len(node.calls["DeleteTopic"]) == 3


async def test_call_when_the_connection_breaks_under_it(node: FakeNode, channel: Channel) -> None:
    with node.hold("DeleteTopic"):
        call = asyncio.create_task(channel.call(DELETE_TOPIC, DELETE))
        await node.seen("DeleteTopic")
        await node.stop()
        with pytest.raises(errors.Timeout, match="outcome is unknown"):
            await call
    assert len(node.calls["DeleteTopic"]) == 1


async def test_call_when_time_runs_out(node: FakeNode, channel: Channel) -> None:
    await channel.connect()
    with node.hold("ListTopics"), pytest.raises(errors.Timeout):
        await channel.call(LIST_TOPICS, LIST, timeout_ms=20.0)


async def test_call_when_there_is_no_node(node: FakeNode) -> None:
    await node.stop()
    async with Channel(node.address, backoff=Backoff(ms_min=1.0, ms_max=1.0)) as channel:
        with pytest.raises(errors.Unavailable, match="no connection to 127"):
            await channel.call(LIST_TOPICS, LIST, timeout_ms=30.0)
        with pytest.raises(errors.Unavailable, match=r"no connection to 127.*: connection refused"):
            await channel.call(DELETE_TOPIC, DELETE, timeout_ms=30.0)


async def test_call_when_closed(channel: Channel) -> None:
    await channel.call(LIST_TOPICS, LIST)
    await channel.close()
    with pytest.raises(errors.Cancelled):
        await channel.call(LIST_TOPICS, LIST)


async def test_close_ends_what_is_under_way_and_nothing_of_others(
    node: FakeNode, channel: Channel
) -> None:
    """They share a connection."""
    async with Channel(node.address) as other:
        await other.call(LIST_TOPICS, LIST)
        with node.hold("ListTopics"):
            ours = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
            theirs = asyncio.create_task(other.call(LIST_TOPICS, LIST))
            stream = channel.publish_stream(1_000.0, is_bulk=True)
            await node.seen("ListTopics", 3)
            await channel.close()
            with pytest.raises(errors.Cancelled):
                await ours
            assert not ours.cancelling()
            with pytest.raises(asyncio.CancelledError):
                await stream.read()
        await theirs


async def test_close_ends_waiting_for_a_connection(node: FakeNode) -> None:
    await node.stop()
    async with Channel(node.address) as channel, Channel(node.address) as other:
        waiting = [asyncio.create_task(one.connect()) for one in (channel, other)]
        await asyncio.sleep(0)
        await channel.close()
        with pytest.raises(errors.Cancelled):
            await waiting[0]
        assert not waiting[1].done()
        await node.start()
        await waiting[1]
