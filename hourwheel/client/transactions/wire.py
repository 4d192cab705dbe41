"""Transactions as protobuf messages, there and back."""

from collections.abc import Mapping, Sequence

from hourwheel.client.message import Message
from hourwheel.client.transactions.words import CheckedTransaction, TransactionDescription
from hourwheel.errors import InvalidArgument
from hourwheel.formats import meta as metas
from hourwheel.outcomes import TransactionState
from hourwheel.v1 import broker_pb2
from hourwheel.v1 import transaction_pb2 as wire


def parts_to_wire(
    messages: Mapping[str, Sequence[Message] | Message],
) -> list[wire.PreparedMessages]:
    """The messages of each topic. Raises InvalidArgument."""
    parts: list[wire.PreparedMessages] = []
    for topic, found in messages.items():
        every = [found] if isinstance(found, Message) else found
        parts.append(wire.PreparedMessages(topic=topic, messages=map(_to_wire, every)))
    return parts


def _to_wire(message: Message) -> broker_pb2.OutgoingMessage:
    if message.delay_ms is not None and message.due_ms is not None:
        raise InvalidArgument("a message has both delay_ms and due_ms")
    if message.dedup_key or message.if_pending:
        raise InvalidArgument("messages of a transaction have no dedup keys")
    found = broker_pb2.OutgoingMessage(body=bytes(message.body))
    if message.delay_ms is not None:
        found.delay_ms = message.delay_ms
    elif message.due_ms is not None:
        found.due_ms = message.due_ms
    raw = metas.encode(message.meta()).raw
    if raw:
        found.meta.ParseFromString(raw)
    return found


def check_from_wire(check: wire.TransactionCheck) -> CheckedTransaction:
    """A transaction that the cluster asks about."""
    return CheckedTransaction(
        check.transaction_id,
        {part.topic: [_from_wire(one) for one in part.messages] for part in check.parts},
        check.prepared_ms,
        check.number,
        check.checks_max,
    )


def _from_wire(found: broker_pb2.OutgoingMessage) -> Message:
    meta = metas.decode(found.meta.SerializeToString())
    return Message(
        found.body,
        delay_ms=found.delay_ms if found.HasField("delay_ms") else None,
        due_ms=found.due_ms if found.HasField("due_ms") else None,
        tags=meta.tags,
        keys=meta.keys,
        properties=dict(meta.properties),
        client_message_id=meta.client_message_id,
        content_type=meta.content_type,
        expires_ms=meta.expires_ms if meta.expires_ms > 0 else None,
        expire_after_ms=_after_ms(found, meta.expires_ms),
        priority=meta.priority,
    )


def _after_ms(found: broker_pb2.OutgoingMessage, expires_ms: int) -> int | None:
    """How long after its due time a message expires, where that was said so."""
    return -expires_ms - found.delay_ms if expires_ms < 0 else None


def info_from_wire(info: wire.TransactionInfo) -> TransactionDescription:
    """What is known of one."""
    return TransactionDescription(
        transaction_id=info.transaction_id,
        state=TransactionState(info.state),
        group=info.producer_group,
        topics=tuple(info.topics),
        message_count=info.message_count,
        size_bytes=info.size_bytes,
        prepared_ms=info.prepared_ms,
        check_interval_ms=info.check_interval_ms,
        checks_max=info.checks_max,
        age_ms_max=info.age_ms_max,
        checks=info.checks,
        checked_ms=info.checked_ms or None,
        decided_ms=info.decided_ms or None,
    )
