"""A group's settings on the wire, and a broadcast member's: what may be asked for."""

from typing import Final

from hourwheel import errors, limits
from hourwheel.delay_levels import RetryPreset
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.formats import message_id
from hourwheel.formats.member_group import is_member_group, member_group_name
from hourwheel.types import DUE_MS_MAX, QUEUE_COUNT_MAX, Position
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import groups_pb2
from hourwheel.v1.consumer_pb2 import (
    JoinBroadcastRequest,
    LeaveBroadcastRequest,
    ReceiveRequest,
)
from node.api.checks import check_at_least, check_at_most, check_group, check_topic
from node.contracts.broadcast import Joining
from node.contracts.broker import GroupInfo, GroupSettings
from node.contracts.group_positions import ResetTarget, UnblockAction, Unblocking
from storage.views.catalog_items import START_FIRST_MS, START_NOW_MS, GroupOrder

_ATTEMPTS_MAX: Final = 1_000
_JITTER_PERCENT_MAX: Final = 100
_PRESETS: Final[dict[int, RetryPreset]] = {groups_pb2.RETRY_PRESET_ROCKETMQ: RetryPreset.ROCKETMQ}
_LIMITS: Final = {
    "in_flight_max": limits.GROUP_IN_FLIGHT_MAX,
    "per_second_max": limits.GROUP_PER_SECOND_MAX,
}
_START_NAMES: Final = {
    START_FIRST_MS: groups_pb2.START_AT_FIRST,
    START_NOW_MS: groups_pb2.START_AT_NOW,
}
_ORDERS: Final[dict[groups_pb2.GroupOrder, GroupOrder | None]] = {
    groups_pb2.GROUP_ORDER_UNSPECIFIED: None,
    groups_pb2.GROUP_ORDER_NONE: GroupOrder.NONE,
    groups_pb2.GROUP_ORDER_BLOCK: GroupOrder.BLOCK,
    groups_pb2.GROUP_ORDER_DEAD_LETTER: GroupOrder.DEAD_LETTER,
}
_ORDER_NAMES: Final = {order: number for number, order in _ORDERS.items() if order is not None}
_RESET_TO: Final[dict[int, int | None]] = {
    groups_pb2.START_AT_FIRST: None,
    groups_pb2.START_AT_NOW: 0,
}
_STARTS: Final[dict[int, int | None]] = {
    groups_pb2.START_AT_UNSPECIFIED: None,
    groups_pb2.START_AT_FIRST: START_FIRST_MS,
    groups_pb2.START_AT_NOW: START_NOW_MS,
}


def reset_target_of(request: groups_pb2.ResetGroupRequest) -> ResetTarget:
    """Where a group shall begin anew. Raises InvalidArgument: nowhere, or in two places."""
    check_at_most("the number of positions", len(request.positions), QUEUE_COUNT_MAX)
    is_time = request.to == groups_pb2.START_AT_TIME
    if is_time != bool(request.to_ms) or bool(request.to) == bool(request.positions):
        raise errors.InvalidArgument("give FIRST, NOW, TIME and to_ms, or positions", field="to")
    if is_time:
        check_at_least("to_ms", request.to_ms, 1)
        return ResetTarget(request.to_ms)
    if request.positions:
        return ResetTarget(None, tuple(map(Position, request.positions)))
    if request.to not in _RESET_TO:
        raise errors.InvalidArgument("to is not known", field="to")
    return ResetTarget(_RESET_TO[request.to])


def group_settings(requested: wire.GroupSettings) -> GroupSettings:
    """What a caller wants. Raises InvalidArgument: a value out of range."""
    check_at_most("settings.attempts_max", requested.attempts_max, _ATTEMPTS_MAX)
    for name in ("retry_delay_ms", "retry_delay_ms_max"):
        check_at_most(f"settings.{name}", getattr(requested, name), limits.NACK_DELAY_MS_MAX)
    if requested.invisible_ms:
        check_at_most("settings.invisible_ms", requested.invisible_ms, limits.INVISIBLE_MS_MAX)
        check_at_least("settings.invisible_ms", requested.invisible_ms, limits.INVISIBLE_MS_MIN)
    jitter_percent: int | None = None
    if requested.HasField("retry_jitter_percent"):
        jitter_percent = requested.retry_jitter_percent
        check_at_most("settings.retry_jitter_percent", jitter_percent, _JITTER_PERCENT_MAX)
    found: dict[str, int | None] = {}
    for name, most in _LIMITS.items():
        found[name] = getattr(requested, name) if requested.HasField(name) else None
        check_at_most(f"settings.{name}", found[name] or 0, most)
    if requested.order not in _ORDERS:
        raise errors.InvalidArgument("settings.order is not known", field="settings.order")
    return GroupSettings(
        attempts_max=requested.attempts_max,
        invisible_ms=requested.invisible_ms,
        retry_delay_ms=requested.retry_delay_ms,
        retry_delay_ms_max=requested.retry_delay_ms_max,
        retry_delays_ms=_retry_delays_ms(requested.retry_delays)
        if requested.HasField("retry_delays")
        else None,
        retry_jitter_percent=jitter_percent,
        start_ms=_start_ms(requested),
        order=_ORDERS[requested.order],
        keeps_expired=requested.keeps_expired if requested.HasField("keeps_expired") else None,
        **found,
    )


