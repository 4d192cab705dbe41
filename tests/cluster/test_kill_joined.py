"""kill -9 of a real node while batches of many topics are on their way.

What producers send again has the topics of the first try and its numbers: each message is taken
once, and in its own topic, whether it came by a stream of its producer's or in the session.
"""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from chaos.stored import LogFiles
from hourwheel import AsyncConsumer, AsyncProducer, Message, errors
from hourwheel.formats.record_batch import Kind
from hourwheel.transport.connection import STREAMS_MAX
from tests.support.eventually import until
from tests.support.faulty_node import FaultyNode
from tests.support.reaper import small_node
from tests.support.stored import digests_of

TOPICS: Final = [f"t{number}" for number in range(12)]
LIST: Final = 5
PRODUCERS: Final = STREAMS_MAX + 2
KILLS: Final = 2
SEED: Final = 41


def list_for(topic: str, first: int) -> list[Message]:
    return [Message(b"%s %d" % (topic.encode(), first + at)) for at in range(LIST)]


async def publish(
    producer: AsyncProducer, topics: list[str], published: Counter[bytes], over: asyncio.Event
) -> None:
    """Lists for all its topics at once, again and again: they wait together and share batches."""
    first = 0
    while not over.is_set():
        lists = {topic: list_for(topic, first) for topic in topics}
        await asyncio.gather(*(producer.publish_many(*one) for one in lists.items()))
        published.update(message.body for one in lists.values() for message in one)
        first += LIST


async def consume(consumer: AsyncConsumer, received: dict[bytes, set[str]]) -> None:
    """Note the ids under which each body came."""
    async for message in consumer:
        assert message.body.startswith(message.topic.encode() + b" ")
        received.setdefault(message.body, set()).add(str(message.message_id))
        with suppress(errors.StaleReceipt, errors.Unavailable, errors.Timeout):  # it comes again
            await consumer.ack(message)


def has_grown(received: dict[bytes, set[str]], count: int) -> bool:
    return len(received) >= count


def topic_counts(directory: Path) -> list[int]:
    """How many topics each PUBLISH batch of the log has."""
    found = LogFiles(directory).scan(0, 1 << 62)
    return [len(set(one.topic_queue.tolist())) for one in found if one.header.kind == Kind.PUBLISH]


async def test_joined_batches_are_taken_once_when_the_node_is_killed(tmp_path: Path) -> None:
    chooser, published, received = random.Random(SEED), Counter[bytes](), dict[bytes, set[str]]()
    over, directory = asyncio.Event(), tmp_path / "data"
    node = FaultyNode(directory, small_node(), log_file=tmp_path / "node.log")
    await node.start()
    try:
        producers = [AsyncProducer(node.configured_address) for _ in range(PRODUCERS)]
        async with AsyncExitStack() as clients:
            for one in producers:
                await clients.enter_async_context(one)
            for number, topic in enumerate(TOPICS):
                body = topic.encode() + b" first"
                await producers[number % PRODUCERS].publish(topic, Message(body))
                published[body] += 1
            consumers = [
                AsyncConsumer(node.configured_address, group="billing", topic=topic)
                for topic in TOPICS
            ]
            tasks = [asyncio.create_task(consume(one, received)) for one in consumers]
            publishing = [
                asyncio.create_task(publish(one, TOPICS[number::PRODUCERS], published, over))
                for number, one in enumerate(producers)
            ]
            for _ in range(KILLS):
                count = len(received) + len(TOPICS) * LIST * chooser.randint(2, 6)
                await until(partial(has_grown, received, count))
                await node.kill()
                found = await asyncio.to_thread(digests_of, directory)
                assert found.restored == found.rebuilt
                await node.start()
            await until(partial(has_grown, received, len(received) + len(TOPICS)))
            over.set()
            await asyncio.gather(*publishing)
            await until(lambda: received.keys() == published.keys())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for consumer in consumers:
                await consumer.close()
        assert await node.stop() == 0
    finally:
        if node.is_there:
            await node.kill()
    assert max(topic_counts(directory)) > 1, "else nothing was tested"
    assert set(published.values()) == {1}
    assert {len(ids) for ids in received.values()} == {1}
