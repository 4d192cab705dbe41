"""Of which topics messages are that a caller names by id: asked where it decides who may.

In slices of a few milliseconds. What is in the wheel is found at once; to look into the log, one
caller at a time has a turn.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from node.consumers.loop_share import LoopShare, Turns
from node.contracts.message_topics import MessageTopics
from node.shard.shard import Shard
from node.shard.topic_search import NO_TOPIC, TopicSearch

_SLICE_S: Final = 0.003
_WAITING_MAX: Final = 64
"""Callers that wait for their turn in the log."""


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
        self._turns = Turns("look-ups of messages by id", _WAITING_MAX)

    async def topics_of(self, ids: NDArray[Any]) -> MessageTopics:
        """See TopicsPort."""
        search = TopicSearch(self._shard, ids)
        await self._follow(search.in_wheel())
        if (search.topic_ids == NO_TOPIC).any():
            async with self._turns.one():
                await self._follow(search.in_log())
        return self._named(search.topic_ids)

    async def _follow(self, steps: Iterator[None]) -> None:
        """Raises ShuttingDown, CorruptFile."""
        log, now = self._shard.log, asyncio.get_running_loop().time
        share, until_s = LoopShare(lambda: log.end_offset), now() + _SLICE_S
        try:
            for _ in steps:
                if now() < until_s:
                    continue
                await share.rest()
                until_s = now() + _SLICE_S
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
