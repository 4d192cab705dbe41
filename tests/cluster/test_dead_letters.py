"""Dead letters of several topics, as a consumer of them gets them from a real node."""

from pathlib import Path

import pytest

from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    DeadLetterReason,
    Message,
    MessageId,
    MessageState,
)
from hourwheel.client.catalog import DeadLetter
from tests.support.embedded_node import EmbeddedNode


@pytest.mark.parametrize("prefetch_messages", [0, 100])
@pytest.mark.parametrize("filter_text", [None, "red"])
async def test_topic_of_dead_letters_when_they_come_from_several(
    tmp_path: Path, prefetch_messages: int, filter_text: str | None
) -> None:
    order = ["orders", "orders", "mails", "orders", "mails"]
    ids: list[MessageId] = []
    async with EmbeddedNode(tmp_path) as node:
        async with AsyncAdmin(node.address) as admin, AsyncProducer(node.address) as producer:
            await admin.put_group("g", attempts_max=1)
            for number, topic in enumerate(order):
                red = Message(b"%d" % number, tags=["red"])
                ids.append(await producer.publish(topic, red))
                async with AsyncConsumer(node.address, group="g", topic=topic) as consumer:
                    (message,) = await consumer.receive(1)
                    assert message.topic == topic
                    await consumer.nack(message)  # for the last time
        found: dict[bytes, str] = {}
        async with AsyncConsumer(
            node.address,
            group="g",
            topic="%DLQ%g",
            filter=filter_text,
            prefetch_messages=prefetch_messages,
        ) as consumer:
            while len(found) < len(order):
                messages = await consumer.receive()
                assert messages
                found |= {message.body: message.topic for message in messages}
                await consumer.ack(messages)
        async with AsyncAdmin(node.address) as admin:
            described = [await admin.describe(one) for one in ids]
    assert [found[b"%d" % number] for number in range(len(order))] == order
    for told, topic in zip(described, order, strict=True):
        assert told.state is MessageState.RELEASED
        assert told.dead_letters == (DeadLetter("g", topic, 1, DeadLetterReason.ATTEMPTS_USED_UP),)
        assert told.dead_letter_search_is_complete
