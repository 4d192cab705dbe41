"""Which queues records have changed, for those who wait for their entries."""

from collections.abc import Iterable
from typing import NamedTuple

from hourwheel.types import TopicQueue


class Touched(NamedTuple):
    """Queues of which some group may now be given more."""

    grown: set[TopicQueue]
    """They got entries."""
    freed: set[TopicQueue]
    """What was in them may now be given to somebody, or again: whoever waits looks."""

    @property
    def are_some(self) -> bool:
        """Whether there are any."""
        return bool(self.grown or self.freed)


def all_freed(queues: Iterable[TopicQueue]) -> Touched:
    """Whoever waits for any of these looks."""
    return Touched(set(), set(queues))
