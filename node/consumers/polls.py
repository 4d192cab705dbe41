"""Long polls and those that do not wait: who gets what in a turn of the engine, and who looks on.

There is no clock here: each method is a turn or a part of one, and is given its one reading. What
is served, what is passed over, which waiters are woken and when the next turn has to be are all
decided by the same instant; by two of them an entry that became visible in between would set no
alarm and wake nobody.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.types import topic_of
from node.catalog.serving import Serving
from node.catalog.subscriptions import find_mismatch
from node.consumers.housekeeping import Unasked
from node.consumers.poll_answers import Answers
from node.consumers.waiters import Answered, Interest, Waiter, Waiters
from node.contracts.answer_budget import AnswerBudget
from node.delivery.filter_scan import SLICE_WORK, Counts
from node.delivery.receiver import Delivery
from storage.queues.ack_state import WINDOW_POSITIONS
from storage.views.unit import release_ms

_ASKING_WORK: Final = 4_096
"""Asking for one who selects costs as much as masking so many entries, if there is nothing."""
Step = Callable[[int], None]
"""What a turn does at `now_ms`."""


class Polls:
    """All Receives of one shard's master."""

    def __init__(
        self,
        serving: Serving,
        unasked: Unasked,
        soon: Callable[[Step], object],
        budget: AnswerBudget,
        on_damage: Step,
    ) -> None:
        """`on_damage` is called when the receiver has found messages that cannot be read.

        `soon` calls in the loop's next turn, with that turn's reading of the clock. `budget` says
        whether there is room for another answer.
        """
        self._receiver, self._views = serving.mastership.receiver, serving.mastership.shard.views
        self._rearm, self._stats = serving.rearm, serving.stats
        self._unasked, self._soon, self._on_damage = unasked, soon, on_damage
        self._waiters = Waiters(self._serve, self._postpone, self._find_gate_ms)
        self._unfinished: dict[Interest, None] = {}
        """Whose queues were not looked through to the end: one of them goes on in each turn."""
        self._budget = budget
        budget.watch(self._on_room)
        self._starved: dict[Interest, None] = {}
        """Who waits for room for an answer, in the order in which it is given to them.

        Invariant: if there is any, either there is no room or `_feed` is about to be called."""
        self._fed: Interest | None = None
        """Whose turn it is to get room."""
        self._passed_due_ms: int | None = None
        self._answers = Answers()

    # -- one of them ------------------------------------------------------------------------------

    def begin(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        """What a poll gets that begins now. Raises `SubscriptionMismatch`.

        The same poll again replaces the first one, if that still waits, which is answered empty;
        if it was answered, it gets the same lease again, where that is still whole. One that is
        older than the poller's last is late, and over: its future is done. Where there is no room
        for an answer, it gets nothing, and says so (`is_starved`).
        """
        attempt = waiter.attempt
        if attempt is None:
            return self.ask(interest, waiter, now_ms)
        known = self._answers.begin(interest, attempt, waiter, now_ms)
        if known is not None and known.number > attempt.number:
            waiter.future.set_result(None)
            return None
        if known is not None and not known.waiter.future.done():
            known.waiter.future.set_result(None)
        waiter.repeats = None if known is None else known.answered
        return self.ask(interest, waiter, now_ms)

    def is_last(self, interest: Interest, waiter: Waiter) -> bool:
        """Whether its poller has not polled again since."""
        return waiter.attempt is None or self._answers.is_last(interest, waiter.attempt, waiter)

    def _repeat(self, waiter: Waiter, now_ms: int) -> Delivery | None:
        """The lease that the same poll got before, once more."""
        answered, waiter.repeats = waiter.repeats, None
        if answered is None:
            return None
        until_ms = now_ms + waiter.invisible_ms
        delivery = self._receiver.repeat(answered.lease_id, until_ms, now_ms)
        if delivery is None:
            return None
        self._stats.delivered += len(delivery.units)
        self._rearm()
        return replace(delivery, to_check=answered.to_check)

    def ask(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        """What a waiter gets now. Raises `SubscriptionMismatch`.

        Where there is no room for its answer, or others wait for room, it `is_starved`.
        """
        mismatch = self._find_mismatch(interest, waiter)
        if mismatch is not None:
            raise mismatch
        waiter.is_starved = not self._has_room(interest)
        if waiter.is_starved:
            waiter.is_unfinished = False
            return None
        delivery = self._repeat(waiter, now_ms) or self._lease(interest, waiter, now_ms)
        if delivery is not None and waiter.held is not None:
            waiter.held.take(len(delivery.blobs))
        if delivery is not None and waiter.attempt is not None:
            answered = Answered(delivery.lease.lease_id, delivery.to_check)
            self._answers.note(interest, waiter.attempt, answered)
        return delivery

    def _lease(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        receiver = self._receiver
        delivery = receiver.receive(
            *interest,
            count_max=waiter.count_max,
            bytes_max=min(waiter.bytes_max, self._budget.room_bytes),
            invisible_ms=waiter.invisible_ms,
            now_ms=now_ms,
            selecting=waiter.selecting,
        )
        waiter.is_unfinished = receiver.is_unfinished
        if waiter.selecting is not None:
            receiver.work += _ASKING_WORK
        if receiver.corrupt:
            self._on_damage(now_ms)
        self._note_filtering(now_ms)
        if delivery is None:
            if waiter.is_unfinished and not waiter.future.done():
                self._look_on(interest)
            self._unblock(interest, now_ms)
            return None
        self._observe(delivery, now_ms)
        if self._receiver.leases.next_end_ms() == delivery.lease.until_ms:
            self._rearm()  # no other lease ends before
        return delivery

    def wait(self, interest: Interest, waiter: Waiter, now_ms: int) -> None:
        """Wait for what comes, from the turn on in which `ask` had nothing at `now_ms`."""
        queues = [int(one) for one in self._receiver.queues_of(*interest)]
        planned_ms = self._waiters.next_wakeup_ms()
        self._waiters.add(interest, queues, waiter, now_ms)
        if self._waiters.next_wakeup_ms() != planned_ms:
            self._rearm()
        if waiter.is_unfinished:
            self._look_on(interest)
        if waiter.is_starved:
            self._starved[interest] = None

    def discard(self, interest: Interest, waiter: Waiter) -> None:
        """It waits no longer."""
        self._waiters.discard(interest, waiter)

    def on_filter(self, interest: Interest, now_ms: int) -> None:
        """The group wants something else of the topic from now on.

        Who named another filter is told at once; the others wait for what is wanted now.
        """
        self._waiters.refuse(interest, lambda waiter: self._find_mismatch(interest, waiter))
        self._waiters.wake_interest(interest, now_ms)

    def _find_mismatch(
        self, interest: Interest, waiter: Waiter
    ) -> errors.SubscriptionMismatch | None:
        if waiter.asked is None:
            return None
        return find_mismatch(self._views.catalog, *interest, waiter.asked)

    def _look_on(self, interest: Interest) -> None:
        """Look through more of the queues for those who wait, when others have had their turn."""
        if interest in self._unfinished or not self._waiters.is_waiting(interest):
            return
        if not self._unfinished:
            self._soon(self._look_further)
        self._unfinished[interest] = None

    def _look_further(self, now_ms: int) -> None:
        """A slice for the one that has waited longest: several would hold up the loop."""
        if not self._unfinished:
            return  # nobody could be served meanwhile, and all are asked again
        interest = next(iter(self._unfinished))
        del self._unfinished[interest]
        if self._unfinished:
            self._soon(self._look_further)
        self._receiver.work = 0
        self._waiters.wake_interest(interest, now_ms)

    def look_no_further(self) -> None:
        """Nobody may be served now: the next turn asks everybody again."""
        self._unfinished.clear()
        self._starved.clear()

    # -- room for answers -------------------------------------------------------------------------

    def _has_room(self, interest: Interest) -> bool:
        """Whether it is this interest's turn to get room for an answer."""
        return self._budget.has_room and (not self._starved or interest == self._fed)

    def _serve(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        """As `ask`, of one that waits."""
        delivery = self.ask(interest, waiter, now_ms)
        if waiter.is_starved:
            self._starved[interest] = None
        return delivery

    def _on_room(self) -> None:
        if self._starved:
            self._soon(self._feed)

    def _feed(self, now_ms: int) -> None:
        """Give the room that there is to the interest that has waited longest for some."""
        if not self._starved or not self._budget.has_room:
            return
        interest = next(iter(self._starved))
        del self._starved[interest]
        self._receiver.work = 0
        self._fed = interest
        try:
            self._waiters.wake_interest(interest, now_ms)
        finally:
            self._fed = None
        if self._budget.has_room:
            self._on_room()

    def _postpone(self, interest: Interest) -> bool:
        """Whether those who wait for this have their turn later: enough was looked at in this one.

        Of many groups with filters each would take its slice at once.
        """
        if self._receiver.work < SLICE_WORK:
            return False
        self._look_on(interest)
        return True

    def _note_filtering(self, now_ms: int) -> None:
        """Count what the filter did, and put what it passed over into the log in good time."""
        receiver, stats = self._receiver, self._stats
        counts, receiver.counts = receiver.counts, Counts()
        stats.filter_masked += counts.masked
        stats.filter_read += counts.read
        stats.filter_refused += counts.refused
        if receiver.passed_over.next_due_ms() is None:
            return
        self._unasked.pass_over(now_ms)
        due_ms = receiver.passed_over.next_due_ms()
        if due_ms != self._passed_due_ms:
            self._passed_due_ms = due_ms
            self._rearm()

    def _observe(self, delivery: Delivery, now_ms: int) -> None:
        units, stats = delivery.units, self._stats
        stats.delivered += len(units)
        late = now_ms - release_ms(units)
        stats.lateness.observe_many(late, 0.001)
        early = int((late < 0).sum())
        if early:
            stats.early_deliveries += early
            errors.violated("a message was about to be delivered early", count=early)

    def _unblock(self, interest: Interest, now_ms: int) -> None:
        """A window is full, mostly of resolved positions: end the lease at its floor."""
        receiver = self._receiver
        for held in receiver.is_blocked(*interest, now_ms):
            self._unasked.pass_over(now_ms, held)
            window = self._views.acks.get(*held)
            start = self._views.queues.get(held.topic_queue).start_position
            if receiver.leases.count_resolved(held, window, start) < WINDOW_POSITIONS // 2:
                continue  # not a hole: that much is being worked on
            floor = receiver.leases.window_floor(held, window, start)
            for part in receiver.leases.take_at(held, floor):
                self._unasked.give_back(held, part, now_ms)

    # -- all of them ------------------------------------------------------------------------------

    def turn(self, touched: Iterable[int], now_ms: int) -> None:
        """Serve those who wait for what has become visible up to `now_ms`, and in these queues."""
        self._receiver.work = 0
        self._waiters.turn(touched, now_ms)

    def _find_gate_ms(self, number: int, now_ms: int) -> int | None:
        """When the first entry opens that is not visible at `now_ms` (see `Gates`)."""
        if self._views.catalog.find_topic_by_id(topic_of(number)) is None:
            return None  # deleted while somebody waited
        queue = self._views.queues.get(number)
        queue.visible_end(now_ms)
        return queue.next_gate_ms()

    def next_wakeup_ms(self) -> int | None:
        """When entries that somebody waits for become visible, or None."""
        return self._waiters.next_wakeup_ms()

    def waited_queues(self) -> list[int]:
        """Queues that somebody waits for."""
        return self._waiters.waited_queues()

    def close(self, error: HourwheelError | None = None) -> None:
        """Answer everyone who waits with nothing, or with an error."""
        self._budget.unwatch(self._on_room)
        self._waiters.close(error)
        self._answers.clear()
        self._starved.clear()
        self._passed_due_ms = None

    def __len__(self) -> int:
        """Long polls that wait."""
        return len(self._waiters)
