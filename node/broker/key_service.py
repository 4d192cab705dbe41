"""Cancelling by key: the key index says which messages have a key, and they are cancelled by id.

A call's messages are those that were there when it came: each publish that had been answered is
among them. What becomes of each is decided where its cancel is applied, as of any other's. A key
may be on millions of messages: of such a one they are looked up and cancelled in pieces, between
which the loop goes on.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.outcomes import CancelOutcome
from node.broker.group_commit import GroupCommit
from node.broker.key_listing import KeyListing
from node.broker.small_calls import SmallCalls
from node.catalog.serving import Serving
from node.consumers.loop_share import LoopShare
from node.contracts.pending_page import KeysCancelled, ids_of
from storage.views.key_rows import Hashes, hash_keys
from storage.views.unit import UNIT

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]

KEYS_AT_ONCE: Final = 32
"""Looked up in one slice, at least: each may cost some reads of the disk."""
_KEYS_MOST: Final = 1_024
_SLICE_S_MIN: Final = 0.001
_SLICE_S_MAX: Final = 0.004
"""While slices are shorter than the first, the next has twice as many keys; above the second half
as many."""
IDS_AT_ONCE: Final = 4_096
_IN_FLIGHT_MAX: Final = 4


class _Tally:
    """What became of the messages of n keys, so far."""

    def __init__(self, count: int) -> None:
        self.cancelled: NDArray[np.uint32] = np.zeros(count, np.uint32)
        """By this call."""
        self._released: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._before: NDArray[np.bool_] = np.zeros(count, np.bool_)
        """Cancelled by an earlier call, or counted elsewhere."""

    def note_released(self, ordinals: I64) -> None:
        self._released[ordinals] = True

    def note_before(self, ordinals: I64) -> None:
        self._before[ordinals] = True

    def note(self, ordinals: I64, outcomes: NDArray[np.uint8], counts: NDArray[np.bool_]) -> None:
        """What became of a message of each of these keys; `counts`: no one else counts it."""
        is_done = outcomes == CancelOutcome.CANCELLED
        np.add.at(self.cancelled, ordinals[is_done & counts], 1)
        self.note_before(ordinals[is_done & ~counts])
        self.note_released(ordinals[outcomes == CancelOutcome.ALREADY_RELEASED])

    def outcomes(self) -> NDArray[np.uint8]:
        """uint8[n] of CancelOutcome: of each key as a whole."""
        found = np.full(len(self.cancelled), CancelOutcome.UNKNOWN, np.uint8)
        found[self._before] = CancelOutcome.CANCELLED
        found[self._released] = CancelOutcome.ALREADY_RELEASED
        found[self.cancelled > 0] = CancelOutcome.CANCELLED
        return found


class _UnderWay(NamedTuple):
    """Cancels of some messages that are not applied yet."""

    future: "asyncio.Future[NDArray[np.uint8]]"
    ordinals: I64
    """Of the key of each."""
    counts: NDArray[np.bool_]
    """Which of them this call counts."""
    counted: set[int]
    """Their sequences."""


class _Cancelling:
    """One call: what is looked up, and the cancels that are under way."""

    def __init__(
        self,
        serving: Serving,
        small_calls: SmallCalls,
        group_commit: GroupCommit,
        count: int,
        claimed: set[int],
    ) -> None:
        self._serving, self._shard = serving, serving.mastership.shard
        self._small_calls, self._group_commit = small_calls, group_commit
        self.tally = _Tally(count)
        self._claimed = claimed
        """Sequences of messages whose cancels are under way, of all calls: each is counted once."""
        self._in_flight: deque[_UnderWay] = deque()

    def take(self, ordinals: I64, sequences: U64, due_ms: I64) -> None:
        """Cancel those of n messages that are pending; each is of the key of an ordinal."""
        views = self._shard.views
        order = np.lexsort((sequences, ordinals))  # a row may be there twice
        ordinals, sequences, due_ms = ordinals[order], sequences[order], due_ms[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (ordinals[1:] != ordinals[:-1]) | (sequences[1:] != sequences[:-1])
        key = views.cursor.key
        is_ahead = (due_ms > key.due_ms) | (
            (due_ms == key.due_ms) & (sequences > np.uint64(key.sequence))
        )
        is_known = is_new & (is_ahead | (sequences >= np.uint64(views.sequence_floor)))
        is_cancelled = views.tombstones.contains(sequences)
        self.tally.note_before(ordinals[is_known & is_cancelled])
        self.tally.note_released(ordinals[is_known & ~is_cancelled & ~is_ahead])
        pending = np.flatnonzero(is_known & ~is_cancelled & is_ahead)
        for at in range(0, len(pending), IDS_AT_ONCE):
            chosen = pending[at : at + IDS_AT_ONCE]
            self._propose(ordinals[chosen], sequences[chosen], due_ms[chosen])

    def _propose(self, ordinals: I64, sequences: U64, due_ms: I64) -> None:
        units = np.zeros(len(sequences), UNIT)
        units["sequence"], units["due_ms"] = sequences, due_ms
        ids: NDArray[Any] = ids_of(self._shard.shard_id, self._shard.views, units)
        future: asyncio.Future[NDArray[np.uint8]] = asyncio.get_running_loop().create_future()
        self._small_calls.cancel(ids, future)
        self._group_commit.wake_for_small()
        first = np.unique(sequences, return_index=True)[1]
        counts = np.zeros(len(sequences), np.bool_)
        counts[first] = [one not in self._claimed for one in sequences[first].tolist()]
        counted = set(sequences[counts].tolist())
        self._claimed |= counted
        self._in_flight.append(_UnderWay(future, ordinals, counts, counted))

    async def settle(self, count_max: int) -> None:
        """Wait until at most so many cancels are under way."""
        while len(self._in_flight) > count_max:
            one = self._in_flight[0]
            self.tally.note(one.ordinals, await one.future, one.counts)
            self._claimed -= self._in_flight.popleft().counted

    async def close(self) -> None:
        """Wait for all that is under way, whatever becomes of it."""
        await asyncio.gather(*(one.future for one in self._in_flight), return_exceptions=True)
        for one in self._in_flight:
            self._claimed -= one.counted


class KeyService:
    """Calls by key of one mastership. On the event loop's thread."""

    def __init__(
        self,
        serving: Serving,
        small_calls: SmallCalls,
        group_commit: GroupCommit,
        cluster_id: bytes,
    ) -> None:
        """Look keys up in the shard of `serving`; cancels share records with others."""
        self.listing = KeyListing(serving, cluster_id)
        self._serving, self._shard = serving, serving.mastership.shard
        self._small_calls, self._group_commit = small_calls, group_commit
        self._claimed: set[int] = set()
        self._keys_at_once = KEYS_AT_ONCE

    async def cancel(self, topic: str, keys: Sequence[bytes]) -> KeysCancelled:
        """See EnginePort."""
        ordinals = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        found = await self._cancel(topic, list(ordinals))
        if len(ordinals) == len(keys):
            return found
        chosen = np.array([ordinals[key] for key in keys])
        counts = np.zeros(len(keys), np.uint32)
        first = np.unique(chosen, return_index=True)[1]
        counts[first] = found.cancelled_counts
        return KeysCancelled(found.outcomes[chosen], counts)

    async def _cancel(self, topic: str, keys: Sequence[bytes]) -> KeysCancelled:
        """The same of keys that are all different."""
        found = self.listing.get_topic(topic)
        call = _Cancelling(
            self._serving, self._small_calls, self._group_commit, len(keys), self._claimed
        )
        rest = LoopShare(lambda: self._shard.log.end_offset).rest
        at, now = 0, asyncio.get_running_loop().time
        try:
            while at < len(keys):
                if at:
                    await rest()
                begun = now()
                hashes = hash_keys(repeat(found.topic_id), keys[at : at + self._keys_at_once])
                for ordinal in self._take_few(call, hashes, at):
                    await self._take_many(call, hashes, ordinal, at, rest)
                at += len(hashes.high)
                self._pace(now() - begun)
                await call.settle(_IN_FLIGHT_MAX)
            await call.settle(0)
        finally:
            await call.close()
        self._serving.stats.cancelled = self._shard.views.counters.cancelled
        return KeysCancelled(call.tally.outcomes(), call.tally.cancelled)

    def _pace(self, slice_s: float) -> None:
        """A slice took so long."""
        if slice_s > _SLICE_S_MAX:
            self._keys_at_once = max(self._keys_at_once // 2, KEYS_AT_ONCE)
        elif slice_s < _SLICE_S_MIN:
            self._keys_at_once = min(self._keys_at_once * 2, _KEYS_MOST)

    def _take_few(self, call: _Cancelling, hashes: Hashes, at: int) -> list[int]:
        """Cancel what the keys have; returns the ordinals of those that have too much for that."""
        self.listing.check()
        try:
            found = self._shard.views.keys.find(hashes)
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise
        few = ~np.isin(found.ordinals, found.many)
        call.take(found.ordinals[few] + at, found.sequences[few], found.due_ms[few])
        many: list[int] = found.many.tolist()
        return many

    async def _take_many(
        self, call: _Cancelling, hashes: Hashes, ordinal: int, at: int, rest: Any
    ) -> None:
        """The same of one key, piece by piece."""
        pieces = self._shard.views.keys.pieces(hashes, ordinal)
        try:
            for rows in pieces:
                call.take(np.full(rows.size, ordinal + at), rows.sequence, rows.due_ms)
                await call.settle(_IN_FLIGHT_MAX)
                await rest()
                self.listing.check()
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise
        finally:
            pieces.close()
