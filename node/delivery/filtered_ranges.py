"""What filters have passed over: remembered until the log says so, then resolved in large ranges.

A stretch without a match grows as the queue is looked through. It goes into the log (RESOLVE,
filtered) when it is long or old enough, several at a time if need be; a lease that begins where a
stretch ends takes it along instead, and it is resolved with the lease. Only first and end are kept,
so that looking through a queue may run far ahead of the group's floor. A restart forgets it all,
and the next master looks again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from hourwheel.internal.v1.replication_pb2 import LeaseTable
from hourwheel.internal.v1.replication_pb2 import PassedOver as PassedOverWire
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow

POSITIONS_ENOUGH: Final = 8_192
"""A stretch so long is resolved at once."""
AGE_MS_MAX: Final = 1_000
"""A stretch so old is resolved however short it is, ..."""
_AGE_MS_ENOUGH: Final = 500
"""... and with it those half as old: thousands of groups must not all be looked through each ms."""
_AT_ONCE: Final = 512
"""So many are proposed in one turn, and applied as one record; the others in the turns to come."""


@dataclass(slots=True, eq=False)
class Stretch:
    """Positions [first, end) of a queue that a group does not want."""

    held: GroupQueue
    first: int
    end: int
    since_ms: int
    """When it began to grow, or when it may be proposed again."""


class PassedOver:
    """All stretches of one reign that are not in the log yet.

    Invariants: stretches are disjoint; of a group and queue at most one grows, and what was
    proposed grows no more. `_growing` is in the order of `since_ms`.
    """

    def __init__(self) -> None:
        """None yet."""
        self._growing: dict[GroupQueue, Stretch] = {}
        self._long: dict[GroupQueue, Stretch] = {}
        """Those of them that are due however young they are."""
        self._waiting: dict[Stretch, None] = {}
        """They grow no more, and were not proposed yet, or in vain."""
        self._grown: dict[GroupQueue, list[Stretch]] = {}
        """Those that grow no more and are not known to be in the log: waiting, or proposed."""
        self._of_group: dict[int, set[GroupQueue]] = {}
        """Where something of a group's was passed over."""
        self._due_ms: int | None = None
        """Nothing is due before; None: nothing at all is, until something is added."""

    def add(self, held: GroupQueue, first: int, end: int, now_ms: int) -> None:
        """[first, end) does not match."""
        grown = self._growing.get(held)
        if grown is None or grown.end != first:
            if grown is not None:
                self._stop_growing(grown)
                self._waiting[grown] = None
            self._of_group.setdefault(held.group_id, set()).add(held)
            grown = self._growing[held] = Stretch(held, first, end, now_ms)
        grown.end = end
        is_long = grown.end - grown.first >= POSITIONS_ENOUGH
        if is_long:
            self._long[held] = grown
        self._note_due(now_ms if is_long else grown.since_ms + AGE_MS_MAX)

    def _stop_growing(self, stretch: Stretch) -> None:
        del self._growing[stretch.held]
        self._long.pop(stretch.held, None)
        self._grown.setdefault(stretch.held, []).append(stretch)

    def _note_due(self, at_ms: int) -> None:
        self._due_ms = at_ms if self._due_ms is None else min(self._due_ms, at_ms)

    def absorb(self, held: GroupQueue, first: int) -> int:
        """Where a lease may begin that begins at `first`: it takes what grew up to there along."""
        grown = self._growing.get(held)
        if grown is None or grown.end != first:
            return first
        self._long.pop(held, None)
        return self._growing.pop(held).first

    def take_due(self, now_ms: int, held: GroupQueue | None = None) -> list[Stretch]:
        """Stretches to be proposed now: those long or old enough, and all of `held`."""
        is_any_due = self._due_ms is not None and now_ms >= self._due_ms
        if held is not None:
            due = [one for one in self._of(held) if one in self._waiting or self._grows(one)]
        elif is_any_due:
            due = list(islice(self._find_due(now_ms), _AT_ONCE))
        else:
            return []
        for one in due:
            if self._grows(one):
                self._stop_growing(one)
            else:
                del self._waiting[one]
        if held is None and len(due) < _AT_ONCE:
            oldest = next(iter(self._growing.values()), None)
            left = [*self._waiting, *self._long.values()] + ([] if oldest is None else [oldest])
            self._due_ms = min((one.since_ms + AGE_MS_MAX for one in left), default=None)
        return due

    def _grows(self, stretch: Stretch) -> bool:
        return self._growing.get(stretch.held) is stretch

    def _find_due(self, now_ms: int) -> Iterator[Stretch]:
        """Stretches long or old enough."""
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
            if one.held not in self._long:
                yield one

    def settle(self, stretch: Stretch, again_ms: int | None = None) -> None:
        """It is in the log; or (`again_ms`) it is not, and is to be proposed again then."""
        grown = self._grown.get(stretch.held, [])
        if stretch not in grown:
            return  # of a group that was forgotten
        if again_ms is not None:
            stretch.since_ms = again_ms
            self._waiting[stretch] = None
            self._note_due(again_ms + AGE_MS_MAX)
            return
        grown.remove(stretch)
        if not grown:
            del self._grown[stretch.held]

    def next_due_ms(self) -> int | None:
        """When to ask `take_due`, or None. Not what is long: that is to be taken at once."""
        return self._due_ms if self._growing or self._waiting else None

    def _of(self, held: GroupQueue) -> list[Stretch]:
        """What was passed over of a group's queue and may not be in the log."""
        growing = self._growing.get(held)
        return [*self._grown.get(held, ()), *([] if growing is None else [growing])]

    def count_unresolved(self, held: GroupQueue, window: AckWindow) -> int:
        """Positions of a group's queue that were passed over and are not resolved."""
        return sum(window.count_unresolved(one.first, one.end) for one in self._of(held))

    def drop_group(self, group_id: int) -> None:
        """Forget a group's."""
        for held in self._of_group.pop(group_id, ()):
            self._growing.pop(held, None)
            self._long.pop(held, None)
            for one in self._grown.pop(held, ()):
                self._waiting.pop(one, None)

    def add_to(self, table: LeaseTable) -> None:
        """For the successor of a master: what may not be in the log it finds."""
        table.passed_over.extend(
            PassedOverWire(
                group_id=one.held.group_id,
                topic_queue=one.held.topic_queue,
                first=one.first,
                end=one.end,
            )
            for held in chain.from_iterable(self._of_group.values())
            for one in self._of(held)
        )

    def restore(self, table: LeaseTable, now_ms: int) -> None:
        """Go on where a former master ended."""
        for wire in table.passed_over:
            one = Stretch(GroupQueue(wire.group_id, wire.topic_queue), wire.first, wire.end, now_ms)
            self._of_group.setdefault(wire.group_id, set()).add(one.held)
            self._grown.setdefault(one.held, []).append(one)
            self._waiting[one] = None
        if self._waiting:
            self._note_due(now_ms)
