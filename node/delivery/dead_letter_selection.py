"""Filters of single calls on dead letters, and how far each of them has scanned.

On such a topic a filter resolves nothing: what does not match one call may match another. So a
queue's floor does not say what a filter has scanned. That is kept here, so that calls with the same
filter go on where the last one ended, and do not read all dead letters again.

What lies below a mark either does not match, or was delivered in this mastership. The latter never
comes back at its position: a lease that ends puts its messages into the group's retries. So a mark
holds for a mastership, and losing one costs another scan.
"""

from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from hourwheel.filter_language.lru_cache import LruCache
from hourwheel.filter_language.text import FilterExpression
from hourwheel.types import FIRST_POSITION, Position
from node.shard.group_queue import GroupQueue

MARKS_BYTES: Final = 2 << 20
"""Of all marks, which keep their filters: some hundred of the longest."""
_MARK_BYTES: Final = 400
"""One, without its filter's text."""


class ScanMarks:
    """How far each group's call filters have scanned their queues, in one mastership."""

    def __init__(self) -> None:
        """No scan has begun."""
        self._marks = LruCache[tuple[GroupQueue, str, str], Position](MARKS_BYTES)
        self.generation = 0
        """How often `clear` was called: a call under way starts its own scan again, too."""

    def clear(self) -> None:
        """Scan all again: something that could not be read can be read by now."""
        self._marks.clear()
        self.generation += 1

    def find(self, group_queue: GroupQueue, expression: FilterExpression) -> Position:
        """The end of what was scanned; 0 where that is unknown. `expression` in canonical form."""
        found = self._marks.find((group_queue, expression.kind, expression.text))
        return found or FIRST_POSITION

    def put(
        self, group_queue: GroupQueue, expression: FilterExpression, position: Position
    ) -> None:
        """Everything below was scanned."""
        size_bytes = _MARK_BYTES + getsizeof(expression.text)
        self._marks.keep((group_queue, expression.kind, expression.text), position, size_bytes)


@dataclass(slots=True)
class CallFilter:
    """The filter of one call on a topic of the cluster's own, such as dead letters."""

    filter: FilterExpression
    """In canonical form."""
    scanned_to: dict[GroupQueue, Position] = field(default_factory=dict)
    """The end of what this call has scanned: marks may give way to those of other calls."""
    generation: int = 0
    """Of the marks, when `scanned_to` was noted."""

    def begin_at(self, group_queue: GroupQueue, marks: ScanMarks) -> Position:
        """Where the scan goes on."""
        if self.generation != marks.generation:
            self.scanned_to.clear()
            self.generation = marks.generation
        own = self.scanned_to.get(group_queue, FIRST_POSITION)
        return max(own, marks.find(group_queue, self.filter))

    def note(self, group_queue: GroupQueue, position: Position, marks: ScanMarks) -> None:
        """Everything below was scanned."""
        self.scanned_to[group_queue] = position
        marks.put(group_queue, self.filter, max(position, marks.find(group_queue, self.filter)))
