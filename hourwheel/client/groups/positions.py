"""Where a group begins, and goes on, in a topic."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hourwheel.errors import InvalidArgument, InvalidDueTime
from hourwheel.formats.message_id import MessageId
from hourwheel.instants import check_instant, instant_to_ms
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import RESET_GROUP, SKIP
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2, groups_pb2

_STARTS: Final = {"first": groups_pb2.START_AT_FIRST, "now": groups_pb2.START_AT_NOW}
_ACTIONS: Final = {
    "retry": groups_pb2.UNBLOCK_ACTION_RETRY,
    "skip": groups_pb2.UNBLOCK_ACTION_UNSPECIFIED,
    "dead-letter": groups_pb2.UNBLOCK_ACTION_DEAD_LETTER,
}
_ORDERS: Final = {
    "none": groups_pb2.GROUP_ORDER_NONE,
    "block": groups_pb2.GROUP_ORDER_BLOCK,
    "dead-letter": groups_pb2.GROUP_ORDER_DEAD_LETTER,
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a group goes on behind."""

    skipped_count: int
    """Messages that it does not get, those included that were leased."""
    positions: tuple[int, ...]
    """Of each queue of the topic, where it goes on, if not behind that already."""


@dataclass(frozen=True, slots=True)
class GroupReset:
    """What a reset comes to."""

    again_count: int
    """Messages that the group gets again: it was done with them, or had filtered them."""
    skipped_count: int
    """Messages that it had still to do, and does not get."""
    retries_dropped_count: int
    """Released retries that it had still to do. Those not yet due are dropped uncounted."""
    unresolved_count: int
    """Messages that it has to do from now on."""
    positions: tuple[int, ...]
    """Of each queue of the topic, where it begins."""


class SkipAdmin:
    """What `AsyncAdmin` does with the positions of groups."""

    _channel: Channel

    async def skip(
        self,
        group: str,
        topic: str,
        before: int | datetime | None = None,
        *,
        positions: Sequence[int] = (),
    ) -> Skipped:
        """Let a group go on behind some of a topic's messages, for good.

        The group does not get them; other groups do. Its consumers may go on meanwhile: what they
        hold of these messages, they need not acknowledge (`StaleReceipt`).

        Args:
            group: the group; it has received from the topic, or was subscribed to it.
            topic: the topic.
            before: all that was released before this instant, in milliseconds since the Unix epoch
                or as a datetime, and retries that were due before it; None: before now.
            positions: instead of that, of each queue of the topic where to go on; behind its own
                those of priorities that it ever had, the highest first, or none of these. What
                nothing is said of stays, and so do retries.

        Raises:
            InvalidDueTime: `before` lies before 2001, or has no time zone.
            InvalidArgument: `before` is in the future, or there are not as many positions as
                queues, or one is behind its queue's end.
            FailedPrecondition: the group does not read the topic, or a node of an earlier version
                is in the cluster.
            Timeout: it is unknown whether it was done.
        """
        before_ms = 0 if before is None else _instant_ms(before)
        if before_ms and positions:
            raise InvalidArgument("give an instant or positions, and not both")
        request = groups_pb2.SkipRequest(
            group=group, topic=topic, before_ms=before_ms, positions=positions
        )
        answer = await self._channel.call(SKIP, request)
        return Skipped(answer.skipped_count, tuple(answer.positions))

    async def reset_group(
        self,
        group: str,
        topic: str,
        to: str | int | datetime | None = None,
        *,
        positions: Sequence[int] = (),
        count_only: bool = False,
    ) -> GroupReset:
        """Let a group begin anew in a topic, further back or further on, while it runs.

        It gets all that stands there and behind, as if it had never had it, and nothing from before
        it: retries are dropped, wherever they are. Dead letters stay. Its consumers may go on
        meanwhile; receipts of what they hold of the topic are stale (`StaleReceipt`).

        Args:
            group: the group; it has received from the topic, or was subscribed to it.
            topic: the topic; none of the cluster's own.
            to: "first", what is still there; "now"; or an instant, in milliseconds since the Unix
                epoch or as a datetime: with what was released then or later.
            positions: instead of that, of each queue of the topic the first position.
            count_only: tell what it would come to, and change nothing.

        Raises:
            NotRetained: retention has let go of some of it; `params["earliest_ms"]` says of what
                not.
            InvalidDueTime: `to` lies before 2001, or has no time zone.
            InvalidArgument: neither or both of `to` and positions are given; an instant in the
                future; not as many positions as queues, or one behind its queue's end.
            FailedPrecondition: the group does not read the topic, or that is the cluster's own.
            FeatureLevelTooLow: a node of an earlier version is in the cluster.
            Timeout: it is unknown whether it was done. To call again is safe, but delivers again
                what was done since.
        """
        if (to is None) == (not positions):
            raise InvalidArgument("give where to begin, or positions")
        request = groups_pb2.ResetGroupRequest(
            group=group, topic=topic, positions=positions, count_only=count_only
        )
        if to is not None:
            request.to, request.to_ms = start_to_wire(to)
        answer = await self._channel.call(RESET_GROUP, request)
        return GroupReset(
            answer.again_count,
            answer.skipped_count,
            answer.retries_dropped_count,
            answer.unresolved_count,
            tuple(answer.positions),
        )

    async def unblock(
        self, group: str, topic: str, message_ids: Sequence[MessageId], action: str = "retry"
    ) -> int:
        """Let an ordered group go on with keys of which a message has used up its attempts.

        Args:
            group: an ordered group.
            topic: the topic.
            message_ids: of `GroupLag.blocked_message_ids`, say, or such as wait to be tried again.
            action: "retry": it gets them again, as if for the first time; "skip": it does not get
                them; "dead-letter": they become dead letters.

        Returns:
            How many: what is finished or leased by now is left alone.

        Raises:
            InvalidArgument: more than 1,000 ids, or none, or there is no such action.
            FailedPrecondition: the group is not ordered, or does not read the topic.
            Timeout: it is unknown whether it was done. To call again is safe.
        """
        if action not in _ACTIONS or not message_ids:
            raise InvalidArgument(f"ids and one of {', '.join(_ACTIONS)} are needed")
        request = groups_pb2.SkipRequest(
            group=group,
            topic=topic,
            message_ids=list(map(str, message_ids)),
            action=_ACTIONS[action],
        )
        return int((await self._channel.call(SKIP, request)).skipped_count)


