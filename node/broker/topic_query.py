"""The topics of messages that a caller names by id: a permission on them decides the call.

In slices of a few milliseconds, one caller at a time. What is in the wheel is found there; the rest
is looked for in the log, and so is what its caller may not know of: it is done for a message that
waits in the wheel what is done for an id that no message has.
"""

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from node.consumers.loop_share import LoopShare, Turns
from node.contracts.message_topics import May, MessageTopics
from node.shard.named_messages import is_shown
from node.shard.shard import Shard
from node.shard.topic_search import NO_TOPIC, TopicSearch

SLICE_S: Final = 0.003
WAITING_MAX: Final = 1_024
"""Callers that wait for their turn."""


class Host(Protocol):
    """What is used of node/broker/engine.py."""

    shard: Shard
    is_closing: bool

    def fail(self, error: errors.HourwheelError) -> None:
        """The node cannot go on."""
        ...


class TopicQuery:
    """See TopicsPort. On the event loop's thread."""

    def __init__(self, host: Host) -> None:
        """Read the host's shard."""
        self._host, self._shard = host, host.shard
        self._turns = Turns("look-ups of messages by id", WAITING_MAX)

    async def topics_of(self, ids: NDArray[np.void], may: May) -> MessageTopics:
        """See TopicsPort. One caller's whole look-up has a turn, wherever its messages are."""
        search = TopicSearch(self._shard, ids)
        async with self._turns.one():
            await self._follow(search.in_wheel())
            allowed = self._named(search.topic_ids).are_allowed(may)
            if not allowed.all():
                await self._follow(search.in_log(np.flatnonzero(~allowed)))
        return self._named(search.topic_ids)

    async def is_shown(self, message_id: MessageId, now_ms: int) -> bool:
        """See EnginePort."""
        catalog = self._shard.views.catalog
        shortest_ms = min(catalog.retentions_ms.values(), default=None)
        if shortest_ms is None or message_id.due_ms >= now_ms - shortest_ms:
            return True
        one = np.array([tuple(message_id)], ID_DTYPE)
        found = await self.topics_of(one, lambda _: True)
        topic = catalog.find_topic(found.names[0]) if found.names else None
        return topic is None or is_shown(
            self._shard.views, self._shard.log, topic, message_id.sequence, now_ms
        )

    async def _follow(self, steps: Iterator[None]) -> None:
        """Raises ShuttingDown, CorruptFile."""
        log, now = self._shard.log, asyncio.get_running_loop().time
        share, until_s = LoopShare(lambda: log.end_offset), now() + SLICE_S
        try:
            for _ in steps:
                if now() < until_s:
                    continue
                await share.rest()
                until_s = now() + SLICE_S
                if self._host.is_closing:
                    raise errors.ShuttingDown
        except errors.CorruptFile as error:
            self._host.fail(error)
            raise

    def _named(self, topic_ids: NDArray[np.int64]) -> MessageTopics:
        names: list[str] = []
        ordinals = np.full(len(topic_ids), -1, np.int64)
        for topic_id in np.unique(topic_ids).tolist():
            catalog = self._shard.views.catalog
            topic = None if topic_id == NO_TOPIC else catalog.find_topic_by_id(topic_id)
            if topic is not None:  # else it was deleted since
                ordinals[topic_ids == topic_id] = len(names)
                names.append(topic.name)
        return MessageTopics(names, ordinals)
