"""Listing the messages that have a key: newest first, page by page, beside all else a node does.

The key index says which they may be, the views by sequence what became of each. A page ends when it
is full, when nothing is left, or when its time is up, and then says where to go on: below a
sequence, which holds after merges, restarts and changes of master.
"""

import asyncio
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.outcomes import MessageState
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, SequenceNumber
from node.catalog.serving import Serving
from node.consumers.loop_share import LoopShare
from node.contracts.pending_page import KeyPage, KeyPart, ids_of
from node.contracts.pending_token import KeyQuery, Purpose, Reached, TokenMaker
from node.shard.named_messages import are_shown
from storage.views.catalog_items import Topic
from storage.views.key_rows import Hashes, KeyRows, hash_keys
from storage.views.moved import are_above
from storage.views.sequence_index import SlotState
from storage.views.unit import UNIT

ROWS_AT_ONCE: Final = 1_024
PAGE_S: Final = 0.25
"""A page's time, what else the loop does meanwhile included."""


class KeyListing:
    """See EnginePort.list_by_key. Of one mastership; on the event loop's thread."""

    def __init__(self, serving: Serving, cluster_id: bytes) -> None:
        """Look keys up in the shard of `serving`."""
        self._serving, self._cluster_id = serving, cluster_id
        self._shard = serving.mastership.shard

    async def list_by_key(self, query: KeyQuery, token: bytes, *, count_max: int) -> KeyPage:
        """See EnginePort."""
        topic = self.get_topic(query.topic)
        maker = TokenMaker(self._cluster_id, Purpose.LIST_BY_KEY, topic.topic_id, query)
        below = maker.unpack(token).end_sequence if token else SEQUENCE_MAX
        hashes = hash_keys([topic.topic_id], [query.key])
        page, now = KeyPage(), asyncio.get_running_loop().time
        until = now() + PAGE_S
        rest = LoopShare(lambda: self._shard.log.end_offset).rest
        while True:
            rows = self._find(hashes, below)
            if not rows.size:
                return page
            left = count_max - page.matched_count if count_max else ROWS_AT_ONCE
            part, below = self._sort_out(topic, rows, left, query)
            page.matched_count += len(part.ids)
            if count_max:
                page.parts.append(part)
            if page.matched_count == count_max > 0 or now() >= until:
                page.next_token = maker.pack(Reached(KEY_MIN, below))
                return page
            await rest()

    def _find(self, hashes: Hashes, below: int) -> KeyRows:
        """The next rows; none: that was all."""
        self.check()
        try:
            return self._shard.views.keys.newest(hashes, 0, below, ROWS_AT_ONCE)
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise

    def _sort_out(
        self, topic: Topic, rows: KeyRows, count_max: int, query: KeyQuery
    ) -> tuple[KeyPart, SequenceNumber]:
        """(the first messages of some rows, the last sequence that was looked at)."""
        views = self._shard.views
        sequences = rows.sequence
        due_ms, slots = views.sequences.read_many(sequences)
        moved = views.moved.find(sequences)  # its row may have any due time that it ever had
        is_known = (slots != SlotState.REJECTED) & (moved.are_moved | (due_ms == rows.due_ms))
        is_known &= views.are_known(sequences)
        is_known[1:] &= sequences[1:] != sequences[:-1]
        current = np.where(moved.are_moved, moved.due_ms, due_ms)
        is_ahead = are_above(sequences, current, views.cursor.key) & (slots == SlotState.WHEEL)
        states = np.full(rows.size, MessageState.RELEASED, np.uint8)
        states[is_ahead] = MessageState.PENDING
        states[views.tombstones.contains(sequences)] = MessageState.CANCELLED
        are_pending = states == MessageState.PENDING
        if topic.retention_ms and not query.pending_only:
            last_ms = np.where(moved.are_moved, moved.last_due_ms, due_ms)
            now_ms = self._serving.now_ms()
            is_known &= are_pending | are_shown(self._shard.log, topic, sequences, last_ms, now_ms)
        due_now = np.where(is_ahead, current, due_ms)
        wanted = is_known & (due_now >= query.from_ms)
        if query.to_ms:
            wanted &= due_now < query.to_ms
        if query.pending_only:
            wanted &= are_pending
        chosen = np.flatnonzero(wanted)[:count_max]
        is_cut = len(chosen) == count_max
        units = np.zeros(len(chosen), UNIT)
        units["sequence"], units["due_ms"] = sequences[chosen], due_ms[chosen]
        units["attempt"] = 1  # with the due time of its id
        ids = ids_of(self._shard.shard_id, views, units)
        last = sequences[chosen[-1]] if is_cut else sequences[-1]
        return KeyPart(ids, states[chosen], due_now[chosen]), SequenceNumber(int(last))

    def check(self) -> None:
        """Raises ShuttingDown, NotMaster; Unavailable while the index is being built."""
        self._serving.check()
        if not self._shard.views.keys.is_complete:
            raise errors.Unavailable("the index of keys is being built: try again later")

    def get_topic(self, name: str) -> Topic:
        """The topic that is asked about.

        Raises:
            UnknownTopic: there is none.
            InvalidTopic: one of the cluster's own: nothing is published to it.
        """
        topic: Topic = self._shard.views.catalog.get_topic(name)
        if topic.internal:
            raise errors.InvalidTopic("this topic is the cluster's own", topic=topic.name)
        return topic
