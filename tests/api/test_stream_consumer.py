"""The consumer by receive streams: over the real API with a fake engine, and at a real node."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.groups import message_stream
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.channel import Channel
from hourwheel.v1 import session_pb2
from hourwheel.v1.admin_pb2 import GetGroupRequest
from hourwheel.v1.admin_pb2_grpc import AdminServiceStub
from tests.support.addresses import free_address
from tests.support.api_world import ApiWorld
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import before_the_next_look, until
from tests.support.fake_engine import NOW_MS, Stored
from tests.support.lossy_proxy import LossyProxy

WITHIN_S = 60.0
WAIT_MS = 60_000


def store(world: ApiWorld, *bodies: bytes) -> None:
    world.engine.stored += [Stored("orders", NOW_MS - 7, body) for body in bodies]
    world.engine.arrival.set()


def consumer_of(address: str, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(address, group="billing", topic="orders", **settings)


async def bodies(consumer: AsyncConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += [one.body for one in await consumer.receive(count - len(found), WAIT_MS)]
    return found


def _refuse(_raw: bytes) -> None:
    raise errors.InvalidBatch("not this one")


async def _is_leased(admin: AdminServiceStub) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            group = (await admin.GetGroup(GetGroupRequest(name="billing"))).group
            if any(lag.leased_count for lag in group.lags):
                return
            await before_the_next_look()


async def test_messages_come_by_one_stream() -> None:
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        for number in range(20):
            store(world, b"%d" % number)
            assert await bodies(consumer, 1) == [b"%d" % number]
        assert len(world.engine.asked("receive_stream")) == 1
        assert not world.engine.asked("receive")


async def test_no_more_come_than_are_to_be_held_ahead() -> None:
    """And more as they are taken."""
    async with ApiWorld() as world, consumer_of(world.address, prefetch_messages=10) as consumer:
        expected = [b"%d" % number for number in range(95)]
        store(world, *expected)
        assert await bodies(consumer, 1) == expected[:1]
        await until(lambda: world.engine.delivered >= 10)
        taken = 1
        while taken < len(expected):
            assert world.engine.delivered <= taken + 10
            assert await bodies(consumer, 1) == [expected[taken]]
            taken += 1


async def test_the_node_is_told_what_has_arrived_before_credits_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_stream, "CONFIRM_ANSWERS", 4)
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        for number in range(8):
            store(world, b"%d" % number)
            (message,) = await consumer.receive(1, WAIT_MS)
            await consumer.ack(message)  # its frame takes along what there is to tell
        (stream,) = world.engine.streams
        await until(lambda: stream.received_count >= 4)
        assert len(stream.unconfirmed) <= 4


async def test_what_was_not_taken_is_given_back_when_the_consumer_is_closed() -> None:
    async with ApiWorld() as world:
        consumer = consumer_of(world.address)
        store(world, b"a", b"b", b"c")
        assert await bodies(consumer, 1) == [b"a"]
        await consumer.close()
        (stream,) = world.engine.streams
        assert stream.is_given_up
        ((_, selections, ending),) = world.engine.asked("resolve")
        assert sum(one.count for one in selections) == 2
        assert not ending.is_ack
        await until(lambda: not world.stats.long_polls)


async def test_polls_are_made_when_the_node_offers_no_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("node.api.session.HELLO", b"")
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        store(world, b"a")
        assert await bodies(consumer, 1) == [b"a"]
        assert world.engine.asked("receive")
        assert not world.engine.asked("receive_stream")


async def test_a_stream_is_tried_again_when_polls_were_made_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_stream, "AGAIN_MS", 1.0)
    monkeypatch.setattr("hourwheel.transport.connection.NO_SESSION_S", 0.0)
    async with ApiWorld({"limits": {"sessions": 1}}) as world:
        other = world.sessions.Session()
        await other.read()
        async with consumer_of(world.address) as consumer:
            store(world, b"a")
            assert await bodies(consumer, 1) == [b"a"]
            assert world.engine.asked("receive")
            assert not world.engine.streams
            other.cancel()
            store(world, b"b")
            assert await bodies(consumer, 1) == [b"b"]
            store(world, b"c")  # who polled is free to open the stream
            await until(lambda: world.engine.streams)
            assert await bodies(consumer, 1) == [b"c"]


async def test_a_stream_is_opened_anew_when_it_was_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_stream, "SILENT_MS", 20.0)
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        task = asyncio.create_task(bodies(consumer, 1))
        await until(lambda: len(world.engine.streams) >= 3)
        assert world.engine.streams[0].is_given_up
        assert len({one.stream_id for one in world.engine.streams}) == 1
        store(world, b"a")
        assert await task == [b"a"]


async def test_a_stream_is_opened_anew_when_the_token_is_another() -> None:
    """The session of the former one ends in order: messages may be on their way."""
    tokens = ["one"]
    async with ApiWorld() as world, consumer_of(world.address, token=lambda: tokens[-1]) as some:
        store(world, b"a")
        got = await some.receive(1, WAIT_MS)
        tokens.append("two")
        await some.ack(got)
        await until(lambda: world.engine.streams[0].is_given_up)
        store(world, b"b")
        assert await bodies(some, 1) == [b"b"]


async def test_a_stream_is_opened_anew_when_the_node_ends_it() -> None:
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        store(world, b"a")
        assert await bodies(consumer, 1) == [b"a"]
        world.engine.ends_streams.set()
        await until(lambda: len(world.engine.streams) >= 2)
        world.engine.ends_streams.clear()
        store(world, b"b")
        assert await bodies(consumer, 1) == [b"b"]


async def test_an_error_is_raised_when_trying_again_does_not_mend_it() -> None:
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        world.engine.errors["receive_stream"] = errors.InvalidFilter("no such thing")
        with pytest.raises(errors.InvalidFilter):
            await bodies(consumer, 1)
        del world.engine.errors["receive_stream"]
        store(world, b"a")
        assert await bodies(consumer, 1) == [b"a"]


async def test_an_error_is_mended_when_trying_again_helps() -> None:
    async with ApiWorld() as world, consumer_of(world.address) as consumer:
        world.engine.errors["receive_stream"] = errors.Overloaded("not now")
        task = asyncio.create_task(bodies(consumer, 1))
        await until(lambda: len(world.engine.asked("receive_stream")) >= 3)
        del world.engine.errors["receive_stream"]
        store(world, b"a")
        assert await task == [b"a"]


async def test_an_answer_that_cannot_be_read_is_raised_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ApiWorld() as world:
        consumer = consumer_of(world.address)
        store(world, b"a")
        assert await bodies(consumer, 1) == [b"a"]
        with monkeypatch.context() as patch:
            patch.setattr("hourwheel.client.poll.DeliveryBatch", _refuse)
            store(world, b"b")
            with pytest.raises(errors.InvalidBatch):
                await bodies(consumer, 1)
        store(world, b"c")
        assert await bodies(consumer, 1) == [b"c"]
        first, second = world.engine.streams
        assert first.is_given_up
        assert first.stream_id != second.stream_id
        await consumer.close()
        ((_, selections, _),) = world.engine.asked("resolve")
        assert [one.receipt.lease_id for one in selections] == [2]


async def test_a_message_comes_again_at_once_when_its_answer_was_lost(tmp_path: Path) -> None:
    """By the same lease: it is no second attempt."""
    async with LossyProxy() as proxy:
        proxy.target = free_address()
        values = {"node": {"listen": proxy.target, "advertised": proxy.address}}
        async with (
            EmbeddedNode(tmp_path, values),
            grpc.aio.insecure_channel(proxy.target) as direct,
            AsyncProducer(proxy.target) as producer,
            Channel(proxy.address, call_timeout_ms=WITHIN_S * 1_000) as channel,
            AsyncConsumer(
                channel, group="billing", topic="orders", invisible_ms=3_600_000
            ) as consumer,
        ):
            await producer.publish("orders", Message(b"a"))
            async with asyncio.timeout(WITHIN_S):
                (first,) = await consumer.receive(1, WAIT_MS)
                await consumer.ack(first)
                proxy.loses_answers = True
                await producer.publish("orders", Message(b"b"))
                await _is_leased(AdminServiceStub(direct))
                proxy.cut()
                (message,) = await consumer.receive(1, WAIT_MS)
            assert (message.body, message.attempt) == (b"b", 1)
            await consumer.ack(message)


def test_the_first_frame_means_nothing_to_who_knows_no_streams() -> None:
    """An older client reads it as an empty one."""
    frame = session_pb2.SessionResponse(offers_receive_streams=True)
    assert not frame.answers
