"""The search for a message's dead letters, in the dead-letter queues of all groups.

No index leads from a message to its dead letters: it would cost something with each message, and
such searches are rare. So the search reads the newest entries of each queue, `TURN_ENTRIES` or one
chunk more in a turn of the loop, up to a limit: the answer says where there were more.
"""

import asyncio
from typing import Final

import numpy as np

from hourwheel.formats.expiry_field import expires_field, expiry_of
from hourwheel.outcomes import DeadLetterReason
from hourwheel.types import SequenceNumber, TopicId, TopicQueue, topic_queue
from node.contracts.dead_letters import DeadLetterInfo, DeadLettersInfo
from node.shard.shard import Shard
from node.shard.views import Views
from storage.views.catalog_items import Group

QUEUE_ENTRIES_MAX: Final = 1 << 17
"""Entries of one queue that one search reads."""
ENTRIES_MAX: Final = 1 << 20
"""Entries of all queues together: 64 full chunks, of which each takes far less than 1 ms."""
_LOOK_ENTRIES: Final = 1_024
"""What opening a queue costs, in entries: it bounds how many short queues one search opens."""
TURN_ENTRIES: Final = 1 << 14
"""After so many entries, of one queue or of many, other calls have their turn."""
_GROUPS_AT_ONCE: Final = 256


class DeadLetterSearch:
    """Searches one at a time. Belongs to one event loop."""

    def __init__(
        self,
        shard: Shard,
        *,
        queue_entries_max: int = QUEUE_ENTRIES_MAX,
        entries_max: int = ENTRIES_MAX,
        turn_entries: int = TURN_ENTRIES,
    ) -> None:
        """Search the shard's queues, on the master or on a follower."""
        self._shard = shard
        self._queue_entries_max, self._entries_max = queue_entries_max, entries_max
        self._turn_entries, self._looked_at = turn_entries, 0
        self._turn = asyncio.Lock()

    async def find(self, sequence: SequenceNumber) -> DeadLettersInfo:
        """The newest dead letter of each group for this message, by the groups' names.

        Raises:
            CorruptFile: a queue is damaged.
        """
        async with self._turn:
            return await self._find(sequence)

    async def _find(self, sequence: SequenceNumber) -> DeadLettersInfo:
        catalog = self._shard.views.catalog
        found: list[DeadLetterInfo] = []
        left, is_complete, after = self._entries_max, True, ""
        while groups := catalog.groups_after(after, _GROUPS_AT_ONCE):
            for group in groups:
                start, end = self._shard.views.queues.bounds(_queue_of(group))
                if start == end:
                    continue
                if left <= 0:
                    return DeadLettersInfo(found, is_complete=False)
                allowed = min(left, self._queue_entries_max)
                letter, looked_at = await self._find_in(group, sequence, allowed)
                left -= max(looked_at, _LOOK_ENTRIES)
                if letter is not None:
                    found.append(letter)
                elif looked_at < end - start:
                    is_complete = False
            after = groups[-1].name
            await asyncio.sleep(0)
        return DeadLettersInfo(found, is_complete)

    async def _find_in(
        self, group: Group, sequence: SequenceNumber, entries_max: int
    ) -> tuple[DeadLetterInfo | None, int]:
        """(the dead letter or None, how many entries were read) of one group, newest first."""
        queues, topic_queue = self._shard.views.queues, _queue_of(group)
        end = at = queues.bounds(topic_queue)[1]
        lowest = end - entries_max
        # Meanwhile the queue may be trimmed, or go with its group.
        while at > max(queues.bounds(topic_queue)[0], lowest) and queues.bounds(topic_queue)[1]:
            queue = queues.get(topic_queue)
            looked_from = at
            at, position = queue.find_before(at, sequence)
            unit = None if position is None else queue.read(position, 1)[0]
            await self._rest_after(looked_from - at)  # `unit` is a copy, and no view of the queue
            if unit is not None:
                return self._info(group, unit), end - at
        return None, end - at

    async def _rest_after(self, entries: int) -> None:
        """So many entries were read; where that is enough for a turn, other calls have theirs."""
        self._looked_at += max(entries, _LOOK_ENTRIES)
        if self._looked_at >= self._turn_entries:
            self._looked_at = 0
            await asyncio.sleep(0)

    def _info(self, group: Group, unit: np.void) -> DeadLetterInfo:
        """The reason is not in the log: it follows from the group's settings, as far as it can."""
        views = self._shard.views
        topic = views.catalog.find_topic_by_id(TopicId(int(unit["origin_topic"])))
        attempt = max(1, int(unit["attempt"]))
        return DeadLetterInfo(
            group.name,
            "" if topic is None else topic.name,
            attempt,
            reason_of(views, group, unit, self._meta_of(unit)),
        )

    def _meta_of(self, unit: np.void) -> bytes:
        """Its metadata, where that may say why it is one; empty where it cannot be read."""
        if int(unit["origin_topic"]) not in self._shard.views.expiring_topics:
            return b""
        blobs, bad = self._shard.bodies.read(np.array([unit]))
        return b"" if bad else bytes(blobs[0][: int(unit["meta_len"])])


def reason_of(views: Views, group: Group, unit: np.void, meta: bytes) -> DeadLetterReason:
    """Why a message is a dead letter, as far as its attempts and its metadata tell."""
    if max(1, int(unit["attempt"])) >= group.attempts_max:
        return DeadLetterReason.ATTEMPTS_USED_UP
    expires_ms = expiry_of(expires_field(meta), int(unit["store_ms"]))
    has_expired = group.keeps_expired and 0 < expires_ms <= views.store_ms
    return DeadLetterReason.EXPIRED if has_expired else DeadLetterReason.UNKNOWN


def _queue_of(group: Group) -> TopicQueue:
    """Dead-letter topics have one queue; 0 where the group has none."""
    return topic_queue(group.dead_letter_topic_id, 0)