def _instant_ms(given: int | datetime) -> int:
    """Raises InvalidDueTime: no instant, or seconds by mistake."""
    instant_ms = instant_to_ms(given) if isinstance(given, datetime) else given
    if type(instant_ms) is not int or instant_ms > DUE_MS_MAX:
        raise InvalidDueTime(f"an instant is a datetime, or milliseconds since 1970, not {given!r}")
    check_instant(instant_ms)
    return instant_ms


def set_start(settings: admin_pb2.GroupSettings, start: object) -> None:
    """Put where new subscriptions begin into a group's settings.

    Raises:
        InvalidArgument: it is neither "first" nor "now", nor an instant.
        InvalidDueTime: it is one before 2001, or without a time zone.
    """
    if start is not None:
        settings.start_at, settings.start_ms = start_to_wire(start)


def start_to_wire(start: object) -> tuple[groups_pb2.StartAt, int]:
    """The words or the instant of a caller. Raises as `set_start`."""
    if isinstance(start, str) and start in _STARTS:
        return _STARTS[start], 0
    if isinstance(start, int | datetime):
        return groups_pb2.START_AT_TIME, _instant_ms(start)
    raise InvalidArgument(f'a start is "first", "now" or an instant, not {start!r}')


def start_of(settings: admin_pb2.GroupSettings) -> str | int:
    """The same of an answer: "first", "now", or milliseconds since the Unix epoch."""
    names = {value: name for name, value in _STARTS.items()}
    return settings.start_ms or names.get(settings.start_at, "first")


def set_order(settings: admin_pb2.GroupSettings, order: object) -> None:
    """Put into a group's settings whether it is ordered. Raises InvalidArgument: no such order."""
    if order is None:
        return
    if order not in _ORDERS:
        raise InvalidArgument(f"an order is one of {', '.join(_ORDERS)}, and not {order!r}")
    settings.order = _ORDERS[str(order)]


def order_of(settings: admin_pb2.GroupSettings) -> str:
    """The same of an answer."""
    names = {value: name for name, value in _ORDERS.items()}
    return names.get(settings.order, "none")


def set_keeps_expired(settings: admin_pb2.GroupSettings, is_kept: object) -> None:
    """Put into a group's settings what becomes of what expires; None: as it was.

    Raises:
        InvalidArgument: neither True nor False.
    """
    if is_kept is None:
        return
    if not isinstance(is_kept, bool):
        raise InvalidArgument(f"keeps_expired is True or False, and not {is_kept!r}")
    settings.keeps_expired = is_kept
