"""The producer's task: takes drafts in, keeps batches under way, hands the ids out.

A shell: `accumulator` and `inflight_batches` decide what is sent, when, and what becomes of it. One
task owns the stream and writes to it; a second one reads the answers. A stream goes to the node
that `hourwheel.transport.endpoints` chooses. Where it breaks, or its node says that it is not the
master, the sender opens another one, to the node that is chosen then.
"""

import asyncio
import copy
import secrets
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import grpc

from hourwheel import errors, limits
from hourwheel.client import batch_builder
from hourwheel.client.accumulator import Accumulator, Joining, Piece
from hourwheel.client.batch_builder import Draft
from hourwheel.client.buffer_pool import BufferPool
from hourwheel.client.inflight_batches import InflightBatches, Part, Published, Topics
from hourwheel.client.message_ids import (
    DedupAnswer,
    Deduped,
    PublishedIds,
    already_pending,
    answer_of,
)
from hourwheel.filter_language.wire import gene_from_wire
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.outcomes import DedupOutcome
from hourwheel.transport.channel import Channel
from hourwheel.transport.connection import PublishStream
from hourwheel.transport.endpoints import Move
from hourwheel.transport.grpc_errors import make_error
from hourwheel.transport.retry import Failure
from hourwheel.transport.session_lane import SessionLane
from hourwheel.transport.stream import StreamBroken
from hourwheel.types import Epoch, SequenceNumber, ShardId
from hourwheel.v1 import filter_pb2

_LONERS_MAX: Final = 4_096
_CODE_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}
BULK_BYTES: Final = 16_384
"""A producer with batches of more has a stream of its own, and keeps that."""


GENE_TOPICS_MAX: Final = 4_096
"""So many topics with a specification of their own are remembered; the oldest are forgotten."""


