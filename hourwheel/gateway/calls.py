"""What each call of the HTTP API does, by the public client and the methods of gRPC behind it.

Every function takes who calls, the names in the path, and the checked body. What is refused is
refused by the nodes, with the caller's own rights.
"""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Protocol

from pydantic import BaseModel

from hourwheel import errors
from hourwheel.client.ack_batcher import find_error
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.changes.cancellation import cancel_keys, cancel_many
from hourwheel.client.changes.rescheduling import NewTimes, reschedule_keys, reschedule_many
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import ReceivedMessage
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats import receipt as receipts
from hourwheel.gateway import models
from hourwheel.gateway.listings import MESSAGES_A_TURN, ListingTurns
from hourwheel.gateway.problems import KeyReused
from hourwheel.outcomes import DedupOutcome, IfPending
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import ACK, CHANGE_INVISIBLE, NACK, PUBLISH
from hourwheel.transport.retry import Doubt
from hourwheel.v1 import broker_pb2, consumer_pb2, meta_pb2

IDEMPOTENCY_KEY: Final = "idempotency-key"
IDEMPOTENCY_KEY_CHARS_MAX: Final = 255
RECEIVE_BYTES: Final = 1024 * 1024
"""Bodies of one answer, about; the first message comes whatever its size."""
UNAVAILABLE_MS_MAX: Final = 5_000.0
_PUBLISH_AGAIN: Final = replace(PUBLISH, is_repeatable=True)
"""A call with an idempotency key."""
_PENDING_KINDS: Final = {
    "reject": IfPending.REJECT,
    "keep": IfPending.KEEP,
    "replace": IfPending.REPLACE,
}


class Caller(Protocol):
    """Who calls."""

    @property
    def name(self) -> str:
        """As the nodes know the caller; empty: anonymous."""
        ...

    @property
    def channel(self) -> Channel:
        """To the nodes, with the caller's credentials."""
        ...

    @property
    def listings(self) -> ListingTurns:
        """The caller's listings take turns."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call, its parts checked."""

    caller: Caller
    names: Mapping[str, str]
    """Of the path."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    """Of the route's type; None where the route takes none."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a call."""

    answer: BaseModel
    on_unsent: Callable[[], Awaitable[object]] | None = None
    """Called if the answer cannot be written: the caller has not got it."""


# --- publishing ---------------------------------------------------------------------------------


async def publish(call: Call) -> Done:
    """Accepted or refused together. With an Idempotency-Key the same call happens once."""
    messages: list[models.NewMessage] = call.body if isinstance(call.body, list) else [call.body]
    topic = call.names["topic"]
    request = broker_pb2.PublishRequest(topic=topic)
    for index, one in enumerate(messages):
        try:
            request.messages.append(_outgoing(one))
        except errors.HourwheelError as error:
            error.params.setdefault("index", str(index))
            raise
    key = call.headers.get(IDEMPOTENCY_KEY)
    method = PUBLISH
    if key is not None:
        method = _PUBLISH_AGAIN
        request.producer.producer_id = producer_id_of(call.caller.name, topic, key)
    try:
        answer = await call.caller.channel.call(method, request)
    except errors.OutOfOrderSequence as error:
        raise KeyReused("the idempotency key stood for other messages before") from error
    if any(one.dedup_key for one in messages) and not answer.knows_dedup_keys:
        raise errors.FeatureLevelTooLow("a node of an earlier version did not look at dedup keys")
    found = [_published(one) for one in answer.messages]
    if found and all(one.outcome == "rejected" for one in found):
        raise errors.AlreadyPending(
            f"the message {found[0].pending_id} with this dedup key is pending",
            message_id=found[0].pending_id,
        )
    return Done(models.Published(messages=found))


def producer_id_of(name: str, topic: str, key: str) -> int:
    """The number by which nodes know the same publish again, for `limits.producer_idle_ms`.

    It is the same in each gateway, so a call may be sent again by another one.

    Raises:
        InvalidArgument: the key is empty, too long or not of visible ASCII characters.
    """
    if not 0 < len(key) <= IDEMPOTENCY_KEY_CHARS_MAX or not all("!" <= one <= "~" for one in key):
        raise errors.InvalidArgument(
            f"an Idempotency-Key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters",
            field="Idempotency-Key",
        )
    parts = (name.encode("utf-8", "surrogatepass"), topic.encode(), key.encode())
    joined = b"".join(len(one).to_bytes(4, "big") + one for one in parts)
    digest = hashlib.blake2b(joined, digest_size=8, person=b"hourwheel.http").digest()
    return int.from_bytes(digest, "big") or 1


