"""Messages looked up by key, and their histories, page by page behind one call."""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from hourwheel.client.pending import range_of
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.instants import check_count
from hourwheel.outcomes import EventKind, MessageState
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import GET_HISTORY, LIST_BY_KEY
from hourwheel.transport.pages import pages_of
from hourwheel.v1 import lookup_pb2

PAGE_SIZE: Final = 500


class KeyMessage(NamedTuple):
    """A message that has a key."""

    message_id: MessageId
    state: MessageState
    """PENDING, RELEASED or CANCELLED."""
    due_ms: int
    """When it is or was due, in milliseconds since the Unix epoch."""


class MessageEvent(NamedTuple):
    """Something that happened to a message."""

    kind: EventKind
    at_ms: int
    """When its record came into the log, by the cluster's clock; 0: not known any more."""
    group: str
    """Which group; empty where there is none, or it was deleted since."""
    attempt: int
    """Of the delivery to the group: 1 for the first."""
    due_ms: int
    """Of PUBLISHED, RESCHEDULED, RELEASED, RETRIED, REDRIVEN and HELD: when it was or is due."""
    topic: str
    """Of PUBLISHED; empty if the topic was deleted since."""
    producer_id: int
    """Of PUBLISHED: the producer's number; 0 where it has none."""
    priority: int = 0
    """Of PUBLISHED: the message's priority, 0 to 9."""


class History(NamedTuple):
    """What became of a message."""

    events: tuple[MessageEvent, ...]
    """In their order."""
    is_complete: bool
    """Nothing is left out. If not, the log does not have its publish any more, or never had it; or
    more happened to it than a node follows."""


class Lookups:
    """What an administrator looks up of single messages: a part of `AsyncAdmin`."""

    _channel: Channel

    def list_by_key(
        self,
        topic: str,
        key: str,
        *,
        pending_only: bool = False,
        from_ms: int = 0,
        to_ms: int = 0,
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[KeyMessage]:
        """The messages of a topic that have a key, those that were published last first.

        All whose publish was answered before, as far back as the topic's history goes: of messages
        older than `log.retention_ms` those that are pending. What is published meanwhile is left
        out.

        Args:
            topic: the topic.
            key: the key.
            pending_only: leave out what is released or cancelled.
            from_ms: due at or after this instant, in milliseconds since the Unix epoch; of a
                message that waits where it was moved to, the due time is that one.
            to_ms: due before this instant; 0: no bound.
            page_size: how many are fetched at once, 1 to 1,000.

        Raises:
            UnknownTopic: there is none.
            InvalidArgument: no message can have such a key; or `page_size` is out of range.
            InvalidDueTime: a bound is no instant.
            Unavailable: the node's index of keys is being built.
        """
        check_count(page_size, "page_size", at_least=1)
        request = _request(topic, key, from_ms, to_ms, pending_only=pending_only)
        request.page_size = page_size
        return _listed(self._channel, request)

    async def count_by_key(
        self,
        topic: str,
        key: str,
        *,
        pending_only: bool = False,
        from_ms: int = 0,
        to_ms: int = 0,
    ) -> int:
        """How many they are; see `list_by_key`."""
        request = _request(topic, key, from_ms, to_ms, pending_only=pending_only)
        request.count_only = True
        count = 0
        async for answer in pages_of(self._channel, LIST_BY_KEY, request):
            count += answer.matched_count
        return count

    async def history(self, of: MessageId | str, topic: str = "") -> History:
        """What became of a message, event by event, as far back as the log goes.

        The log does not say which consumer leased it, or which client cancelled it.

        Args:
            of: its id.
            topic: the topic that it was published to; not needed by who may look at all topics.

        Raises:
            InvalidMessageId: a text that is no id.
            InvalidArgument: the master has changed between two pages: ask again.
            DataLoss: a place of the log that has to be read is damaged on the master.
        """
        parsed = of if isinstance(of, MessageId) else message_id.parse(of)
        request = lookup_pb2.GetHistoryRequest(message_id=str(parsed), topic=topic)
        events, is_complete = list[MessageEvent](), False
        async for answer in pages_of(self._channel, GET_HISTORY, request):
            events += map(_event, answer.events)
            is_complete = answer.is_complete
        return History(tuple(events), is_complete)


def _request(
    topic: str, key: str, from_ms: int, to_ms: int, *, pending_only: bool
) -> lookup_pb2.ListByKeyRequest:
    bounds = range_of(topic, None, from_ms, to_ms)
    return lookup_pb2.ListByKeyRequest(
        topic=topic,
        key=key,
        pending_only=pending_only,
        from_due_ms=bounds.from_ms,
        to_due_ms=bounds.to_ms,
    )


def _event(event: lookup_pb2.MessageEvent) -> MessageEvent:
    return MessageEvent(
        kind=EventKind(event.kind),
        at_ms=event.at_ms,
        group=event.group,
        attempt=event.attempt,
        due_ms=event.due_ms,
        topic=event.topic,
        producer_id=event.producer_id,
        priority=event.priority,
    )


async def _listed(
    channel: Channel, request: lookup_pb2.ListByKeyRequest
) -> AsyncIterator[KeyMessage]:
    async for answer in pages_of(channel, LIST_BY_KEY, request):
        for one in answer.messages:
            state = MessageState(one.state)
            yield KeyMessage(message_id.parse(one.message_id), state, one.due_ms)
