"""What a Receive of dead letters selects for itself, and how far each selection has looked.

On such a topic nothing is passed over: what one call does not want, another may. So a queue's floor
says nothing of what a filter has looked at. That is remembered here, so that calls with the same
filter go on where the last one ended and do not read all letters again.

What lies behind a mark either does not match, or was handed out in this reign. The latter never
comes back at its position: a lease that ends puts its messages into the group's retries. So a mark
holds for a reign, and forgetting one costs another look.
"""

from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from hourwheel.filter_language.lru_cache import WeighedCache
from hourwheel.filter_language.text import FilterExpression
from node.shard.group_queue import GroupQueue

_MARKS_BYTES: Final = 2 << 20
"""Of all marks, whose filters are kept with them: some hundred of the longest."""
_MARK_BYTES: Final = 400
"""One, without its filter's text."""


class Marks:
    """How far each group's selections have looked through their queues, in one reign."""

    def __init__(self) -> None:
        """Nobody has looked yet."""
        self._marks = WeighedCache[tuple[GroupQueue, str, str], int](_MARKS_BYTES)
        self.generation = 0
        """How often all was forgotten: a call that is under way forgets its own place, too."""

    def forget(self) -> None:
        """Among what was looked at is what could not be read then, and can be now: look again."""
        self._marks.clear()
        self.generation += 1

    def find(self, held: GroupQueue, wanted: FilterExpression) -> int:
        """Behind what was looked at; 0 where that is not known. `wanted` in canonical form."""
        return self._marks.find((held, wanted.kind, wanted.text)) or 0

    def put(self, held: GroupQueue, wanted: FilterExpression, position: int) -> None:
        """Everything below was looked at."""
        size_bytes = _MARK_BYTES + getsizeof(wanted.text)
        self._marks.keep((held, wanted.kind, wanted.text), position, size_bytes)


@dataclass(slots=True)
class Selecting:
    """What one call wants of a topic of the cluster's own, such as dead letters; nobody else's."""

    filter: FilterExpression
    """In canonical form."""
    looked_to: dict[GroupQueue, int] = field(default_factory=dict)
    """Behind what the call has looked at so far: its own, lest it loses its place to others."""
    generation: int = 0
    """Of the marks, when it was noted."""

    def begin_at(self, held: GroupQueue, marks: Marks) -> int:
        """Where to look on."""
        if self.generation != marks.generation:
            self.looked_to.clear()
            self.generation = marks.generation
        return max(self.looked_to.get(held, 0), marks.find(held, self.filter))

    def note(self, held: GroupQueue, position: int, marks: Marks) -> None:
        """Everything below was looked at."""
        self.looked_to[held] = position
        marks.put(held, self.filter, max(position, marks.find(held, self.filter)))
