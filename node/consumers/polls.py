"""Polls: which Receive gets what in a turn of the engine, and whose scan of a queue goes on.

There is no clock here: each method is a turn or a part of one, and takes its one reading. The same
instant decides what is delivered and what is filtered, which waiters wake, and when the next turn
has to be. With two readings an entry that became visible in between would set no alarm and wake
no waiter.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.instants import earliest
from hourwheel.priorities import is_priority_queue
from hourwheel.types import FIRST_POSITION, TopicQueue, topic_of, topic_queue
from node.catalog.serving import Serving
from node.catalog.subscriptions import find_mismatch, find_replaced
from node.consumers.group_limits import GroupLimits
from node.consumers.housekeeping import Housekeeping
from node.consumers.waiters import Interest, Look, Standing, Waiter, Waiters
from node.contracts.answer_budget import AnswerBudget
from node.contracts.ending import Attempt
from node.delivery.deliveries import Delivery, ReceiveLimits
from node.delivery.filter_scan import SLICE_WORK, Counts
from node.delivery.message_lease import Lease, PollMark
from storage.queues.ack_state import WINDOW_POSITIONS
from storage.queues.consume_queues import Touched
from storage.views.catalog_items import Group
from storage.views.unit import release_ms

_CALL_FILTER_WORK: Final = 4_096
"""Serving a call with a filter of its own costs as much as masking so many entries, if it gets
nothing."""
_ANSWER_WORK: Final = 4_096
"""Putting an answer together costs as much as that: 64 of them are a turn of some milliseconds."""
FIRST_MESSAGES_MAX: Final = 64
"""A poll that has waited is answered with no more: of very many that become visible at once, its
consumer gets the first while the node still reads the others. The next poll finds those. With
bodies of some 200 bytes so many are 16 KB: the answers of several polls fit into what HTTP/2 lets
pass on a connection before its other end says more, 64 KB."""
_SECONDS: Final = 0.001
Step = Callable[[int], None]
"""What a turn does at `now_ms`."""


ANSWERS_MAX: Final = 16_384
"""Pollers whose last answer is kept; about 400 bytes each."""
KEPT_MS_MAX: Final = 120_000
"""A poll can be repeated for so long: longer than any client tries."""


@dataclass(slots=True)
class Answer:
    """The last poll of one poller."""

    number: int
    at_ms: int
    waiter: Waiter | None
    """None: an earlier master has answered."""
    lease_id: int | None = None
    """The answer of this poll, or of the same one before; None: none yet."""


class Answers:
    """The last answer of each poller, to be repeated where it got lost.

    A poller sends one poll after the other, each with a number. The same number again says that
    the answer did not arrive: the poll gets the same lease. Kept is which lease that was, and no
    message. Belongs to one mastership. A master that steps down in order leaves them to the next
    one with its leases; where a master dies, its leases are gone as well, and their messages come
    again at once.

    Invariant: at most `ANSWERS_MAX`, in the order in which they were begun.
    """

    def __init__(self) -> None:
        """None yet."""
        self._last: OrderedDict[tuple[Interest, int], Answer] = OrderedDict()

    def begin(
        self, interest: Interest, attempt: Attempt, waiter: Waiter, now_ms: int
    ) -> Answer | None:
        """A poll begins. Returns the one with the same number, or a later one, if there was any.

        The caller looks at its number. A later one stays the last.
        """
        key = interest, attempt.poller_id
        known = self._last.get(key)
        if known is not None and known.number > attempt.number:
            return known
        begun = self._last[key] = Answer(attempt.number, now_ms, waiter)
        self._last.move_to_end(key)
        self._forget_old(now_ms)
        if known is None or known.number < attempt.number or known.at_ms + KEPT_MS_MAX < now_ms:
            return None
        begun.lease_id = known.lease_id
        return known

    def _forget_old(self, now_ms: int) -> None:
        while len(self._last) > ANSWERS_MAX:
            self._last.popitem(last=False)
        while self._last and next(iter(self._last.values())).at_ms + 2 * KEPT_MS_MAX < now_ms:
            self._last.popitem(last=False)

    def restore(self, lease: Lease) -> None:
        """An earlier master has answered a poll with this lease, and the answer may be lost."""
        if lease.poll is None or lease.poll.stream_owner is not None:
            return
        topic_id, poller_id, number, at_ms, _ = lease.poll
        key = Interest(lease.group_queue.group_id, topic_id), poller_id
        known = self._last.get(key)
        if known is None or known.number < number:
            self._last[key] = Answer(number, at_ms, None, lease.lease_id)
            self._last.move_to_end(key)
            self._forget_old(at_ms)

    def note(self, interest: Interest, attempt: Attempt, lease_id: int) -> None:
        """A poll that has begun gets this lease."""
        known = self._last.get((interest, attempt.poller_id))
        if known is not None and known.number == attempt.number:
            known.lease_id = lease_id

    def is_last(self, interest: Interest, attempt: Attempt, waiter: Waiter) -> bool:
        """Whether this poll is the last that its poller began, as far as is known."""
        known = self._last.get((interest, attempt.poller_id))
        return known is None or known.waiter is waiter

    def clear(self) -> None:
        """Forget all of them: their leases are over."""
        self._last.clear()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._last)


class Polls:
    """All Receives of one shard's master."""

    def __init__(
        self,
        serving: Serving,
        housekeeping: Housekeeping,
        soon: Callable[[Step], object],
        budget: AnswerBudget,
        on_damage: Step,
    ) -> None:
        """Serve the polls of one mastership.

        Args:
            serving: the mastership.
            housekeeping: puts filtered ranges and ended leases into the log.
            soon: calls a step in the loop's next turn, with that turn's reading of the clock.
            budget: says whether there is room for another answer.
            on_damage: called when the receiver has found messages that it cannot read.
        """
        self._receiver, self._views = serving.mastership.receiver, serving.mastership.shard.views
        self._rearm, self._stats = serving.rearm, serving.stats
        self._housekeeping, self._soon, self._on_damage = housekeeping, soon, on_damage
        self._waiters = Waiters(self._serve, self._postpone, self._look)
        self._limits = GroupLimits(
            self._receiver.leases,
            self._views.catalog.find_group_by_id,
            self._waiters.is_waiting,
        )
        self._unfinished: dict[Interest, None] = {}
        """Interests whose queues are not scanned to the end: one of them goes on in each turn."""
        self._budget = budget
        budget.watch(self._on_room)
        self._starved: dict[Interest, None] = {}
        """Interests that wait for room for an answer, in the order in which they get it.

        Invariant: if there is any, either there is no room or `_grant_room` is about to run."""
        self._granted: Interest | None = None
        """Gets room in this turn."""
        self._filtered_due_ms: int | None = None
        self._answers = Answers()
        for lease in self._receiver.leases.polled():
            self._answers.restore(lease)

    # -- one of them ------------------------------------------------------------------------------

    def begin(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        """The answer to a poll that begins now, if there is one.

        Raises `SubscriptionMismatch`, `MemberReplaced`.

        A repeated poll replaces the first one where that still waits: the first gets an empty
        answer. Where the first was answered, the repeated one gets the same lease again, if that
        is still whole. A poll older than the poller's last one is late: its future is done. Where
        there is no room for an answer, the poll gets nothing and `is_starved`.
        """
        attempt = waiter.params.attempt
        if attempt is None:
            return self.receive(interest, waiter, now_ms)
        known = self._answers.begin(interest, attempt, waiter, now_ms)
        if known is not None and known.number > attempt.number:
            waiter.future.set_result(None)
            return None
        if known is not None:
            if known.waiter is not None and not known.waiter.future.done():
                known.waiter.future.set_result(None)
            waiter.repeats = known.lease_id
        return self.receive(interest, waiter, now_ms)

    def is_last(self, interest: Interest, waiter: Waiter) -> bool:
        """Whether the waiter's poller has not polled again since."""
        return waiter.params.attempt is None or self._answers.is_last(
            interest, waiter.params.attempt, waiter
        )

    def _repeat(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        """What the same poll got before, again; of a stream the next that did not arrive."""
        while (piece := waiter.take_repeat()) is not None:
            until_ms = now_ms + waiter.invisible_ms
            delivery = self._receiver.repeat(piece, until_ms, now_ms)
            if delivery is not None:
                break
        else:
            return None
        self._stats.delivered += len(delivery.units)
        self._rearm()
        to_check = self._receiver.find_to_check(*interest, waiter.call_filter)
        return delivery._replace(to_check=to_check)

    def receive(
        self, interest: Interest, waiter: Waiter, now_ms: int, messages_max: int | None = None
    ) -> Delivery | None:
        """Lease what there is for a waiter now, at most `messages_max`.

        Where there is no room for its answer, or others wait for room, it `is_starved`; where its
        group may get no more now, or others of it wait for that, it `is_limited`.
        Raises `SubscriptionMismatch`, `MemberReplaced`.
        """
        mismatch = self._find_mismatch(interest, waiter)
        if mismatch is not None:
            raise mismatch
        waiter.is_starved, waiter.is_limited = not self._has_room(interest), False
        if waiter.is_starved:
            waiter.is_unfinished = False
            return None
        delivery = self._repeat(interest, waiter, now_ms)
        if delivery is None:
            wanted = waiter.messages_max
            count_max = wanted if messages_max is None else min(wanted, messages_max)
            delivery = self._lease(interest, waiter, count_max, now_ms)
        if delivery is None:
            return None
        attempt, held_answer = waiter.params.attempt, waiter.held_answer
        if held_answer is not None:
            overhead_bytes = waiter.params.overhead_bytes * len(delivery.units)
            held_answer.take(len(delivery.blobs) + overhead_bytes)
        if attempt is not None:
            self._answers.note(interest, attempt, delivery.lease.lease_id)
            delivery.lease.poll = PollMark(interest.topic_id, *attempt, now_ms)
        return delivery

    def _lease(
        self, interest: Interest, waiter: Waiter, messages_max: int, now_ms: int
    ) -> Delivery | None:
        receiver = self._receiver
        group = self._views.catalog.find_group_by_id(interest.group_id)
        if group is not None and self._gets_nothing(interest, group, waiter, now_ms):
            waiter.is_unfinished = False
            return None
        allowed = None if group is None else self._limits.allowance(interest, group, now_ms)
        if allowed is not None:
            messages_max = min(messages_max, allowed)
        if not messages_max:
            waiter.is_limited, waiter.is_unfinished = True, False
            self._stats.limited_polls += 1
            return None
        count_max, bytes_max = self._budget.share(messages_max, waiter.params.overhead_bytes)
        bytes_max = min(waiter.params.bytes_max, bytes_max)
        limits = ReceiveLimits(count_max, bytes_max, waiter.invisible_ms, now_ms)
        alarm_ms = receiver.ordered.next_ms()
        delivery = receiver.receive(*interest, limits, waiter.call_filter)
        if not receiver.found_any:
            waiter.is_unfinished = False  # most polls begin so, and wait
            return None
        if receiver.ordered.next_ms() != alarm_ms:
            self._rearm()
        waiter.is_unfinished = receiver.is_unfinished
        if waiter.call_filter is not None:
            receiver.work += _CALL_FILTER_WORK
        if receiver.corrupt:
            self._on_damage(now_ms)
        self._note_filtering(now_ms)
        if delivery is None:
            if waiter.is_unfinished and not waiter.future.done():
                self._scan_later(interest)
            self._unblock(interest, now_ms)
            return None
        self._observe(delivery, now_ms)
        if allowed is not None:
            self._limits.take(interest.group_id, len(delivery.units))
        if self._receiver.leases.next_end_ms() == delivery.lease.until_ms:
            self._rearm()  # no other lease ends earlier
        receiver.work += _ANSWER_WORK
        return delivery

    def _gets_nothing(self, interest: Interest, group: Group, waiter: Waiter, now_ms: int) -> bool:
        """Whether a group is paused, or there is nothing that its limits could hold back."""
        if not group.is_limited or waiter.call_filter is not None:
            return group.is_paused
        return group.is_paused or not self._receiver.has_undelivered(*interest, now_ms)

    def wait(self, interest: Interest, waiter: Waiter, now_ms: int) -> None:
        """Wait for new entries, from the turn on in which `receive` had nothing at `now_ms`."""
        queues = self._receiver.queues_of(*interest)
        planned_ms = self._waiters.next_wakeup_ms()
        self._waiters.add(interest, queues, waiter, now_ms)
        if self._waiters.next_wakeup_ms() != planned_ms:
            self._rearm()
        if waiter.is_unfinished:
            self._scan_later(interest)
        if waiter.is_starved:
            self._starved[interest] = None
        if waiter.is_limited:
            self._wait_for_limits(interest, now_ms)

    def _wait_for_limits(self, interest: Interest, now_ms: int) -> None:
        planned_ms = self._limits.next_wakeup_ms()
        self._limits.join(interest, now_ms)
        if self._limits.next_wakeup_ms() != planned_ms:
            self._rearm()

    def discard(self, interest: Interest, waiter: Waiter) -> None:
        """The waiter waits no longer."""
        self._waiters.discard(interest, waiter)

    def on_filter(self, interest: Interest, now_ms: int) -> None:
        """The group's filter for the topic has changed, or its limits.

        Polls that named another filter fail at once; the others wait for what matches now. In the
        line of the group's limits all keep their place, also those for other topics; who joins it
        again does so by the present limits.
        """
        self._waiters.refuse(interest, lambda waiter: self._find_mismatch(interest, waiter))
        self._waiters.wake_interest(interest, now_ms)

    def on_reset(self, interest: Interest, now_ms: int, *, may_act: bool) -> None:
        """The group begins anew in the topic: there may be more, and retries come elsewhere.

        Where the node may not act now, it serves those who wait when it may again.
        """
        for number in self._receiver.queues_of(*interest):
            self._waiters.watch(interest, number, now_ms)
        if may_act:
            self._waiters.wake_interest(interest, now_ms)
        self._rearm()

    def _find_mismatch(
        self, interest: Interest, waiter: Waiter
    ) -> errors.SubscriptionMismatch | errors.MemberReplaced | None:
        catalog, token = self._views.catalog, waiter.params.member_token
        if token and (replaced := find_replaced(catalog, interest.group_id, token)) is not None:
            return replaced
        if waiter.requested is None:
            return None
        return find_mismatch(catalog, *interest, waiter.requested)

    def _scan_later(self, interest: Interest) -> None:
        """Go on with the scan of an interest's queues when others have had their turn."""
        if interest in self._unfinished or not self._waiters.is_waiting(interest):
            return
        if not self._unfinished:
            self._soon(self._scan_next)
        self._unfinished[interest] = None

    def _scan_next(self, now_ms: int) -> None:
        """A slice for the one that has waited longest: several would hold up the loop."""
        if not self._unfinished:
            return  # `stop_scans` came first, and the next turn serves all waiters
        interest = next(iter(self._unfinished))
        del self._unfinished[interest]
        if self._unfinished:
            self._soon(self._scan_next)
        self._receiver.work = 0
        self._waiters.wake_interest(interest, now_ms)

    def stop_scans(self) -> None:
        """The node may not act now: the next turn serves all waiters from the beginning."""
        self._unfinished.clear()
        self._starved.clear()

    # -- room for answers -------------------------------------------------------------------------

    def _has_room(self, interest: Interest) -> bool:
        """Whether it is this interest's turn to get room for an answer."""
        return self._budget.has_room and (not self._starved or interest == self._granted)

    def _serve(self, interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        """As `receive`, for a poll that waits."""
        has_only_waited = not waiter.is_starved and not waiter.is_unfinished
        messages_max = FIRST_MESSAGES_MAX if has_only_waited else None
        delivery = self.receive(interest, waiter, now_ms, messages_max)
        if waiter.is_starved:
            self._starved[interest] = None
        if waiter.is_limited:
            self._wait_for_limits(interest, now_ms)
        if delivery is not None and waiter.standing is not None:
            self._note_more(interest, waiter, waiter.standing, now_ms)
        return delivery

    def look(self, interest: Interest, waiter: Waiter, standing: Standing, now_ms: int) -> None:
        """A receive stream begins, or can take more again: as a poll that begins, and waits.

        Raises `SubscriptionMismatch`.
        """
        delivery = self.receive(interest, waiter, now_ms)
        if delivery is not None and not waiter.answer(delivery):
            return
        standing.is_waiting = True
        self.wait(interest, waiter, now_ms)
        if delivery is not None:
            self._note_more(interest, waiter, standing, now_ms)

    def _note_more(
        self, interest: Interest, waiter: Waiter, standing: Standing, now_ms: int
    ) -> None:
        """Behind an answer a stream is served again, in a turn of its own, if there may be more."""
        waiter.is_unfinished = standing.has_repeats or self._receiver.has_undelivered(
            *interest, now_ms
        )
        if waiter.is_unfinished:
            self._scan_later(interest)

    def _on_room(self) -> None:
        if self._starved:
            self._soon(self._grant_room)

    def _grant_room(self, now_ms: int) -> None:
        """Give the room that there is to the interest that has waited longest for some."""
        if not self._starved or not self._budget.has_room:
            return
        interest = next(iter(self._starved))
        del self._starved[interest]
        self._receiver.work = 0
        self._granted = interest
        try:
            self._waiters.wake_interest(interest, now_ms)
        finally:
            self._granted = None
        if self._budget.has_room:
            self._on_room()

    def _postpone(self, interest: Interest) -> bool:
        """Whether waiters of this interest have a later turn: this one has scanned enough.

        With many groups that filter, each would take its slice at once.
        """
        if self._receiver.work < SLICE_WORK:
            return False
        self._scan_later(interest)
        return True

    def _note_filtering(self, now_ms: int) -> None:
        """Count what the filter did, and put filtered ranges into the log in good time."""
        receiver, stats = self._receiver, self._stats
        counts = receiver.counts
        if counts.masked or counts.read:
            stats.filter_masked += counts.masked
            stats.filter_read += counts.read
            stats.filter_refused += counts.refused
            receiver.counts = Counts()
        if receiver.filtered_ranges.next_due_ms() is None:
            return
        self._housekeeping.resolve_filtered(now_ms)
        due_ms = receiver.filtered_ranges.next_due_ms()
        if due_ms != self._filtered_due_ms:
            self._filtered_due_ms = due_ms
            self._rearm()

    def _observe(self, delivery: Delivery, now_ms: int) -> None:
        units, stats = delivery.units, self._stats
        stats.delivered += len(units)
        if delivery.rows is not None:
            early = 0
            for row in delivery.rows:
                one_ms = now_ms - row.release_ms
                stats.lateness.observe(one_ms * _SECONDS)
                early += one_ms < 0
        else:
            late_ms = now_ms - release_ms(units)
            stats.lateness.observe_many(late_ms, _SECONDS)
            early = int((late_ms < 0).sum())
        if early:
            stats.early_deliveries += early
            errors.violated("a message was about to be delivered early", count=early)

    def _unblock(self, interest: Interest, now_ms: int) -> None:
        """A window is full, mostly of resolved positions: end the lease at its floor."""
        receiver = self._receiver
        for group_queue in receiver.is_blocked(*interest, now_ms):
            self._housekeeping.resolve_filtered(now_ms, group_queue)
            window = self._views.acks.get(*group_queue)
            start = self._views.queues.get(group_queue.topic_queue).start_position
            if receiver.leases.count_resolved(group_queue, window, start) < WINDOW_POSITIONS // 2:
                continue  # no hole: consumers work on that much
            floor = receiver.leases.window_floor(group_queue, window, start)
            for part in receiver.leases.take_at(group_queue, floor):
                self._housekeeping.give_back(group_queue, part, now_ms)

    # -- all of them ------------------------------------------------------------------------------

    def turn(self, touched: Touched, now_ms: int) -> None:
        """Serve waiters of what has become visible up to `now_ms`, and in these queues."""
        self._receiver.work = 0
        grown, freed = touched
        freed.update(self._receiver.ordered.take_due(now_ms))
        for number in filter(is_priority_queue, grown):
            if self._waiters.watch_also(number, topic_queue(topic_of(number), 0), now_ms):
                freed.add(number)
        self._waiters.turn(freed, now_ms, grown)
        for group_id in self._limits.take_ready(now_ms):
            for interest in self._limits.granted(group_id):
                if not self._postpone(interest):
                    self._waiters.wake_interest(interest, now_ms)

    def _look(self, number: TopicQueue, now_ms: int) -> Look:
        """How far a queue is visible (see `Gates`)."""
        if self._views.catalog.find_topic_by_id(topic_of(number)) is None:
            return Look(FIRST_POSITION, None)  # deleted while polls waited
        return Look(*self._receiver.look(number, now_ms))

    def next_wakeup_ms(self) -> int | None:
        """When entries become visible in a queue with waiters, or come again, or are let go."""
        return earliest(
            self._waiters.next_wakeup_ms(),
            self._receiver.ordered.next_ms(),
            self._limits.next_wakeup_ms(),
        )

    def next_allowance_ms(self, now_ms: int) -> int | None:
        """See `GroupLimits`."""
        return self._limits.next_allowance_ms(now_ms)

    def waited_queues(self) -> list[TopicQueue]:
        """Queues with waiters."""
        return self._waiters.waited_queues()

    def close(self, error: HourwheelError | None = None) -> None:
        """Answer every poll that waits, with nothing or with an error."""
        self._budget.unwatch(self._on_room)
        self._waiters.close(error)
        self._answers.clear()
        self._starved.clear()
        self._limits.clear()
        self._filtered_due_ms = None

    def __len__(self) -> int:
        """Long polls that wait."""
        return len(self._waiters)
