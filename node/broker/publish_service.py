"""The publish service: admits, checks and proposes publishes and cancels, and answers them."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.formats.batch_columns import Requested, requested_by
from hourwheel.formats.record_batch import Flag, Kind, RecordBatch
from hourwheel.types import DUE_MS_MAX, QUEUE_BITS, SequenceNumber, TopicId
from node.broker import dedup_answers
from node.broker.disk_guard import DiskGuard
from node.broker.group_commit import GroupCommit
from node.broker.job_runner import Background
from node.broker.priorities import place_batch, place_few
from node.catalog.name_expiry import NameExpiry
from node.catalog.publish_order import Line, PublishOrder
from node.catalog.service import CatalogService
from node.catalog.serving import Serving
from node.contracts.broker import IncomingMessages, PublishedBatchResult
from node.contracts.publishing import PublishedOne
from node.shard.deduplication import Published, PublishResults
from node.shard.message_lookup import MessageLookup, check_repetition
from node.shard.views import check_requested
from storage.views.catalog_items import Topic

T = TypeVar("T")

_UNCOMMITTED_BYTES_MAX: Final = 128 << 20
"""It is in memory until it is applied."""


class PublishService:
    """The producers' side of a mastership."""

    def __init__(
        self,
        serving: Serving,
        group_commit: GroupCommit,
        background: Background,
        catalog_service: CatalogService,
        expiry: NameExpiry,
        guard: DiskGuard,
        horizon_ms: int,
    ) -> None:
        """Propose what `serving` appends.

        Answers wait for `background` while publishing outruns flushing: so producers slow down.
        """
        self._serving, self._mastership = serving, serving.mastership
        self._shard, self._stats = serving.mastership.shard, serving.stats
        self._group_commit, self._background = group_commit, background
        self._configurator, self._expiry = catalog_service, expiry
        self._lookup = MessageLookup(self._shard.views, self._shard.log, self._shard.bodies)
        self._order = PublishOrder()
        self._guard, self.horizon_ms = guard, horizon_ms
        self.small_calls = group_commit.serve(serving.mastership)
        """Those that wait for the next group commit, of consumers as well."""

    @property
    def are_some_waiting(self) -> bool:
        """Whether single publishes wait for the next group commit."""
        return self.small_calls.has_publishes

    def admit(self) -> None:
        """Raises ShuttingDown, NotMaster or DiskFull where nothing is accepted now."""
        self._serving.check()
        reason = self._guard.refusal
        if reason:
            raise errors.DiskFull(reason)
        if self._shard.uncommitted_bytes > _UNCOMMITTED_BYTES_MAX:
            raise errors.Unavailable("too few replicas keep up: nothing is being committed")

    @property
    def is_admitting(self) -> bool:
        """Whether publishes are accepted now: see `admit`."""
        try:
            self.admit()
        except HourwheelError:
            return False
        return True

    async def wait_until_near(self) -> None:
        """Wait while publishing outruns flushing."""
        if self._background.maintenance.is_far_behind:
            await self._background.wait_until_near()

    async def publish_batch(self, topic: str, batch: RecordBatch) -> PublishedBatchResult:
        """See EnginePort."""
        _check_kind(batch)

        def append() -> tuple[Topic, asyncio.Future[PublishResults]]:
            self.admit()
            if batch.header.flags & Flag.DEDUP_KEYS:
                dedup_answers.check_room(self._shard.views, batch.header.count)
            self._check_level(batch)
            now_ms = self._serving.now_ms()
            due_ms = resolve_due(batch, now_ms, self.horizon_ms)
            found = self._configurator.topic_to_publish(topic, now_ms=now_ms)
            queues = choose_queues(
                found.topic_id, found.queue_count, batch.key_hash, self._mastership.next_sequence
            )
            queues = place_batch(batch, queues, (found,))
            return found, self._append(batch, due_ms, queues, now_ms)

        found, publishing = await self._in_order(batch.header.producer_id, (topic,), append)
        with self._expiry.publishing(found, self._serving.now_ms):
            published = await self._outcome(publishing)
        result = self._published(published)
        if found.gene.number != batch.header.gene_spec and batch.meta_len.any():
            result.expected_gene = found.gene
        return result

    async def publish_joined(
        self, topics: list[tuple[str, int]], batch: RecordBatch
    ) -> PublishedBatchResult:
        """See EnginePort."""
        _check_kind(batch)
        counts = [count for _, count in topics]
        if sum(counts) != batch.header.count:
            raise errors.InvalidBatch(
                f"{sum(counts)} messages are said to be in a batch of {batch.header.count}"
            )
        names = tuple(dict.fromkeys(name for name, _ in topics))

        def append() -> tuple[list[Topic], asyncio.Future[PublishResults]]:
            self.admit()
            if batch.header.flags & Flag.DEDUP_KEYS:
                dedup_answers.check_room(self._shard.views, batch.header.count)
            self._check_level(batch)
            now_ms = self._serving.now_ms()
            due_ms = resolve_due(batch, now_ms, self.horizon_ms)
            found = [self._configurator.topic_to_publish(name, now_ms=now_ms) for name, _ in topics]
            self._check_joined(found, batch)
            queues = queues_of_many(found, counts, batch.key_hash, self._mastership.next_sequence)
            queues = place_batch(batch, queues, found)
            return found, self._append(batch, due_ms, queues, now_ms)

        found, publishing = await self._in_order(batch.header.producer_id, names, append)
        with ExitStack() as uses:
            for topic in found:
                uses.enter_context(self._expiry.publishing(topic, self._serving.now_ms))
            published = await self._outcome(publishing)
        return self._published(published)

    def _check_level(self, batch: RecordBatch) -> None:
        """Raises FeatureLevelTooLow where a batch asks what some node does not know."""
        flags = batch.header.flags
        if flags & (Flag.EXPIRY | Flag.PRIORITY):
            requested = Requested(bool(flags & Flag.EXPIRY), bool(flags & Flag.PRIORITY))
            check_requested(self._shard.views, requested)

    def _check_joined(self, topics: list[Topic], batch: RecordBatch) -> None:
        """Apply looks at the first topic of a batch alone: they must not differ in what it asks.

        Raises:
            InvalidBatch: they do.
        """
        if any(self._configurator.is_deleting(topic.topic_id) for topic in topics):
            raise errors.InvalidBatch("a topic is being deleted: publish to each by itself")
        number = batch.header.gene_spec
        if any(topic.gene.number != number for topic in topics) and batch.meta_len.any():
            raise errors.InvalidBatch("topics want different genes: publish to each by itself")

    async def _in_order(
        self, producer_id: int, topics: tuple[str, ...], append: Callable[[], T]
    ) -> T:
        """What `append` gives, called when nothing has to be waited for before: mostly at once."""
        lines: list[Line] = [producer_id, *topics] if producer_id else [*topics]
        waits = self._configurator.has_to_wait
        if not self._order.is_any_waiting(lines) and not any(map(waits, topics)):
            return append()
        self.admit()  # before a topic is made for it
        async with self._order.behind(lines, self._settle(topics)):
            return append()

    async def _settle(self, topics: tuple[str, ...]) -> None:
        """Topics that are missing are made together: so are their messages."""
        await asyncio.gather(*map(self._configurator.settle_topic, topics))

    def _append(
        self,
        batch: RecordBatch,
        due_ms: NDArray[np.int64],
        queues: NDArray[np.uint32],
        now_ms: int,
    ) -> "asyncio.Future[PublishResults]":
        # Stamped with the instant that its delays were counted from, and not with that of a second
        # look at the clock: store_ms + delay is how clients know due times, and so ids.
        return self._serving.propose(
            lambda at_ms, who: self._mastership.publish(batch, due_ms, queues, at_ms, who), now_ms
        )

    async def propose_batch(
        self,
        batch: RecordBatch,
        due_ms: NDArray[np.int64],
        queues: NDArray[np.uint32],
        now_ms: int,
    ) -> Published:
        """Append a batch, and wait for what becomes of it. Raises what apply says of it."""
        return await self._outcome(self._append(batch, due_ms, queues, now_ms))

    async def _outcome(self, publishing: "asyncio.Future[PublishResults]") -> Published:
        await self.wait_until_near()
        published = (await publishing)[0]
        if isinstance(published, HourwheelError):
            raise published
        return published

    def _published(self, published: Published) -> PublishedBatchResult:
        if published.duplicate:
            self._stats.duplicates += published.count
        else:
            dedup_answers.count(self._stats, published)
        return PublishedBatchResult(
            self._shard.shard_id,
            published.epoch,
            published.base_sequence,
            published.count,
            published.store_ms,
            published.duplicate,
            deduped=dedup_answers.ids_of(self._shard, published.deduped),
        )

    async def publish_messages(self, incoming: IncomingMessages) -> list[PublishedOne]:
        """See EnginePort."""
        future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

        def append() -> Topic:
            self.admit()
            if incoming.dedup is not None:
                dedup_answers.check_room(self._shard.views, len(incoming.dedup))
            requested = requested_by(incoming.metas)
            check_requested(self._shard.views, requested)
            check_instants(incoming.due_ms, self._serving.now_ms(), self.horizon_ms)
            topic = self._configurator.topic_to_publish(incoming.topic)
            queues = queues_of_few(
                topic.topic_id,
                topic.queue_count,
                incoming.key_hashes,
                self._mastership.next_sequence,
            )
            if requested.priority:
                queues = place_few(incoming.metas, queues, topic)
            self.small_calls.publish(incoming, queues, future)
            self._group_commit.wake_for_small()
            return topic

        topic = await self._in_order(incoming.producer_id, (incoming.topic,), append)
        with self._expiry.publishing(topic, self._serving.now_ms):
            await self.wait_until_near()
            published = await future
        # (Of messages without a producer apply cannot tell how many came together.)
        due_ms = incoming.due_ms
        if published.duplicate:
            self._stats.duplicates += len(due_ms)
            first = published.base_sequence
            check_repetition(
                self._lookup, first, incoming.metas, incoming.bodies, incoming.requested_due_ms
            )
            numbers = np.arange(len(due_ms), dtype=np.uint64) + np.uint64(published.base_sequence)
            due_ms = self._shard.views.sequences.read_many(numbers)[0].tolist()
        else:
            dedup_answers.count(self._stats, published._replace(count=len(due_ms)))
        prefix, base = f"{self._shard.shard_id:08x}{published.epoch:08x}", published.base_sequence
        found = [
            PublishedOne(f"{prefix}{base + ordinal:016x}{due:016x}", due)
            for ordinal, due in enumerate(due_ms)
        ]
        if len(published.deduped):
            dedup_answers.tell(found, dedup_answers.ids_of(self._shard, published.deduped))
        return found

    async def cancel(self, ids: NDArray[np.void]) -> NDArray[np.uint8]:
        """See EnginePort."""
        self._serving.check()
        future: asyncio.Future[NDArray[np.uint8]] = asyncio.get_running_loop().create_future()
        self.small_calls.cancel(ids, future)
        self._group_commit.wake_for_small()
        outcomes = await future
        self._stats.cancelled = self._shard.views.counters.cancelled
        return outcomes


