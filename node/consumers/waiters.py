"""Waiters: which polls wait for which queues, which of them a turn wakes, and when it has to be.

Everything here is part of a turn of the engine, and has its one reading of the clock.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from hourwheel.types import GroupId, Position, TopicId, TopicQueue
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import ReceiveParams
from node.contracts.receive_stream import Piece, ReceiveStream
from node.delivery.dead_letter_selection import CallFilter
from node.delivery.deliveries import Delivery


class Look(NamedTuple):
    """How far consumers may see a queue, by one reading of the clock."""

    visible_end: Position
    """Behind the last entry that they may see."""
    gate_ms: int | None
    """When the first entry opens that is not visible; not later than this reading where it was not
    looked through all that is visible, and None where nothing more stands in the queue."""


class Gates:
    """When entries open in queues with waiters. Pure; as fast as few of them open at a time.

    A queue's visible end moves for all groups: another group's Receive may have moved it long
    before waiters wake. So what counts is not where it stands, but up to what the waiters were
    served last. For each watched queue this is the instant at which the first later entry opens.
    It is noted by the same reading of the clock that served them, and goes away only by `open`.

    Invariants: waiters of a watched queue were served every entry that opens before
    `_opens_ms[queue]`, or all there is where that is missing, and every one below `_ends[queue]`;
    `_heap` has an item for each instant in `_opens_ms`, and stale ones.
    """

    def __init__(self, look: Callable[[TopicQueue, int], Look]) -> None:
        """`look(queue, now_ms)`: how far a queue is visible."""
        self._look = look
        self._ends: dict[TopicQueue, int] = {}
        """Watched queue -> how far it was visible."""
        self._opens_ms: dict[TopicQueue, int] = {}
        self._heap: list[tuple[int, TopicQueue]] = []

    def watch(self, queue: TopicQueue, now_ms: int) -> None:
        """A waiter that was served at `now_ms` waits for this queue.

        Where it has other waiters, what those were not served yet stays noted.
        """
        if queue not in self._ends:
            self._note(queue, now_ms)

    def unwatch(self, queue: TopicQueue) -> None:
        """The queue has no waiters any more."""
        self._ends.pop(queue, None)
        self._opens_ms.pop(queue, None)

    def _note(self, queue: TopicQueue, now_ms: int) -> None:
        self._ends[queue], gate_ms = self._look(queue, now_ms)
        if gate_ms is None:
            self._opens_ms.pop(queue, None)
        elif gate_ms != self._opens_ms.get(queue):
            self._opens_ms[queue] = gate_ms
            heapq.heappush(self._heap, (gate_ms, queue))

    def open(
        self, touched: Iterable[TopicQueue], now_ms: int, grown: Iterable[TopicQueue] = ()
    ) -> set[TopicQueue]:
        """The queues whose waiters to serve at `now_ms`: touched, or with entries that opened.

        The same instant sets the next alarm of each, and of those that have grown by entries that
        open later.
        """
        opened = self._ends.keys() & touched
        for queue in self._ends.keys() & grown:
            if now_ms < self._opens_ms.get(queue, now_ms):
                continue  # what came stands behind an entry that has not opened
            end = self._ends[queue]
            self._note(queue, now_ms)
            if self._ends[queue] != end:
                opened.add(queue)
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            queue = heapq.heappop(self._heap)[1]
            del self._opens_ms[queue]
            opened.add(queue)
        for queue in opened:
            self._note(queue, now_ms)
        return opened

    def next_ms(self) -> int | None:
        """When to call `open` next, or None."""
        while self._heap:
            at_ms, queue = self._heap[0]
            if self._opens_ms.get(queue) == at_ms:
                return at_ms
            heapq.heappop(self._heap)
        return None

    def clear(self) -> None:
        """Watch no queue."""
        self._ends.clear()
        self._opens_ms.clear()
        self._heap.clear()


class Interest(NamedTuple):
    """What a long poll waits for."""

    group_id: GroupId
    topic_id: TopicId


class Standing(Protocol):
    """A receive stream as its waiter needs it: it goes on waiting behind an answer."""

    is_waiting: bool
    """It is among those who wait."""

    @property
    def stream(self) -> ReceiveStream:
        """Knows its credits, and counts the bytes of its answers."""
        ...

    def put(self, delivery: Delivery) -> None:
        """An answer for it."""
        ...

    @property
    def has_repeats(self) -> bool:
        """Whether there is something that it got before and that did not arrive."""
        ...

    def take_repeat(self) -> Piece | None:
        """The next of that; None: there is no more."""
        ...


@dataclass(slots=True, eq=False)
class Waiter:
    """One long poll, or a receive stream."""

    future: "asyncio.Future[Delivery | None]"
    """Gets the answer; of a stream, its end."""
    params: ReceiveParams
    invisible_ms: int
    requested: FilterExpression | None = None
    """The group's filter as the caller knows it, in canonical form; None: the subscription's."""
    call_filter: CallFilter | None = None
    """The filter of this call alone; None: the subscription's."""
    repeats: int | None = None
    """The lease that the same poll got before, to be repeated."""
    is_unfinished: bool = False
    """It got nothing so far, and the scan of its queues is not at their end."""
    is_starved: bool = False
    """It was not served, for there is no room for an answer."""
    is_limited: bool = False
    """It was not served, for its group may get nothing more now: see `GroupLimits`."""
    standing: Standing | None = None
    """Of a receive stream; None: a poll."""

    @property
    def messages_max(self) -> int:
        """How many messages an answer may have, now."""
        if self.standing is None:
            return self.params.messages_max
        return min(self.params.messages_max, self.standing.stream.credits_count)

    @property
    def held_answer(self) -> HeldAnswer | ReceiveStream | None:
        """What counts the bytes of its answer."""
        return self.params.held_answer if self.standing is None else self.standing.stream

    def take_repeat(self) -> Piece | None:
        """What it got before, or a stream's next of that, once: no more of it than it may get."""
        if self.standing is None:
            lease_id, self.repeats = self.repeats, None
            return None if lease_id is None else Piece(lease_id)
        piece = self.standing.take_repeat()
        if piece is None:
            return None
        most = self.messages_max
        return piece if piece.size is not None and piece.size <= most else piece._replace(size=most)

    def leave(self) -> bool:
        """Whether it is to be served no more: it is over, or has no credits and waits no longer."""
        if self.future.done():
            return True
        if self.standing is None or self.standing.stream.is_ready:
            return False
        self.standing.is_waiting = False
        return True

    def answer(self, delivery: Delivery) -> bool:
        """Give it what was leased for it; whether it waits on."""
        if self.standing is None:
            self.future.set_result(delivery)
            return False
        self.standing.put(delivery)
        return not self.leave()

    @property
    def keeps_its_place(self) -> bool:
        """Whether it was not served although there may be something for it."""
        return self.is_starved or self.is_limited


