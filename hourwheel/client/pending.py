"""What is scheduled: listed, counted and cancelled by filter, page by page behind one call."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hourwheel.errors import InvalidDueTime
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import NO_META, MessageMeta, decode
from hourwheel.instants import check_instant
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import CANCEL_PENDING, LIST_PENDING
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2, filter_pb2

PAGE_SIZE: Final = 500


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that is scheduled."""

    message_id: MessageId
    due_ms: int
    """When it is due, in milliseconds since the Unix epoch."""
    store_ms: int
    """When the node accepted it."""
    meta: MessageMeta
    """Its tags, keys and properties."""
    body_bytes: int
    """Size of its body."""
    body: bytes | None = None
    """None where bodies were not asked for, or it is damaged."""
    is_corrupt: bool = False
    """What the node has of it is damaged, or its metadata cannot be read: `meta` is empty."""


class PendingCount(NamedTuple):
    """How many messages are pending."""

    matched_count: int
    """They match the filter."""
    scanned_count: int
    """Pending messages that were looked at."""
    corrupt_count: int
    """Of those, damaged ones, of which nobody can tell whether they match: not counted as such."""


@dataclass(frozen=True, slots=True)
class PendingCancelled:
    """What a bulk cancel has done, so far or in all."""

    cancelled_count: int = 0
    """They will never be released. (More may be, where a node answered and was not heard.)"""
    already_released_count: int = 0
    """They were released before they could be cancelled."""
    scanned_count: int = 0
    """Pending messages that were looked at."""
    corrupt_count: int = 0
    """Damaged ones, of which nobody can tell whether they match: left alone."""


class Range(NamedTuple):
    """Which pending messages."""

    topic: str
    wanted: FilterExpression | None
    from_ms: int
    """Due at or after this instant."""
    to_ms: int
    """Due before this instant; 0: no bound."""


def range_of(topic: str, wanted: FilterExpression | None, from_ms: int, to_ms: int) -> Range:
    """A range whose bounds are not seconds by mistake: those would mean "all" or "nothing".

    Raises:
        InvalidDueTime: a bound lies before 2001, and is not 0; or it is no such number.
    """
    for bound_ms in (from_ms, to_ms):
        if type(bound_ms) is not int or not 0 <= bound_ms <= DUE_MS_MAX:
            raise InvalidDueTime(
                f"a bound is an instant in milliseconds since 1970, not {bound_ms!r}"
            )
        if bound_ms:
            check_instant(bound_ms)
    return Range(topic, wanted, from_ms, to_ms)


async def list_pending(
    channel: Channel, of: Range, *, page_size: int, with_bodies: bool
) -> AsyncIterator[PendingMessage]:
    """Messages by due time; pages are fetched as they are needed. Raises HourwheelErrors."""
    request = _list_request(of)
    request.page_size, request.with_bodies = page_size, with_bodies
    while True:
        answer = await channel.call(LIST_PENDING, request)
        for message in answer.messages:
            yield _message(message, with_body=with_bodies)
        request.page_token = answer.next_page_token
        if not request.page_token:
            return


async def count_pending(channel: Channel, of: Range) -> PendingCount:
    """How many match. Raises HourwheelErrors."""
    request = _list_request(of)
    request.count_only = True
    matched = scanned = corrupt = 0
    while True:
        answer = await channel.call(LIST_PENDING, request)
        matched += answer.matched_count
        scanned += answer.scanned_count
        corrupt += answer.corrupt_count
        request.page_token = answer.next_page_token
        if not request.page_token:
            return PendingCount(matched, scanned, corrupt)


async def cancel_pending(
    channel: Channel, of: Range, on_progress: Callable[[PendingCancelled], None] | None
) -> PendingCancelled:
    """Cancel all that match. Raises HourwheelErrors; to call again is safe."""
    request = admin_pb2.CancelPendingRequest(
        topic=of.topic, filter=_wire(of), from_due_ms=of.from_ms, to_due_ms=of.to_ms
    )
    done = PendingCancelled()
    while True:
        answer = await channel.call(CANCEL_PENDING, request)
        done = PendingCancelled(
            done.cancelled_count + answer.cancelled_count,
            done.already_released_count + answer.already_released_count,
            done.scanned_count + answer.scanned_count,
            done.corrupt_count + answer.corrupt_count,
        )
        if on_progress is not None:
            on_progress(done)
        request.page_token = answer.next_page_token
        if not request.page_token:
            return done


def _list_request(of: Range) -> admin_pb2.ListPendingRequest:
    return admin_pb2.ListPendingRequest(
        topic=of.topic, filter=_wire(of), from_due_ms=of.from_ms, to_due_ms=of.to_ms
    )


def _wire(of: Range) -> filter_pb2.FilterExpression | None:
    return None if of.wanted is None else filter_to_wire(of.wanted)


def _message(message: admin_pb2.PendingMessage, *, with_body: bool) -> PendingMessage:
    raw = message.meta.SerializeToString() if message.HasField("meta") else b""
    return PendingMessage(
        message_id.parse(message.message_id),
        message.due_ms,
        message.store_ms,
        decode(raw) if raw else NO_META,
        message.body_bytes,
        message.body if with_body and not message.is_corrupt else None,
        message.is_corrupt,
    )
