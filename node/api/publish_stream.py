"""ProducerService.PublishStream: record batches in a pipeline, answers in the order of the batches.

A stream is read ahead while earlier batches wait for the disk, up to a number of batches and bytes;
what is beyond stays in the network and slows the sender down. A refused batch is answered with its
error and the stream goes on. A shutdown stops the reading, answers what was read, then ends. A
client that does not read its answers is not read from either, and after a time its stream is ended.
"""

import asyncio
from contextlib import suppress
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.filter_language.wire import gene_to_wire
from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.transport import grpc_status
from hourwheel.transport.reads import begin_read
from hourwheel.v1.broker_pb2 import PublishedBatch, PublishStreamRequest, PublishStreamResponse
from node.access.control import AccessControl
from node.access.permissions import REPLACE
from node.api.batches import check_batch, replaces
from node.api.calls import CallContext, Calls, Context, Refusal
from node.api.checks import check_topic
from node.api.quota_gate import QuotaGate
from node.config.model import LimitsSection
from node.contracts.broker import EnginePort, PublishedBatchResult

METHOD: Final = "PublishStream"
FULL_METHOD: Final = f"hourwheel.v1.ProducerService.{METHOD}"
_SECONDS: Final = 0.001
_PARTING_S: Final = 1.0

Topics: TypeAlias = list[tuple[str, int]] | None
"""Of a batch, and how many messages each has; None: all are for one."""


class _Unread(Exception):
    """The client has had no room for an answer for too long."""


