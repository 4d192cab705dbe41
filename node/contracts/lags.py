"""How far groups are behind, as it passes between the engine, the API and a scrape."""

from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.formats.message_id import MessageId
from hourwheel.types import TopicId


@dataclass(frozen=True, slots=True)
class GroupLagInfo:
    """What a group has still to do in one topic, retries included."""

    topic: str
    unresolved_count: int
    leased_count: int
    damaged_count: int = 0
    """Of those that are not resolved, how many cannot be read here now."""
    oldest_ms: int = 0
    """When the oldest of them could be received first; 0 where there is none."""
    blocked_count: int = 0
    """Of an ordered group: how many have used up their attempts, and block their keys."""
    blocked_ids: tuple[MessageId, ...] = ()
    """The first of these."""

    def age_ms(self, now_ms: int) -> int:
        """How long ago that was."""
        return max(0, now_ms - self.oldest_ms) if self.oldest_ms else 0


class LagPlace(NamedTuple):
    """How far a walk through all lags has come."""

    group: str
    topic_id: TopicId
    """Of that group everything up to here was listed; 0: all of it."""


class LagsPart(NamedTuple):
    """Some of all lags."""

    lags: list[tuple[str, GroupLagInfo]]
    """(group, lag)."""
    place: LagPlace | None
    """From where the next part goes on; None: this was the last one."""