def _outgoing(one: models.NewMessage) -> broker_pb2.OutgoingMessage:
    if one.dedup_key and one.if_pending is None:
        raise errors.InvalidArgument("a dedup_key needs if_pending", field="if_pending")
    when, expires_ms = one.when, one.expires_ms
    meta = meta_pb2.MessageMeta(
        tags=one.tags,
        keys=one.keys,
        properties=[
            meta_pb2.Property(name=name, value=text) for name, text in one.properties.items()
        ],
        client_message_id=one.client_message_id,
        content_type=one.type_of_content,
        ordering_key=one.ordering_key,
        priority=one.priority,
        expires_ms=expires_ms,
    )
    return broker_pb2.OutgoingMessage(
        body=one.body,
        due_ms=when.due_ms,
        delay_ms=when.delay_ms,
        meta=meta,
        dedup_key=one.dedup_key,
        if_pending=None if one.if_pending is None else int(_PENDING_KINDS[one.if_pending]),  # type: ignore[arg-type]
    )


def _published(one: broker_pb2.PublishedMessage) -> models.PublishedMessage:
    outcome: Any = DedupOutcome(one.dedup_outcome).name.lower()
    return models.PublishedMessage(
        id=one.message_id, due_ms=one.due_ms, outcome=outcome, pending_id=one.pending_message_id
    )


# --- consuming ----------------------------------------------------------------------------------


async def receive(call: Call) -> Done:
    """Lease messages. Those of an answer that does not arrive are given back."""
    requested: models.Receive = call.body
    group = call.names["group"]
    invisible_ms = 0 if requested.invisible is None else models.length_ms(requested.invisible)
    consumer = AsyncConsumer(
        call.caller.channel,
        group=group,
        topic=requested.topic,
        filter=_filter_of(requested.filter),
        invisible_ms=invisible_ms,
        prefetch_messages=0,
        poll_bytes=RECEIVE_BYTES,
        unavailable_ms_max=UNAVAILABLE_MS_MAX,
    )
    try:
        found = await consumer.receive(requested.max_messages, requested.wait_ms)
    finally:
        await consumer.close()
    answer = _received(found)

    async def give_back() -> None:
        handles = [one.receipt for one in answer.messages]
        request = consumer_pb2.NackRequest(group=group, receipts=handles, delay_ms=0)
        await call.caller.channel.call(NACK, request, is_retried=False)

    return Done(answer, give_back if answer.messages else None)


def _filter_of(wanted: models.Filter | None) -> FilterExpression | None:
    if wanted is None:
        return None
    if wanted.sql is not None:
        return FilterExpression.sql(wanted.sql)
    return FilterExpression.tags(wanted.tags or "")


def _received(found: list[ReceivedMessage]) -> models.Received:
    messages: list[models.ReceivedMessage] = []
    until_ms = 0
    for batch, group in groupby(found, lambda one: one.batch):
        handles = receipts.format_each(receipts.parse(batch.receipt))
        messages += [_message(one, handles[one.index]) for one in group]
        until_ms = batch.invisible_until_ms
    return models.Received(messages=messages, invisible_until_ms=until_ms)


def _message(one: ReceivedMessage, handle: str) -> models.ReceivedMessage:
    meta, body = one.meta, one.body
    text: str | None
    try:
        text, raw = body.decode(), None
    except UnicodeDecodeError:
        text, raw = None, base64.b64encode(body).decode()
    return models.ReceivedMessage(
        id=str(one.message_id),
        receipt=handle,
        topic=one.topic,
        attempt=one.attempt,
        due_ms=one.due_ms,
        store_ms=one.store_ms,
        text=text,
        base64=raw,
        tags=list(meta.tags),
        keys=list(meta.keys),
        properties=dict(meta.properties),
        ordering_key=meta.ordering_key,
        priority=meta.priority,
        content_type=meta.content_type,
        client_message_id=meta.client_message_id,
    )


async def ack(call: Call) -> Done:
    """Done with these."""
    requested: models.Receipts = call.body
    request = consumer_pb2.AckRequest(group=call.names["group"], receipts=requested.receipts)
    answer = await call.caller.channel.call(ACK, request, doubt=(doubt := Doubt()))
    _check(requested.receipts, answer.outcomes, doubt)
    return Done(models.Finished(count=len(requested.receipts)))


async def nack(call: Call) -> Done:
    """Deliver these again, or make dead letters of them."""
    requested: models.Nack = call.body
    delay_ms = 0 if requested.not_begun else None
    if requested.delay is not None:
        delay_ms = models.length_ms(requested.delay)
    request = consumer_pb2.NackRequest(
        group=call.names["group"],
        receipts=requested.receipts,
        delay_ms=_u32(delay_ms, "delay"),
        dead_letter=requested.dead_letter,
        reason=requested.reason,
        not_begun=requested.not_begun,
    )
    answer = await call.caller.channel.call(NACK, request, doubt=(doubt := Doubt()))
    _check(requested.receipts, answer.outcomes, doubt)
    return Done(models.Finished(count=len(requested.receipts)))


async def extend(call: Call) -> Done:
    """Hold these for longer, or shorter."""
    requested: models.Extend = call.body
    invisible_ms = _u32(models.length_ms(requested.invisible), "invisible")
    request = consumer_pb2.ChangeInvisibleRequest(
        group=call.names["group"], receipts=requested.receipts, invisible_ms=invisible_ms
    )
    answer = await call.caller.channel.call(CHANGE_INVISIBLE, request)
    _check(requested.receipts, answer.outcomes, Doubt())
    until_ms = answer.invisible_until_ms
    return Done(models.Extended(count=len(requested.receipts), invisible_until_ms=until_ms))