class PublishStreams:
    """The handler of the method. Each batch counts as one call in the metrics."""

    def __init__(
        self,
        calls: Calls,
        engine: EnginePort,
        access: AccessControl,
        allowed: LimitsSection,
        horizon_ms: int,
        quotas: QuotaGate,
    ) -> None:
        """`horizon_ms`: how far ahead a message may be scheduled."""
        self._quotas = quotas
        self._calls = calls
        self._engine, self._access = engine, access
        self._allowed = allowed
        self._horizon_ms = horizon_ms
        self._attempt = calls.attempt(
            METHOD, self._read_and_publish, grpc_status.to_detail, is_counted=False
        )
        self._checked = calls.checked(FULL_METHOD, quotas.limited(FULL_METHOD, self.publish))

    async def handle(self, _requests: object, context: Context) -> None:
        """Serve one stream."""
        admission = self._calls.admission
        try:
            admission.begin_stream()
        except errors.HourwheelError as error:
            _, refusal = self._calls.refuse(METHOD, error, context, grpc_status.to_status)
            await context.abort_with_status(refusal)
        try:
            is_read = await self._serve(_Window(self._allowed), context)
        finally:
            admission.end_stream()
        if not is_read:
            await self._end_unread(context)
        elif (parting := self._calls.find_parting()) is not None:
            await context.abort_with_status(grpc_status.to_status(parting))

    async def _serve(self, window: "_Window", context: Context) -> bool:
        """Read and answer until the stream ends; whether the client took its answers."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._answer(window, context))
                try:
                    with self._calls.admission.until_drain():
                        await self._read(window, context, tasks)
                finally:
                    window.answers.put_nowait(None)
        except BaseExceptionGroup as group:
            if isinstance(group.exceptions[0], _Unread):
                return False
            # Only the answering task can fail, once the client is gone: no answer can reach it.
            raise group.exceptions[0] from None
        return True

    async def _end_unread(self, context: Context) -> None:
        wait_ms = self._allowed.answer_wait_ms
        _, refusal = self._calls.refuse(
            METHOD,
            errors.Overloaded(
                f"the answers of this stream were not read for {wait_ms} ms",
                limit="limits.answer_wait_ms",
                limit_value=wait_ms,
            ),
            context,
            grpc_status.to_status,
        )
        # Whether the client ever takes the status, it does not say. Behind it the call is let go.
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_S):
                await context.abort_with_status(refusal)

    async def _read(self, window: "_Window", context: Context, tasks: asyncio.TaskGroup) -> None:
        while True:
            await window.room()
            raw = await begin_read(context)
            if not isinstance(raw, bytes):  # the end of the stream: grpc.aio.EOF
                return
            await self._calls.admission.turns.take(len(raw))
            window.take(len(raw))
            # Tasks start in the order they are made, so batches reach the engine in theirs.
            answer = tasks.create_task(self._publish(raw, context))
            window.answers.put_nowait((answer, len(raw)))
            del raw, answer  # while the next one is awaited, this one is its task's alone

    async def _answer(self, window: "_Window", context: Context) -> None:
        """Write the answers in their order. Raises `_Unread`."""
        wait_s = self._allowed.answer_wait_ms * _SECONDS
        while (following := await window.answers.get()) is not None:
            answer, size = following
            encoded = await answer
            try:
                async with asyncio.timeout(wait_s):
                    await context.write(encoded)
            except TimeoutError:
                raise _Unread from None
            window.give_back(size)

    async def _publish(self, raw: bytes, context: Context) -> bytes:
        """Publish one batch: the answer, encoded, whatever happens to it."""
        # The stub has a class where a Protocol is meant.
        answer = await self._attempt(raw, len(raw), cast(CallContext, context))
        if isinstance(answer, Refusal):
            answer = PublishStreamResponse(error=answer.form)
        return answer.SerializeToString()

    async def _read_and_publish(self, raw: bytes, context: CallContext) -> PublishStreamResponse:
        return await self._checked(PublishStreamRequest.FromString(raw), context)

    async def publish(
        self, request: PublishStreamRequest, _context: CallContext
    ) -> PublishStreamResponse:
        """Accept one batch."""
        topics = _topics_of(request)
        self._quotas.check_rates()
        batch = check_batch(
            request.record_batch,
            self._allowed,
            now_ms=self._engine.now_ms(),
            horizon_ms=self._horizon_ms,
        )
        if replaces(batch):
            self._access.check(REPLACE, request)
        if self._quotas.is_on:
            result = await self._publish_within_quota(request, topics, batch)
        else:
            result = await self._accept(request, topics, batch)
        expected = result.expected_gene
        published = PublishedBatch(
            shard=result.shard,
            epoch=result.epoch,
            base_sequence=result.base_sequence,
            count=result.count,
            store_ms=result.store_ms,
            duplicate=result.duplicate,
            expected_gene=None if expected is None else gene_to_wire(expected),
            topic_count_max=limits.BATCH_TOPIC_COUNT_MAX,
        )
        if result.deduped is not None:
            published.dedup_ordinals.extend(result.deduped.ordinals.tolist())
            published.dedup_outcomes.extend(result.deduped.outcomes.tolist())
            published.dedup_message_ids = result.deduped.ids.tobytes()
        return PublishStreamResponse(published=published)

    async def _accept(
        self, request: PublishStreamRequest, topics: Topics, batch: RecordBatch
    ) -> PublishedBatchResult:
        if topics is None:
            return await self._engine.publish_batch(request.topic, batch)
        return await self._engine.publish_joined(topics, batch)

    async def _publish_within_quota(
        self, request: PublishStreamRequest, topics: Topics, batch: RecordBatch
    ) -> PublishedBatchResult:
        def due_ms() -> NDArray[np.int64]:
            is_relative = batch.header.flags & Flag.RELATIVE_DUE
            return batch.due_ms + (self._engine.now_ms() if is_relative else 0)

        size = len(request.record_batch)
        with self._quotas.publishing(batch.header.count, size, due_ms) as give_back:
            result = await self._accept(request, topics, batch)
            if result.duplicate:
                give_back()
        return result


def _topics_of(request: PublishStreamRequest) -> Topics:
    """The topics of a batch, and how many messages each has; None: only `request.topic`."""
    names, counts = request.topics, request.counts
    if not names and not counts:
        check_topic(request.topic)
        return None
    if len(names) > limits.BATCH_TOPIC_COUNT_MAX:
        raise errors.TooManyItems(
            f"{len(names)} topics in a batch; at most {limits.BATCH_TOPIC_COUNT_MAX} are allowed",
            count=len(names),
            count_max=limits.BATCH_TOPIC_COUNT_MAX,
        )
    if request.topic or len(names) != len(counts) or not all(counts):
        raise errors.InvalidArgument(
            "a batch has a topic, or topics and as many counts, none of which is 0", field="topics"
        )
    for name in names:
        check_topic(name)
    return list(zip(names, counts, strict=True))


class _Window:
    """What of one stream is read and not answered yet."""

    def __init__(self, allowed: LimitsSection) -> None:
        self._batches_max = allowed.stream_batches_in_flight
        self._bytes_max = allowed.stream_bytes_in_flight
        self._batches = 0
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.answers: asyncio.Queue[tuple[asyncio.Task[bytes], int] | None] = asyncio.Queue()
        """Answers to come, in order; None behind the last one."""

    async def room(self) -> None:
        """Wait until one more batch may be read. The one read last may go over the bytes."""
        await self._has_room.wait()

    def take(self, size: int) -> None:
        """A batch was read."""
        self._change(1, size)

    def give_back(self, size: int) -> None:
        """It is answered."""
        self._change(-1, -size)

    def _change(self, batches: int, size: int) -> None:
        self._batches += batches
        self._bytes += size
        if self._batches < self._batches_max and self._bytes < self._bytes_max:
            self._has_room.set()
        else:
            self._has_room.clear()
