"""ProducerService: Publish, Cancel and Reschedule.

The stream of record batches is in publish_stream.py.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.formats import meta as metas
from hourwheel.formats.dedup_key import DedupKey, make_dedup_key
from hourwheel.formats.expiry_field import expires_field
from hourwheel.formats.tag_gene import DEFAULT_SPEC, gene_of
from hourwheel.outcomes import IfPending, RescheduleOutcome
from hourwheel.types import SEQUENCE_MAX
from hourwheel.v1.broker_pb2 import (
    CancelRequest,
    CancelResponse,
    OutgoingMessage,
    PublishRequest,
    PublishResponse,
    RescheduleRequest,
    RescheduleResponse,
)
from node.access.control import AccessControl
from node.access.permissions import REPLACE
from node.api.batches import beyond_horizon, check_expiry
from node.api.calls import CallContext
from node.api.checks import check_topic
from node.api.quota_gate import QuotaGate
from node.config.model import LimitsSection
from node.contracts.broker import EnginePort, IncomingMessages
from node.contracts.message_topics import check_count, ids_of
from node.contracts.publishing import PublishedOne

PUBLISH_COUNT_MAX: Final = 1_000
"""Messages of one Publish call; more at once go as record batches."""


class Producer:
    """Checks what comes in and hands it to the engine."""

    def __init__(
        self,
        engine: EnginePort,
        access: AccessControl,
        allowed: LimitsSection,
        horizon_ms: int,
        quotas: QuotaGate,
    ) -> None:
        """`horizon_ms`: how far ahead a message may be scheduled."""
        self._access = access
        self._quotas = quotas
        self._engine = engine
        self._allowed = allowed
        self._horizon_ms = horizon_ms

    async def publish(self, request: PublishRequest, _context: CallContext) -> PublishResponse:
        """Accept up to 1,000 messages, together or not at all."""
        topic = request.topic
        check_topic(topic)
        messages = request.messages
        count = len(messages)
        if not 0 < count <= PUBLISH_COUNT_MAX:
            raise errors.TooManyItems(
                f"{count} messages; 1 to {PUBLISH_COUNT_MAX} are allowed",
                count=count,
                count_max=PUBLISH_COUNT_MAX,
            )
        incoming = self.read(topic, messages)
        if any(one.dedup_key or one.if_pending for one in messages):
            dedup = _dedup_keys(messages)
            if any(one.if_pending == IfPending.REPLACE for one in dedup):
                self._access.check(REPLACE, request)
            incoming = incoming._replace(dedup=dedup)
        if request.HasField("producer"):
            producer_id, first_sequence = _producer(request)
            incoming = incoming._replace(
                producer_id=producer_id,
                producer_sequence=first_sequence,
                requested_due_ms=tuple(
                    one.due_ms if one.HasField("due_ms") else None for one in messages
                ),
            )
        if self._quotas.is_on:
            accepted = await self._publish_within_quota(incoming)
        else:
            accepted = await self._engine.publish_messages(incoming)
        response = PublishResponse(knows_dedup_keys=True)
        add = response.messages.add
        for text, due, outcome, pending_id in accepted:
            add(message_id=text, due_ms=due, dedup_outcome=outcome, pending_message_id=pending_id)
        return response

    async def _publish_within_quota(self, incoming: IncomingMessages) -> list[PublishedOne]:
        size = sum(map(len, incoming.bodies)) + sum(map(len, incoming.metas))
        instants = partial(np.array, incoming.due_ms, np.int64)
        with self._quotas.publishing(len(incoming.due_ms), size, instants):
            return await self._engine.publish_messages(incoming)

    def read(self, topic: str, messages: Iterable[OutgoingMessage]) -> IncomingMessages:
        """Messages that keep every limit; an error names the index."""
        now_ms, allowed = self._engine.now_ms(), self._allowed
        latest, body_bytes_max = now_ms + self._horizon_ms, allowed.message_body_bytes
        due_ms: list[int] = []
        bodies: list[bytes] = []
        raw_metas: list[bytes] = []
        genes: list[int] = []
        key_hashes: list[int] = []
        size = 0
        spec = self._engine.gene_spec(topic)
        is_default = spec == DEFAULT_SPEC
        try:
            for message in messages:
                kind = message.WhichOneof("due")
                if kind == "delay_ms":
                    requested = message.delay_ms
                    due = now_ms + requested
                else:
                    requested = due = now_ms if kind is None else message.due_ms
                if due > latest or requested < 0:
                    _refuse_due(kind, requested, due, now_ms, self._horizon_ms)
                body = message.body
                if len(body) > body_bytes_max:
                    _refuse_body(body, body_bytes_max)
                meta = metas.from_wire(message.meta) if message.HasField("meta") else _NO_META
                expires_ms = expires_field(meta.raw)
                if expires_ms:
                    check_expiry(kind, requested, expires_ms)
                raw, gene, key_hash = meta.raw, meta.tag_gene, meta.key_hash
                if not is_default:
                    gene = gene_of(spec, meta.tags, meta.properties)
                size += len(body) + len(raw)
                due_ms.append(due)
                bodies.append(body)
                raw_metas.append(raw)
                genes.append(gene)
                key_hashes.append(key_hash)
        except errors.HourwheelError as error:
            error.params.setdefault("index", str(len(bodies)))
            raise
        self.check_size(size)
        return IncomingMessages(topic, due_ms, bodies, raw_metas, genes, key_hashes)

    def check_size(self, size_bytes: int) -> None:
        """Raises BatchTooLarge where messages of one call have more bytes than one may have."""
        most = self._allowed.batch_bytes
        if size_bytes > most:
            raise errors.BatchTooLarge(
                f"{size_bytes} bytes of messages; at most {most} are allowed",
                bytes=size_bytes,
                bytes_max=most,
            )

    async def cancel(self, request: CancelRequest, _context: CallContext) -> CancelResponse:
        """Take back messages; one definite answer for each id, or for each key."""
        if request.keys or request.topic:
            done = await self._engine.cancel_keys(request.topic, _keys_of(request))
            return CancelResponse(
                outcomes=done.outcomes.tolist(), cancelled_counts=done.cancelled_counts.tolist()
            )
        ids = ids_of(request)
        outcomes = (await self._engine.cancel(ids)).tolist() if len(ids) else []
        return CancelResponse(outcomes=outcomes)

    async def reschedule(
        self, request: RescheduleRequest, _context: CallContext
    ) -> RescheduleResponse:
        """Move messages to other due times; one definite answer for each id, or for each key."""
        if request.keys or request.topic:
            keys = _keys_of(request)
            times_ms, are_delays = _times_of(request, len(keys))
            of_keys = await self._quotas.moving(
                lambda: self._engine.reschedule_keys(
                    request.topic, keys, times_ms, are_delays=are_delays
                ),
                lambda it: np.repeat(it.due_ms, it.rescheduled_counts),
            )
            return RescheduleResponse(
                outcomes=of_keys.outcomes.tolist(),
                due_ms=of_keys.due_ms.tolist(),
                rescheduled_counts=of_keys.rescheduled_counts.tolist(),
            )
        ids = ids_of(request)
        times_ms, are_delays = _times_of(request, len(ids))
        if not len(ids):
            return RescheduleResponse()
        found = await self._quotas.moving(
            lambda: self._engine.reschedule(ids, times_ms, are_delays=are_delays),
            lambda rows: rows["due_ms"][rows["outcome"] == RescheduleOutcome.RESCHEDULED],
        )
        return RescheduleResponse(
            outcomes=found["outcome"].tolist(), due_ms=found["due_ms"].tolist()
        )


def _dedup_keys(messages: Iterable[OutgoingMessage]) -> list[DedupKey]:
    """The dedup key of each message; an error names the index."""
    found: list[DedupKey] = []
    try:
        found.extend(make_dedup_key(one.dedup_key, one.if_pending) for one in messages)
    except errors.HourwheelError as error:
        error.params.setdefault("index", str(len(found)))
        raise
    return found


def _keys_of(request: CancelRequest | RescheduleRequest) -> list[bytes]:
    """The keys that a call names. Raises InvalidTopic, InvalidArgument, TooManyItems."""
    check_topic(request.topic)
    if request.message_ids or request.packed_message_ids:
        raise errors.InvalidArgument("ids and keys exclude each other")
    check_count(len(request.keys), "keys")
    keys = [key.encode() for key in request.keys]
    lengths = list(map(len, keys))
    if keys and not 0 < min(lengths) <= max(lengths) <= limits.KEY_BYTES_MAX:
        raise errors.InvalidArgument(
            f"a key has 1 to {limits.KEY_BYTES_MAX} bytes",
            field="keys",
            bytes_max=limits.KEY_BYTES_MAX,
        )
    return keys


def _times_of(request: RescheduleRequest, count: int) -> tuple[NDArray[np.int64], bool]:
    """(int64[n]: where each is to be moved, whether these are delays). Raises InvalidArgument."""
    if bool(request.due_ms) == bool(request.delay_ms):
        raise errors.InvalidArgument("either due_ms or delay_ms is needed", field="due_ms")
    times = request.due_ms or request.delay_ms
    if len(times) not in {1, count}:
        raise errors.InvalidArgument(
            f"{len(times)} times for {count} ids or keys: one is needed, or one for each",
            field="due_ms",
        )
    given = np.array(times, np.int64)
    return np.broadcast_to(given, count) if len(times) == 1 else given, bool(request.delay_ms)


_NO_META: Final = metas.encode(metas.NO_META)


def _refuse_due(
    kind: str | None, requested: int, due_ms: int, now_ms: int, horizon_ms: int
) -> NoReturn:
    if requested < 0:
        raise errors.InvalidDueTime(f"{kind} is negative: {requested}", due_ms=due_ms)
    raise beyond_horizon("", due_ms=due_ms, now_ms=now_ms, horizon_ms=horizon_ms)


def _refuse_body(body: bytes, bytes_max: int) -> NoReturn:
    raise errors.MessageTooLarge(
        f"a body of {len(body)} bytes; at most {bytes_max} are allowed",
        bytes=len(body),
        bytes_max=bytes_max,
    )


def _producer(request: PublishRequest) -> tuple[int, int]:
    """The producer's id and the number of its first message."""
    position = request.producer
    if position.producer_id == 0:
        raise errors.InvalidArgument("producer_id must not be 0", field="producer.producer_id")
    if position.first_sequence > SEQUENCE_MAX - len(request.messages):
        raise errors.InvalidArgument(
            "first_sequence is too large",
            field="producer.first_sequence",
            first_sequence=position.first_sequence,
        )
    return position.producer_id, position.first_sequence
