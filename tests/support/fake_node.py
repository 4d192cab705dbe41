"""A node that is a script: real sockets and the real API, no disk, no wheel, no clock of its own.

Messages are delivered as soon as they are published, whatever their due time. A test says
beforehand what goes wrong:

    node.fail_next("Receive", errors.Overloaded())      the next call ends with this error
    node.fail_next("PublishStream", errors.DiskFull())  the next batch is refused
    node.break_stream(after_batches=2, is_taken=True)   the stream dies instead of the 3rd answer
    node.hold("PublishStream")                          nothing is answered until `release`
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio
import numpy as np
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from hourwheel import delivery_batch, errors, limits, message_id
from hourwheel.crc32c import crc32c
from hourwheel.receipt import Receipt
from hourwheel.record_batch import Flag, RecordBatch
from hourwheel.wire import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
)

STORE_MS = 1_700_000_000_000
"""The fake's clock: it stands still."""
SHARD, EPOCH, TOPIC_ID = 3, 7, 1
UNIT = np.dtype(
    [
        *(("due_ms", "<i8"), ("sequence", "<u8"), ("store_ms", "<i8"), ("body_len", "<u4")),
        *(("crc", "<u4"), ("meta_len", "<u2"), ("attempt", "<u2")),
    ]
)
CODES = {code.name: code for code in grpc.StatusCode}


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
        return str(message_id.MessageId(SHARD, EPOCH, self.sequence, self.due_ms))


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
    gates: dict[str, asyncio.Event] = field(default_factory=dict)


