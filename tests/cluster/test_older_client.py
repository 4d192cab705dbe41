"""A client of the first days beside a present one, at one real node.

It knows what it was built with: one topic for each batch, one call for each question, receipts one
by one, polls without a number, and of the answers what stood in them then.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc.aio

from hourwheel import AsyncConsumer, AsyncProducer, Message
from hourwheel.formats.record_batch import build_publish
from hourwheel.v1 import broker_pb2, broker_pb2_grpc, consumer_pb2, consumer_pb2_grpc
from node.process.subprocess_node import ChildNode
from tests.support.eventually import until

TOPICS: Final = ("bills", "orders")
EACH: Final = 40
LIST: Final = 8
DELAY_MS: Final = 20
WAIT_MS: Final = 200
OK: Final = int(consumer_pb2.ReceiptOutcome.RECEIPT_OUTCOME_OK)


class OldClient:
    """See the top of this file."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._producer: Any = broker_pb2_grpc.ProducerServiceStub(channel)
        self._consumer: Any = consumer_pb2_grpc.ConsumerServiceStub(channel)

    async def publish(self) -> None:
        """Lists to each topic in turn, as one producer with its numbers."""

        async def requests() -> AsyncIterator[broker_pb2.PublishStreamRequest]:
            for first in range(0, EACH, LIST):
                for number, topic in enumerate(TOPICS):
                    raw = build_publish(
                        [DELAY_MS] * LIST,
                        [b"old %s %d" % (topic.encode(), first + at) for at in range(LIST)],
                        relative_due=True,
                        producer_id=77,
                        producer_sequence=first * len(TOPICS) + number * LIST,
                    )
                    yield broker_pb2.PublishStreamRequest(topic=topic, record_batch=raw)

        answers = [one async for one in self._producer.PublishStream(requests())]
        assert [one.published.count for one in answers] == [LIST] * (len(TOPICS) * EACH // LIST)

    async def consume(self, topic: str, received: Counter[bytes], over: asyncio.Event) -> None:
        """Poll, one call after the other; acknowledge each message by its own receipt."""
        while not over.is_set():
            found = await self._consumer.Receive(
                consumer_pb2.ReceiveRequest(
                    group="billing", topic=topic, max_messages=5, wait_ms=WAIT_MS
                )
            )
            if not found.messages:
                continue
            for message in found.messages:
                assert message.body.split()[1] == message.topic.encode() == topic.encode()
            received.update(message.body for message in found.messages)
            receipts = [message.receipt for message in found.messages]
            told = await self._consumer.Ack(
                consumer_pb2.AckRequest(group="billing", receipts=receipts)
            )
            assert list(told.outcomes) == [OK] * len(receipts)


async def publish_now(producer: AsyncProducer) -> None:
    """As a present client does: of all topics at once, so that they share batches."""
    for first in range(0, EACH, LIST):
        await asyncio.gather(
            *(
                producer.publish_many(
                    topic,
                    [
                        Message(b"new %s %d" % (topic.encode(), first + at), delay_ms=DELAY_MS)
                        for at in range(LIST)
                    ],
                )
                for topic in TOPICS
            )
        )


async def consume_now(consumer: AsyncConsumer, received: Counter[bytes]) -> None:
    async for message in consumer:
        received[message.body] += 1
        await consumer.ack(message)


@asynccontextmanager
async def one_node(folder: Path) -> AsyncIterator[str]:
    async with ChildNode(folder / "data", log_file=folder / "node.log") as node:
        yield node.address


async def test_old_client_shares_topics_and_a_group_with_a_present_one(tmp_path: Path) -> None:
    old_got, new_got, over = Counter[bytes](), Counter[bytes](), asyncio.Event()
    expected = {
        b"%s %s %d" % (age, topic.encode(), number)
        for age in (b"old", b"new")
        for topic in TOPICS
        for number in range(EACH)
    }
    async with (
        one_node(tmp_path) as address,
        grpc.aio.insecure_channel(address) as channel,
        AsyncProducer(address) as producer,
        AsyncConsumer(address, group="billing", topic=TOPICS[0], prefetch_messages=4) as bills,
        AsyncConsumer(address, group="billing", topic=TOPICS[1], prefetch_messages=4) as orders,
    ):
        old = OldClient(channel)
        await asyncio.gather(old.publish(), publish_now(producer))
        consuming = [asyncio.create_task(old.consume(one, old_got, over)) for one in TOPICS]
        await until(lambda: old_got)
        present = [asyncio.create_task(consume_now(one, new_got)) for one in (bills, orders)]
        async with asyncio.timeout(60):
            while (old_got + new_got).keys() != expected:
                done, _ = await asyncio.wait(consuming + present, timeout=0.01)
                for one in done:
                    one.result()  # it has failed
        over.set()
        await asyncio.gather(*consuming)
        for one in present:
            one.cancel()
        await asyncio.gather(*present, return_exceptions=True)
    assert set((old_got + new_got).values()) == {1}
