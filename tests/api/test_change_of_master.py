"""Producers and consumers whose master changes: nothing is lost, repeated or refused on the way.

The nodes are fakes that keep the same messages; which of them is asked: test_several_nodes.py.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import CancelOutcome
from tests.support.fake_cluster import FakeCluster, channel_to


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3) as started:
        yield started


def batches(cluster: FakeCluster) -> list[list[bytes]]:
    """The record batches that each node was sent, without their stamps."""
    return [
        [request.record_batch for request in node.calls["PublishStream"]] for node in cluster.nodes
    ]


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


async def test_publish_when_the_stream_ends_with_the_name_of_the_master(
    cluster: FakeCluster,
) -> None:
    first, second, _ = cluster.nodes
    cluster.promote(second)
    error = errors.NotMaster(master_address=second.address, epoch=cluster.epoch)
    first.break_stream(after_batches=0, is_taken=False, error=error)
    async with channel_to(cluster.servers) as channel, AsyncProducer(channel) as producer:
        await producer.publish("orders", Message(b"one"))
    assert cluster.bodies == [b"one"]
    assert cluster.count("PublishStream") == [1, 1, 0]


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


async def test_receive_when_the_master_steps_down_with_an_unknown_outcome(
    cluster: FakeCluster,
) -> None:
    """It has leased messages, and may not say so any more; nobody names another for a while."""
    first, second, _ = cluster.nodes
    async with (
        channel_to(cluster.servers) as channel,
        AsyncConsumer(channel, group="g", topic="t", prefetch_messages=0) as consumer,
    ):
        lost = errors.Timeout("the node ceased to be master: the outcome is unknown")
        first.fail_next("Receive", lost)
        receiving = asyncio.create_task(consumer.receive())
        await first.seen("Receive")
        cluster.depose()
        await asyncio.sleep(0)
        cluster.promote(second)
        second.add_topic("t", b"one")
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
