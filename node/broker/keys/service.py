"""Calls by key: the key index says which messages have a key, and each is then named by its id.

A call's messages are those that were there when it came: each publish that had been answered is
among them. What becomes of each is decided where its cancel is applied, as of any other's. A key
may be on millions of messages: of such a one they are looked up and cancelled in pieces, between
which the loop goes on.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import repeat
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.outcomes import CancelOutcome
from node.broker.group_commit import GroupCommit
from node.broker.keys.listing import KeyListing
from node.broker.small_calls import SmallCalls
from node.catalog.serving import Serving
from node.consumers.loop_share import LoopShare
from node.contracts.pending_page import KeysCancelled
from storage.views.key_rows import Hashes, hash_keys
from storage.views.moved import are_above

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]
Results = TypeVar("Results", NDArray[np.uint8], NDArray[np.void])
"""What became of n messages."""
Rest: TypeAlias = Callable[[], Awaitable[None]]
"""Lets others have the loop."""

KEYS_AT_ONCE: Final = 32
"""Looked up in one slice, at least: each may cost some reads of the disk."""
_KEYS_MOST: Final = 1_024
_SLICE_S_MIN: Final = 0.003
_SLICE_S_MAX: Final = 0.006
"""While slices are shorter than the first, the next has twice as many keys; above the second half
as many. What a look at each run costs by itself is much of a short slice."""
IDS_AT_ONCE: Final = 4_096
_IN_FLIGHT_MAX: Final = 4


class Tally:
    """What became of the messages of n keys, so far."""

    def __init__(self, count: int) -> None:
        """Nothing is known."""
        self.done: NDArray[np.uint32] = np.zeros(count, np.uint32)
        """How many messages of each key this call has changed."""
        self._released: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._cancelled: NDArray[np.bool_] = np.zeros(count, np.bool_)
        """By an earlier call, or counted elsewhere."""

    def note_done(self, ordinals: I64) -> None:
        """The call has changed a message of each of these keys."""
        np.add.at(self.done, ordinals, 1)

    def note_released(self, ordinals: I64) -> None:
        """A message of each of these keys was released before."""
        self._released[ordinals] = True

    def note_cancelled(self, ordinals: I64) -> None:
        """A message of each of these keys was cancelled before."""
        self._cancelled[ordinals] = True

    def outcomes(self, unknown: int, cancelled: int, released: int, done: int) -> NDArray[np.uint8]:
        """uint8[n]: of each key as a whole, the last of these that is true of it."""
        found = np.full(len(self.done), unknown, np.uint8)
        found[self._cancelled] = cancelled
        found[self._released] = released
        found[self.done > 0] = done
        return found


class KeyCall(Generic[Results]):
    """One call: what is looked up, and what is under way for it."""

    def __init__(self, service: "KeyService", count: int) -> None:
        """Of n keys."""
        self._shard, self._service = service.shard, service
        self.tally = Tally(count)
        self._in_flight: deque[tuple[asyncio.Future[Results], I64, U64]] = deque()

    def propose(self, ids: NDArray[np.void], ordinals: I64, /) -> "asyncio.Future[Results]":
        """Append what is to be done to these messages, each of the key of an ordinal."""
        raise NotImplementedError

    def note(self, ordinals: I64, sequences: U64, results: Results, /) -> None:
        """What became of messages, each of the key of an ordinal."""
        raise NotImplementedError

    def take(self, ordinals: I64, sequences: U64, due_ms: I64) -> None:
        """Take those of n messages that are pending; each is of the key of an ordinal."""
        views = self._shard.views
        order = np.lexsort((sequences, ordinals))  # a row may be there twice
        ordinals, sequences, due_ms = ordinals[order], sequences[order], due_ms[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (ordinals[1:] != ordinals[:-1]) | (sequences[1:] != sequences[:-1])
        moved = views.moved.find(sequences)
        if moved.are_moved.any():  # their rows may have any due time that they ever had
            some = np.ascontiguousarray(sequences[moved.are_moved])
            due_ms[moved.are_moved] = views.sequences.read_many(some)[0]
        current = np.where(moved.are_moved, moved.due_ms, due_ms)
        is_ahead = are_above(sequences, current, views.cursor.key)
        is_known = is_ahead | (sequences >= np.uint64(views.sequence_floor))
        is_known &= is_new
        is_cancelled = views.tombstones.contains(sequences)
        self.tally.note_cancelled(ordinals[is_known & is_cancelled])
        self.tally.note_released(ordinals[is_known & ~is_cancelled & ~is_ahead])
        pending = np.flatnonzero(is_known & ~is_cancelled & is_ahead)
        for at in range(0, len(pending), IDS_AT_ONCE):
            chosen = pending[at : at + IDS_AT_ONCE]
            self._propose(ordinals[chosen], sequences[chosen], due_ms[chosen])

    def _propose(self, ordinals: I64, sequences: U64, due_ms: I64) -> None:
        ids = np.zeros(len(sequences), ID_DTYPE)
        ids["shard"], ids["epoch"] = self._shard.shard_id, self._shard.views.epochs_of(sequences)
        ids["sequence"], ids["due_ms"] = sequences, due_ms
        self._in_flight.append((self.propose(ids, ordinals), ordinals, sequences))
        self._service.group_commit.wake_for_small()

    async def settle(self, count_max: int) -> None:
        """Wait until at most so many pieces are under way."""
        while len(self._in_flight) > count_max:
            future, ordinals, sequences = self._in_flight[0]
            self.note(ordinals, sequences, await future)
            self._in_flight.popleft()

    async def close(self) -> None:
        """Wait for all that is under way, whatever becomes of it."""
        await asyncio.gather(*(one[0] for one in self._in_flight), return_exceptions=True)


class _Cancelling(KeyCall[NDArray[np.uint8]]):
    """Takes messages back, each of which one call counts."""

    def __init__(self, service: "KeyService", count: int) -> None:
        super().__init__(service, count)
        self._counted: set[int] = set()
        """Sequences of messages that are under way, and that this call counts."""

    def propose(
        self, ids: NDArray[np.void], _ordinals: I64, /
    ) -> "asyncio.Future[NDArray[np.uint8]]":
        future: asyncio.Future[NDArray[np.uint8]] = asyncio.get_running_loop().create_future()
        self._service.small_calls.cancel(ids, future)
        fresh = set(ids["sequence"].tolist()) - self._service.claimed
        self._counted |= fresh
        self._service.claimed |= fresh
        return future

    def note(self, ordinals: I64, sequences: U64, results: NDArray[np.uint8], /) -> None:
        is_done = results == CancelOutcome.CANCELLED
        counts = np.zeros(len(sequences), np.bool_)
        first = np.unique(sequences, return_index=True)[1]
        counts[first] = [one in self._counted for one in sequences[first].tolist()]
        self.tally.note_done(ordinals[is_done & counts])
        self.tally.note_cancelled(ordinals[is_done & ~counts])
        self.tally.note_released(ordinals[results == CancelOutcome.ALREADY_RELEASED])
        self._release(set(sequences.tolist()))

    def _release(self, sequences: set[int]) -> None:
        self._service.claimed -= self._counted & sequences
        self._counted -= sequences

    async def close(self) -> None:
        """See `KeyCall.close`."""
        await super().close()
        self._release(set(self._counted))


class KeyService:
    """Calls by key of one mastership. On the event loop's thread."""

    def __init__(
        self,
        serving: Serving,
        small_calls: SmallCalls,
        group_commit: GroupCommit,
        cluster_id: bytes,
    ) -> None:
        """Look keys up in the shard of `serving`; calls share records with others."""
        self.listing = KeyListing(serving, cluster_id)
        self._serving, self.shard = serving, serving.mastership.shard
        self.small_calls, self.group_commit = small_calls, group_commit
        self.claimed: set[int] = set()
        """Sequences of messages whose cancels are under way, of all calls: each is counted once."""
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
        call = _Cancelling(self, len(keys))
        await self.carry_out(call, topic, keys)
        self._serving.stats.cancelled = self.shard.views.counters.cancelled
        was = CancelOutcome
        outcomes = call.tally.outcomes(
            was.UNKNOWN, was.CANCELLED, was.ALREADY_RELEASED, was.CANCELLED
        )
        return KeysCancelled(outcomes, call.tally.done)

    async def carry_out(self, call: KeyCall[Results], topic: str, keys: Sequence[bytes]) -> None:
        """Do to all messages of the keys what `call` does.

        Raises:
            UnknownTopic, InvalidTopic, Unavailable: see EnginePort.cancel_keys.
        """
        found = self.listing.get_topic(topic)
        rest = LoopShare(lambda: self.shard.log.end_offset).rest
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

    def _pace(self, slice_s: float) -> None:
        """A slice took so long."""
        if slice_s > _SLICE_S_MAX:
            self._keys_at_once = max(self._keys_at_once // 2, KEYS_AT_ONCE)
        elif slice_s < _SLICE_S_MIN:
            self._keys_at_once = min(self._keys_at_once * 2, _KEYS_MOST)

    def _take_few(self, call: KeyCall[Results], hashes: Hashes, at: int) -> list[int]:
        """Take what the keys have; returns the ordinals of those that have too much for that."""
        self.listing.check()
        try:
            found = self.shard.views.keys.find(hashes)
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise
        few = ~np.isin(found.ordinals, found.many)
        call.take(found.ordinals[few] + at, found.sequences[few], found.due_ms[few])
        many: list[int] = found.many.tolist()
        return many

    async def _take_many(
        self,
        call: KeyCall[Results],
        hashes: Hashes,
        ordinal: int,
        at: int,
        rest: Callable[[], Awaitable[None]],
    ) -> None:
        """The same of one key, piece by piece."""
        pieces = self.shard.views.keys.pieces(hashes, ordinal)
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
