import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client import consumer as consumer_module
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message, ReceivedMessage
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.message_id import MessageId
from hourwheel.transport.channel import Channel
from tests.support.fake_clock import FakeClock
from tests.support.fake_node import EPOCH, SHARD, STORE_MS, FakeNode


def consumer_of(channel: Channel, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(channel, group="g", topic="orders", **settings)


async def test_receive_when_published_with_everything(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        sent = Message(
            b"one",
            due_ms=STORE_MS + 5,
            tags=("a",),
            keys=("k",),
            properties={"p": "v"},
            client_message_id="c",
            content_type="t",
        )
        message_id = await producer.publish("orders", sent)
    async with consumer_of(channel) as consumer:
        (message,) = await consumer.receive()
        assert message.message_id == message_id == MessageId(SHARD, EPOCH, 0, STORE_MS + 5)
        assert (message.body, message.topic, message.attempt) == (b"one", "orders", 1)
        assert (message.tags, message.keys, message.properties) == (("a",), ("k",), {"p": "v"})
        assert (message.client_message_id, message.content_type) == ("c", "t")
        assert (message.due_ms, message.store_ms) == (STORE_MS + 5, STORE_MS)
        await consumer.ack(message)
    assert node.acked() == {b"one"}


async def test_iteration_when_messages_keep_coming(node: FakeNode, channel: Channel) -> None:
    bodies = [b"%d" % n for n in range(300)]
    node.add_topic("orders", *bodies[:100])
    received = []
    async with consumer_of(channel, prefetch_messages=40) as consumer:
        async for message in consumer:
            received.append(message.body)
            consumer.ack_soon(message)
            if len(received) == 100:
                node.add_topic("orders", *bodies[100:])
            if len(received) == 300:
                break
    assert sorted(received) == sorted(bodies)
    assert node.acked() == set(bodies)


async def test_receive_when_there_is_nothing(channel: Channel) -> None:
    async with consumer_of(channel) as consumer:
        assert await consumer.receive(wait_ms=1) == []
        assert await consumer.receive_batch(wait_ms=1) is None


async def test_receive_when_fewer_are_asked_for_than_came(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", *[b"%d" % n for n in range(10)])
    async with consumer_of(channel, polls=1) as consumer:
        first = await consumer.receive(max_messages=3)
        rest = await consumer.receive(max_messages=100)
        assert [message.body for message in first + rest] == [b"%d" % n for n in range(10)]


async def test_receive_when_nothing_is_fetched_ahead(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", *[b"%d" % n for n in range(10)])
    async with consumer_of(channel, prefetch_messages=0) as consumer:
        assert len(await consumer.receive(max_messages=3)) == 3
        assert [request.max_messages for request in node.calls["Receive"]] == [3]
        assert (await consumer.__anext__()).body == b"3"
        node.fail_next("Receive", errors.Timeout("the node ceased to be master"))
        assert [message.body for message in await consumer.receive(1)] == [b"4"]


async def test_receive_when_nothing_is_fetched_ahead_and_it_fails_for_long(
    node: FakeNode, channel: Channel
) -> None:
    async with consumer_of(channel, prefetch_messages=0, unavailable_ms_max=0.0) as consumer:
        node.fail_next("Receive", errors.Overloaded())
        with pytest.raises(errors.Overloaded):
            await consumer.receive()
        node.fail_next("Receive", errors.Overloaded())
        with pytest.raises(errors.Overloaded):
            await consumer.receive_batch()


async def test_receive_batch_when_draining(node: FakeNode, channel: Channel) -> None:
    bodies = [b"%d" % n for n in range(5_000)]
    node.add_topic("orders", *bodies)
    drained: list[bytes] = []
    async with consumer_of(channel, prefetch_messages=2_000) as consumer:
        while len(drained) < 5_000:
            batch = await consumer.receive_batch()
            assert batch is not None
            drained += batch.bodies()
            consumer.ack_soon(batch)
    assert sorted(drained) == sorted(bodies)
    assert node.acked() == set(bodies)


async def test_prefetch_when_nobody_takes(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", *[b"x"] * 100)
    async with consumer_of(channel, prefetch_messages=10, polls=2) as consumer:
        await consumer.receive(max_messages=1)
        await node.seen("Receive", 2)
        assert sum(request.max_messages for request in node.calls["Receive"]) == 10


async def test_close_when_messages_were_not_taken(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", *[b"%d" % n for n in range(10)])
    async with consumer_of(channel, polls=1) as consumer:
        (first,) = await consumer.receive(max_messages=1)
        await consumer.ack(first)
    (request,) = node.calls["Nack"]
    assert [(chosen.first, chosen.count) for chosen in request.ranges] == [(1, 9)]
    assert request.delay_ms == 0
    with pytest.raises(errors.Cancelled):
        await consumer.receive()
    await consumer.close()


async def test_close_acknowledges_though_nothing_can_be_given_back(
    node: FakeNode, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "CLOSE_TIMEOUT_MS", 300.0)
    node.add_topic("orders", b"0", b"1")
    consumer = consumer_of(channel, polls=1, ack_linger_ms=60_000.0)
    (first,) = await consumer.receive(max_messages=1)
    consumer.ack_soon(first)
    with node.hold("Nack"), pytest.raises(errors.Timeout):
        await consumer.close()
    assert node.acked() == {b"0"}


async def test_ack_when_many_wait_at_once(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", *[b"%d" % n for n in range(200)])
    async with consumer_of(channel) as consumer:
        messages: list[ReceivedMessage] = []
        while len(messages) < 200:
            messages += await consumer.receive(max_messages=200)
        with node.hold("Ack"):
            tasks = [asyncio.create_task(consumer.ack(message)) for message in messages]
            await node.seen("Ack")
        await asyncio.gather(*tasks)
    assert len(node.acked()) == 200
    assert len(node.calls["Ack"]) <= 3


async def test_ack_when_the_lease_is_over(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one", b"two")
    async with consumer_of(channel, prefetch_messages=2) as consumer:
        first, second = [await consumer.__anext__(), await consumer.__anext__()]
        node.stale_receipts.add(first.batch.receipt)
        with pytest.raises(errors.StaleReceipt):
            await consumer.ack([first, second])
        consumer.ack_soon(first)
        await consumer.flush_acks()
        assert consumer.stale_count == 1
        first.batch.receipt = "of another group"
        with pytest.raises(errors.InvalidReceipt):
            await consumer.ack(first)
        consumer.ack_soon(first)
        with pytest.raises(errors.InvalidReceipt):
            await consumer.flush_acks()


async def test_ack_when_the_node_is_overloaded(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one")
    node.fail_next("Ack", errors.Overloaded(), errors.Unavailable())
    async with consumer_of(channel) as consumer:
        await consumer.ack(await consumer.receive())
    assert node.acked() == {b"one"}
    assert len(node.calls["Ack"]) == 3


async def test_ack_when_it_is_refused(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one")
    async with consumer_of(channel) as consumer:
        (message,) = await consumer.receive()
        node.fail_next("Ack", errors.UnknownGroup(), errors.UnknownGroup())
        with pytest.raises(errors.UnknownGroup):
            await consumer.ack(message)
        consumer.ack_soon(message)
        with pytest.raises(errors.UnknownGroup):
            await consumer.flush_acks()


async def test_nack_when_with_and_without_a_delay(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one")
    async with consumer_of(channel) as consumer:
        (message,) = await consumer.receive()
        await consumer.nack(message, delay_ms=0)
        (again,) = await consumer.receive()
        assert (again.body, again.attempt) == (b"one", 2)
        await consumer.nack(again)
        requests = node.calls["Nack"]
        assert [request.HasField("delay_ms") for request in requests] == [True, False]
        node.stale_receipts.add(again.batch.receipt)
        with pytest.raises(errors.StaleReceipt):
            await consumer.nack(again)


async def test_change_invisible_when_the_lease_lives(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one", b"two")
    async with consumer_of(channel, invisible_ms=500) as consumer:
        (message, _) = await consumer.receive()
        assert message.invisible_until_ms == STORE_MS + 500
        assert await consumer.change_invisible(message, 9_000) == STORE_MS + 9_000
        assert message.invisible_until_ms == STORE_MS + 9_000
    (request,) = node.calls["ChangeInvisible"]
    assert [(chosen.first, chosen.count) for chosen in request.ranges] == [(0, 2)]


async def test_receive_when_the_node_restarts(node: FakeNode, channel: Channel) -> None:
    async with consumer_of(channel) as consumer:
        waiting = asyncio.create_task(consumer.receive())
        await node.seen("Receive")
        await node.stop()
        await node.start()
        node.add_topic("orders", b"one")
        (message,) = await waiting
        assert message.body == b"one"


async def test_receive_when_the_node_stays_away(node: FakeNode) -> None:
    await node.stop()
    async with (
        Channel(node.address, call_timeout_ms=5.0) as channel,
        consumer_of(channel, unavailable_ms_max=10.0) as consumer,
    ):
        for _ in range(2):
            with pytest.raises(errors.Unavailable, match="no connection"):
                await consumer.receive()


async def test_receive_when_refused_for_good(node: FakeNode, channel: Channel) -> None:
    node.fail_next("Receive", errors.UnknownTopic("no such topic"))
    node.add_topic("orders", b"one")
    async with consumer_of(channel, polls=1) as consumer:
        with pytest.raises(errors.UnknownTopic, match="no such topic"):
            await consumer.receive()
        (message,) = await consumer.receive()
        assert message.body == b"one"


async def test_receive_when_the_answer_is_damaged(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one", b"two")
    node.damage_next_delivery = True
    async with consumer_of(channel, polls=1, prefetch_messages=1) as consumer:
        with pytest.raises(errors.InvalidBatch):
            await consumer.receive()
        (message,) = await consumer.receive()
        assert message.body == b"two"


async def test_receive_when_leases_ran_out_before_anyone_asked(node: FakeNode) -> None:
    clock = FakeClock()
    node.add_topic("orders", b"one", b"two", b"three")
    async with (
        Channel(node.address, clock=clock) as channel,
        consumer_of(channel, polls=1, invisible_ms=1_000) as consumer,
    ):
        (first,) = await consumer.receive(max_messages=1)
        clock.pass_ms(1_000)
        node.add_topic("orders", b"four")
        (message,) = await consumer.receive()
        assert (first.body, message.body) == (b"one", b"four")
        assert consumer.expired_count == 2


async def test_times_when_given_as_timedelta(node: FakeNode) -> None:
    node.add_topic("t", b"one", b"two")
    async with AsyncConsumer(node.address, group="g", topic="t", polls=1) as consumer:
        (message,) = await consumer.receive(1, timedelta(seconds=5))
        until_ms = await consumer.change_invisible(message, timedelta(seconds=7))
        assert until_ms == await consumer.change_invisible(message, 7_000)
        for wrong in (-1, 1.5, timedelta(-1)):
            with pytest.raises(errors.InvalidArgument):
                await consumer.nack(message, wrong)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgument):
                await consumer.change_invisible(message, wrong)  # type: ignore[arg-type]
        await consumer.nack(message, timedelta(minutes=1))
        assert node.calls["Nack"][-1].delay_ms == 60_000


@pytest.mark.parametrize("wrong", [-1, 1.5, 1 << 32, "1", True])
@pytest.mark.parametrize("name", ["prefetch_messages", "polls", "invisible_ms", "poll_bytes"])
async def test_a_number_that_cannot_be_is_refused_when_the_consumer_is_made(
    name: str, wrong: Any
) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"^{name} is a whole number"):
        AsyncConsumer("127.0.0.1:1", group="g", topic="t", **{name: wrong})


@pytest.mark.parametrize("prefetch_messages", [0, 10])
async def test_receive_when_asked_for_what_cannot_be(
    node: FakeNode, prefetch_messages: int
) -> None:
    async with AsyncConsumer(
        node.address, group="g", topic="t", prefetch_messages=prefetch_messages
    ) as consumer:
        wrong: Any
        for wrong in (0, -1, 1.5, "1", 1 << 32):
            with pytest.raises(errors.InvalidArgument, match=r"^max_messages is a whole number"):
                await consumer.receive(wrong)
        for wrong in (-1, float("nan"), "1", None):
            with pytest.raises(errors.InvalidArgument, match=r"^wait_ms is "):
                await consumer.receive(1, wrong)
            with pytest.raises(errors.InvalidArgument, match=r"^wait_ms is "):
                await consumer.receive_batch(wrong)
    assert not node.calls["Receive"]


@pytest.mark.parametrize("name", ["ack_linger_ms", "unavailable_ms_max"])
async def test_a_time_that_cannot_be_is_refused_when_the_consumer_is_made(name: str) -> None:
    wrong: Any
    for wrong in (-1, float("nan"), "1"):
        with pytest.raises(errors.InvalidArgument, match=f"^{name} is "):
            AsyncConsumer("127.0.0.1:1", group="g", topic="t", **{name: wrong})
