"""What is scheduled: listed, counted, cancelled and moved by filter or by how keys begin.

Page by page behind one call.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hourwheel.errors import FailedPrecondition, InvalidDueTime
from hourwheel.filter_language.inputs import as_filter
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import NO_META, MessageMeta, decode
from hourwheel.instants import check_count, check_instant
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import CANCEL_PENDING, LIST_PENDING, RESCHEDULE_PENDING
from hourwheel.transport.pages import pages_of, sum_of_pages
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2, filter_pb2, pending_pb2

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
    """Of those, damaged ones, of which it is unknown whether they match: not counted as such."""


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
    """Damaged ones, of which it is unknown whether they match: left alone."""


@dataclass(frozen=True, slots=True)
class PendingRescheduled:
    """What a bulk reschedule has done, so far or in all."""

    rescheduled_count: int = 0
    """They are due at the new time. (More may be, where a node answered and was not heard.)"""
    missed_count: int = 0
    """They were released or cancelled before they could be moved."""
    scanned_count: int = 0
    """Pending messages that were looked at. What was moved further on may be among them twice."""
    corrupt_count: int = 0
    """Damaged ones, of which it is unknown whether they match: left alone."""


class Range(NamedTuple):
    """Which pending messages."""

    topic: str
    wanted: FilterExpression | None
    from_ms: int
    """Due at or after this instant."""
    to_ms: int
    """Due before this instant; 0: no bound."""
    key_prefix: str = ""
    """A key begins with it; empty: any."""


def range_of(
    topic: str,
    wanted: FilterExpression | None,
    from_ms: int,
    to_ms: int,
    key_prefix: str = "",
) -> Range:
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
    return Range(topic, wanted, from_ms, to_ms, key_prefix)


async def list_pending(
    channel: Channel, of: Range, *, page_size: int, with_bodies: bool
) -> AsyncIterator[PendingMessage]:
    """Messages by due time; pages are fetched as they are needed. Raises HourwheelErrors."""
    request = _list_request(of)
    request.page_size, request.with_bodies = page_size, with_bodies
    async for answer in _pages(channel, request):
        for message in answer.messages:
            yield _message(message, with_body=with_bodies)


async def count_pending(channel: Channel, of: Range) -> PendingCount:
    """How many match. Raises HourwheelErrors."""
    request = _list_request(of)
    request.count_only = True
    matched = scanned = corrupt = 0
    async for answer in _pages(channel, request):
        matched += answer.matched_count
        scanned += answer.scanned_count
        corrupt += answer.corrupt_count
    return PendingCount(matched, scanned, corrupt)


async def _pages(
    channel: Channel, request: admin_pb2.ListPendingRequest
) -> AsyncIterator[admin_pb2.ListPendingResponse]:
    """Raises FailedPrecondition where a node does not look at keys: it has listed all."""
    async for answer in pages_of(channel, LIST_PENDING, request):
        if answer.key_prefix != request.key_prefix:
            raise FailedPrecondition("a node of an earlier version does not choose by keys")
        yield answer


async def cancel_pending(
    channel: Channel, of: Range, on_progress: Callable[[PendingCancelled], None] | None
) -> PendingCancelled:
    """Cancel all that match. Raises HourwheelErrors; to call again is safe."""
    request = pending_pb2.CancelPendingRequest(
        topic=of.topic,
        filter=_wire(of),
        from_due_ms=of.from_ms,
        to_due_ms=of.to_ms,
        key_prefix=of.key_prefix,
    )
    return await sum_of_pages(channel, CANCEL_PENDING, request, PendingCancelled(), on_progress)


async def reschedule_pending(
    channel: Channel,
    of: Range,
    due_ms: int,
    on_progress: Callable[[PendingRescheduled], None] | None,
) -> PendingRescheduled:
    """Move all that match to one due time. Raises HourwheelErrors; to call again is safe."""
    request = pending_pb2.ReschedulePendingRequest(
        topic=of.topic,
        filter=_wire(of),
        from_due_ms=of.from_ms,
        to_due_ms=of.to_ms,
        key_prefix=of.key_prefix,
        new_due_ms=due_ms,
    )
    return await sum_of_pages(
        channel, RESCHEDULE_PENDING, request, PendingRescheduled(), on_progress
    )


def _list_request(of: Range) -> admin_pb2.ListPendingRequest:
    return admin_pb2.ListPendingRequest(
        topic=of.topic,
        filter=_wire(of),
        from_due_ms=of.from_ms,
        to_due_ms=of.to_ms,
        key_prefix=of.key_prefix,
    )


def _wire(of: Range) -> filter_pb2.FilterExpression | None:
    return None if of.wanted is None else filter_to_wire(of.wanted)


def _message(message: admin_pb2.PendingMessage, *, with_body: bool) -> PendingMessage:
    raw = message.meta.SerializeToString() if message.HasField("meta") else b""
    return PendingMessage(
        message_id=message_id.parse(message.message_id),
        due_ms=message.due_ms,
        store_ms=message.store_ms,
        meta=decode(raw) if raw else NO_META,
        body_bytes=message.body_bytes,
        body=message.body if with_body and not message.is_corrupt else None,
        is_corrupt=message.is_corrupt,
    )


class PendingAdmin:
    """What `AsyncAdmin` does with what is scheduled."""

    _channel: Channel

    def list_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        *,
        from_ms: int = 0,
        to_ms: int = 0,
        key_prefix: str = "",
        page_size: int = PAGE_SIZE,
        with_bodies: bool = False,
    ) -> AsyncIterator[PendingMessage]:
        """The pending messages of a topic, by due time, then in the order of acceptance.

        What stays pending while this goes on comes once; what is published, released or cancelled
        meanwhile may come or not. Retries are no part of it: they were released before.

        Args:
            topic: the topic.
            filter: tags, or `Sql("...")`; None: everything. Nodes always check it exactly.
            from_ms: due at or after this instant, in milliseconds since the Unix epoch.
            to_ms: due before this instant; 0: no bound.
            key_prefix: instead of a filter: what a key of theirs begins with.
            page_size: how many are fetched at once, 1 to 1,000.
            with_bodies: whether bodies are wanted, too.

        Raises:
            UnknownTopic: there is none.
            InvalidFilter: `params["position"]` says where.
            InvalidDueTime: a bound lies before 2001: seconds by mistake. Or it is negative, or no
                whole number.
            InvalidArgument: `page_size` is less than 1, or no whole number; or both a filter and a
                key prefix are given.
            FailedPrecondition: a node of an earlier version does not choose by keys.
        """
        check_count(page_size, "page_size", at_least=1)
        of = range_of(topic, as_filter(filter), from_ms, to_ms, key_prefix)
        return list_pending(self._channel, of, page_size=page_size, with_bodies=with_bodies)

    async def count_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        *,
        from_ms: int = 0,
        to_ms: int = 0,
        key_prefix: str = "",
    ) -> PendingCount:
        """How many pending messages match. See `list_pending`."""
        of = range_of(topic, as_filter(filter), from_ms, to_ms, key_prefix)
        return await count_pending(self._channel, of)

    async def cancel_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        *,
        from_ms: int = 0,
        to_ms: int = 0,
        key_prefix: str = "",
        on_progress: Callable[[PendingCancelled], None] | None = None,
    ) -> PendingCancelled:
        """Cancel all pending messages that match, but none published after this has begun.

        Args:
            topic: the topic.
            filter: tags, or `Sql("...")`; "*" stands for all.
            from_ms: see `list_pending`.
            to_ms: see `list_pending`.
            key_prefix: instead of a filter: what a key of theirs begins with.
            on_progress: called now and then with what is done so far.

        Raises:
            HourwheelError: a call failed; what is cancelled stays so, and calling again is safe.
        """
        of = range_of(topic, as_filter(filter), from_ms, to_ms, key_prefix)
        return await cancel_pending(self._channel, of, on_progress)

    async def reschedule_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        *,
        due_ms: int,
        from_ms: int = 0,
        to_ms: int = 0,
        key_prefix: str = "",
        on_progress: Callable[[PendingRescheduled], None] | None = None,
    ) -> PendingRescheduled:
        """Move all pending messages that match to one due time, but none published meanwhile.

        Args:
            topic: the topic.
            filter: tags, or `Sql("...")`; "*" stands for all.
            due_ms: when they are to be due, in milliseconds since the Unix epoch; past: at once.
            from_ms: see `list_pending`.
            to_ms: see `list_pending`.
            key_prefix: instead of a filter: what a key of theirs begins with.
            on_progress: called now and then with what is done so far.

        Raises:
            InvalidDueTime: `due_ms` lies before 2001, or is no whole number.
            BeyondHorizon: it lies too far ahead.
            TooManyMoved: see limits; those before stay moved.
            HourwheelError: a call failed; what is moved stays so. Calling again with the same
                `due_ms` is safe, and moves the rest.
        """
        check_instant(due_ms)
        of = range_of(topic, as_filter(filter), from_ms, to_ms, key_prefix)
        return await reschedule_pending(self._channel, of, due_ms, on_progress)