def _check_kind(batch: RecordBatch) -> None:
    if batch.header.kind != Kind.PUBLISH:
        raise errors.InvalidBatch("only PUBLISH batches can be published")


def resolve_due(batch: RecordBatch, now_ms: int, horizon_ms: int) -> NDArray[np.int64]:
    """int64[n]: the instants of a batch's messages.

    Raises:
        InvalidDueTime: one is negative.
        BeyondHorizon: one lies further ahead than the wheel reaches.
    """
    due = batch.due_ms
    if int(due.min()) < 0:
        raise errors.InvalidDueTime("a due time or delay is negative", due_ms=int(due.min()))
    relative = bool(batch.header.flags & Flag.RELATIVE_DUE)
    latest = int(due.max())
    check_horizon(latest + now_ms if relative else latest, now_ms, horizon_ms)
    return due + now_ms if relative else due


def check_horizon(due_ms: int, now_ms: int, horizon_ms: int) -> None:
    """Raises BeyondHorizon where an instant lies further ahead than the wheel reaches."""
    if due_ms > min(now_ms + horizon_ms, DUE_MS_MAX):
        raise errors.BeyondHorizon(
            f"due {due_ms - now_ms} ms ahead; the horizon is {horizon_ms} ms",
            due_ms=due_ms,
            horizon_ms=horizon_ms,
        )


