"""Where groups go on in topics, as it passes between the engine and the API."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from hourwheel.formats.message_id import MessageId
from hourwheel.types import Position


class UnblockAction(IntEnum):
    """What becomes of messages that an ordered group has given back; as groups.proto has it."""

    SKIP = 0
    RETRY = 1
    DEAD_LETTER = 2


class Unblocking(NamedTuple):
    """Which of them, and what."""

    ids: tuple[MessageId, ...]
    action: UnblockAction


class SkippedInfo(NamedTuple):
    """What a group was let go on behind."""

    skipped_count: int
    positions: list[Position]
    """Of each queue of the topic, where it goes on, if not behind that already."""


class ResetTarget(NamedTuple):
    """Where a group shall begin anew."""

    from_ms: int | None
    """With what was released then or later; 0: now; None: with the first that is there."""
    positions: tuple[Position, ...] = ()
    """Instead of that: the first position of each queue of the topic."""


class ResetInfo(NamedTuple):
    """What a reset comes to; as groups.proto has it."""

    again_count: int
    skipped_count: int
    retries_dropped_count: int
    unresolved_count: int
    positions: list[Position]


class GroupPositionsPort(Protocol):
    """A part of EnginePort."""

    async def skip(
        self, group: str, topic: str, before_ms: int, positions: Sequence[Position]
    ) -> SkippedInfo:
        """Let a group go on behind what was released before an instant (0: now), or `positions`.

        Raises:
            UnknownGroup, UnknownTopic; and whatever appending may raise: to call again is safe.
            InvalidArgument: the instant is in the future, or the positions are not of the queues.
            FailedPrecondition: the group does not read the topic, or a node of an earlier version
                is in the cluster.
        """
        ...

    async def reset_group(
        self, group: str, topic: str, target: ResetTarget, *, count_only: bool
    ) -> ResetInfo:
        """Let a group begin anew in a topic, or tell what that would come to.

        Raises:
            NotRetained: retention has let go of some of it; `earliest_ms` says of what not.
            FailedPrecondition: the group does not read the topic, or that is the cluster's own.
            FeatureLevelTooLow: a node of an earlier version is in the cluster.
            Unavailable: it is being reset; or it, or the topic, was changed meanwhile.
            InvalidArgument, UnknownGroup, UnknownTopic: as `skip`.
        """
        ...

    async def unblock(self, group: str, topic: str, unblocking: Unblocking) -> int:
        """Decide about messages that an ordered group has given back; how many it was done to.

        Raises:
            FailedPrecondition: the group is not ordered, or does not read the topic; else as
                `EnginePort.skip`.
        """
        ...
