"""Members of broadcasts, as they pass between the engine and the API."""

from typing import NamedTuple, Protocol

from hourwheel.filter_language.text import FilterExpression


class Joining(NamedTuple):
    """Who becomes the member of a broadcast, checked against every limit."""

    group: str
    """Of the member: see hourwheel/formats/member_group.py."""
    topic: str
    token: int
    """Of this start of the member; not 0."""
    start_ms: int
    """Where a new one begins: see `storage.views.catalog_items.Group.start_ms`."""
    idle_ms_max: int
    """So long it may be away."""
    filter: FilterExpression | None
    """What it wants; None: everything."""


class BroadcastPort(Protocol):
    """A part of EnginePort."""

    async def join_broadcast(self, joining: Joining) -> bool:
        """Make a member's group and its subscription, or go on with those that there are.

        What is released from its beginning on is kept for it when this returns. To call again is
        safe. Returns whether the subscription is new.

        Raises:
            UnknownTopic, InvalidTopic, InvalidFilter: nothing was done.
            FailedPrecondition: there is an ordinary group of the broadcast's name.
            LimitReached: there are too many members, groups or subscriptions.
            FeatureLevelTooLow: a node of an earlier version is in the cluster.
            InvalidArgument: it begins in the future.
        """
        ...

    async def leave_broadcast(self, group: str, token: int) -> None:
        """Delete a member's group, if it is there.

        Raises:
            MemberReplaced: another start of the member has joined since.
        """
        ...