def check_instants(due_ms: list[int], now_ms: int, horizon_ms: int) -> None:
    """As `resolve_due`, for a short list of instants."""
    least, latest = min(due_ms), max(due_ms)
    if least < 0:
        raise errors.InvalidDueTime("a due time is negative", due_ms=least)
    check_horizon(latest, now_ms, horizon_ms)


def choose_queues(
    topic_id: TopicId,
    queue_count: int,
    key_hashes: NDArray[np.uint64],
    first_sequence: SequenceNumber,
) -> NDArray[np.uint32]:
    """uint32[n]: topic_queue of each message: by its key, else in turn."""
    count = len(key_hashes)
    if queue_count == 1:
        return np.full(count, topic_id << QUEUE_BITS, np.uint32)
    turn = np.arange(first_sequence, first_sequence + count, dtype=np.uint64)
    chosen = np.where(key_hashes != 0, key_hashes, turn) % np.uint64(queue_count)
    return (chosen + np.uint64(topic_id << QUEUE_BITS)).astype(np.uint32)


def queues_of_many(
    topics: list[Topic],
    counts: list[int],
    key_hashes: NDArray[np.uint64],
    first_sequence: SequenceNumber,
) -> NDArray[np.uint32]:
    """As `choose_queues`, of a batch whose first `counts[0]` messages are for `topics[0]`, ..."""
    bases = np.array([topic.topic_id << QUEUE_BITS for topic in topics], np.uint32)
    found = np.repeat(bases, counts)
    widths = [topic.queue_count for topic in topics]
    if max(widths) == 1:
        return found
    turn = np.arange(first_sequence, first_sequence + len(key_hashes), dtype=np.uint64)
    chosen = np.where(key_hashes != 0, key_hashes, turn)
    return found + (chosen % np.repeat(np.array(widths, np.uint64), counts)).astype(np.uint32)


def queues_of_few(
    topic_id: TopicId, queue_count: int, key_hashes: list[int], turn: int
) -> list[int]:
    """topic_queue of each of a few messages: `choose_queues` without numpy."""
    base = topic_id << QUEUE_BITS
    if queue_count == 1:
        return [base] * len(key_hashes)
    return [
        base + (key_hash or turn + ordinal) % queue_count
        for ordinal, key_hash in enumerate(key_hashes)
    ]
