"""A group's limits hold for all its consumers, whichever node and way their polls come through."""

import asyncio
from pathlib import Path
from typing import Final

import grpc

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.v1 import consumer_pb2, consumer_pb2_grpc
from node.tools.local_cluster.nodes import LocalCluster

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
POLL: Final = consumer_pb2.ReceiveRequest(
    group="billing", topic="orders", max_messages=10, wait_ms=20_000
)


async def poll(address: str) -> int:
    """A long poll of a plain client through one node; how many it brought."""
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await consumer_pb2_grpc.ConsumerServiceStub(channel).Receive(POLL)
        return len(answer.messages)


async def test_consumers_at_all_nodes_hold_no_more_together(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        others = [node.address for at, node in enumerate(cluster.nodes) if at != master]
        async with (
            AsyncAdmin(cluster.servers) as admin,
            AsyncProducer(cluster.servers) as producer,
            AsyncConsumer(cluster.servers, group="billing", topic="orders") as consumer,
        ):
            await admin.put_group("billing", in_flight_max=3)
            await producer.publish_many("orders", [Message(b"%d" % n) for n in range(9)])
            held = await consumer.receive(10, wait_ms=20_000)
            while len(held) < 3:
                held += await consumer.receive(10, wait_ms=20_000)
            polls = [asyncio.ensure_future(poll(address)) for address in others]
            assert await consumer.receive(10, wait_ms=300) == []
            await consumer.close()  # its own polls wait no longer
            assert [one.done() for one in polls] == [False, False]
            async with AsyncConsumer(
                cluster.servers, group="billing", topic="orders", prefetch_messages=0
            ) as acker:
                await acker.ack(held[:1])
                done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
                assert ([await one for one in done], len(waiting)) == ([1], 1)
                await acker.ack(held[1:])
                assert await asyncio.wait_for(waiting.pop(), 20) == 2
            (lag,) = (await admin.get_group("billing")).lags
            assert (lag.leased_count, lag.unresolved_count) == (3, 6)