Serve = Callable[[Interest, Waiter, int], Delivery | None]
SERVED_MAX: Final = 4_096
"""So many interests without waiters stay; about a kilobyte each."""


class Waiters:
    """All long polls, first come first served for each interest.

    Who was served mostly comes back soon: so an interest without waiters stays for a while, until
    there is something for it and still no poll waits.

    Invariants: `_interests_of[q]` are the interests in `_waiting` that a message in queue q serves;
    its queues are those that the gates watch. Those without waiters are in `_served`.
    """

    def __init__(
        self,
        serve: Serve,
        postpone: Callable[[Interest], bool],
        look: Callable[[TopicQueue, int], Look],
    ) -> None:
        """`serve` leases messages for a waiter, if any are visible, or raises SubscriptionMismatch.

        `postpone` is called before each interest that a turn wakes, and between calls with filters
        of their own: whether the rest has a later turn, by `wake_interest`. `look`: see `Gates`.
        """
        self._serve, self._postpone = serve, postpone
        self._gates = Gates(look)
        self._waiting: dict[Interest, deque[Waiter]] = {}
        self._left: dict[Interest, int] = {}
        """How many, from the first on, are still to be served since they were woken last."""
        self._queues: dict[Interest, Sequence[TopicQueue]] = {}
        self._interests_of: dict[TopicQueue, set[Interest]] = {}
        self._served: dict[Interest, None] = {}
        """Those without waiters, the ones that were served last at the end."""

    def add(
        self, interest: Interest, queues: Sequence[TopicQueue], waiter: Waiter, now_ms: int
    ) -> None:
        """Wait, from the turn on in which `serve` had nothing at `now_ms`.

        `queues` are those that an answer may come from. A starved or limited waiter is served with
        the others when there is room.
        """
        if waiter.keeps_its_place:
            self._left.pop(interest, None)
        if interest in self._served and self._queues[interest] != queues:
            self._forget(interest)
        self._served.pop(interest, None)
        if interest not in self._waiting:
            self._waiting[interest] = deque()
            self._queues[interest] = queues
            for queue in queues:
                self._interests_of.setdefault(queue, set()).add(interest)
                self._gates.watch(queue, now_ms)
        if waiter.standing is not None and waiter.standing.has_repeats:
            self._waiting[interest].appendleft(waiter)  # others get nothing of that
            if interest in self._left:
                self._left[interest] += 1
        else:
            self._waiting[interest].append(waiter)

    def watch_also(self, queue: TopicQueue, beside: TopicQueue, now_ms: int) -> bool:
        """Polls that wait for the queue `beside` wait for this one as well, from now on.

        Returns whether it is new to anyone, who was served nothing of it then.
        """
        known = self._interests_of.get(beside, ())
        return sum(self.watch(one, queue, now_ms) for one in known) > 0

    def watch(self, interest: Interest, queue: TopicQueue, now_ms: int) -> bool:
        """Who waits for this interest waits for this queue as well; whether it is new to them."""
        is_new = interest in self._queues and queue not in self._queues[interest]
        if is_new:
            self._queues[interest] = [*self._queues[interest], queue]
            self._interests_of.setdefault(queue, set()).add(interest)
            self._gates.watch(queue, now_ms)
        return is_new

    def discard(self, interest: Interest, waiter: Waiter) -> None:
        """Wait no longer."""
        waiting = self._waiting.get(interest)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                self._forget(interest)

    def _forget(self, interest: Interest) -> None:
        del self._waiting[interest]
        self._served.pop(interest, None)
        self._left.pop(interest, None)
        for queue in self._queues.pop(interest):
            interests = self._interests_of[queue]
            interests.discard(interest)
            if not interests:
                del self._interests_of[queue]
                self._gates.unwatch(queue)

    def waited_queues(self) -> list[TopicQueue]:
        """Queues with waiters."""
        return [queue for queue, each in self._interests_of.items() if each - self._served.keys()]

    def turn(
        self, touched: Iterable[TopicQueue], now_ms: int, grown: Iterable[TopicQueue] = ()
    ) -> None:
        """Entries have become visible up to `now_ms`, and these queues were touched: serve.

        The only place that does: one instant serves the waiters and sets the next alarm. Of `grown`
        queues it serves those where more is visible now.
        """
        interests: set[Interest] = set()
        for queue in self._gates.open(touched, now_ms, grown):
            interests |= self._interests_of[queue]
        for interest in interests:
            if interest in self._served:
                self._forget(interest)
                continue
            self._left.pop(interest, None)
            if not self._postpone(interest):
                self._serve_all(interest, len(self._waiting[interest]), now_ms)

    def next_wakeup_ms(self) -> int | None:
        """When the next turn has to be, or None."""
        return self._gates.next_ms()

    def is_waiting(self, interest: Interest) -> bool:
        """Whether an interest has waiters, maybe one that is being served."""
        return interest in self._waiting and interest not in self._served

    def wake_interest(self, interest: Interest, now_ms: int) -> None:
        """There may be more for this interest, or some of its waiters were not served yet."""
        if self.is_waiting(interest):
            count = self._left.pop(interest, len(self._waiting[interest]))
            self._serve_all(interest, count, now_ms)

    def _serve_all(self, interest: Interest, count: int, now_ms: int) -> None:
        """Serve the first `count` waiters of an interest, or as many as this turn has time for.

        Where the turn ends before all were, those that were served go behind the others. Where
        there is no room for answers, or the group may get no more, the rest keeps its place.
        """
        waiting, served = self._waiting[interest], list[Waiter]()
        while count > 0 and waiting:
            waiter = waiting.popleft()
            count -= 1
            if waiter.leave() or self._serve_one(interest, waiter, now_ms):
                if count and self._postpone(interest):
                    break
                continue
            if waiter.keeps_its_place:
                waiting.appendleft(waiter)
                count += 1
                break
            if waiter.call_filter is None:
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
        if not waiting:
            self._served[interest] = None
            if len(self._served) > SERVED_MAX:
                self._forget(next(iter(self._served)))

    def _serve_one(self, interest: Interest, waiter: Waiter, now_ms: int) -> bool:
        """Whether a waiter has got what it waits for; a stream waits on, behind the others."""
        try:
            delivery = self._serve(interest, waiter, now_ms)
        except (errors.SubscriptionMismatch, errors.MemberReplaced) as mismatch:
            waiter.future.set_exception(mismatch)
            return True
        if delivery is not None and waiter.answer(delivery):
            has_repeats = waiter.standing is not None and waiter.standing.has_repeats
            waiting = self._waiting[interest]
            (waiting.appendleft if has_repeats else waiting.append)(waiter)
        return delivery is not None

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
        self._served.clear()
        self._left.clear()
        self._queues.clear()
        self._interests_of.clear()
        self._gates.clear()

    def __len__(self) -> int:
        """How many long polls wait."""
        return sum(map(len, self._waiting.values()))
