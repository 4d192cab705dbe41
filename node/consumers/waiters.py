"""Long polls: who waits for which messages, whom a turn wakes, and when the next turn has to be.

Everything here is part of a turn of the engine, and has its one reading of the clock.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import Attempt
from node.delivery.dead_letter_selection import Selecting
from node.delivery.receiver import Delivery
from node.delivery.visibility import Gates


class Interest(NamedTuple):
    """What a long poll waits for."""

    group_id: int
    topic_id: int


class Answered(NamedTuple):
    """What a poll was answered."""

    lease_id: int
    to_check: FilterExpression | None = None


@dataclass(slots=True)
class Waiter:
    """One long poll."""

    future: "asyncio.Future[Delivery | None]"
    count_max: int
    bytes_max: int
    invisible_ms: int
    asked: FilterExpression | None = None
    """What it says that the group wants, in canonical form; None: as the subscription says."""
    selecting: Selecting | None = None
    """What this call alone wants; None: what the group's subscription says."""
    attempt: Attempt | None = None
    """Which poll this is, where its caller would ask again for an answer that got lost."""
    held: HeldAnswer | None = None
    """Of the call that waits: where its answer counts; None: nobody counts it."""
    repeats: Answered | None = None
    """What the same poll was answered before, to be given again."""
    is_unfinished: bool = False
    """It got nothing so far, but not everything was looked at."""
    is_starved: bool = False
    """It was not asked what there is, for there is no room for an answer."""


Serve = Callable[[Interest, Waiter, int], Delivery | None]


class Waiters:
    """All long polls, first come first served for each interest.

    Invariants: `_interests_of[q]` are the interests with waiters that a message in queue q serves;
    its queues are those that the gates watch.
    """

    def __init__(
        self,
        serve: Serve,
        postpone: Callable[[Interest], bool],
        find_gate_ms: Callable[[int, int], int | None],
    ) -> None:
        """`serve` leases messages for a waiter, if any are visible, or raises SubscriptionMismatch.

        `postpone` is asked before each interest that a turn wakes, and between those who select
        for themselves: whether the rest has its turn later, by `wake_interest`. `find_gate_ms`: see
        `Gates`.
        """
        self._serve, self._postpone = serve, postpone
        self._gates = Gates(find_gate_ms)
        self._waiting: dict[Interest, deque[Waiter]] = {}
        self._left: dict[Interest, int] = {}
        """How many, from the first on, are still to be asked for what woke them last."""
        self._queues: dict[Interest, list[int]] = {}
        self._interests_of: dict[int, set[Interest]] = {}

    def add(self, interest: Interest, queues: list[int], waiter: Waiter, now_ms: int) -> None:
        """Wait, from the turn on in which `serve` had nothing at `now_ms`.

        `queues` are those that an answer may come from. One that is starved is asked with the
        others when there is room.
        """
        if waiter.is_starved:
            self._left.pop(interest, None)
        if interest not in self._waiting:
            self._waiting[interest] = deque()
            self._queues[interest] = queues
            for queue in queues:
                self._interests_of.setdefault(queue, set()).add(interest)
                self._gates.watch(queue, now_ms)
        self._waiting[interest].append(waiter)

    def discard(self, interest: Interest, waiter: Waiter) -> None:
        """Wait no longer."""
        waiting = self._waiting.get(interest)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            self._forget_if_none(interest)

    def _forget_if_none(self, interest: Interest) -> None:
        if not self._waiting[interest]:
            del self._waiting[interest]
            self._left.pop(interest, None)
            for queue in self._queues.pop(interest):
                interests = self._interests_of[queue]
                interests.discard(interest)
                if not interests:
                    del self._interests_of[queue]
                    self._gates.unwatch(queue)

    def waited_queues(self) -> list[int]:
        """Queues that somebody waits for."""
        return list(self._interests_of)

    def turn(self, touched: Iterable[int], now_ms: int) -> None:
        """Entries have become visible up to `now_ms`, and these queues were touched: serve.

        The only place that says so: who waits is asked, and the next alarm is set, by one instant.
        """
        interests: set[Interest] = set()
        for queue in self._gates.open(touched, now_ms):
            interests |= self._interests_of[queue]
        for interest in interests:
            self._left.pop(interest, None)
            if not self._postpone(interest):
                self._serve_all(interest, len(self._waiting[interest]), now_ms)

    def next_wakeup_ms(self) -> int | None:
        """When the next turn has to be, or None."""
        return self._gates.next_ms()

    def is_waiting(self, interest: Interest) -> bool:
        """Whether somebody waits for this."""
        return interest in self._waiting

    def wake_interest(self, interest: Interest, now_ms: int) -> None:
        """There may be more for those who wait for this, or some of them were not asked yet."""
        if interest in self._waiting:
            count = self._left.pop(interest, len(self._waiting[interest]))
            self._serve_all(interest, count, now_ms)

    def _serve_all(self, interest: Interest, count: int, now_ms: int) -> None:
        """Serve the first `count` of those who wait for this, or as many as this turn has time for.

        Those that select for themselves are each asked; where the turn ends before all were, they
        go behind the others. Where there is no room for answers, the rest keeps its place.
        """
        waiting, asked = self._waiting[interest], list[Waiter]()
        while count > 0 and waiting:
            waiter = waiting.popleft()
            count -= 1
            if waiter.future.done():
                continue
            try:
                delivery = self._serve(interest, waiter, now_ms)
            except errors.SubscriptionMismatch as mismatch:
                waiter.future.set_exception(mismatch)
                continue
            if delivery is not None:
                waiter.future.set_result(delivery)
            elif waiter.is_starved:
                waiting.appendleft(waiter)
                count += 1
                break
            elif waiter.selecting is None:
                waiting.extendleft((waiter, *reversed(asked)))
                asked, count = [], 0  # the others want the same
            elif waiter.is_unfinished:
                waiting.insert(count, waiter)  # the others have their turn first, in other turns
                count += 1
                break
            else:
                asked.append(waiter)
                if count and self._postpone(interest):
                    break
        waiting.extend(asked)
        if count:
            self._left[interest] = count
        self._forget_if_none(interest)

    def refuse(
        self, interest: Interest, find_error: Callable[[Waiter], HourwheelError | None]
    ) -> None:
        """Tell those who wait for this, and for whom there is an error, that error."""
        for waiter in self._waiting.get(interest, ()):
            error = None if waiter.future.done() else find_error(waiter)
            if error is not None:
                waiter.future.set_exception(error)

    def close(self, error: HourwheelError | None = None) -> None:
        """Answer everyone with nothing, or with an error."""
        for waiting in self._waiting.values():
            for waiter in waiting:
                if waiter.future.done():
                    continue
                if error is None:
                    waiter.future.set_result(None)
                else:
                    waiter.future.set_exception(error)
        self._waiting.clear()
        self._left.clear()
        self._queues.clear()
        self._interests_of.clear()
        self._gates.clear()

    def __len__(self) -> int:
        """How many long polls wait."""
        return sum(map(len, self._waiting.values()))
