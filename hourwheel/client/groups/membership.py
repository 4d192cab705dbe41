"""A consumer as the member of a broadcast: it gets every message, as each other member does.

The node makes a group for it, whose name the consumer receives by. What is released from `join` on
is kept for the member, also while it is away, up to `idle_ms`.
"""

import asyncio
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from hourwheel import errors
from hourwheel.client.groups.positions import start_to_wire
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire
from hourwheel.formats.member_group import member_group_name
from hourwheel.instants import count_of_ms
from hourwheel.limits import MEMBER_IDLE_MS_MAX, MEMBER_IDLE_MS_MIN
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import JOIN_BROADCAST, LEAVE_BROADCAST
from hourwheel.v1 import consumer_pb2, groups_pb2

_TOKEN_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Broadcast:
    """How a consumer is a member of a broadcast.

    Attributes:
        member: its name, such as a host's: after a restart it goes on where it was, and takes the
            place of the one that has the name. Empty: a unique one, which is forgotten when
            the consumer is closed.
        start: where a new member begins: "now", with what is released from then on; "first", with
            what is still there; or an instant.
        idle_ms: for how long it may be away, as a timedelta or in milliseconds, 10 s to 7 days:
            then it is forgotten, with what it had still to do. 0: 5 minutes.
        token: of this start of the member; 0: each consumer makes one. Consumers of one process
            that are the same member, for several topics, have the same.
    """

    member: str = ""
    start: str | int | datetime = "now"
    idle_ms: int | timedelta = 0
    token: int = 0


Wanted: TypeAlias = bool | Broadcast
"""What users say: True for a member without a name."""


def as_broadcast(given: Wanted) -> Broadcast | None:
    """What a caller says of it; None: no broadcast.

    Raises:
        InvalidArgument, InvalidDueTime: it is none, or one of its values makes no sense.
    """
    if isinstance(given, bool):
        return Broadcast() if given else None
    if not isinstance(given, Broadcast):
        raise errors.InvalidArgument(f"broadcast is True, False or a Broadcast, not {given!r}")
    start_to_wire(given.start)
    idle_ms = count_of_ms(given.idle_ms, "idle_ms")
    if idle_ms and not MEMBER_IDLE_MS_MIN <= idle_ms <= MEMBER_IDLE_MS_MAX:
        raise errors.InvalidArgument(
            f"idle_ms is {idle_ms}; {MEMBER_IDLE_MS_MIN} to {MEMBER_IDLE_MS_MAX} are allowed"
        )
    return given


class Membership:
    """Of one consumer. Belongs to one event loop."""

    def __init__(
        self,
        channel: Channel,
        broadcast: Broadcast,
        *,
        group: str,
        wanted: FilterExpression | None,
    ) -> None:
        """Nothing is said to a node yet.

        Raises:
            InvalidGroup: the broadcast or the member cannot be called so.
        """
        self._channel, self._broadcast, self._of = channel, broadcast, group
        self._filter = None if wanted is None else filter_to_wire(wanted)
        self.token = broadcast.token or secrets.randbits(_TOKEN_BITS) or 1
        self._member = broadcast.member or f"{self.token:016x}"
        self.group = member_group_name(group, self._member)
        """To receive, acknowledge and give back by."""
        self._joined: set[str] = set()
        self._missing: set[str] = set()
        """Topics that were not there when the member wanted to begin: all of it comes later."""
        self._lock = asyncio.Lock()

    async def join(self, topic: str) -> None:
        """Be a member for this topic when this returns. It costs a call once.

        Raises:
            UnknownTopic: there is none. When there is, it is received from its first message on.
            FailedPrecondition: there is an ordinary group of the broadcast's name.
            HourwheelError: see `hourwheel.errors`; to call again is safe.
        """
        if topic in self._joined:
            return
        async with self._lock:
            if topic in self._joined:
                return
            start, start_ms = start_to_wire(self._broadcast.start)
            if topic in self._missing and start == groups_pb2.START_AT_NOW:
                start = groups_pb2.START_AT_FIRST
            request = consumer_pb2.JoinBroadcastRequest(
                group=self._of,
                topic=topic,
                member=self._member,
                token=self.token,
                start=start,
                start_ms=start_ms,
                idle_ms=count_of_ms(self._broadcast.idle_ms, "idle_ms"),
                filter=self._filter,
            )
            try:
                await self._channel.call(JOIN_BROADCAST, request)
            except errors.UnknownTopic:
                self._missing.add(topic)
                raise
            self._joined.add(topic)

    async def leave(self) -> None:
        """Be forgotten at once, unless the member has a name to come back by. Raises nothing."""
        if self._broadcast.member or not self._joined:
            return
        request = consumer_pb2.LeaveBroadcastRequest(group=self.group, token=self.token)
        try:
            await self._channel.call(LEAVE_BROADCAST, request)
        except errors.HourwheelError:
            return  # a kindness to the node: without it the member is forgotten after `idle_ms`


def find_membership(
    channel: Channel, given: Wanted, group: str, wanted: FilterExpression | None
) -> Membership | None:
    """Of a consumer that was set up so; None: it shares messages. Raises as both above."""
    broadcast = as_broadcast(given)
    if broadcast is None:
        return None
    return Membership(channel, broadcast, group=group, wanted=wanted)
