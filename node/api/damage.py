"""AdminService's ListDamaged and DiscardDamaged: requests checked, answers put into messages."""

from typing import Final

from hourwheel import errors, limits
from hourwheel.formats import message_id
from hourwheel.v1 import admin_pb2 as wire
from node.api.names import check_group
from node.contracts.broker import DamagedInfo, EnginePort

_PAGE_SIZE_DEFAULT: Final = 100
_COUNT_MAX: Final = limits.DAMAGED_PAGE_SIZE_MAX


async def list_damaged(
    engine: EnginePort, request: wire.ListDamagedRequest
) -> wire.ListDamagedResponse:
    """A page of damaged messages."""
    count = request.page_size or _PAGE_SIZE_DEFAULT
    _check_at_most("page_size", count)
    page = await engine.list_damaged(
        request.group, request.topic, request.page_token, count_max=count
    )
    return wire.ListDamagedResponse(
        messages=map(_damaged, page.messages), next_page_token=page.next_token
    )


async def discard_damaged(
    engine: EnginePort, request: wire.DiscardDamagedRequest
) -> wire.DiscardDamagedResponse:
    """Give some of them up."""
    check_group(request.group)
    if request.all == bool(request.message_ids):
        raise errors.InvalidArgument("name messages, or ask for all", field="message_ids")
    _check_at_most("message_ids", len(request.message_ids))
    ids = None if request.all else [message_id.parse(one) for one in request.message_ids]
    gone, left = await engine.discard_damaged(
        request.group, request.topic, ids, count_max=_COUNT_MAX
    )
    return wire.DiscardDamagedResponse(messages=map(_damaged, gone), left_count=left)


def _check_at_most(field: str, value: int) -> None:
    if value > _COUNT_MAX:
        raise errors.InvalidArgument(
            f"{field} is {value}; at most {_COUNT_MAX} are allowed",
            field=field,
            value=value,
            most=_COUNT_MAX,
        )


def _damaged(one: DamagedInfo) -> wire.DamagedMessage:
    return wire.DamagedMessage(
        message_id=str(one.message_id),
        group=one.group,
        topic=one.topic,
        stands_in=one.stands_in,
        due_ms=one.due_ms,
        attempt=one.attempt,
        body_bytes=one.body_bytes,
        place=one.place,
        found_ms=one.found_ms,
        tries=one.tries,
    )
