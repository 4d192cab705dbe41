"""Consumers whose connection breaks between what a node has done and its answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from hourwheel import errors
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message, ReceivedMessage
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.channel import Channel
from hourwheel.v1.admin_pb2 import GetGroupRequest
from hourwheel.v1.admin_pb2_grpc import AdminServiceStub
from tests.support.addresses import free_address
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import before_the_next_look
from tests.support.lossy_proxy import LossyProxy

WITHIN_S = 60.0


class World(NamedTuple):
    proxy: LossyProxy
    admin: AdminServiceStub
    """Without it."""
    producer: AsyncProducer
    consumer: AsyncConsumer
    """By way of the proxy."""

    async def received(self) -> ReceivedMessage:
        await self.producer.publish("orders", Message(b"x"))
        async with asyncio.timeout(WITHIN_S):
            (message,) = await self.consumer.receive(1, wait_ms=60_000)
        return message

    async def is_resolved(self) -> None:
        """Wait until the node has nothing for the group that is not resolved."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                group = (await self.admin.GetGroup(GetGroupRequest(name="g"))).group
                if not any(lag.leased_count for lag in group.lags):
                    return
                await before_the_next_look()


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    async with LossyProxy() as proxy:
        proxy.target = free_address()
        values = {"node": {"listen": proxy.target, "advertised": proxy.address}}
        async with (
            EmbeddedNode(directory, values),
            grpc.aio.insecure_channel(proxy.target) as direct,
            Channel(proxy.address, call_timeout_ms=WITHIN_S * 1_000) as channel,
            AsyncProducer(channel) as producer,
            AsyncConsumer(channel, group="g", topic="orders", prefetch_messages=0) as consumer,
        ):
            yield World(proxy, AdminServiceStub(direct), producer, consumer)


async def test_finishing_is_undecided_when_the_answer_is_lost(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for finish in (at.consumer.ack, at.consumer.nack):
            message = await at.received()
            at.proxy.loses_answers = True
            task = asyncio.ensure_future(finish(message))
            await at.is_resolved()
            at.proxy.cut()
            for again in (task, at.consumer.ack(message), at.consumer.nack(message)):
                with pytest.raises(errors.UndecidedReceipt):
                    await again


async def test_finishing_is_done_when_the_request_is_lost(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        message = await at.received()
        at.proxy.loses_requests = True
        task = asyncio.ensure_future(at.consumer.ack(message))
        for _ in range(10):
            await before_the_next_look()
        at.proxy.cut()
        async with asyncio.timeout(WITHIN_S):
            await task
        with pytest.raises(errors.StaleReceipt):
            await at.consumer.ack(message)


async def test_ack_soon_counts_what_is_undecided(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        message = await at.received()
        at.proxy.loses_answers = True
        at.consumer.ack_soon(message)
        flush = asyncio.ensure_future(at.consumer.flush_acks())
        await at.is_resolved()
        at.proxy.cut()
        async with asyncio.timeout(WITHIN_S):
            await flush
        assert (at.consumer.undecided_count, at.consumer.stale_count) == (1, 0)


async def test_receipt_is_stale_when_no_answer_was_lost(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        message = await at.received()
        await at.consumer.ack(message)
        with pytest.raises(errors.StaleReceipt) as caught:
            await at.consumer.ack(message)
        assert not isinstance(caught.value, errors.UndecidedReceipt)
