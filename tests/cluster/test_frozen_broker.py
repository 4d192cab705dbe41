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

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from node.local_cluster import LocalCluster
from tests.bench.subject import running
from tests.support.eventually import until

COUNT: Final = 400
SPREAD_MS: Final = 3_000
FROZEN_S: Final = 1.0
ROUNDS: Final = 2
INVISIBLE_MS: Final = 60_000
"""A lost lease would come again after the test has failed."""
IN_TIME_S: Final = 30.0


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
                    await asyncio.sleep(FROZEN_S)  # that it stands still is what is tested
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
