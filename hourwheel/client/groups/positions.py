"""Where a group begins, and goes on, in a topic."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hourwheel.errors import InvalidArgument, InvalidDueTime
from hourwheel.instants import check_instant, instant_to_ms
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import SKIP
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2, groups_pb2

_STARTS: Final = {"first": groups_pb2.START_AT_FIRST, "now": groups_pb2.START_AT_NOW}


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a group goes on behind."""

    skipped_count: int
    """Messages that it does not get, those included that were leased."""
    positions: tuple[int, ...]
    """Of each queue of the topic, where it goes on, if not behind that already."""


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
            positions: instead of that, of each queue of the topic where to go on. Retries stay.

        Raises:
            InvalidDueTime: `before` lies before 2001, or has no time zone.
            InvalidArgument: `before` is in the future, or there are not as many positions as
                queues, or one is behind its queue's end.
            FailedPrecondition: the group does not read the topic, or a node of an earlier version
                is in the cluster.
            Timeout: nobody knows whether it was done.
        """
        before_ms = 0 if before is None else _instant_ms(before)
        if before_ms and positions:
            raise InvalidArgument("give an instant or positions, and not both")
        request = groups_pb2.SkipRequest(
            group=group, topic=topic, before_ms=before_ms, positions=positions
        )
        answer = await self._channel.call(SKIP, request)
        return Skipped(answer.skipped_count, tuple(answer.positions))


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
    if isinstance(start, str):
        if start not in _STARTS:
            raise InvalidArgument(f'a start is "first", "now" or an instant, not {start!r}')
        settings.start_at = _STARTS[start]
    elif isinstance(start, int | datetime):
        settings.start_at, settings.start_ms = groups_pb2.START_AT_TIME, _instant_ms(start)
    elif start is not None:
        raise InvalidArgument(f'a start is "first", "now" or an instant, not {start!r}')


def start_of(settings: admin_pb2.GroupSettings) -> str | int:
    """The same of an answer: "first", "now", or milliseconds since the Unix epoch."""
    names = {value: name for name, value in _STARTS.items()}
    return settings.start_ms or names.get(settings.start_at, "first")
