"""What the fake node keeps and knows, and its script: see fake_node.py."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hourwheel import errors, limits
from hourwheel.crc32c import crc32c
from hourwheel.filter_language.wire import gene_from_wire
from hourwheel.formats import message_id
from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.types import Epoch, SequenceNumber, ShardId
from hourwheel.v1 import admin_pb2, broker_pb2, filter_pb2, groups_pb2

STORE_MS = 1_700_000_000_000
"""The fake's clock: it stands still."""
SHARD, EPOCH = ShardId(3), Epoch(7)


@dataclass
class Stored:
    """One published message."""

    topic: str
    sequence: int
    due_ms: int
    blob: bytes
    meta_bytes: int
    crc: int
    attempt: int = 1

    @property
    def body(self) -> bytes:
        return self.blob[self.meta_bytes :]

    @property
    def id(self) -> str:
        return str(message_id.MessageId(SHARD, EPOCH, SequenceNumber(self.sequence), self.due_ms))


@dataclass
class Producer:
    """Idempotence, as a node keeps it: the last number and the last 5 batches."""

    next_sequence: int = 0
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class Script:
    """What is to go wrong, by method."""

    failures: dict[str, deque[errors.HourwheelError]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    break_after: int | None = None
    is_taken_before_break: bool = False
    break_error: errors.HourwheelError | None = None
    gates: dict[str, asyncio.Event] = field(default_factory=dict)


class FakeBroker:
    """The node without its sockets. `calls[method]` are the requests that it saw."""

    def __init__(self) -> None:
        self.script = Script()
        self.calls: dict[str, list[Any]] = defaultdict(list)
        self.messages: list[Stored] = []
        self.producers: dict[int, Producer] = {}
        self.leases: dict[str, list[Stored]] = {}
        self.cancelled: set[int] = set()
        self.damaged: list[admin_pb2.DamagedMessage] = []
        self.dead_letters: dict[int, list[admin_pb2.DeadLetter]] = {}
        self.letters: list[groups_pb2.DeadLetterMessage] = []
        """Of the one group that has any."""
        self.letters_page_max = 1_000
        self.discard_max = 1_000
        """So many one call gives up."""
        self.topics: dict[str, int] = {}
        self.groups: dict[str, admin_pb2.GroupSettings] = {}
        self.knows_keys = True
        """Whether it cancels by key; an older node answers nothing."""
        self.topic_count_max = limits.BATCH_TOPIC_COUNT_MAX
        """Of a batch; 0: as an older node."""
        self.paused_topics: set[str] = set()
        self.forgets_retentions = False
        """Makes topics as a node does that knows no retention."""
        self.refused_topics: set[str] = set()
        self.genes: dict[str, filter_pb2.GeneSpec] = {}
        """How topics want genes; one that is not here is content with any."""
        self.genes_seen: list[tuple[str, int, list[int]]] = []
        """(topic, number of the specification, genes) of each batch published."""
        self.subscriptions: dict[tuple[str, str], filter_pb2.FilterExpression] = {}
        self.stale_receipts: set[str] = set()
        self.damage_next_delivery = False
        self._queues: dict[str, deque[Stored]] = defaultdict(deque)
        self._arrived = asyncio.Event()
        self._call_arrived = asyncio.Event()

    # --- the script -----------------------------------------------------------------------------

    def fail_next(self, method: str, *failures: errors.HourwheelError) -> None:
        self.script.failures[method].extend(failures)

    def break_stream(
        self, *, after_batches: int, is_taken: bool, error: errors.HourwheelError | None = None
    ) -> None:
        """With `error` the node ends the stream with it, else the connection seems to be cut."""
        self.script.break_error = error
        self.script.break_after = after_batches
        self.script.is_taken_before_break = is_taken

    @contextmanager
    def hold(self, method: str) -> Iterator[None]:
        """No answer of `method` leaves before the end of the block."""
        gate = self.script.gates[method] = asyncio.Event()
        try:
            yield
        finally:
            gate.set()
            del self.script.gates[method]

    async def seen(self, method: str, count: int = 1) -> list[Any]:
        """Wait until `count` requests of `method` are there; gives them."""
        while len(self.calls[method]) < count:
            self._call_arrived.clear()
            await self._call_arrived.wait()
        return self.calls[method]

    def acked(self) -> set[bytes]:
        """Bodies of all acknowledged messages."""
        return {
            message.body
            for request in self.calls["Ack"]
            for chosen in request.ranges
            for message in self.leases[chosen.receipt][chosen.first : chosen.first + chosen.count]
        }

    async def arrive(self, method: str, request: Any) -> errors.HourwheelError | None:
        """Note a request; gives the failure that is due for it."""
        self.calls[method].append(request)
        self._call_arrived.set()
        gate = self.script.gates.get(method)
        if gate is not None:
            await gate.wait()
        failures = self.script.failures[method]
        if failures:
            return failures.popleft()
        return None if method == "GetStatus" else self.refusal()

    def refusal(self) -> errors.NotMaster | None:
        """Why this node does not serve; None: it does. A cluster says otherwise."""
        return None

    def nodes(self) -> list[tuple[str, str]]:
        """(id, address) of all nodes, the master first. A cluster says otherwise.

        Nobody answers at that address: at a node's own port one may run beside the tests.
        """
        return [("n1", "127.0.0.1:1")]

    @property
    def epoch(self) -> Epoch:
        return EPOCH

    # --- the broker -----------------------------------------------------------------------------

    def add_topic(self, topic: str, *bodies: bytes) -> None:
        """Publish messages without a producer."""
        for body in bodies:
            self.store(topic, STORE_MS, body, 0)

    def store(self, topic: str, due_ms: int, blob: bytes, meta_bytes: int) -> None:
        stored = Stored(topic, len(self.messages), due_ms, blob, meta_bytes, crc32c(blob))
        self.messages.append(stored)
        self._queues[topic].append(stored)
        self._arrived.set()

    def publish(self, request: broker_pb2.PublishStreamRequest) -> broker_pb2.PublishedBatch:
        """Take a batch, or recognise it."""
        batch = RecordBatch(request.record_batch)
        batch.verify()
        header = batch.header
        topics = [request.topic] * header.count
        if self.topic_count_max and request.topics:
            spans = zip(request.topics, request.counts, strict=True)
            topics = [topic for topic, count in spans for _ in range(count)]
        for topic in topics:
            if not topic or topic in self.refused_topics:
                raise errors.InvalidTopic(f"{topic!r} is refused")
        base, is_duplicate = self._number(
            header.producer_id, header.producer_sequence, header.count
        )
        if not is_duplicate:
            dues = batch.due_ms + (STORE_MS if header.flags & Flag.RELATIVE_DUE else 0)
            at = 0
            blobs = bytes(batch.blobs)
            lengths = zip(batch.meta_len.tolist(), batch.body_len.tolist(), strict=True)
            for topic, due_ms, (meta_len, body_len) in zip(
                topics, dues.tolist(), lengths, strict=True
            ):
                end = at + meta_len + body_len
                self.store(topic, due_ms, blobs[at:end], meta_len)
                at = end
        self.genes_seen.append((topics[0], header.gene_spec, batch.tag_gene.tolist()))
        expected = self.genes.get(topics[0])
        if expected is not None and gene_from_wire(expected).number == header.gene_spec:
            expected = None
        return broker_pb2.PublishedBatch(
            shard=SHARD,
            epoch=self.epoch,
            base_sequence=base,
            count=header.count,
            store_ms=STORE_MS,
            duplicate=is_duplicate,
            expected_gene=expected,
            topic_count_max=self.topic_count_max,
        )

    def subscribe(self, group: str, topic: str, wanted: filter_pb2.FilterExpression) -> None:
        """A receive with a filter: the first one counts. Everything is handed out all the same.

        Raises:
            SubscriptionMismatch: the group wants something else.
        """
        if self.subscriptions.setdefault((group, topic), wanted) != wanted:
            raise errors.SubscriptionMismatch("the group wants something else")

    def find_to_check(self, group: str, topic: str) -> filter_pb2.FilterExpression | None:
        """The filter that the client is told to check."""
        wanted = self.subscriptions.get((group, topic))
        return wanted if wanted is not None and wanted.check_at_client else None

    def _number(self, producer_id: int, first: int, count: int) -> tuple[int, bool]:
        base = len(self.messages)
        if producer_id == 0:
            return base, False
        producer = self.producers.get(producer_id)
        if producer is None:
            if first:
                raise errors.UnknownProducer
            producer = self.producers[producer_id] = Producer()
        for known_first, known_count, known_base in producer.batches:
            if known_first <= first and first + count <= known_first + known_count:
                return known_base + first - known_first, True
        if first != producer.next_sequence:
            raise errors.OutOfOrderSequence
        producer.next_sequence += count
        producer.batches.append((first, count, base))
        return base, False

    async def lease(self, topic: str, count: int, wait_ms: int) -> list[Stored]:
        """Raises `NotMaster` when this node is deposed meanwhile."""
        queue = self._queues[topic]
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                while not queue:
                    self._arrived.clear()
                    await self._arrived.wait()
                    if (refusal := self.refusal()) is not None:
                        raise refusal
        except TimeoutError:
            return []
        return [queue.popleft() for _ in range(min(count, len(queue)))]

    def give_back(self, messages: list[Stored]) -> None:
        for message in messages:
            message.attempt += 1
            self._queues[message.topic].append(message)
        self._arrived.set()

    # --- several nodes --------------------------------------------------------------------------

    def share(self, other: "FakeBroker") -> None:
        """Keep what `other` keeps, as if every change were replicated in no time."""
        self.messages, self.producers, self.leases = other.messages, other.producers, other.leases
        self.cancelled, self.topics, self.groups = other.cancelled, other.topics, other.groups
        self.stale_receipts, self._queues = other.stale_receipts, other._queues

    def wake(self) -> None:
        """Let long polls look again."""
        self._arrived.set()
