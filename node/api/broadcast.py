"""Joining a broadcast, on the wire: what may be asked for."""

from typing import Final

from hourwheel import errors, limits
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.formats.member_group import is_member_group, member_group_name
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import groups_pb2
from hourwheel.v1.consumer_pb2 import (
    JoinBroadcastRequest,
    LeaveBroadcastRequest,
    ReceiveRequest,
)
from node.api.checks import check_at_least, check_at_most, check_group, check_topic
from node.contracts.broadcast import Joining
from storage.views.catalog_items import START_FIRST_MS, START_NOW_MS

_STARTS: Final[dict[int, int]] = {
    groups_pb2.START_AT_UNSPECIFIED: START_NOW_MS,
    groups_pb2.START_AT_NOW: START_NOW_MS,
    groups_pb2.START_AT_FIRST: START_FIRST_MS,
}


def member_of(request: JoinBroadcastRequest) -> str:
    """The member's name: its own, or one that nobody else has."""
    return request.member or f"{request.token:016x}"


def joined_group(request: JoinBroadcastRequest) -> str:
    """The group that it gets. Raises InvalidGroup."""
    return member_group_name(request.group, member_of(request))


def joining_of(request: JoinBroadcastRequest) -> Joining:
    """What is asked for. Raises InvalidGroup, InvalidTopic, InvalidArgument."""
    check_topic(request.topic)
    _check_token(request.token)
    idle_ms = request.idle_ms or limits.MEMBER_IDLE_MS_DEFAULT
    check_at_least("idle_ms", idle_ms, limits.MEMBER_IDLE_MS_MIN)
    check_at_most("idle_ms", idle_ms, limits.MEMBER_IDLE_MS_MAX)
    return Joining(
        joined_group(request),
        request.topic,
        request.token,
        _start_ms(request),
        idle_ms,
        filter_from_wire(request.filter) if request.HasField("filter") else None,
    )


def _start_ms(request: JoinBroadcastRequest) -> int:
    if request.start == groups_pb2.START_AT_TIME:
        check_at_least("start_ms", request.start_ms, START_NOW_MS + 1)
        check_at_most("start_ms", request.start_ms, DUE_MS_MAX)
        return request.start_ms
    if request.start_ms:
        raise errors.InvalidArgument("start_ms goes with START_AT_TIME", field="start_ms")
    if request.start not in _STARTS:
        raise errors.InvalidArgument("start is not known", field="start")
    return _STARTS[request.start]


def check_leaving(request: LeaveBroadcastRequest) -> None:
    """Raises InvalidGroup, InvalidArgument: it names no member."""
    check_group(request.group)
    if not is_member_group(request.group):
        raise errors.InvalidGroup(f"{request.group!r} is no member of a broadcast")
    _check_token(request.token)


def check_receiving(request: ReceiveRequest) -> None:
    """Raises InvalidArgument: a member without its token, or a token for no member."""
    if is_member_group(request.group) != bool(request.member_token):
        raise errors.InvalidArgument(
            "member_token goes with the group of a broadcast's member: see JoinBroadcast",
            field="member_token",
        )


def _check_token(token: int) -> None:
    if not token:
        raise errors.InvalidArgument("a member joins with a random token, not 0", field="token")