def _start_ms(requested: wire.GroupSettings) -> int | None:
    """Where new subscriptions begin; None: as it was."""
    if requested.start_at == groups_pb2.START_AT_TIME:
        check_at_least("settings.start_ms", requested.start_ms, START_NOW_MS + 1)
        check_at_most("settings.start_ms", requested.start_ms, DUE_MS_MAX)
        return requested.start_ms
    if requested.start_ms:
        raise errors.InvalidArgument(
            "settings.start_ms goes with START_AT_TIME", field="settings.start_ms"
        )
    if requested.start_at not in _STARTS:
        raise errors.InvalidArgument("settings.start_at is not known", field="settings.start_at")
    return _STARTS[requested.start_at]


def _retry_delays_ms(requested: groups_pb2.RetryDelays) -> tuple[int, ...]:
    """Step by step; empty: they double."""
    name = "settings.retry_delays"
    if requested.preset:
        if requested.delays_ms:
            raise errors.InvalidArgument(f"{name} has both a list and a preset", field=name)
        preset = _PRESETS.get(requested.preset)
        if preset is None:
            raise errors.InvalidArgument(f"{name} has a preset that is not known", field=name)
        return tuple(preset.value)
    check_at_most(f"the number of {name}", len(requested.delays_ms), limits.RETRY_DELAY_COUNT_MAX)
    for delay_ms in requested.delays_ms:
        check_at_least(f"{name}.delays_ms", delay_ms, 1)
        check_at_most(f"{name}.delays_ms", delay_ms, limits.NACK_DELAY_MS_MAX)
    return tuple(requested.delays_ms)


def settings_to_wire(group: GroupInfo) -> wire.GroupSettings:
    """A group's settings as an answer has them."""
    return wire.GroupSettings(
        attempts_max=group.attempts_max,
        invisible_ms=group.invisible_ms,
        retry_delay_ms=group.retry_delay_ms,
        retry_delay_ms_max=group.retry_delay_ms_max,
        retry_delays=groups_pb2.RetryDelays(delays_ms=group.retry_delays_ms),
        retry_jitter_percent=group.retry_jitter_percent,
        start_at=_START_NAMES.get(group.start_ms, groups_pb2.START_AT_TIME),
        start_ms=0 if group.start_ms in _START_NAMES else group.start_ms,
        in_flight_max=group.in_flight_max,
        per_second_max=group.per_second_max,
        order=_ORDER_NAMES[group.order],
        keeps_expired=group.keeps_expired,
    )


def unblocking_of(request: groups_pb2.SkipRequest) -> Unblocking:
    """Which messages an ordered group is to go on with, and how. Raises InvalidArgument."""
    check_at_most("message_ids", len(request.message_ids), limits.DEAD_LETTER_PAGE_SIZE_MAX)
    if request.action not in groups_pb2.UnblockAction.values():
        raise errors.InvalidArgument("this action is not known", field="action")
    ids = tuple(map(message_id.parse, request.message_ids))
    return Unblocking(ids, UnblockAction(request.action))


# --- members of broadcasts

_MEMBER_STARTS: Final[dict[int, int]] = {
    groups_pb2.START_AT_UNSPECIFIED: START_NOW_MS,
    groups_pb2.START_AT_NOW: START_NOW_MS,
    groups_pb2.START_AT_FIRST: START_FIRST_MS,
}


def member_of(request: JoinBroadcastRequest) -> str:
    """The member's name: its own, or a unique one."""
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
        _member_start_ms(request),
        idle_ms,
        filter_from_wire(request.filter) if request.HasField("filter") else None,
    )


def _member_start_ms(request: JoinBroadcastRequest) -> int:
    if request.start == groups_pb2.START_AT_TIME:
        check_at_least("start_ms", request.start_ms, START_NOW_MS + 1)
        check_at_most("start_ms", request.start_ms, DUE_MS_MAX)
        return request.start_ms
    if request.start_ms:
        raise errors.InvalidArgument("start_ms goes with START_AT_TIME", field="start_ms")
    if request.start not in _MEMBER_STARTS:
        raise errors.InvalidArgument("start is not known", field="start")
    return _MEMBER_STARTS[request.start]


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
