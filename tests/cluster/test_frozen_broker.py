"""A broker that stands still for a second while consumers wait and messages fall due.

An answer that was on its way then may be lost. Its messages must come with the next poll, as what
they are, a first attempt, and not a whole lease later, as a second one.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import grpc

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.clock import SystemClock
from hourwheel.v1 import consumer_pb2
from hourwheel.v1.consumer_pb2_grpc import ConsumerServiceStub
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench.subject import running
from tests.support.eventually import until

COUNT: Final = 400
SPREAD_MS: Final = 3_000
FROZEN_MS: Final = 1_000.0
ROUNDS: Final = 2
INVISIBLE_MS: Final = 60_000
"""A lost lease would come again after the test has failed."""
IN_TIME_S: Final = 50.0


async def stood_still() -> None:
    """That a stopped broker is so for a while is what is tested."""
    clock = SystemClock()
    begun_ms = clock.monotonic_ms()
    await until(lambda: clock.monotonic_ms() >= begun_ms + FROZEN_MS)


class Reader:
    """Consumers that note what comes."""

    def __init__(self) -> None:
        self.attempts: dict[bytes, int] = {}

    async def read(self, consumer: AsyncConsumer) -> None:
        while True:
            for message in await consumer.receive(8, wait_ms=1_000):
                self.attempts.setdefault(message.body, message.attempt)
                consumer.ack_soon(message)


async def play(servers: str, find_pid: Callable[[], Awaitable[int]]) -> None:
    """Freeze the broker as messages fall due; all come as first attempts."""
    reader = Reader()
    settings = {"group": "billing", "topic": "orders", "invisible_ms": INVISIBLE_MS}
    async with AsyncProducer(servers) as producer, AsyncAdmin(servers) as admin:
        await admin.create_topic("orders", queue_count=1)
        async with (
            AsyncConsumer(servers, **settings, prefetch_messages=0) as first,  # type: ignore[arg-type]
            AsyncConsumer(servers, **settings, polls=2) as second,  # type: ignore[arg-type]
        ):
            reading = [asyncio.create_task(reader.read(one)) for one in (first, first, second)]
            for number in range(ROUNDS):
                base = number * COUNT
                await producer.publish_many(
                    "orders",
                    [
                        Message(b"%d" % (base + n), delay_ms=200 + n * SPREAD_MS // COUNT)
                        for n in range(COUNT)
                    ],
                )
                await until(lambda base=base: len(reader.attempts) > base + COUNT // 8)  # type: ignore[misc]
                pid = await find_pid()
                os.kill(pid, signal.SIGSTOP)
                try:
                    await stood_still()
                finally:
                    os.kill(pid, signal.SIGCONT)
                async with asyncio.timeout(IN_TIME_S):
                    await until(lambda base=base: len(reader.attempts) == base + COUNT)  # type: ignore[misc]
            for task in reading:
                task.cancel()
            await asyncio.wait(reading)
    assert [body for body, attempt in reader.attempts.items() if attempt != 1] == []


async def test_messages_come_as_first_attempts_after_a_node_alone_stood_still(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:

        async def find_pid() -> int:
            return node.pid

        await play(node.child.address, find_pid)


async def test_messages_come_as_first_attempts_after_a_master_stood_still(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3) as cluster:
        await cluster.wait_for_master(in_sync=3)

        async def find_pid() -> int:
            return cluster.nodes[await cluster.wait_for_master()].pid

        await play(cluster.servers, find_pid)


async def test_answers_come_again_that_were_lost_with_their_connection(tmp_path: Path) -> None:
    """The connection is gone when the broker, which does not know of it yet, wakes up to answer."""
    pollers, rounds = 8, 2
    request = consumer_pb2.ReceiveRequest(
        group="billing", topic="orders", max_messages=1, invisible_ms=INVISIBLE_MS, wait_ms=10_000
    )
    attempts: dict[bytes, int] = {}
    async with running(tmp_path) as node, AsyncProducer(node.child.address) as producer:
        async with AsyncAdmin(node.child.address) as admin:
            await admin.create_topic("orders", queue_count=1)
            await admin.put_group("billing")
        for number in range(rounds):
            asked = [
                consumer_pb2.ReceiveRequest(poller_id=one, poll_number=number + 1)
                for one in range(1, pollers + 1)
            ]
            for one in asked:
                one.MergeFrom(request)
            async with grpc.aio.insecure_channel(node.child.address) as channel:
                polls = [ConsumerServiceStub(channel).Receive(one) for one in asked]
                await asyncio.gather(*(one.wait_for_connection() for one in polls))
                await producer.publish_many(
                    "orders",
                    [Message(b"%d %d" % (number, n), delay_ms=600) for n in range(pollers)],
                )
                os.kill(node.pid, signal.SIGSTOP)
                await stood_still()
            os.kill(node.pid, signal.SIGCONT)
            async with (
                asyncio.timeout(IN_TIME_S),
                grpc.aio.insecure_channel(node.child.address) as channel,
            ):
                stub = ConsumerServiceStub(channel)
                answers = await asyncio.gather(*(stub.Receive(one) for one in asked))
            messages = [message for answer in answers for message in answer.messages]
            attempts |= {message.body: message.attempt for message in messages}
            receipts = [message.receipt for message in messages]
            await stub_ack(node.child.address, receipts)
    assert len(attempts) == pollers * rounds
    assert set(attempts.values()) == {1}


async def stub_ack(address: str, receipts: list[str]) -> None:
    """Done with them."""
    async with grpc.aio.insecure_channel(address) as channel:
        request = consumer_pb2.AckRequest(group="billing", receipts=receipts)
        await ConsumerServiceStub(channel).Ack(request)


async def test_same_poll_gets_the_same_receipts_from_a_real_node(tmp_path: Path) -> None:
    async with running(tmp_path) as node, AsyncProducer(node.child.address) as producer:
        await producer.publish("orders", Message(b"one"))
        asked = consumer_pb2.ReceiveRequest(
            group="billing", topic="orders", wait_ms=20_000, poller_id=5, poll_number=1
        )
        answers = []
        for _ in range(2):
            async with grpc.aio.insecure_channel(node.child.address) as channel:
                answers.append(await ConsumerServiceStub(channel).Receive(asked))
        first, again = answers
        assert [one.body for one in first.messages] == [b"one"]
        assert list(again.messages) == list(first.messages)
