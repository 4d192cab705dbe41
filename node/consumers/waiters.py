"""Waiters: which polls wait for which queues, which of them a turn wakes, and when it has to be.

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
from node.contracts.broker import ReceiveParams
from node.delivery.dead_letter_selection import CallFilter
from node.delivery.receiver import Delivery
from node.delivery.visibility import Gates


class Interest(NamedTuple):
    """What a long poll waits for."""

    group_id: int
    topic_id: int


class Answered(NamedTuple):
    """The answer that a poll got."""

    lease_id: int
    to_check: FilterExpression | None = None


@dataclass(slots=True)
class Waiter:
    """One long poll."""

    future: "asyncio.Future[Delivery | None]"
    params: ReceiveParams
    invisible_ms: int
    requested: FilterExpression | None = None
    """The group's filter as the caller knows it, in canonical form; None: the subscription's."""
    call_filter: CallFilter | None = None
    """The filter of this call alone; None: the subscription's."""
    repeats: Answered | None = None
    """The answer that the same poll got before, to be repeated."""
    is_unfinished: bool = False
    """It got nothing so far, and the scan of its queues is not at their end."""
    is_starved: bool = False
    """It was not served, for there is no room for an answer."""


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

        `postpone` is called before each interest that a turn wakes, and between calls with filters
        of their own: whether the rest has a later turn, by `wake_interest`. `find_gate_ms`: see
        `Gates`.
        """
        self._serve, self._postpone = serve, postpone
        self._gates = Gates(find_gate_ms)
        self._waiting: dict[Interest, deque[Waiter]] = {}
        self._left: dict[Interest, int] = {}
        """How many, from the first on, are still to be served since they were woken last."""
        self._queues: dict[Interest, list[int]] = {}
        self._interests_of: dict[int, set[Interest]] = {}

    def add(self, interest: Interest, queues: list[int], waiter: Waiter, now_ms: int) -> None:
        """Wait, from the turn on in which `serve` had nothing at `now_ms`.

        `queues` are those that an answer may come from. A starved waiter is served with the others
        when there is room.
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
        """Queues with waiters."""
        return list(self._interests_of)

    def turn(self, touched: Iterable[int], now_ms: int) -> None:
        """Entries have become visible up to `now_ms`, and these queues were touched: serve.

        The only place that does: one instant serves the waiters and sets the next alarm.
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
        """Whether an interest has waiters."""
        return interest in self._waiting

    def wake_interest(self, interest: Interest, now_ms: int) -> None:
        """There may be more for this interest, or some of its waiters were not served yet."""
        if interest in self._waiting:
            count = self._left.pop(interest, len(self._waiting[interest]))
            self._serve_all(interest, count, now_ms)

    def _serve_all(self, interest: Interest, count: int, now_ms: int) -> None:
        """Serve the first `count` waiters of an interest, or as many as this turn has time for.

        Each call with a filter of its own is served; where the turn ends before all were, those
        that were go behind the others. Where there is no room for answers, the rest keeps its
        place.
        """
        waiting, served = self._waiting[interest], list[Waiter]()
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
            elif waiter.call_filter is None:
                waiting.extendleft((waiter, *reversed(served)))
                served, count = [], 0  # the others have the same filter
            elif waiter.is_unfinished:
                waiting.insert(count, waiter)  # the others have their turn first, in other turns
                count += 1
                break
            else:
                served.append(waiter)
                if count and self._postpone(interest):
                    break
        waiting.extend(served)
        if count:
            self._left[interest] = count
        self._forget_if_none(interest)

    def refuse(
        self, interest: Interest, find_error: Callable[[Waiter], HourwheelError | None]
    ) -> None:
        """Fail the waiters of an interest for which `find_error` finds an error."""
        for waiter in self._waiting.get(interest, ()):
            error = None if waiter.future.done() else find_error(waiter)
            if error is not None:
                waiter.future.set_exception(error)

    def close(self, error: HourwheelError | None = None) -> None:
        """Answer every waiter, with nothing or with an error."""
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