def _u32(number: int | None, field: str) -> int | None:
    if number is not None and number >= 1 << 32:
        raise errors.InvalidArgument(f"{field} is too long", field=field)
    return number


def _check(given: list[str], outcomes: Any, doubt: Doubt) -> None:
    """Raises StaleReceipt, UndecidedReceipt or InvalidReceipt: `indexes` says which."""
    codes = list(outcomes)
    if len(codes) != len(given):
        raise errors.Internal("the node did not answer for each receipt")
    error = find_error(codes)
    if error is None:
        return
    if doubt.is_there and isinstance(error, errors.StaleReceipt):
        error = errors.UndecidedReceipt(
            "an earlier try may have ended the lease: either it did, or the messages come again"
        )
    error.params["indexes"] = ",".join(
        str(index) for index, code in enumerate(codes) if find_error([code]) is not None
    )
    raise error


async def reset(call: Call) -> Done:
    """Let the group begin anew in a topic, or tell what that would come to. Sent once."""
    requested: models.Reset = call.body
    found = await AsyncAdmin(call.caller.channel).reset_group(
        call.names["group"],
        requested.topic,
        requested.start,
        positions=requested.positions,
        count_only=requested.count_only,
    )
    return Done(
        models.WasReset(
            again_count=found.again_count,
            skipped_count=found.skipped_count,
            retries_dropped_count=found.retries_dropped_count,
            unresolved_count=found.unresolved_count,
            positions=list(found.positions),
        )
    )


# --- changing and looking -----------------------------------------------------------------------


async def cancel_ids(call: Call) -> Done:
    """Take messages back."""
    requested: models.Ids = call.body
    found = await cancel_many(call.caller.channel, requested.ids)
    outcomes = [
        models.Outcome(of=of, outcome=one.name.lower())
        for of, one in zip(requested.ids, found, strict=True)
    ]
    return Done(models.Outcomes(outcomes=outcomes))


async def cancel_by_keys(call: Call) -> Done:
    """Take back all messages of a topic that have a key."""
    requested: models.Keys = call.body
    found = await cancel_keys(call.caller.channel, call.names["topic"], requested.keys)
    outcomes = [
        models.Outcome(of=of, outcome=one.outcome.name.lower(), count=one.cancelled_count)
        for of, one in zip(requested.keys, found, strict=True)
    ]
    return Done(models.Outcomes(outcomes=outcomes))


async def move_ids(call: Call) -> Done:
    """Move messages to another due time."""
    requested: models.MoveIds = call.body
    found = await reschedule_many(call.caller.channel, requested.ids, _times(requested))
    outcomes = [
        models.Outcome(of=of, outcome=one.outcome.name.lower(), due_ms=one.due_ms)
        for of, one in zip(requested.ids, found, strict=True)
    ]
    return Done(models.Outcomes(outcomes=outcomes))


async def move_by_keys(call: Call) -> Done:
    """Move all messages of a topic that have a key."""
    requested: models.MoveKeys = call.body
    topic = call.names["topic"]
    found = await reschedule_keys(call.caller.channel, topic, requested.keys, _times(requested))
    outcomes = [
        models.Outcome(
            of=of,
            outcome=one.outcome.name.lower(),
            count=one.rescheduled_count,
            due_ms=one.due_ms,
        )
        for of, one in zip(requested.keys, found, strict=True)
    ]
    return Done(models.Outcomes(outcomes=outcomes))


def _times(requested: models.Timed) -> NewTimes:
    when = requested.when
    return NewTimes(when.due_ms, when.delay_ms)


async def describe(call: Call) -> Done:
    """Where a message is in its life."""
    found = await AsyncAdmin(call.caller.channel).describe(call.names["id"])
    return Done(
        models.Description(
            id=str(found.message_id),
            state=found.state.name.lower(),
            due_ms=found.due_ms,
            dead_letters=[one.group for one in found.dead_letters],
        )
    )


async def describe_by_key(call: Call) -> Done:
    """Messages of a topic that have a key."""
    key = call.query.get("key", "")
    if not key:
        raise errors.InvalidArgument("give ?key=", field="key")
    count_max = _page(call.query.get("limit", "100"))
    found: list[models.Description] = []
    is_complete = True
    async with call.caller.listings.turn():
        listed = AsyncAdmin(call.caller.channel).list_by_key(
            call.names["topic"], key, page_size=count_max
        )
        async for one in listed:
            if len(found) == count_max:
                is_complete = False
                break
            state = one.state.name.lower()
            found.append(models.Description(id=str(one.message_id), state=state, due_ms=one.due_ms))
            if len(found) % MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)
    return Done(models.Described(messages=found, is_complete=is_complete))


def _page(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= 4):  # noqa: PLR2004
        raise errors.InvalidArgument("limit is a whole number", field="limit")
    if not 1 <= (count := int(text)) <= models.KEY_PAGE_MAX:
        raise errors.InvalidArgument(f"limit is 1 to {models.KEY_PAGE_MAX}", field="limit")
    return count
