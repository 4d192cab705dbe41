"""Masters that change under producers and consumers of many topics, which share one session."""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster
from chaos.network import Loopback
from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, errors
from tests.support.eventually import until

NODES: Final = ("n1", "n2", "n3")
TOPICS: Final = [f"t{number}" for number in range(12)]
LIST: Final = 5


async def move_master(cluster: Cluster) -> None:
    """Make another node the master, while all goes on."""
    before = (await cluster.master()).node_id
    target = next(name for name in NODES if name != before)
    async with AsyncAdmin(cluster.servers) as admin:
        while (await cluster.master()).node_id != target:
            try:
                await admin.transfer_master(target)
            except errors.FailedPrecondition:
                await cluster.whole()


async def publish(producer: AsyncProducer, published: Counter[bytes], over: asyncio.Event) -> None:
    number = 0
    while not over.is_set():
        lists = [
            [Message(b"%s %d" % (topic.encode(), number + at)) for at in range(LIST)]
            for topic in TOPICS
        ]
        await asyncio.gather(
            *(producer.publish_many(topic, one) for topic, one in zip(TOPICS, lists, strict=True))
        )
        published.update(message.body for one in lists for message in one)
        number += LIST


async def consume(consumer: AsyncConsumer, received: dict[bytes, set[str]]) -> None:
    """Note the ids under which each body came."""
    async for message in consumer:
        assert message.body.startswith(message.topic.encode() + b" ")
        received.setdefault(message.body, set()).add(str(message.message_id))
        with suppress(errors.StaleReceipt):  # its lease ended with a mastership: it comes again
            await consumer.ack(message)


def _has_grown(received: dict[bytes, set[str]], count: int) -> bool:
    return len(received) >= count


async def test_nothing_is_lost_or_doubled_when_masters_change_under_a_session(
    tmp_path: Path,
) -> None:
    published, received = Counter[bytes](), dict[bytes, set[str]]()
    over = asyncio.Event()
    async with Loopback(NODES) as network, Cluster(tmp_path, network) as cluster:
        await cluster.whole()
        async with AsyncProducer(cluster.servers) as producer:
            for topic in TOPICS:
                await producer.publish(topic, Message(topic.encode() + b" first"))
                published[topic.encode() + b" first"] += 1
            consumers = [
                AsyncConsumer(cluster.servers, group="billing", topic=topic) for topic in TOPICS
            ]
            tasks = [asyncio.create_task(consume(one, received)) for one in consumers]
            publishing = asyncio.create_task(publish(producer, published, over))
            for _ in range(3):
                before = len(received)
                await cluster.whole()
                await move_master(cluster)
                await until(partial(_has_grown, received, before + len(TOPICS)))
            over.set()
            await publishing
            await until(lambda: received.keys() == published.keys())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for consumer in consumers:
                await consumer.close()
        assert cluster.deaths == []
    assert set(published.values()) == {1}
    assert {len(ids) for ids in received.values()} == {1}  # of a batch sent twice, too
