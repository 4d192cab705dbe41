"""AdminService's ListDamaged and DiscardDamaged: requests checked, answers put into messages."""

from typing import Final

from hourwheel import errors, limits
from hourwheel.formats import message_id
from hourwheel.v1 import admin_pb2 as wire
from node.access.control import AccessControl
from node.access.permissions import LOOK_AT_TOPIC, group_resource, topic_resource
from node.api.checks import check_at_most, check_group
from node.contracts.broker import EnginePort
from node.contracts.damaged_messages import DamagedInfo

_PAGE_SIZE_DEFAULT: Final = 100
_COUNT_MAX: Final = limits.DAMAGED_PAGE_SIZE_MAX


async def list_damaged(
    engine: EnginePort, access: AccessControl, request: wire.ListDamagedRequest
) -> wire.ListDamagedResponse:
    """A page of damaged messages, of groups and topics that the caller may look at.

    A request without a group and a topic is for all of them: the caller may look at the cluster.
    """
    count = request.page_size or _PAGE_SIZE_DEFAULT
    check_at_most("page_size", count, _COUNT_MAX)
    page = await engine.list_damaged(
        request.group, request.topic, request.page_token, count_max=count
    )
    is_of_all = not (request.group or request.topic)
    return wire.ListDamagedResponse(
        messages=[
            _damaged(one, one.topic)
            for one in page.messages
            if is_of_all
            or (_shows_topic(access, one) and access.may_look(group_resource(one.group)))
        ],
        next_page_token=page.next_token,
    )


async def discard_damaged(
    engine: EnginePort, access: AccessControl, request: wire.DiscardDamagedRequest
) -> wire.DiscardDamagedResponse:
    """Give some of them up. A topic that the caller may not look at has no name in the answer."""
    if request.topic:
        access.check(LOOK_AT_TOPIC, request)
    check_group(request.group)
    if request.all == bool(request.message_ids):
        raise errors.InvalidArgument("name messages, or ask for all", field="message_ids")
    check_at_most("message_ids", len(request.message_ids), _COUNT_MAX)
    ids = None if request.all else [message_id.parse(one) for one in request.message_ids]
    gone, left = await engine.discard_damaged(
        request.group, request.topic, ids, count_max=_COUNT_MAX
    )
    messages = [_damaged(one, one.topic if _shows_topic(access, one) else "") for one in gone]
    return wire.DiscardDamagedResponse(messages=messages, left_count=left)


def _shows_topic(access: AccessControl, one: DamagedInfo) -> bool:
    return access.may_look(topic_resource(one.topic))


def _damaged(one: DamagedInfo, topic: str) -> wire.DamagedMessage:
    return wire.DamagedMessage(
        message_id=str(one.message_id),
        group=one.group,
        topic=topic,
        stands_in=one.stands_in if topic else "",
        due_ms=one.due_ms,
        attempt=one.attempt,
        body_bytes=one.body_bytes,
        place=one.place,
        found_ms=one.found_ms,
        tries=one.tries,
    )
