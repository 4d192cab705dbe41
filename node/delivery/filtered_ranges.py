"""Filtered ranges: what filters did not match, or has expired, until the log says so.

A range without a match grows as the filter scans the queue. It goes into the log (RESOLVE,
filtered) when it is long or old enough, several at a time if need be. A lease that begins where a
range ends absorbs it instead, and resolves it along with itself. Only first and end are kept,
so that a scan may run far ahead of the group's floor. A restart forgets all of it, and the next
master scans again.

What has expired is filtered in the same way, but goes into the log at once, as RESOLVE expired.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.internal.v1.replication_pb2 import LeaseTable, PassedOver
from hourwheel.types import GroupId, Position
from node.delivery.message_lease import runs_of
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow

POSITIONS_ENOUGH: Final = 8_192
"""A range so long is resolved at once."""
AGE_MS_MAX: Final = 1_000
"""A range so old is resolved however short it is, ..."""
_AGE_MS_ENOUGH: Final = 500
"""... and with it those half as old: thousands of groups must not all be looked through each ms."""
_AT_ONCE: Final = 512
"""So many are proposed in one turn, and applied as one record; the others in the turns to come."""


@dataclass(slots=True, eq=False)
class FilteredRange:
    """Positions [first, end) of a queue that a group does not want."""

    group_queue: GroupQueue
    first: int
    end: int
    since_ms: int
    """When it began to grow, or when it may be proposed again."""
    are_expired: bool = False
    """The group does not get them because they have expired."""


class FilteredRanges:
    """All filtered ranges of one mastership that are not in the log yet.

    Invariants: ranges are disjoint; of a group and queue at most one grows, and what was
    proposed grows no more. `_growing` is in the order of `since_ms`.
    """

    def __init__(self) -> None:
        """None yet."""
        self._growing: dict[GroupQueue, FilteredRange] = {}
        self._long: dict[GroupQueue, FilteredRange] = {}
        """Those of them that are due however young they are."""
        self._waiting: dict[FilteredRange, None] = {}
        """They grow no more, and were not proposed yet, or in vain."""
        self._grown: dict[GroupQueue, list[FilteredRange]] = {}
        """Those that grow no more and are not known to be in the log: waiting, or proposed."""
        self._of_group: dict[GroupId, set[GroupQueue]] = {}
        """The queues in which each group has ranges."""
        self._due_ms: int | None = None
        """Nothing is due before; None: nothing at all is, until something is added."""

    def add(self, group_queue: GroupQueue, first: int, end: int, now_ms: int) -> None:
        """[first, end) does not match."""
        grown = self._growing.get(group_queue)
        if grown is None or grown.end != first:
            if grown is not None:
                self._stop_growing(grown)
                self._waiting[grown] = None
            self._of_group.setdefault(group_queue.group_id, set()).add(group_queue)
            grown = self._growing[group_queue] = FilteredRange(group_queue, first, end, now_ms)
        grown.end = end
        is_long = grown.end - grown.first >= POSITIONS_ENOUGH
        if is_long:
            self._long[group_queue] = grown
        self._note_due(now_ms if is_long else grown.since_ms + AGE_MS_MAX)

    def add_between(
        self,
        group_queue: GroupQueue,
        bounds: tuple[int, int],
        positions: NDArray[np.int64],
        now_ms: int,
    ) -> None:
        """What stands between these positions in [first, end) does not match."""
        at = bounds[0]
        for low, high in [*runs_of(positions).tolist(), (bounds[1], bounds[1])]:
            if at < low:
                self.add(group_queue, at, low, now_ms)
            at = high

    def add_expired(self, group_queue: GroupQueue, first: int, end: int, now_ms: int) -> None:
        """[first, end) has expired: due at once, and no lease absorbs it."""
        one = FilteredRange(group_queue, first, end, now_ms - AGE_MS_MAX, are_expired=True)
        self._of_group.setdefault(group_queue.group_id, set()).add(group_queue)
        self._grown.setdefault(group_queue, []).append(one)
        self._waiting[one] = None
        self._note_due(now_ms)

    def _stop_growing(self, filtered: FilteredRange) -> None:
        del self._growing[filtered.group_queue]
        self._long.pop(filtered.group_queue, None)
        self._grown.setdefault(filtered.group_queue, []).append(filtered)

    def _note_due(self, at_ms: int) -> None:
        self._due_ms = at_ms if self._due_ms is None else min(self._due_ms, at_ms)

    def absorb(self, group_queue: GroupQueue, first: int) -> int:
        """Where a lease that starts at `first` begins: it absorbs the range that ends there."""
        grown = self._growing.get(group_queue)
        if grown is None or grown.end != first:
            return first
        self._long.pop(group_queue, None)
        return self._growing.pop(group_queue).first

    def take_due(self, now_ms: int, group_queue: GroupQueue | None = None) -> list[FilteredRange]:
        """Ranges to be proposed now: those long or old enough, and all of `group_queue`."""
        is_any_due = self._due_ms is not None and now_ms >= self._due_ms
        if group_queue is not None:
            due = [one for one in self._of(group_queue) if one in self._waiting or self._grows(one)]
        elif is_any_due:
            due = list(islice(self._find_due(now_ms), _AT_ONCE))
        else:
            return []
        for one in due:
            if self._grows(one):
                self._stop_growing(one)
            else:
                del self._waiting[one]
        if group_queue is None and len(due) < _AT_ONCE:
            oldest = next(iter(self._growing.values()), None)
            left = [*self._waiting, *self._long.values()] + ([] if oldest is None else [oldest])
            self._due_ms = min((one.since_ms + AGE_MS_MAX for one in left), default=None)
        return due

    def _grows(self, filtered: FilteredRange) -> bool:
        return self._growing.get(filtered.group_queue) is filtered

    def _find_due(self, now_ms: int) -> Iterator[FilteredRange]:
        """Ranges long or old enough."""
        for one in self._long.values():
            if now_ms >= one.since_ms:
                yield one
        for one in self._waiting:
            is_long = one.end - one.first >= POSITIONS_ENOUGH and now_ms >= one.since_ms
            if is_long or now_ms >= one.since_ms + _AGE_MS_ENOUGH:
                yield one
        for one in self._growing.values():
            if now_ms < one.since_ms + _AGE_MS_ENOUGH:
                break  # the others are younger
            if one.group_queue not in self._long:
                yield one

    def settle(self, filtered: FilteredRange, again_ms: int | None = None) -> None:
        """It is in the log; or (`again_ms`) it is not, and is to be proposed again then."""
        grown = self._grown.get(filtered.group_queue, [])
        if filtered not in grown:
            return  # of a group that was forgotten
        if again_ms is not None:
            filtered.since_ms = again_ms
            self._waiting[filtered] = None
            self._note_due(again_ms + AGE_MS_MAX)
            return
        grown.remove(filtered)
        if not grown:
            del self._grown[filtered.group_queue]

    def next_due_ms(self) -> int | None:
        """When to ask `take_due`, or None. Not what is long: that is to be taken at once."""
        return self._due_ms if self._growing or self._waiting else None

    def _of(self, group_queue: GroupQueue) -> list[FilteredRange]:
        """The ranges of a group's queue that may not be in the log."""
        growing = self._growing.get(group_queue)
        return [*self._grown.get(group_queue, ()), *([] if growing is None else [growing])]

    def ranges_of(self, group_queue: GroupQueue) -> list[tuple[int, int]]:
        """[first, end) of what was filtered and may not be in the log, ascending."""
        return sorted((one.first, one.end) for one in self._of(group_queue))

    def count_unresolved(self, group_queue: GroupQueue, window: AckWindow) -> int:
        """Positions of a group's queue that were filtered and are not resolved."""
        return sum(window.count_unresolved(one.first, one.end) for one in self._of(group_queue))

    def first_unresolved(
        self, group_queue: GroupQueue, window: AckWindow, position: Position
    ) -> Position:
        """The first position from `position` on that is neither resolved nor filtered."""
        ranges = self.ranges_of(group_queue)
        at = window.first_unresolved(position)
        for first, end in ranges:
            if first <= at < end:
                at = window.first_unresolved(Position(end))
        return at

    def drop_group(self, group_id: GroupId) -> None:
        """Forget a group's."""
        for group_queue in list(self._of_group.get(group_id, ())):
            self.drop_queue(group_queue)
        self._of_group.pop(group_id, None)

    def drop_queue(self, group_queue: GroupQueue) -> None:
        """Forget a group's of a queue."""
        self._growing.pop(group_queue, None)
        self._long.pop(group_queue, None)
        for one in self._grown.pop(group_queue, ()):
            self._waiting.pop(one, None)
        self._of_group.get(group_queue.group_id, set()).discard(group_queue)

    def add_to(self, table: LeaseTable) -> None:
        """For the next master: ranges that may not be in the log it finds."""
        table.passed_over.extend(
            PassedOver(
                group_id=one.group_queue.group_id,
                topic_queue=one.group_queue.topic_queue,
                first=one.first,
                end=one.end,
                are_expired=one.are_expired,
            )
            for group_queue in chain.from_iterable(self._of_group.values())
            for one in self._of(group_queue)
        )

    def restore(self, table: LeaseTable, now_ms: int) -> None:
        """Take over the ranges of the former master."""
        for wire in table.passed_over:
            if wire.are_expired:
                continue
            one = FilteredRange(
                GroupQueue.of(wire.group_id, wire.topic_queue), wire.first, wire.end, now_ms
            )
            self._of_group.setdefault(one.group_queue.group_id, set()).add(one.group_queue)
            self._grown.setdefault(one.group_queue, []).append(one)
            self._waiting[one] = None
        if self._waiting:
            self._note_due(now_ms)
