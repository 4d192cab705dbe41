"""AdminService's calls about what is pending: requests checked, pages put into messages."""

import asyncio
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from hourwheel import errors, limits
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import pending_pb2
from node.api.checks import check_at_most, check_topic, due_range
from node.api.quota_gate import QuotaGate
from node.catalog.filter_cache import read_filter
from node.contracts.broker import EnginePort
from node.contracts.pending_page import PendingPart
from node.contracts.pending_token import PendingQuery

_Request: TypeAlias = (
    wire.ListPendingRequest
    | pending_pb2.CancelPendingRequest
    | pending_pb2.ReschedulePendingRequest
)
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
        key_prefix=query.key_prefix,
    )
    for part in page.parts:
        await _add(response, part)
    return response


async def cancel_pending(
    engine: EnginePort, request: pending_pb2.CancelPendingRequest
) -> pending_pb2.CancelPendingResponse:
    """Cancel a page of them."""
    page = await engine.cancel_pending(await _choice(request), request.page_token)
    return pending_pb2.CancelPendingResponse(
        cancelled_count=page.changed_count,
        already_released_count=page.missed_count,
        scanned_count=page.scanned_count,
        corrupt_count=page.corrupt_count,
        next_page_token=page.next_token,
    )


async def reschedule_pending(
    engine: EnginePort, quotas: QuotaGate, request: pending_pb2.ReschedulePendingRequest
) -> pending_pb2.ReschedulePendingResponse:
    """Move a page of them."""
    if not 0 < request.new_due_ms <= DUE_MS_MAX:
        raise errors.InvalidDueTime("new_due_ms is no due time", due_ms=request.new_due_ms)
    query = replace(await _choice(request), new_due_ms=request.new_due_ms)
    page = await quotas.moving(
        lambda: engine.reschedule_pending(query, request.page_token),
        lambda it: np.full(it.changed_count, query.new_due_ms, np.int64),
    )
    return pending_pb2.ReschedulePendingResponse(
        rescheduled_count=page.changed_count,
        missed_count=page.missed_count,
        scanned_count=page.scanned_count,
        corrupt_count=page.corrupt_count,
        next_page_token=page.next_token,
    )


async def _choice(
    request: pending_pb2.CancelPendingRequest | pending_pb2.ReschedulePendingRequest,
) -> PendingQuery:
    """What is to be changed, which somebody might forget to say. Raises as `_query`."""
    if not (request.filter.text or request.key_prefix):
        raise errors.InvalidFilter('a filter must be given; "*" stands for all', position=0)
    return await _query(request)


async def _query(request: _Request) -> PendingQuery:
    """What is asked for. Raises InvalidTopic, InvalidFilter, InvalidArgument."""
    prefix = request.key_prefix
    if len(prefix.encode()) > limits.KEY_BYTES_MAX or (prefix and request.HasField("filter")):
        raise errors.InvalidArgument(
            f"a key prefix has at most {limits.KEY_BYTES_MAX} bytes, and stands without a filter",
            field="key_prefix",
        )
    wanted = FilterExpression.everything()
    if request.HasField("filter"):
        wanted = filter_from_wire(request.filter)
        await read_filter(wanted)
    check_topic(request.topic)
    low, high = due_range(request.from_due_ms, request.to_due_ms)
    return PendingQuery(request.topic, wanted, low, high, prefix)


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
