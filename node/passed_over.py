"""What filters have passed over: remembered until the log says so, then resolved in large ranges.

A stretch without a match grows as the queue is looked through. It goes into the log (RESOLVE,
filtered) when it is long or old enough, several at a time if need be; a lease that begins where a
stretch ends takes it along instead, and it is resolved with the lease. Only first and end are kept,
so that looking through a queue may run far ahead of the group's floor. A restart forgets it all,
and the next master looks again.
"""

from dataclasses import dataclass
from typing import Final

from hourwheel.internal.v1.replication_pb2 import LeaseTable
from hourwheel.internal.v1.replication_pb2 import PassedOver as PassedOverWire
from node.lease import Held
from storage.ack_state import AckWindow

POSITIONS_ENOUGH: Final = 8_192
"""A stretch so long is resolved at once."""
AGE_MS_MAX: Final = 1_000
"""A stretch so old is resolved however short it is, ..."""
_AGE_MS_ENOUGH: Final = 500
"""... and with it those half as old: thousands of groups must not all be looked through each ms."""


@dataclass(slots=True)
class Stretch:
    """Positions [first, end) of a queue that a group does not want."""

    held: Held
    first: int
    end: int
    since_ms: int
    """When it began to grow, or when it may be proposed again."""


class PassedOver:
    """All stretches of one reign that are not in the log yet.

    Invariant: stretches are disjoint; of a group and queue at most one grows, and what was proposed
    grows no more.
    """

    def __init__(self) -> None:
        """None yet."""
        self._growing: dict[Held, Stretch] = {}
        self._waiting: list[Stretch] = []
        """They grow no more, and were not proposed yet, or in vain."""
        self._proposed: list[Stretch] = []
        self._due_ms: int | None = None
        """Nothing is due before; None: nothing at all is, until something is added."""

    def add(self, held: Held, first: int, end: int, now_ms: int) -> None:
        """[first, end) does not match."""
        grown = self._growing.get(held)
        if grown is None or grown.end != first:
            if grown is not None:
                self._waiting.append(grown)
            grown = self._growing[held] = Stretch(held, first, end, now_ms)
        grown.end = end
        is_long = grown.end - grown.first >= POSITIONS_ENOUGH
        self._note_due(now_ms if is_long else grown.since_ms + AGE_MS_MAX)

    def _note_due(self, at_ms: int) -> None:
        self._due_ms = at_ms if self._due_ms is None else min(self._due_ms, at_ms)

    def absorb(self, held: Held, first: int) -> int:
        """Where a lease may begin that begins at `first`: it takes what grew up to there along."""
        grown = self._growing.get(held)
        if grown is None or grown.end != first:
            return first
        return self._growing.pop(held).first

    def take_due(self, now_ms: int, held: Held | None = None) -> list[Stretch]:
        """Stretches to be proposed now: those long or old enough, and all of `held`."""
        is_any_due = self._due_ms is not None and now_ms >= self._due_ms
        if held is None and not is_any_due:
            return []
        age_ms = _AGE_MS_ENOUGH if is_any_due else AGE_MS_MAX
        due = [
            one
            for one in [*self._growing.values(), *self._waiting]
            if one.held == held
            or now_ms >= one.since_ms + age_ms
            or (one.end - one.first >= POSITIONS_ENOUGH and now_ms >= one.since_ms)
        ]
        for one in due:
            if self._growing.get(one.held) is one:
                del self._growing[one.held]
            else:
                self._waiting.remove(one)
        self._proposed += due
        left = [*self._growing.values(), *self._waiting]
        self._due_ms = min((one.since_ms + AGE_MS_MAX for one in left), default=None)
        return due

    def settle(self, stretch: Stretch, again_ms: int | None = None) -> None:
        """It is in the log; or (`again_ms`) it is not, and is to be proposed again then."""
        if stretch not in self._proposed:
            return  # of a group that was forgotten
        self._proposed.remove(stretch)
        if again_ms is not None:
            stretch.since_ms = again_ms
            self._waiting.append(stretch)
            self._note_due(again_ms + AGE_MS_MAX)

    def next_due_ms(self) -> int | None:
        """When to ask `take_due`, or None. Not what is long: that is to be taken at once."""
        return self._due_ms if self._growing or self._waiting else None

    def _all(self) -> list[Stretch]:
        return [*self._proposed, *self._waiting, *self._growing.values()]

    def count_unresolved(self, held: Held, window: AckWindow) -> int:
        """Positions of a group's queue that were passed over and are not resolved."""
        return sum(
            window.count_unresolved(one.first, one.end) for one in self._all() if one.held == held
        )

    def drop_group(self, group_id: int) -> None:
        """Forget a group's."""
        self._growing = {
            held: one for held, one in self._growing.items() if held.group_id != group_id
        }
        self._waiting = [one for one in self._waiting if one.held.group_id != group_id]
        self._proposed = [one for one in self._proposed if one.held.group_id != group_id]

    def add_to(self, table: LeaseTable) -> None:
        """For the successor of a master: what may not be in the log it finds."""
        table.passed_over.extend(
            PassedOverWire(
                group_id=one.held.group_id,
                topic_queue=one.held.topic_queue,
                first=one.first,
                end=one.end,
            )
            for one in self._all()
        )

    def restore(self, table: LeaseTable, now_ms: int) -> None:
        """Go on where a former master ended."""
        self._waiting += [
            Stretch(Held(one.group_id, one.topic_queue), one.first, one.end, now_ms)
            for one in table.passed_over
        ]
        if self._waiting:
            self._note_due(now_ms)