def to_status(error: errors.HourwheelError) -> Any:
    """The rich gRPC status of an error of ours."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain="hourwheel", metadata=error.params
    )
    detail = any_pb2.Any()
    detail.Pack(info)
    code = CODES[error.code].value[0]
    return rpc_status.to_status(
        status_pb2.Status(code=code, message=error.message, details=[detail])
    )


class FakeNode:
    """The node. `calls[method]` are the requests that it saw."""

    def __init__(self) -> None:
        self.script = Script()
        self.calls: dict[str, list[Any]] = defaultdict(list)
        self.messages: list[Stored] = []
        self.producers: dict[int, Producer] = {}
        self.leases: dict[str, list[Stored]] = {}
        self.cancelled: set[int] = set()
        self.topics: dict[str, int] = {}
        self.groups: dict[str, admin_pb2.GroupSettings] = {}
        self.stale_receipts: set[str] = set()
        self.damage_next_delivery = False
        self._queues: dict[str, deque[Stored]] = defaultdict(deque)
        self._arrived = asyncio.Event()
        self._call_arrived = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve; on the same port as before, if there was one."""
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
                ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
            ]
        )
        broker_pb2_grpc.add_ProducerServiceServicer_to_server(ProducerService(self), self._server)
        consumer_pb2_grpc.add_ConsumerServiceServicer_to_server(ConsumerService(self), self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(self), self._server)
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def stop(self) -> None:
        """Break all connections and stop serving."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    # --- the script -----------------------------------------------------------------------------

    def fail_next(self, method: str, *failures: errors.HourwheelError) -> None:
        self.script.failures[method].extend(failures)

    def break_stream(self, *, after_batches: int, is_taken: bool) -> None:
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
        return failures.popleft() if failures else None

    async def arrive_or_abort(self, method: str, request: Any, context: Any) -> None:
        failure = await self.arrive(method, request)
        if failure is not None:
            await context.abort_with_status(to_status(failure))

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

    def publish(self, topic: str, raw: bytes) -> broker_pb2.PublishedBatch:
        """Take a batch, or recognise it."""
        batch = RecordBatch(raw)
        batch.verify()
        header = batch.header
        base, is_duplicate = self._number(
            header.producer_id, header.producer_sequence, header.count
        )
        if not is_duplicate:
            dues = batch.due_ms + (STORE_MS if header.flags & Flag.RELATIVE_DUE else 0)
            at = 0
            blobs = bytes(batch.blobs)
            lengths = zip(batch.meta_len.tolist(), batch.body_len.tolist(), strict=True)
            for due_ms, (meta_len, body_len) in zip(dues.tolist(), lengths, strict=True):
                end = at + meta_len + body_len
                self.store(topic, due_ms, blobs[at:end], meta_len)
                at = end
        return broker_pb2.PublishedBatch(
            shard=SHARD,
            epoch=EPOCH,
            base_sequence=base,
            count=header.count,
            store_ms=STORE_MS,
            duplicate=is_duplicate,
        )

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
            if (known_first, known_count) == (first, count):
                return known_base, True
        if first != producer.next_sequence:
            raise errors.OutOfOrderSequence
        producer.next_sequence += count
        producer.batches.append((first, count, base))
        return base, False

    async def lease(self, topic: str, count: int, wait_ms: int) -> list[Stored]:
        queue = self._queues[topic]
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                while not queue:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        return [queue.popleft() for _ in range(min(count, len(queue)))]

    def give_back(self, messages: list[Stored]) -> None:
        for message in messages:
            message.attempt += 1
            self._queues[message.topic].append(message)
        self._arrived.set()


class ProducerService(broker_pb2_grpc.ProducerServiceServicer):
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def PublishStream(self, requests: Any, context: Any) -> Any:  # noqa: N802
        node, answered = self._node, 0
        async for request in requests:
            failure = await node.arrive("PublishStream", request)
            if node.script.break_after == answered:
                node.script.break_after = None
                if node.script.is_taken_before_break:
                    node.publish(request.topic, request.record_batch)
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the script")
            try:
                if failure is not None:
                    raise failure
                published = node.publish(request.topic, request.record_batch)
            except errors.HourwheelError as error:
                detail = broker_pb2.ErrorDetail(
                    code=CODES[error.code].value[0],
                    reason=error.reason,
                    message=error.message,
                    params=error.params,
                )
                yield broker_pb2.PublishStreamResponse(error=detail)
            else:
                yield broker_pb2.PublishStreamResponse(published=published)
            answered += 1

    async def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        node = self._node
        await node.arrive_or_abort("Cancel", request, context)
        outcomes = []
        for row in message_id.unpack_many(request.packed_message_ids):
            sequence = int(row["sequence"])
            if sequence >= len(node.messages):
                outcomes.append(broker_pb2.CANCEL_OUTCOME_UNKNOWN)
            elif any(node.messages[sequence] in lease for lease in node.leases.values()):
                outcomes.append(broker_pb2.CANCEL_OUTCOME_ALREADY_RELEASED)
            else:
                node.cancelled.add(sequence)
                outcomes.append(broker_pb2.CANCEL_OUTCOME_CANCELLED)
        return broker_pb2.CancelResponse(outcomes=outcomes)


class ConsumerService(consumer_pb2_grpc.ConsumerServiceServicer):
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def Receive(self, request: Any, context: Any) -> Any:  # noqa: N802
        node = self._node
        await node.arrive_or_abort("Receive", request, context)
        leased = await node.lease(request.topic, request.max_messages, request.wait_ms)
        if not leased:
            return consumer_pb2.ReceiveResponse(receive_ms=STORE_MS)
        receipt = str(Receipt(1, EPOCH, 1, 256, len(node.leases), 0, 0, len(leased)))
        node.leases[receipt] = leased
        units = np.array(
            [
                (
                    *(one.due_ms, one.sequence, STORE_MS, len(one.body)),
                    *(one.crc, one.meta_bytes, one.attempt),
                )
                for one in leased
            ],
            UNIT,
        )
        packed = delivery_batch.pack(
            units,
            [one.blob for one in leased],
            shard=SHARD,
            topic_id=TOPIC_ID,
            receive_ms=STORE_MS,
            epoch=EPOCH,
        )
        if node.damage_next_delivery:
            node.damage_next_delivery = False
            packed = packed[:50] + bytes([packed[50] ^ 1]) + packed[51:]
        return consumer_pb2.ReceiveResponse(
            delivery_batch=packed,
            receipt=receipt,
            receive_ms=STORE_MS,
            invisible_until_ms=STORE_MS + (request.invisible_ms or 30_000),
        )

    def _outcome(self, chosen: Any) -> Any:
        if chosen.receipt not in self._node.leases:
            return consumer_pb2.RECEIPT_OUTCOME_INVALID
        if chosen.receipt in self._node.stale_receipts:
            return consumer_pb2.RECEIPT_OUTCOME_STALE
        return consumer_pb2.RECEIPT_OUTCOME_OK

    async def Ack(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("Ack", request, context)
        return consumer_pb2.AckResponse(outcomes=map(self._outcome, request.ranges))

    async def Nack(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("Nack", request, context)
        for chosen in request.ranges:
            leased = self._node.leases.get(chosen.receipt, [])
            self._node.give_back(leased[chosen.first : chosen.first + chosen.count])
        return consumer_pb2.NackResponse(outcomes=map(self._outcome, request.ranges))

    async def ChangeInvisible(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("ChangeInvisible", request, context)
        return consumer_pb2.ChangeInvisibleResponse(
            outcomes=map(self._outcome, request.ranges),
            invisible_until_ms=STORE_MS + request.invisible_ms,
        )


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def _topic(self, name: str) -> admin_pb2.Topic:
        settings = admin_pb2.TopicSettings(queue_count=self._node.topics[name])
        return admin_pb2.Topic(name=name, settings=settings, released_count=5)

    async def CreateTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("CreateTopic", request, context)
        self._node.topics.setdefault(request.name, request.settings.queue_count or 1)
        return admin_pb2.CreateTopicResponse(topic=self._topic(request.name))

    async def DeleteTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("DeleteTopic", request, context)
        if self._node.topics.pop(request.name, None) is None:
            await context.abort_with_status(to_status(errors.UnknownTopic()))
        return admin_pb2.DeleteTopicResponse()

    async def GetTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("GetTopic", request, context)
        if request.name not in self._node.topics:
            await context.abort_with_status(to_status(errors.UnknownTopic()))
        return admin_pb2.GetTopicResponse(topic=self._topic(request.name))

    async def ListTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("ListTopics", request, context)
        names = [
            name for name in sorted(self._node.topics) if request.include_internal or name[0] != "%"
        ]
        return admin_pb2.ListTopicsResponse(topics=map(self._topic, names))

    def _group(self, name: str) -> admin_pb2.Group:
        lag = admin_pb2.GroupLag(topic="orders", unresolved_count=12, leased_count=2)
        return admin_pb2.Group(name=name, settings=self._node.groups[name], lags=[lag])

    async def PutGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("PutGroup", request, context)
        self._node.groups[request.name] = request.settings
        return admin_pb2.PutGroupResponse(group=self._group(request.name))

    async def DeleteGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("DeleteGroup", request, context)
        if self._node.groups.pop(request.name, None) is None:
            await context.abort_with_status(to_status(errors.UnknownGroup()))
        return admin_pb2.DeleteGroupResponse()

    async def GetGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("GetGroup", request, context)
        if request.name not in self._node.groups:
            await context.abort_with_status(to_status(errors.UnknownGroup()))
        return admin_pb2.GetGroupResponse(group=self._group(request.name))

    async def ListGroups(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("ListGroups", request, context)
        return admin_pb2.ListGroupsResponse(groups=map(self._group, sorted(self._node.groups)))

    async def GetStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("GetStatus", request, context)
        node = admin_pb2.NodeStatus(
            node_id="n1", address=self._node.address, started_ms=STORE_MS, clock_ms=STORE_MS
        )
        shard = admin_pb2.ShardStatus(
            shard=SHARD, epoch=EPOCH, master="n1", published_count=len(self._node.messages)
        )
        return admin_pb2.GetStatusResponse(
            cluster_id="c0ffee", version="0.1.0", nodes=[node], shards=[shard]
        )

    async def DescribeMessage(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._node.arrive_or_abort("DescribeMessage", request, context)
        parts = message_id.parse(request.message_id)
        state = admin_pb2.MESSAGE_STATE_PENDING
        if parts.sequence >= len(self._node.messages):
            state = admin_pb2.MESSAGE_STATE_UNKNOWN
        return admin_pb2.DescribeMessageResponse(
            message_id=request.message_id, state=state, due_ms=parts.due_ms
        )
