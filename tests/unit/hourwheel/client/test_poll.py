"""Consumers with a filter; the fake node hands everything out, whatever the filter."""

import asyncio
from typing import Any, cast

import pytest

from hourwheel import errors
from hourwheel.client import poll as polling
from hourwheel.client.ack_batcher import AckBatcher
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.filter_language.inputs import Sql, Tags
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire
from hourwheel.transport.channel import Channel
from hourwheel.transport.retry import Pace
from hourwheel.v1 import consumer_pb2, filter_pb2
from tests.support.fake_node import FakeNode
from tests.support.received import received

HERE = Tags("paid && !test", check_at_client=True)


def consumer_of(channel: Channel, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(channel, group="g", topic="orders", **settings)


def tags_of(number: int) -> tuple[str, ...]:
    """Every third message is paid, every sixth one a test, too."""
    return (("paid",) if number % 3 == 0 else ()) + (("test",) if number % 6 == 0 else ())


async def publish(channel: Channel, count: int) -> set[bytes]:
    """Messages 0 to `count`; gives the bodies of those that `HERE` wants."""
    async with AsyncProducer(channel) as producer:
        await producer.publish_many(
            "orders", [Message(b"%d" % n, tags=tags_of(n)) for n in range(count)]
        )
    return {b"%d" % n for n in range(count) if n % 6 == 3}


def ranges_of(calls: list[Any]) -> list[tuple[int, int]]:
    return [(one.first, one.first + one.count) for call in calls for one in call.ranges]


async def test_poll_when_there_is_a_filter(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", b"one")
    for given in ("a || b", Sql("p = 1", check_at_client=True), None):
        node.subscriptions.clear()
        async with consumer_of(channel, filter=given, prefetch_messages=0) as consumer:
            await consumer.receive(wait_ms=0)
    first, second, third = node.calls["Receive"]
    tags, sql = filter_pb2.FILTER_KIND_TAGS, filter_pb2.FILTER_KIND_SQL
    assert first.filter == filter_pb2.FilterExpression(kind=tags, text="a || b")
    assert second.filter == filter_pb2.FilterExpression(
        kind=sql, text="p = 1", check_at_client=True
    )
    assert not third.HasField("filter")


async def test_receive_when_the_node_checks(node: FakeNode, channel: Channel) -> None:
    await publish(channel, 12)
    async with consumer_of(channel, filter="paid && !test") as consumer:
        assert len(await consumer.receive()) == 12
        assert consumer.filtered_count == 0


@pytest.mark.parametrize("prefetch_messages", [0, 100])
async def test_receive_when_the_client_checks(
    node: FakeNode, channel: Channel, prefetch_messages: int
) -> None:
    wanted = await publish(channel, 600)
    found: list[bytes] = []
    async with consumer_of(channel, filter=HERE, prefetch_messages=prefetch_messages) as consumer:
        while len(found) < len(wanted):
            received = await consumer.receive()
            found += [message.body for message in received]
            await consumer.ack(received)
        assert consumer.filtered_count == 500
        await consumer.flush_acks()
    assert sorted(found) == sorted(wanted)
    assert node.acked() == {b"%d" % n for n in range(600)}
    assert not ranges_of(node.calls["Nack"])


async def test_iteration_when_the_client_checks(node: FakeNode, channel: Channel) -> None:
    wanted = await publish(channel, 120)
    found = set()
    async with consumer_of(channel, filter=HERE) as consumer:
        async for message in consumer:
            assert message.tags == ("paid",)
            found.add(message.body)
            consumer.ack_soon(message)
            if found == wanted:
                break
    assert node.acked() == {b"%d" % n for n in range(120)}


async def test_acks_when_neighbours_were_dropped_are_one_range(
    node: FakeNode, channel: Channel
) -> None:
    await publish(channel, 60)
    async with consumer_of(channel, filter=HERE, polls=1, ack_linger_ms=60_000.0) as consumer:
        batch = await consumer.receive_batch()
        assert batch is not None
        consumer.ack_soon(batch)
        await consumer.flush_acks()
    assert ranges_of(node.calls["Ack"]) == [(0, 60)]


async def test_receive_batch_when_the_client_checks(node: FakeNode, channel: Channel) -> None:
    wanted = await publish(channel, 60)
    async with consumer_of(channel, filter=HERE, polls=1) as consumer:
        batch = await consumer.receive_batch()
        assert batch is not None
        assert set(batch.bodies()) == wanted
        assert len(batch) == 10
        assert len(batch.delivery) == 60
        assert batch.ordinals.tolist() == list(range(3, 60, 6))
        await consumer.nack(batch)
        await consumer.change_invisible(batch, 5_000)
    first, *_ = node.calls["Nack"]  # the fake hands them out again, and closing gives them back
    assert ranges_of([first]) == [(n, n + 1) for n in range(3, 60, 6)]
    assert ranges_of(node.calls["ChangeInvisible"]) == [(0, 60)]


async def test_close_when_some_were_dropped_and_some_not_taken(
    node: FakeNode, channel: Channel
) -> None:
    await publish(channel, 30)
    async with consumer_of(channel, filter=HERE, polls=1, ack_linger_ms=60_000.0) as consumer:
        (first,) = await consumer.receive(max_messages=1)
        await consumer.ack(first)
    assert ranges_of(node.calls["Nack"]) == [(n, n + 1) for n in range(9, 30, 6)]
    assert node.acked() == {b"%d" % n for n in range(30) if n % 6 != 3} | {b"3"}


async def test_receive_when_nothing_of_an_answer_matches(node: FakeNode, channel: Channel) -> None:
    node.add_topic("orders", *[b"x"] * 500)
    wanted = await publish(channel, 4)
    async with consumer_of(channel, filter=HERE, prefetch_messages=0) as consumer:
        received = await consumer.receive(max_messages=100, wait_ms=0)
        assert {message.body for message in received} == wanted
        assert await consumer.receive(max_messages=100, wait_ms=0) == []
        assert consumer.filtered_count == 503


async def test_receive_when_nothing_matches_for_too_long(
    node: FakeNode, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "SIFT_MS", 0.0)
    node.add_topic("orders", *[b"x"] * 500)
    async with consumer_of(channel, filter=HERE, prefetch_messages=0) as consumer:
        assert await consumer.receive(max_messages=100, wait_ms=0) == []
        assert len(node.calls["Receive"]) == 1


@pytest.mark.parametrize("prefetch_messages", [0, 100])
@pytest.mark.parametrize(
    "failure",
    [
        errors.InvalidFilter("an unexpected end at character 4", position=4),
        errors.SubscriptionMismatch("the group wants a || b"),
    ],
)
async def test_receive_when_the_filter_is_refused(
    node: FakeNode, channel: Channel, failure: errors.HourwheelError, prefetch_messages: int
) -> None:
    node.fail_next("Receive", *[failure] * 10)
    settings = {"filter": "a ||", "polls": 1, "prefetch_messages": prefetch_messages}
    async with consumer_of(channel, **settings) as consumer:
        for calls in (1, 2):
            with pytest.raises(type(failure), match=failure.message) as raised:
                await consumer.receive()
            assert raised.value.params == failure.params
            assert len(node.calls["Receive"]) == calls  # it is not tried again by itself
        with pytest.raises(type(failure)):
            await anext(consumer)
        with pytest.raises(type(failure)):
            await consumer.receive_batch()


async def test_receive_when_another_consumer_wants_something_else(
    node: FakeNode, channel: Channel
) -> None:
    node.add_topic("orders", b"one")
    async with (
        consumer_of(channel, filter="a || b") as first,
        consumer_of(channel, filter="c") as second,
    ):
        assert len(await first.receive()) == 1
        async with asyncio.timeout(30):
            with pytest.raises(errors.SubscriptionMismatch):
                await second.receive()


@pytest.mark.parametrize(
    "given", ["  ", "x" * 5_000, Tags("a ||", check_at_client=True), Sql("a\ud800 = 1")]
)
async def test_consumer_when_the_filter_cannot_be_sent_or_checked(
    channel: Channel, given: Any
) -> None:
    with pytest.raises(errors.InvalidFilter) as refused:
        consumer_of(channel, filter=given)
    assert refused.value.params["position"].isdecimal()


async def test_poll_when_a_dropped_message_is_damaged(node: FakeNode, channel: Channel) -> None:
    await publish(channel, 2)
    node.messages[1].crc ^= 1
    async with consumer_of(channel, filter=HERE, prefetch_messages=0) as consumer:
        (message,) = await consumer.receive()
        with pytest.raises(errors.InvalidBatch):
            _ = message.body
    assert node.acked() == {b"0"}


async def test_receive_when_only_the_node_knows_the_filter(
    node: FakeNode, channel: Channel
) -> None:
    wanted = await publish(channel, 60)
    node.subscriptions["g", "orders"] = filter_to_wire(HERE)
    async with consumer_of(channel, prefetch_messages=0) as consumer:
        assert {message.body for message in await consumer.receive(100)} == wanted
        await publish(channel, 4)
        node.subscriptions["g", "orders"] = filter_to_wire(Tags("test", check_at_client=True))
        assert [message.body for message in await consumer.receive(100)] == [b"0"]
        node.subscriptions["g", "orders"] = filter_to_wire(Tags("test"))
        await publish(channel, 4)
        assert len(await consumer.receive(100)) == 4


async def test_receive_when_the_node_tells_what_cannot_be_checked(
    node: FakeNode, channel: Channel
) -> None:
    node.add_topic("orders", b"one")
    newer = filter_pb2.FilterExpression(text="a XOR b", check_at_client=True)
    newer.kind = filter_pb2.FILTER_KIND_SQL
    node.subscriptions["g", "orders"] = newer
    async with consumer_of(channel) as consumer:
        with pytest.raises(errors.InvalidFilter):
            await consumer.receive()
    (given_back,) = [one for call in node.calls["Nack"] for one in call.ranges]
    assert (given_back.receipt != "", given_back.first, given_back.count) == (True, 0, 0)


class OneAnswer:
    """As a channel: its only call is answered when the test says so."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def call(self, *_: Any, **__: Any) -> Any:
        return await self.answer


def poll_of(channel: OneAnswer, wanted: FilterExpression | None = HERE) -> polling.Poll:
    return polling.Poll(
        cast(Channel, channel),
        cast(AckBatcher, None),
        group="g",
        topic="orders",
        wanted=wanted,
        invisible_ms=0,
        bytes_max=0,
    )


@pytest.mark.parametrize(("queued_ms", "left_ms"), [(0, 900.0), (300, 600.0), (5_000, 0.0)])
async def test_lease_is_shorter_by_what_the_answer_has_waited_at_the_node(
    queued_ms: int, left_ms: float
) -> None:
    poll = poll_of(OneAnswer(), wanted=None)
    batch = received([(b"", b"one")]).delivery
    answer = consumer_pb2.ReceiveResponse(
        delivery_batch=batch.buffer, receive_ms=1, invisible_until_ms=1_001, queued_ms=queued_ms
    )
    before_ms = SystemClock().monotonic_ms()
    found = poll.read(answer)
    assert found.lease_ms == pytest.approx(left_ms)
    arrived_ms = found.lease_until_ms - found.lease_ms
    assert before_ms <= arrived_ms <= SystemClock().monotonic_ms()


@pytest.mark.parametrize("receipt", ["r1", ""])
async def test_answer_that_comes_as_the_caller_goes_can_be_given_back(receipt: str) -> None:
    channel = OneAnswer()
    poll = poll_of(channel)
    task = asyncio.ensure_future(poll.poll(10, 1_000.0, cast(Pace, None)))
    for _ in range(5):
        await asyncio.sleep(0)
    channel.answer.set_result(consumer_pb2.ReceiveResponse(receipt=receipt))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [one.receipt for one in poll.take_unseen()] == ([receipt] if receipt else [])
    assert poll.take_unseen() == []


@pytest.mark.parametrize("fails", [True, False])
async def test_call_ends_with_its_caller_when_there_is_no_answer(*, fails: bool) -> None:
    channel = OneAnswer()
    poll = poll_of(channel)
    task = asyncio.ensure_future(poll.poll(10, 1_000.0, cast(Pace, None)))
    for _ in range(5):
        await asyncio.sleep(0)
    if fails:
        channel.answer.set_exception(errors.Unavailable("gone"))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert channel.answer.done()
    assert poll.take_unseen() == []


# --- answers that get lost ------------------------------------------------------------------------


async def test_poll_is_sent_again_as_the_same_when_its_answer_got_lost(
    node: FakeNode, channel: Channel
) -> None:
    node.add_topic("orders", *[b"%d" % n for n in range(4)])
    async with consumer_of(channel, prefetch_messages=0) as consumer:
        await consumer.receive(1)
        node.fail_next("Receive", errors.Timeout("the node ceased to be master"))
        await consumer.receive(1)
        await consumer.receive(1)
    calls = node.calls["Receive"]
    assert len({one.poller_id for one in calls}) == 1
    assert calls[0].poller_id
    assert [one.poll_number for one in calls] == [1, 2, 2, 3]


async def test_poll_is_the_same_again_after_its_caller_went_away(
    node: FakeNode, channel: Channel
) -> None:
    node.add_topic("orders")
    async with consumer_of(channel, prefetch_messages=0) as consumer:
        poll = asyncio.create_task(consumer.receive(1))
        await node.seen("Receive")
        poll.cancel()
        await asyncio.wait([poll])
        await consumer.receive(1, wait_ms=1)
    first, again = node.calls["Receive"]
    assert (first.poller_id, first.poll_number) == (again.poller_id, again.poll_number)


async def test_polls_beside_each_other_are_those_of_different_pollers(
    node: FakeNode, channel: Channel
) -> None:
    node.add_topic("orders")
    async with consumer_of(channel, polls=3) as consumer:
        assert await consumer.receive(1, wait_ms=1) == []
        await node.seen("Receive", 3)
    assert len({one.poller_id for one in node.calls["Receive"]}) == 3
