"""One pending message of a topic and a dedup key: publishing with one, and debouncing."""

from typing import Protocol

from hourwheel import errors
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer, PublishedIds
from hourwheel.outcomes import DedupOutcome, IfPending


class PublishesLists(Protocol):
    """An asyncio producer."""

    async def publish_many(self, topic: str, messages: list[Message]) -> PublishedIds:
        """See `AsyncProducer.publish_many`."""
        ...


async def publish_unique(producer: PublishesLists, topic: str, message: Message) -> DedupAnswer:
    """See `AsyncProducer.publish_unique`."""
    if not message.dedup_key:
        raise errors.InvalidArgument("a dedup_key is needed")
    ids = await producer.publish_many(topic, [message])
    return ids.deduped.get(0) or DedupAnswer(DedupOutcome.PUBLISHED, ids[0])


async def debounce(producer: PublishesLists, topic: str, key: str, message: Message) -> DedupAnswer:
    """See `AsyncProducer.debounce`."""
    if message.dedup_key not in {"", key} or message.if_pending not in {None, IfPending.REPLACE}:
        raise errors.InvalidArgument("the message says something else about its dedup key")
    message.dedup_key, message.if_pending = key, IfPending.REPLACE
    return await publish_unique(producer, topic, message)
