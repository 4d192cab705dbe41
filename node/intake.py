"""Publishing and cancelling: admit, check, propose, and put the verdict into words."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.record_batch import Kind, RecordBatch
from node.api.ports import IncomingMessages, PublishedBatchResult
from node.disk_guard import DiskGuard
from node.judge import Published
from node.publishing import (
    Merge,
    MergeBuffer,
    check_instants,
    choose_queues,
    queues_of_few,
    resolve_due,
)

if TYPE_CHECKING:
    from node.engine import Engine

_CALLERS_MIN: Final = 2.5
_CALLERS_ENOUGH: Final = 64
_USUAL_WEIGHT: Final = 0.2


class Intake:
    """The producers' side of the engine."""

    def __init__(self, engine: "Engine", horizon_ms: int, guard: DiskGuard) -> None:
        """Propose through `engine`."""
        self._engine, self._horizon_ms, self._guard = engine, horizon_ms, guard
        self._shard = engine.shard
        self._merges = MergeBuffer()
        self._waiting = 0
        """Calls that wait for the next write."""
        self._usual = 1.0
        """How many it were lately, each time."""

    @property
    def has_merges(self) -> bool:
        """Whether single publishes wait for the next group commit."""
        return bool(self._merges)

    def take_merges(self) -> list[Merge]:
        """Remove and return the single publishes that wait, merged."""
        if self._waiting:
            self._usual += _USUAL_WEIGHT * (self._waiting - self._usual)
        self._waiting = 0
        return self._merges.take()

    @property
    def is_complete(self) -> bool:
        """Whether waiting for more single publishes would not gain much: few callers, or enough."""
        return self._usual < _CALLERS_MIN or self._waiting >= _CALLERS_ENOUGH

    def _admit(self) -> None:
        """Raises ShuttingDown or DiskFull where nothing is accepted now."""
        if self._engine.is_closing:
            raise errors.ShuttingDown
        reason = self._guard.read_only_reason
        if reason:
            raise errors.DiskFull(reason)

    async def _hold_back(self) -> None:
        """Let an answer wait while publishing outruns flushing: so producers slow down."""
        background = self._engine.background
        if background.maintenance.is_far_behind:
            await background.wait_until_near()

    async def publish_batch(self, topic: str, batch: RecordBatch) -> PublishedBatchResult:
        """See EnginePort."""
        if batch.header.kind != Kind.PUBLISH:
            raise errors.InvalidBatch("only PUBLISH batches can be published")
        self._admit()
        now_ms = self._engine.now_ms()
        due_ms = resolve_due(batch, now_ms, self._horizon_ms)
        found = self._engine.configurator.topic_to_publish(topic)
        queues = choose_queues(
            found.topic_id, found.queue_count, batch.key_hash, self._shard.next_sequence
        )
        # Stamped with the instant that its delays were counted from, and not with that of a second
        # look at the clock: store_ms + delay is how clients know due times, and so ids.
        future = self._engine.propose(
            lambda _, token: self._shard.publish(batch, due_ms, queues, now_ms, token)
        )
        await self._hold_back()
        verdict = (await future)[0]
        if isinstance(verdict, HourwheelError):
            raise verdict
        return self._published(verdict)

    def _published(self, verdict: Published) -> PublishedBatchResult:
        if verdict.duplicate:
            self._engine.stats.duplicates += verdict.count
        else:
            self._engine.stats.published += verdict.count
        return PublishedBatchResult(
            self._shard.shard_id,
            verdict.epoch,
            verdict.base_sequence,
            verdict.count,
            verdict.store_ms,
            verdict.duplicate,
        )

    async def publish_messages(self, incoming: IncomingMessages) -> list[tuple[str, int]]:
        """See EnginePort."""
        self._admit()
        check_instants(incoming.due_ms, self._engine.now_ms(), self._horizon_ms)
        topic = self._engine.configurator.topic_to_publish(incoming.topic)
        queues = queues_of_few(
            topic.topic_id, topic.queue_count, incoming.key_hashes, self._shard.next_sequence
        )
        future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        self._merges.add(incoming, queues, future)
        self._waiting += 1
        self._engine.writer.wake_for_single()
        await self._hold_back()
        # (Of messages without a producer apply cannot tell how many came together.)
        verdict = replace(await future, count=len(incoming.bodies))
        result = self._published(verdict)
        due_ms = incoming.due_ms
        if verdict.duplicate:
            numbers = np.arange(len(due_ms), dtype=np.uint64) + np.uint64(verdict.base_sequence)
            due_ms = self._shard.views.sequences.read_many(numbers)[0].tolist()
        prefix, base = f"{result.shard:08x}{result.epoch:08x}", result.base_sequence
        return [
            (f"{prefix}{base + ordinal:016x}{due:016x}", due) for ordinal, due in enumerate(due_ms)
        ]

    async def cancel(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        """See EnginePort."""
        outcomes: NDArray[np.uint8] = await self._engine.propose(
            lambda now, token: self._shard.cancel(ids, now, token)
        )
        self._engine.stats.cancelled = self._shard.views.counters.cancelled
        return outcomes
