"""Clients of a cluster: who is asked, and that nothing is lost, repeated or refused on the way.

The nodes are fakes that keep the same messages; what the rules say alone: test_endpoints.py.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.admin import AsyncAdmin
from hourwheel.channel import Channel
from hourwheel.consumer import AsyncConsumer
from hourwheel.endpoints import Servers, Trouble
from hourwheel.message import Message
from hourwheel.methods import DELETE_TOPIC, LIST_TOPICS
from hourwheel.outcomes import CancelOutcome
from hourwheel.producer import AsyncProducer
from hourwheel.session import Backoff
from hourwheel.wire import admin_pb2
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_node import FakeNode

LIST = admin_pb2.ListTopicsRequest()
DELETE = admin_pb2.DeleteTopicRequest(name="t")
QUICK = Backoff(ms_min=1.0, ms_max=5.0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3) as started:
        yield started


def channel_to(servers: Servers, **settings: Any) -> Channel:
    """A channel that begins with the first of `servers`."""
    channel = Channel(servers, backoff=QUICK, **settings)
    channel.random = lambda: 0.0
    return channel


def batches(cluster: FakeCluster) -> list[list[bytes]]:
    """The record batches that each node was sent, without their stamps."""
    return [
        [request.record_batch for request in node.calls["PublishStream"]] for node in cluster.nodes
    ]


# --- unary calls ----------------------------------------------------------------------------------


async def test_call_when_redirected(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[2])
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
        assert cluster.count("ListTopics") == [1, 0, 1]
        assert channel.endpoints.epoch == cluster.epoch
        await channel.call(LIST_TOPICS, LIST)
        assert cluster.count("ListTopics") == [1, 0, 2]


async def test_call_when_redirected_to_a_node_that_was_not_named(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[1])
    async with channel_to(cluster.nodes[0].address) as channel:
        await channel.call(LIST_TOPICS, LIST)
    assert cluster.count("ListTopics") == [1, 1, 0]


async def test_call_when_redirected_and_it_must_not_be_repeated(cluster: FakeCluster) -> None:
    cluster.nodes[0].topics["t"] = 1
    cluster.promote(cluster.nodes[1])
    async with channel_to(cluster.servers) as channel:
        await channel.call(DELETE_TOPIC, DELETE)
    assert cluster.count("DeleteTopic") == [1, 1, 0]


async def test_call_when_nobody_names_the_master(cluster: FakeCluster) -> None:
    cluster.are_hints_given = False
    cluster.promote(cluster.nodes[2])
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
    assert cluster.count("ListTopics")[2] == 1


async def test_call_when_nodes_point_in_a_circle(cluster: FakeCluster) -> None:
    first, second = cluster.nodes[:2]
    to_first = errors.NotMaster(master_address=first.address, epoch=90)
    to_second = errors.NotMaster(master_address=second.address, epoch=90)
    first.fail_next("ListTopics", *[to_second] * 1_000)
    second.fail_next("ListTopics", *[to_first] * 1_000)
    async with channel_to([first.address, second.address]) as channel:
        with pytest.raises(errors.NotMaster):
            await channel.call(LIST_TOPICS, LIST, timeout_ms=200.0)
    assert sum(cluster.count("ListTopics")) < 1_000


async def test_call_when_the_node_of_choice_is_gone(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[1])
    await cluster.nodes[0].stop()
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
        now_ms = channel.clock.monotonic_ms()
        assert channel.endpoints.choose(now_ms, 0.0) == cluster.nodes[1].address


async def test_call_when_the_connection_breaks_under_it(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        with first.hold("ListTopics"):
            call = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
            await first.seen("ListTopics")
            cluster.promote(second)
            await first.stop()
            await call
    assert cluster.count("ListTopics")[:2] == [1, 1]


async def test_call_when_it_breaks_and_must_not_be_repeated(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        with first.hold("DeleteTopic"):
            call = asyncio.create_task(channel.call(DELETE_TOPIC, DELETE))
            await first.seen("DeleteTopic")
            cluster.promote(second)
            await first.stop()
            with pytest.raises(errors.Timeout, match="outcome is unknown"):
                await call
        assert cluster.count("DeleteTopic") == [1, 0, 0]
        second.topics["t"] = 1
        await channel.call(DELETE_TOPIC, DELETE)  # the next one goes where there is a master
    assert cluster.count("DeleteTopic") == [1, 1, 0]


async def test_call_when_a_node_does_not_answer(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.session.TRY_MS", 600.0)
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        await channel.connect()
        with first.hold("ListTopics"):
            cluster.promote(second)
            await channel.call(LIST_TOPICS, LIST)
            assert channel.endpoints.trouble_of(first.address, channel.clock.monotonic_ms())
    assert cluster.count("ListTopics")[:2] == [1, 1]


async def test_call_when_a_node_is_slow(cluster: FakeCluster) -> None:
    clock = FakeClock()
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers, clock=clock) as channel:
        with first.hold("ListTopics"):
            call = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
            await first.seen("ListTopics")
            clock.pass_ms(700.0)
        await call
        assert channel.endpoints.trouble_of(first.address, clock.monotonic_ms()) is Trouble.SLOW
        cluster.promote(second)
        await channel.call(LIST_TOPICS, LIST)
        assert cluster.count("ListTopics")[:2] == [1, 1]


async def test_call_when_the_slow_node_is_still_the_master(cluster: FakeCluster) -> None:
    clock = FakeClock()
    first = cluster.nodes[0]
    async with channel_to(cluster.servers, clock=clock) as channel:
        for calls in (1, 2, 3):
            with first.hold("ListTopics"):
                call = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
                await first.seen("ListTopics", calls)
                clock.pass_ms(700.0)
            await call
    assert sum(cluster.count("ListTopics")[1:]) == 1  # doubted once, named all the same


async def test_long_poll_when_it_takes_long(cluster: FakeCluster) -> None:
    clock = FakeClock()
    first = cluster.nodes[0]
    async with channel_to(cluster.servers, clock=clock) as channel:
        consumer = AsyncConsumer(channel, group="g", topic="t", prefetch_messages=0)
        poll = asyncio.create_task(consumer.receive())
        await first.seen("Receive")
        clock.pass_ms(15_000.0)
        first.add_topic("t", b"one")
        assert [message.body for message in await poll] == [b"one"]
        assert not channel.endpoints.trouble_of(first.address, clock.monotonic_ms())
        await consumer.close()


async def test_call_when_all_are_down_and_one_comes_back(cluster: FakeCluster) -> None:
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
        for node in cluster.nodes:
            await node.stop()
        with pytest.raises(errors.Unavailable, match="no connection to 127"):
            await channel.call(LIST_TOPICS, LIST, timeout_ms=50.0)
        call = asyncio.create_task(channel.call(LIST_TOPICS, LIST, timeout_ms=30_000.0))
        cluster.promote(cluster.nodes[2])
        await cluster.nodes[2].start()
        await call
    assert cluster.count("ListTopics")[2] == 1


# --- learning -------------------------------------------------------------------------------------


async def test_nodes_when_only_one_was_named(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with channel_to(first.address) as channel:
        await channel.connect()
        await until(lambda: len(channel.endpoints.addresses) == 3)
        await first.stop()
        cluster.promote(second)
        await channel.call(LIST_TOPICS, LIST)
    assert cluster.count("ListTopics")[:2] == [0, 1]


async def test_nodes_when_one_has_left_the_cluster(cluster: FakeCluster) -> None:
    gone = cluster.nodes[2]
    async with channel_to(cluster.nodes[0].address) as channel:
        admin = AsyncAdmin(channel)
        await admin.status()
        assert set(channel.endpoints.addresses) == {node.address for node in cluster.nodes}
        cluster.promote(gone)
        await admin.topics()
        cluster.promote(cluster.nodes[1])
        cluster.nodes.remove(gone)
        await admin.topics()
        await admin.status()
        assert gone.address not in channel.endpoints.addresses
        assert gone.address not in channel._connections
    await gone.stop()


async def test_nodes_when_a_single_node_is_known_by_another_name() -> None:
    async with FakeNode() as node, channel_to(node.address) as channel:
        await channel.call(LIST_TOPICS, LIST)
        await node.seen("GetStatus")
        await channel.call(LIST_TOPICS, LIST)
        assert channel.endpoints.addresses == (node.address,)


# --- publishing -----------------------------------------------------------------------------------


async def test_publish_when_the_master_dies_and_another_takes_over(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    first.break_stream(after_batches=2, is_taken=True)
    messages = [Message(b"%d" % n) for n in range(60)]
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, batch_messages=10) as producer,
    ):
        with second.hold("PublishStream"):
            publishing = asyncio.create_task(producer.publish_many("orders", messages))
            await first.seen("PublishStream", 3)
            await first.stop()
            cluster.promote(second)
            await second.seen("PublishStream")
        ids = await publishing
    assert cluster.bodies == [message.body for message in messages]
    assert [one.sequence for one in ids] == list(range(60))
    assert len(cluster.nodes[0].producers) == 1
    to_first, to_second, _ = batches(cluster)
    # The third was taken, but nobody was told; sent again as it was, and recognised.
    assert to_second[0] == to_first[2]


async def test_publish_when_deposed_in_the_middle(cluster: FakeCluster) -> None:
    bodies = [b"%d" % n for n in range(400)]
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, batch_messages=5) as producer,
    ):
        for turn in range(8):
            part = bodies[turn * 50 : turn * 50 + 50]
            publishing = asyncio.create_task(
                producer.publish_many("orders", [Message(body) for body in part])
            )
            await asyncio.sleep(0)
            cluster.promote(cluster.nodes[turn % 3])
            await publishing
    assert cluster.bodies == bodies
    assert len(cluster.nodes[0].producers) == 1


async def test_publish_when_there_is_no_master_for_a_while(cluster: FakeCluster) -> None:
    cluster.depose()
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, batch_messages=10) as producer,
    ):
        publishing = [
            asyncio.create_task(producer.publish("orders", Message(b"%d" % n))) for n in range(30)
        ]
        for node in cluster.nodes:
            await node.seen("PublishStream", 2)
        cluster.promote(cluster.nodes[1])
        await asyncio.gather(*publishing)
    assert cluster.bodies == [b"%d" % n for n in range(30)]


async def test_publish_when_no_master_comes_in_time(cluster: FakeCluster) -> None:
    cluster.depose()
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, delivery_timeout_ms=100.0) as producer,
    ):
        with pytest.raises((errors.NotMaster, errors.Timeout)):
            await producer.publish("orders", Message(b"one"))
    assert cluster.bodies == []


async def test_publish_when_not_idempotent_and_redirected(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[1])
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, batch_messages=1, is_idempotent=False) as producer,
    ):
        await producer.publish_many("orders", [Message(b"%d" % n) for n in range(20)])
    assert sorted(cluster.bodies) == sorted(b"%d" % n for n in range(20))
    assert cluster.nodes[0].producers == {}


async def test_publish_when_not_idempotent_and_the_master_dies(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, is_idempotent=False) as producer,
    ):
        with first.hold("PublishStream"):
            publishing = asyncio.create_task(producer.publish("orders", Message(b"one")))
            await first.seen("PublishStream")
            cluster.promote(second)
            await first.stop()
            with pytest.raises(errors.Timeout, match="may or may not"):
                await publishing
        await producer.publish("orders", Message(b"two"))
    assert cluster.bodies == [b"two"]


async def test_publish_when_the_master_does_not_answer(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with (
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel, answer_timeout_ms=600.0) as producer,
    ):
        with first.hold("PublishStream"):
            publishing = asyncio.create_task(producer.publish("orders", Message(b"one")))
            await first.seen("PublishStream")
            cluster.promote(second)
            await publishing
    assert cluster.bodies == [b"one"]
    assert cluster.count("PublishStream")[:2] == [1, 1]


# --- consuming, and the rest ----------------------------------------------------------------------


@pytest.mark.parametrize("prefetch_messages", [0, 100])
async def test_receive_when_the_master_changes(
    cluster: FakeCluster, prefetch_messages: int
) -> None:
    first, second, third = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        consumer = AsyncConsumer(channel, group="g", topic="t", prefetch_messages=prefetch_messages)
        async with consumer:
            receiving = asyncio.create_task(consumer.receive())
            await first.seen("Receive")
            cluster.promote(second)  # the poll that waits is refused
            await second.seen("Receive")
            second.add_topic("t", b"one")
            (one,) = await receiving
            receiving = asyncio.create_task(consumer.receive())
            await second.seen("Receive", 2)
            cluster.promote(third)
            await second.stop()  # the poll that waits is cut off
            await third.seen("Receive")
            third.add_topic("t", b"two")
            (two,) = await receiving
            await consumer.ack([one, two])  # the first was leased in an epoch before the last
    assert [one.body, two.body] == [b"one", b"two"]
    assert third.acked() == {b"one", b"two"}


async def test_receive_when_there_is_no_master_for_a_while(cluster: FakeCluster) -> None:
    cluster.depose()
    async with (
        channel_to(cluster.servers) as channel,
        AsyncConsumer(channel, group="g", topic="t", prefetch_messages=0) as consumer,
    ):
        receiving = asyncio.create_task(consumer.receive())
        for node in cluster.nodes:
            await node.seen("Receive", 2)
        cluster.promote(cluster.nodes[2])
        cluster.nodes[2].add_topic("t", b"one")
        assert [message.body for message in await receiving] == [b"one"]


async def test_acks_when_the_master_changes(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    first.add_topic("t", *[b"%d" % n for n in range(10)])
    async with (
        channel_to(cluster.servers) as channel,
        AsyncConsumer(channel, group="g", topic="t", polls=1) as consumer,
    ):
        messages = await consumer.receive(10)
        cluster.promote(second)
        consumer.ack_soon(messages[:5])
        await consumer.nack(messages[5:7], delay_ms=0)
        await consumer.change_invisible(messages[7], 1_000)
        await consumer.flush_acks()
        assert consumer.stale_count == 0
    assert second.acked() == {b"%d" % n for n in range(5)}


async def test_clients_when_given_several_servers(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[2])
    addresses = [node.address for node in cluster.nodes]
    async with AsyncProducer(addresses) as producer, AsyncAdmin(cluster.servers) as admin:
        message_id = await producer.publish("t", Message(b"one", delay_ms=5))
        assert (await admin.status()).shards[0].master == "n3"
        assert await admin.cancel(message_id) is CancelOutcome.CANCELLED
    async with AsyncConsumer(tuple(addresses), group="g", topic="t") as consumer:
        (message,) = await consumer.receive()
        await consumer.ack(message)
    assert cluster.nodes[2].acked() == {b"one"}