class TopicGenes:
    """Which genes a producer makes for each topic: the default, until a node says what one wants.

    Genes of another specification are not used by the node: filters then read those messages one by
    one. So being wrong costs speed and never a message, and a producer may begin without asking.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self._specs: dict[str, GeneSpec] = {}

    def of(self, topic: str) -> GeneSpec:
        """How to make the genes of the next batch."""
        return self._specs.get(topic, DEFAULT_SPEC)

    def adopt(self, topic: str, expected: filter_pb2.GeneSpec) -> None:
        """A node says how the topic wants them; what this program cannot make is let be."""
        self._specs.pop(topic, None)
        try:
            spec = gene_from_wire(expected)
        except errors.InvalidArgument:
            return
        if spec != DEFAULT_SPEC:
            self._specs[topic] = spec
        if len(self._specs) > GENE_TOPICS_MAX:
            del self._specs[next(iter(self._specs))]


class Wanted(Enum):
    """What is wanted to be known of a draft that was published."""

    IDS = auto()
    """`PublishedIds` of its messages."""
    ID = auto()
    """`MessageId` of its only message, or of the one that is pending in its place."""
    ANSWER = auto()
    """`DedupAnswer` of its only message."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """Who waits for a draft's ids."""

    future: "asyncio.Future[Any]"
    wanted: Wanted

    def settle_one(self, answer: DedupAnswer) -> None:
        """Tell what became of the only message."""
        if self.wanted is Wanted.ANSWER:
            self.future.set_result(answer)
        elif answer.outcome is DedupOutcome.REJECTED:
            self.future.set_exception(already_pending(answer.message_id))
        else:
            self.future.set_result(answer.message_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """See `AsyncProducer`."""

    linger_ms: float
    batch_messages: int
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: float
    answer_timeout_ms: float
    is_idempotent: bool


class _Misplaced(StreamBroken):
    """The stream goes to a node that is not the master; the window knows whether to wait."""


class Sender:
    """Moves drafts to the node, once each. Belongs to one event loop."""

    def __init__(self, channel: Channel, settings: SenderSettings) -> None:
        """Prepare; the task starts with the first draft."""
        self._channel = channel
        self._settings = settings
        self._clock = channel.clock
        self._accumulator: Accumulator[_Ticket] = Accumulator(
            messages_max=settings.batch_messages,
            bytes_max=settings.batch_bytes,
            linger_ms=settings.linger_ms,
        )
        self._window: InflightBatches[list[Piece[_Ticket]]] = InflightBatches(
            make_producer_id=_make_producer_id if settings.is_idempotent else None,
            take_apart=self._take_apart,
            backoff=channel.backoff,
            random=channel.random,
            answer_timeout_ms=settings.answer_timeout_ms,
        )
        self._genes = TopicGenes()
        self._topic_count_max = 1
        """Of a batch, as the node of this stream said last."""
        self._loners: dict[str, None] = {}
        """Topics whose last batch was refused for good: they would have others sent twice."""
        self._room = BufferPool(settings.buffer_bytes)
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._flushing = 0
        self._is_closed = False
        self._is_bulk = False
        """A large batch was built: see `BULK_BYTES`."""
        self._stream: PublishStream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._tls_failed: errors.TlsFailed | None = None
        """Why it was in vain."""

    async def add(self, topic: str, draft: Draft, wanted: Wanted) -> "asyncio.Future[Any]":
        """Take a draft in when there is room for it; the result will be what is wanted.

        Args:
            topic: topic.
            draft: a draft that fits into a batch.
            wanted: what to give.

        Raises:
            InvalidTopic: the topic is no text.
            Cancelled: the producer is closed.
            Forked: it belongs to another process.
        """
        added = self.try_add(topic, draft, wanted)
        if added is not None:
            return added
        await self._room.take(draft.batch_bytes)
        self._check_open()
        return self._put(topic, draft, wanted)

    def try_add(self, topic: str, draft: Draft, wanted: Wanted) -> "asyncio.Future[Any] | None":
        """As `add`, without waiting; None: there is no room. Raises as that does."""
        if type(topic) is not str or not topic.isascii():
            _check_text(topic)
        self._check_open()
        return self._put(topic, draft, wanted) if self._room.try_take(draft.batch_bytes) else None

    def _put(self, topic: str, draft: Draft, wanted: Wanted) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        now_ms = self._clock.monotonic_ms()
        self._accumulator.add(topic, draft, _Ticket(future, wanted), now_ms)
        if self._task is None:
            self._task = loop.create_task(self._run(), name="hourwheel-producer")
            self._task.add_done_callback(self._on_task_done)
        self._wake.set()
        return future

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.Cancelled("the producer is closed")
        self._channel.home.enter()

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        """A bug of ours must not leave anyone waiting."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._give_up(errors.Internal(f"the producer's task failed: {error!r}"))

    async def flush(self) -> None:
        """Send without lingering, and wait until nothing is under way."""
        self._flushing += 1
        try:
            while self._is_busy():
                self._idle.clear()
                self._wake.set()
                await self._idle.wait()
        finally:
            self._flushing -= 1

    def refuse_new(self) -> None:
        """Take no more drafts in; those that wait for room are refused."""
        self._is_closed = True
        self._room.refuse_all(errors.Cancelled("the producer is closed"))

    async def close(self) -> None:
        """End at once: what is under way fails."""
        self.refuse_new()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        await self._drop_stream()
        self._give_up(errors.Cancelled("the producer was closed"))

    def _give_up(self, error: errors.HourwheelError) -> None:
        self.refuse_new()
        for piece in self._accumulator.take_all():
            self._fail(piece, error)
        self._window.give_up(error)
        self._settle()

    # --- the task -------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        return bool(self._accumulator) or not self._window.is_idle

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now_ms = self._clock.monotonic_ms()
            self._window.expire(now_ms, unsent=self._channel.unreached)
            self._fill(now_ms)
            broken = self._find_break(now_ms)
            can_send = True
            try:
                can_send = self._can_send()
                if broken is None and can_send:
                    broken = await self._send(now_ms)
            except (errors.Unauthenticated, errors.InvalidArgument, errors.TlsFailed) as error:
                # No token, or certificates that cannot be read or do not fit. The next batches may
                # fare better.
                broken = StreamBroken(Failure(error, is_definite=True))
            if broken is not None:
                await self._drop_stream()
                move = None if isinstance(broken, _Misplaced) else broken.move
                self._window.on_broken(self._clock.monotonic_ms(), broken.failure, move)
                self._wake.set()
            self._settle()
            await self._sleep(can_send=can_send)

    def _can_send(self) -> bool:
        """Whether there is a stream, or a connection for one; makes one if there is need."""
        if self._stream is not None or self._window.is_idle or self._channel.is_connected:
            return True
        error, self._tls_failed = self._tls_failed, None
        if error is not None:
            raise error
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_task(self._channel.connect(), name="hourwheel-connect")
            self._connecting.add_done_callback(self._on_connected)
        return False

    def _on_connected(self, task: "asyncio.Task[None]") -> None:
        self._connecting = None
        self._wake.set()
        if not task.cancelled():
            error = task.exception()  # the channel was closed: publish raises it, too
            self._tls_failed = error if isinstance(error, errors.TlsFailed) else None

    def _fill(self, now_ms: float) -> None:
        """Build batches while there is room for them in the window."""
        while self._window.has_room:
            joining = Joining(self._topic_count_max, self._lane_of)
            pieces = self._accumulator.take(now_ms, joining, is_flushing=self._flushing > 0)
            if pieces is None:
                return
            try:
                raw, _ = self._build(pieces, *self._window.next_position())
            except Exception as error:
                for piece in pieces:  # they are nowhere else any more
                    self._fail(piece, errors.Internal(f"a batch cannot be built: {error!r}"))
                raise
            self._is_bulk |= len(raw) > BULK_BYTES
            added_ms = min(piece.added_ms for piece in pieces)
            deadline_ms = added_ms + self._settings.delivery_timeout_ms
            self._window.submit(_topics_of(pieces), raw, pieces, deadline_ms=deadline_ms)

    def _lane_of(self, topic: str) -> GeneSpec | None:
        """Topics share a batch if their genes are made alike."""
        return None if topic in self._loners else self._genes.of(topic)

    def _build(
        self, pieces: list[Piece[_Ticket]], producer_id: int, first_sequence: int
    ) -> tuple[bytes, int]:
        """(a record batch of these, how many messages it has)."""
        draft = batch_builder.join([piece.draft for piece in pieces])
        spec = self._genes.of(pieces[0].topic)
        return batch_builder.build(draft, producer_id, first_sequence, spec), draft.count

    def _take_apart(
        self, pieces: list[Piece[_Ticket]], producer_id: int, first_sequence: int
    ) -> list[Part[list[Piece[_Ticket]]]]:
        """See `inflight_batches.TakeApart`."""
        parts = []
        for topic, group in groupby(pieces, key=attrgetter("topic")):
            own = list(group)
            raw, count = self._build(own, producer_id, first_sequence)
            parts.append(Part(topic, raw, count, own))
            if producer_id:
                first_sequence += count
        return parts

    async def _send(self, now_ms: float) -> StreamBroken | None:
        """Write what may be written; returns why the stream broke, if it did."""
        if self._outgrows():
            return None  # what is under way is answered first: a batch must not overtake another
        sendable = self._window.take_sendable(now_ms)
        if not sendable:
            return None
        if self._stream is None:
            self._stream = self._channel.publish_stream(
                self._settings.answer_timeout_ms, is_bulk=self._is_bulk
            )
            self._reader = asyncio.get_running_loop().create_task(
                self._read(self._stream), name="hourwheel-producer-reader"
            )
            self._reader.add_done_callback(lambda _: self._wake.set())
        try:
            async with asyncio.timeout(self._settings.answer_timeout_ms / 1_000):
                for batch in sendable:
                    await self._stream.write(batch.request())
        except StreamBroken as broken:
            return broken
        except TimeoutError:
            return self._given_up(self._stream, "the node takes no more batches")
        return None

    def _find_break(self, now_ms: float) -> StreamBroken | None:
        if self._reader is not None and self._reader.done():
            if self._reader.cancelled():  # by gRPC: its node has left the cluster meanwhile
                return self._closed_under_way()
            error = self._reader.exception()
            if isinstance(error, StreamBroken):
                return error
            if error is not None:
                raise error
        stream = self._stream
        if stream is not None and self._window.is_overdue(now_ms):
            return self._given_up(stream, "the node does not answer")
        is_left = stream is not None and (stream.has_failed or stream.is_over or self._outgrows())
        if is_left and self._window.oldest_sent_ms is None:
            return _Misplaced(Failure(errors.Unavailable("all is answered"), is_definite=True))
        return None

    def _outgrows(self) -> bool:
        """Whether it shares a session, and has too much to send for that."""
        return self._is_bulk and isinstance(self._stream, SessionLane)

    def _closed_under_way(self) -> StreamBroken:
        error = errors.Unavailable("the connection was closed")
        move = Move.STAY if self._stream is None else self._stream.on_failure(error)
        return StreamBroken(Failure(error, is_definite=False), move)

    def _given_up(self, stream: PublishStream, why: str) -> StreamBroken:
        error = errors.Timeout(why)
        move = stream.on_failure(error, self._settings.answer_timeout_ms)
        return StreamBroken(Failure(error, is_definite=False), move)

    async def _read(self, stream: PublishStream) -> None:
        while True:
            answer = await stream.read()
            now_ms = self._clock.monotonic_ms()
            if answer.HasField("error"):
                detail = answer.error
                code = _CODE_NAMES.get(detail.code, "UNKNOWN")
                error = make_error(code, detail.reason, detail.message, detail.params)
                self._on_refused(stream, now_ms, error)
            else:
                taken = answer.published
                topic = self._window.oldest_topic
                if topic is not None:
                    self._loners.pop(topic, None)
                    if taken.HasField("expected_gene"):
                        self._genes.adopt(topic, taken.expected_gene)
                count_max = min(taken.topic_count_max, limits.BATCH_TOPIC_COUNT_MAX)
                self._topic_count_max = max(1, count_max)
                sent_ms = self._window.oldest_sent_ms
                if sent_ms is not None:
                    self._channel.note_answer(stream.address, now_ms - sent_ms)
                self._window.on_published(
                    Published(
                        taken.shard,
                        taken.epoch,
                        taken.base_sequence,
                        taken.store_ms,
                        taken.duplicate,
                        Deduped.of(taken),
                    )
                )
            self._settle()
            if self._is_busy() or stream.has_failed:  # else there is nothing to do before the next
                self._wake.set()

    def _on_refused(
        self, stream: PublishStream, now_ms: float, error: errors.HourwheelError
    ) -> None:
        """A batch was not taken. If this is the wrong node, it takes none of the others either.

        Raises:
            StreamBroken: the others are sent to another node without waiting for their answers.
                Only where that is safe: without idempotence their outcome has to be known first.
        """
        is_place = isinstance(error, errors.NotMaster | errors.ShuttingDown)
        if not is_place:
            topic = self._window.oldest_topic
            if topic is not None and not error.retriable:
                self._loners[topic] = None
                if len(self._loners) > _LONERS_MAX:
                    del self._loners[next(iter(self._loners))]
            self._window.on_refused(now_ms, error)
            return
        move = None if stream.has_failed else stream.on_failure(error)
        self._window.on_refused(now_ms, error, move)
        if self._settings.is_idempotent:
            raise _Misplaced(Failure(error, is_definite=False))

    async def _drop_stream(self) -> None:
        reader, self._reader = self._reader, None
        self._topic_count_max = 1  # the next node may be an older one
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])
            if not reader.cancelled():
                reader.exception()  # known already, or of a stream that has ended

    async def _sleep(self, *, can_send: bool) -> None:
        wakeups = [self._window.find_next_wakeup_ms(can_send=can_send)]
        if self._window.has_room:
            wakeups.append(self._accumulator.find_next_wakeup_ms())
        known = [wakeup for wakeup in wakeups if wakeup is not None]
        timer = None
        if known:
            wait_ms = max(0.0, min(known) - self._clock.monotonic_ms())
            timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._wake.set)
        await self._wake.wait()
        if timer is not None:
            timer.cancel()

    # --- results --------------------------------------------------------------------------------

    def _settle(self) -> None:
        for batch, outcome in self._window.take_settled():
            sequence = outcome.base_sequence if isinstance(outcome, Published) else 0
            for piece in batch.token:
                if isinstance(outcome, Published):
                    self._succeed(piece, outcome, sequence)
                    sequence += piece.draft.count
                else:
                    self._fail(piece, outcome)
        if not self._is_busy():
            self._idle.set()

    def _succeed(self, piece: Piece[_Ticket], published: Published, sequence: int) -> None:
        draft, ticket = piece.draft, piece.token
        self._room.give_back(draft.batch_bytes)
        if ticket.future.done():
            return  # who asked has gone
        shard, epoch, start_ms = ShardId(published.shard), Epoch(published.epoch), 0
        if draft.is_relative:
            start_ms = published.store_ms
        if ticket.wanted is not Wanted.IDS:
            due_ms = int(draft.times_ms[0]) + start_ms
            message_id = MessageId(shard, epoch, SequenceNumber(sequence), due_ms)
            found = published.deduped.of_part(sequence - published.base_sequence, 1)
            ticket.settle_one(answer_of(message_id, found.get(0)))
        else:
            ids = PublishedIds.of_batch(shard, epoch, sequence, draft.times_ms + start_ms)
            if draft.dedup is not None:
                first = sequence - published.base_sequence
                ids = ids.with_deduped(published.deduped.of_part(first, draft.count))
            ticket.future.set_result(ids)

    def _fail(self, piece: Piece[_Ticket], error: errors.HourwheelError) -> None:
        self._room.give_back(piece.draft.batch_bytes)
        if not piece.token.future.done():
            piece.token.future.set_exception(copy.copy(error))


def _topics_of(pieces: list[Piece[_Ticket]]) -> Topics:
    """Topics of a batch; those of a topic stand together."""
    counts: dict[str, int] = {}
    for piece in pieces:
        counts[piece.topic] = counts.get(piece.topic, 0) + piece.draft.count
    return tuple(counts.items())


def _check_text(topic: object) -> None:
    """What cannot be put on the wire must be found before it is among other people's messages.

    Whether the name is a good one is for the node to say.

    Raises:
        InvalidTopic: it is no text, or one with half a character.
    """
    if not isinstance(topic, str):
        raise errors.InvalidTopic(f"a topic's name is a text, not {topic!r}")
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise errors.InvalidTopic(f"a topic's name is no Unicode text: {topic!r}") from None


def _make_producer_id() -> int:
    return secrets.randbits(64) or 1
