"""AdminService's ListPending and CancelPending: requests checked, pages put into messages."""

import asyncio
from typing import Final

from google.protobuf.message import DecodeError

from hourwheel import errors, limits
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2 as wire
from node.api.checks import check_at_most, check_topic
from node.catalog.filter_cache import read_filter
from node.contracts.broker import EnginePort
from node.contracts.pending_page import PendingPart
from node.contracts.pending_token import PendingQuery

PAGE_SIZE_DEFAULT: Final = 100
_BUILT_AT_ONCE: Final = 200
"""Messages of an answer that are put together before the loop goes on: about a millisecond."""


async def list_pending(
    engine: EnginePort, request: wire.ListPendingRequest
) -> wire.ListPendingResponse:
    """A page of pending messages."""
    query = await _query(request)
    count = request.page_size or PAGE_SIZE_DEFAULT
    check_at_most("page_size", count, limits.PENDING_PAGE_SIZE_MAX)
    page = await engine.list_pending(
        query,
        request.page_token,
        count_max=0 if request.count_only else count,
        with_bodies=request.with_bodies,
    )
    response = wire.ListPendingResponse(
        next_page_token=page.next_token,
        scanned_count=page.scanned_count,
        matched_count=page.matched_count,
        corrupt_count=page.corrupt_count,
    )
    for part in page.parts:
        await _add(response, part)
    return response


async def cancel_pending(
    engine: EnginePort, request: wire.CancelPendingRequest
) -> wire.CancelPendingResponse:
    """Cancel a page of them."""
    if not request.filter.text:
        raise errors.InvalidFilter('a filter must be given; "*" stands for all', position=0)
    page = await engine.cancel_pending(await _query(request), request.page_token)
    return wire.CancelPendingResponse(
        cancelled_count=page.cancelled_count,
        already_released_count=page.already_released_count,
        scanned_count=page.scanned_count,
        corrupt_count=page.corrupt_count,
        next_page_token=page.next_token,
    )


async def _query(request: wire.ListPendingRequest | wire.CancelPendingRequest) -> PendingQuery:
    """What is asked for. Raises InvalidTopic, InvalidFilter, InvalidArgument."""
    wanted = FilterExpression.everything()
    if request.HasField("filter"):
        wanted = filter_from_wire(request.filter)
        await read_filter(wanted)
    check_topic(request.topic)
    low, high = request.from_due_ms, request.to_due_ms
    for name, value in (("from_due_ms", low), ("to_due_ms", high)):
        if not 0 <= value <= DUE_MS_MAX:
            raise errors.InvalidArgument(f"{name} is no instant: {value}", field=name, value=value)
    if high and high < low:
        raise errors.InvalidArgument("to_due_ms is before from_due_ms", field="to_due_ms")
    return PendingQuery(request.topic, wanted, low, high)


async def _add(response: wire.ListPendingResponse, part: PendingPart) -> None:
    units = part.units
    rows = zip(
        part.printable_ids(),
        units["due_ms"].tolist(),
        units["store_ms"].tolist(),
        units["body_len"].tolist(),
        part.blobs,
        strict=True,
    )
    for ordinal, (message_id, due_ms, store_ms, body_bytes, blob) in enumerate(rows, 1):
        message = response.messages.add(
            message_id=message_id,
            due_ms=due_ms,
            store_ms=store_ms,
            body_bytes=body_bytes,
            body=blob.body,
            is_corrupt=blob.is_corrupt,
        )
        if blob.meta:
            try:
                message.meta.MergeFromString(blob.meta)
            except DecodeError:  # it is what its producer sent, who could send anything
                message.ClearField("meta")
                message.is_corrupt = True
        if not ordinal % _BUILT_AT_ONCE:
            await asyncio.sleep(0)
