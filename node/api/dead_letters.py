"""AdminService's ListDeadLetters and RedriveDeadLetters: requests checked, pages answered."""

import asyncio
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from hourwheel import errors, limits
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.formats import message_id
from hourwheel.v1 import groups_pb2
from node.access.control import AccessControl
from node.access.permissions import LOOK_AT_TOPIC, topic_resource
from node.api.checks import check_at_most, check_group, check_topic
from node.catalog.filter_cache import read_filter
from node.contracts.broker import EnginePort
from node.contracts.dead_letters import DeadLetterMessage, DeadLetterQuery

_Request: TypeAlias = groups_pb2.ListDeadLettersRequest | groups_pb2.RedriveDeadLettersRequest
_PAGE_SIZE_DEFAULT: Final = 100
_BUILT_AT_ONCE: Final = 200
"""Messages of an answer that are put together before the loop goes on: about a millisecond."""


async def list_dead_letters(
    engine: EnginePort, access: AccessControl, request: groups_pb2.ListDeadLettersRequest
) -> groups_pb2.ListDeadLettersResponse:
    """A page of a group's dead letters. Topics that the caller may not look at have no name."""
    query = await _query(access, request)
    count = request.page_size or _PAGE_SIZE_DEFAULT
    check_at_most("page_size", count, limits.DEAD_LETTER_PAGE_SIZE_MAX)
    page = await engine.list_dead_letters(
        query, request.page_token, count_max=count, with_bodies=request.with_bodies
    )
    response = groups_pb2.ListDeadLettersResponse(
        next_page_token=page.next_token, scanned_count=page.scanned_count
    )
    for ordinal, one in enumerate(page.messages, 1):
        may_look = not access.policy.is_on or access.may_look(topic_resource(one.topic))
        _add(response, one, one.topic if may_look else "")
        if not ordinal % _BUILT_AT_ONCE:
            await asyncio.sleep(0)
    return response


async def redrive_dead_letters(
    engine: EnginePort, access: AccessControl, request: groups_pb2.RedriveDeadLettersRequest
) -> groups_pb2.RedriveDeadLettersResponse:
    """Give a page of them to their group again."""
    if not (request.filter.text or request.message_ids):
        raise errors.InvalidFilter('a filter or ids must be given; "*" stands for all', position=0)
    page = await engine.redrive(await _query(access, request), request.page_token)
    return groups_pb2.RedriveDeadLettersResponse(
        redriven_count=page.redriven_count,
        unsubscribed_count=page.unsubscribed_count,
        corrupt_count=page.corrupt_count,
        scanned_count=page.scanned_count,
        next_page_token=page.next_token,
    )


async def _query(access: AccessControl, request: _Request) -> DeadLetterQuery:
    """What is asked for. Raises InvalidGroup, InvalidTopic, InvalidFilter, InvalidArgument."""
    check_group(request.group)
    if request.topic:
        check_topic(request.topic)
        access.check(LOOK_AT_TOPIC, request)
    wanted: FilterExpression | None = None
    if request.HasField("filter"):
        wanted = filter_from_wire(request.filter)
        await read_filter(wanted)
    count = len(request.message_ids)
    check_at_most("message_ids", count, limits.DEAD_LETTER_PAGE_SIZE_MAX)
    ids = frozenset(map(message_id.parse, request.message_ids)) if count else None
    return DeadLetterQuery(request.group, request.topic, wanted, ids)


def _add(response: groups_pb2.ListDeadLettersResponse, one: DeadLetterMessage, topic: str) -> None:
    message = response.messages.add(
        message_id=str(one.message_id),
        topic=topic,
        due_ms=one.message_id.due_ms,
        last_due_ms=one.last_due_ms,
        attempts=one.attempts,
        reason=groups_pb2.DeadLetterReason.Name(one.reason),
        body_bytes=one.body_bytes,
        body=one.body,
        is_corrupt=one.is_corrupt,
        rejected_because=one.rejected_because,
    )
    if one.meta:
        try:
            message.meta.MergeFromString(one.meta)
        except DecodeError:  # it is what its producer sent, who could send anything
            message.ClearField("meta")
            message.is_corrupt = True
