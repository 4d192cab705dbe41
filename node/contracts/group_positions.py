"""Where groups go on in topics, as it passes between the engine and the API."""

from enum import IntEnum
from typing import NamedTuple, Protocol

from hourwheel.formats.message_id import MessageId


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
    positions: list[int]
    """Of each queue of the topic, where it goes on, if not behind that already."""


class UnblockPort(Protocol):
    """A part of EnginePort."""

    async def unblock(self, group: str, topic: str, unblocking: Unblocking) -> int:
        """Decide about messages that an ordered group has given back; how many it was done to.

        Raises:
            FailedPrecondition: the group is not ordered, or does not read the topic; else as
                `EnginePort.skip`.
        """
        ...
