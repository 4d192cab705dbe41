"""I10: each occurrence of a recurrence is published once, while masters are killed and move."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster
from chaos.network import Loopback
from hourwheel import AsyncAdmin, AsyncConsumer, Message, Times, errors
from tests.support.eventually import until

NODES: Final = ("n1", "n2", "n3")
NAMES: Final = [f"r{number}" for number in range(40)]
COUNT: Final = 8
EVERY_MS: Final = 1_000

Received = dict[str, dict[str, set[tuple[int, str]]]]
"""Name -> number of the occurrence -> (due time, message id) of what was received."""


async def consume(consumer: AsyncConsumer, received: Received) -> None:
    async for message in consumer:
        said = dict(message.meta.properties)
        found = received[said["hourwheel.recurrence"]]
        found.setdefault(said["hourwheel.occurrence"], set()).add(
            (message.due_ms, str(message.message_id))
        )
        with suppress(errors.StaleReceipt):
            await consumer.ack(message)


def _has_all(received: Received, count: int) -> bool:
    return len(received) == len(NAMES) and all(len(one) >= count for one in received.values())


async def test_i10_each_occurrence_is_published_once_when_masters_end(tmp_path: Path) -> None:
    received: Received = defaultdict(dict)
    async with Loopback(NODES) as network, Cluster(tmp_path, network) as cluster:
        await cluster.whole()
        times = Times(every=timedelta(milliseconds=EVERY_MS), count=COUNT)
        async with (
            AsyncAdmin(cluster.servers) as admin,
            AsyncConsumer(cluster.servers, group="billing", topic="reports") as consumer,
        ):
            await admin.create_topic("reports", queue_count=2)
            for name in NAMES:
                await admin.put_recurrence("reports", name, Message(b"x"), times)
            consuming = asyncio.create_task(consume(consumer, received))
            await until(partial(_has_all, received, 2))
            master = await cluster.master()
            await master.kill()
            await until(partial(_has_all, received, 4))
            await master.start()
            await cluster.whole()
            await until(partial(_has_all, received, COUNT))
            consuming.cancel()
            found = {one.name: one for one in await admin.recurrences("reports")}
            assert {one.occurrence_count for one in found.values()} == {COUNT}
            assert len(found) == len(NAMES)
    for name, every in received.items():
        assert {len(one) for one in every.values()} == {1}, name
        due_ms = [next(iter(every[str(at)]))[0] for at in range(COUNT)]
        assert due_ms == [due_ms[0] + at * EVERY_MS for at in range(COUNT)], name
