"""Debouncing: one pending message of a topic and a dedup key, of which the last one counts."""

from typing import Protocol

from hourwheel import errors
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer
from hourwheel.outcomes import IfPending


class PublishesUnique(Protocol):
    """An asyncio producer."""

    async def publish_unique(self, topic: str, message: Message) -> DedupAnswer:
        """See `AsyncProducer.publish_unique`."""
        ...


async def debounce(
    producer: PublishesUnique, topic: str, key: str, message: Message
) -> DedupAnswer:
    """See `AsyncProducer.debounce`."""
    if message.dedup_key not in {"", key} or message.if_pending not in {None, IfPending.REPLACE}:
        raise errors.InvalidArgument("the message says something else about its dedup key")
    message.dedup_key, message.if_pending = key, IfPending.REPLACE
    return await producer.publish_unique(topic, message)
