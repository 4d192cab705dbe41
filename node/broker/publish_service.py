"""Publishing and cancelling: admit, check, propose, and put the verdict into words."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.formats.record_batch import Kind, RecordBatch
from node.broker.disk_guard import DiskGuard
from node.broker.merged_token import MergedToken
from node.broker.publish_checks import (
    Merge,
    MergeBuffer,
    check_instants,
    choose_queues,
    queues_of_few,
    resolve_due,
)
from node.contracts.broker import IncomingMessages, PublishedBatchResult
from node.shard.deduplication import Published
from storage.views.catalog_items import Topic

if TYPE_CHECKING:
    from node.broker.engine import Engine

_CALLERS_MIN: Final = 2.5
_CALLERS_ENOUGH: Final = 64
_USUAL_WEIGHT: Final = 0.2
_PEAK_KEPT: Final = 0.95
_UNCOMMITTED_BYTES_MAX: Final = 128 << 20
"""It is in memory until it is applied."""


class Intake:
    """The producers' side of the engine."""

    def __init__(self, engine: "Engine", horizon_ms: int, guard: DiskGuard) -> None:
        """Propose through `engine`."""
        self._engine, self._horizon_ms, self._guard = engine, horizon_ms, guard
        self._shard, self._stats = engine.shard, engine.stats
        self._background = engine.background
        """Answers wait for it while publishing outruns flushing: so producers slow down."""
        self._merges = MergeBuffer()
        self._waiting = 0
        self._usual = 1.0
        """How many it were lately, each time."""
        self._taken = 0
        """How many it were the last time."""
        self._peak = 0.0
        """How many it were at most; slow to fall."""
        self._expected = _CALLERS_ENOUGH
        """With so many there is nothing more to wait for."""

    @property
    def has_merges(self) -> bool:
        """Whether single publishes wait for the next group commit."""
        return bool(self._merges)

    def take_merges(self) -> list[Merge]:
        """Remove and return the single publishes that wait, merged."""
        if self._waiting:
            self._usual += _USUAL_WEIGHT * (self._waiting - self._usual)
            self._taken = self._waiting
            self._peak = max(self._waiting, self._peak * _PEAK_KEPT)
        self._waiting = 0
        return self._merges.take()

    def retire(self, error: HourwheelError) -> None:
        """This node is not the master any more: what waits to be appended never will be."""
        for merge in self.take_merges():
            MergedToken(merge.tokens).answer({}, error)

    @property
    def waiting_count(self) -> int:
        """Calls that wait for the next write."""
        return self._waiting

    def expect_answered(self) -> None:
        """The last write's callers are answered just now: they may share the next with others."""
        expected = max(self._waiting + self._taken, int(self._peak))
        self._expected = min(expected, _CALLERS_ENOUGH)

    @property
    def is_complete(self) -> bool:
        """Whether waiting for more calls would not gain much: few callers, or all are there."""
        return self._usual < _CALLERS_MIN or self._waiting >= self._expected

    def _admit(self) -> None:
        """Raises ShuttingDown or DiskFull where nothing is accepted now."""
        if self._engine.is_closing:
            raise errors.ShuttingDown
        reason = self._guard.refusal
        if reason:
            raise errors.DiskFull(reason)
        if self._shard.uncommitted_bytes > _UNCOMMITTED_BYTES_MAX:
            raise errors.Unavailable("too few replicas keep up: nothing is being committed")

    async def publish_batch(self, topic: str, batch: RecordBatch) -> PublishedBatchResult:
        """See EnginePort."""
        if batch.header.kind != Kind.PUBLISH:
            raise errors.InvalidBatch("only PUBLISH batches can be published")
        await self._engine.configurator.settle_topic(topic)
        self._admit()
        now_ms = self._engine.now_ms()
        due_ms = resolve_due(batch, now_ms, self._horizon_ms)
        found = self._engine.configurator.topic_to_publish(topic)
        with self._engine.expiry.publishing(found, self._engine.now_ms):
            verdict = await self._publish_batch(found, batch, due_ms, now_ms)
        result = self._published(verdict)
        if found.gene.number != batch.header.gene_spec and batch.meta_len.any():
            result.expected_gene = found.gene
        return result

    async def _publish_batch(
        self, found: Topic, batch: RecordBatch, due_ms: NDArray[np.int64], now_ms: int
    ) -> Published:
        queues = choose_queues(
            found.topic_id, found.queue_count, batch.key_hash, self._shard.next_sequence
        )
        # Stamped with the instant that its delays were counted from, and not with that of a second
        # look at the clock: store_ms + delay is how clients know due times, and so ids.
        future = self._engine.propose(
            lambda _, token: self._shard.publish(batch, due_ms, queues, now_ms, token)
        )
        if self._background.maintenance.is_far_behind:
            await self._background.wait_until_near()
        verdict: Published | HourwheelError = (await future)[0]
        if isinstance(verdict, HourwheelError):
            raise verdict
        return verdict

    def _published(self, verdict: Published) -> PublishedBatchResult:
        if verdict.duplicate:
            self._stats.duplicates += verdict.count
        else:
            self._stats.published += verdict.count
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
        await self._engine.configurator.settle_topic(incoming.topic)
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
        with self._engine.expiry.publishing(topic, self._engine.now_ms):
            if self._background.maintenance.is_far_behind:
                await self._background.wait_until_near()
            verdict = await future
        # (Of messages without a producer apply cannot tell how many came together.)
        due_ms = incoming.due_ms
        if verdict.duplicate:
            self._stats.duplicates += len(due_ms)
            numbers = np.arange(len(due_ms), dtype=np.uint64) + np.uint64(verdict.base_sequence)
            due_ms = self._shard.views.sequences.read_many(numbers)[0].tolist()
        else:
            self._stats.published += len(due_ms)
        prefix, base = f"{self._shard.shard_id:08x}{verdict.epoch:08x}", verdict.base_sequence
        return [
            (f"{prefix}{base + ordinal:016x}{due:016x}", due) for ordinal, due in enumerate(due_ms)
        ]

    async def cancel(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        """See EnginePort."""
        outcomes: NDArray[np.uint8] = await self._engine.propose(
            lambda now, token: self._shard.cancel(ids, now, token)
        )
        self._stats.cancelled = self._shard.views.counters.cancelled
        return outcomes
