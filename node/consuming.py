"""Receive, acknowledge, give back: leases on one side, RESOLVE records on the other."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_text import FilterExpression
from hourwheel.types import topic_of
from node.api import ports
from node.configurator import Propose
from node.filter_reading import make_ready
from node.picking import SLICE_WORK, Counts
from node.receive import Delivery
from node.resolving import Resolving
from node.selecting import Selecting
from node.shard import Shard
from node.stats import EngineStats
from node.subscribing import Subscribed, find_mismatch
from node.unasked import Unasked
from node.waiters import Interest, Waiter, Waiters
from storage.ack_state import WINDOW_POSITIONS
from storage.catalog_items import Subscription
from storage.unit import release_ms

_ASKING_WORK: Final = 4_096
"""Asking for one who selects costs as much as masking so many entries, if there is nothing."""


class Consuming:
    """The consumers' side of the engine."""

    def __init__(
        self,
        shard: Shard,
        now_ms: Callable[[], int],
        propose: Propose,
        rearm: Callable[[], None],
        stats: EngineStats,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`rearm` is called when something may have to happen earlier than was planned.

        `soon` calls in the loop's next turn; what is raised then stops the node.
        """
        self._shard, self._now_ms, self._propose = shard, now_ms, propose
        self._rearm, self._stats, self._soon = rearm, stats, soon
        self.unasked = Unasked(shard, now_ms, propose, rearm, stats)
        resolving = Resolving(shard, now_ms, propose, rearm, stats, self.unasked.reads)
        self.resolve, self.change_invisible = resolving.resolve, resolving.change_invisible
        self._waiters = Waiters(self._serve, self._postpone)
        self._unfinished: dict[Interest, None] = {}
        """Whose queues were not looked through to the end: one of them goes on in each turn."""
        self._turn = asyncio.Lock()
        """Held by the call without a wait that looks further in this turn of the loop."""
        self._passed_due_ms: int | None = None
        self._gate_ms: int | None = None
        self._is_closing = False

    # -- receive ----------------------------------------------------------------------------------

    async def receive(
        self,
        subscribed: Subscribed,
        *,
        max_messages: int,
        max_bytes: int,
        wait_ms: int,
        invisible_ms: int,
    ) -> ports.Delivery | None:
        """Lease messages, waiting for the first.

        Raises:
            SubscriptionMismatch: the filter was changed meanwhile, and the caller named another.
        """
        subscription, group, asked, selecting = subscribed
        interest = Interest(group.group_id, subscription.topic_id)
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future, max_messages, max_bytes, invisible_ms, asked)
        if selecting is not None:
            waiter.selecting = Selecting(selecting)
        await self._make_ready(subscription, selecting)
        delivery = self._serve(interest, waiter)
        while delivery is None and waiter.is_unfinished and wait_ms <= 0 and not self._is_closing:
            async with self._turn:
                await asyncio.sleep(0)
                delivery = self._serve(interest, waiter)
        if delivery is None and wait_ms > 0 and not self._is_closing:
            delivery = await self._wait(interest, waiter, wait_ms)
        return None if delivery is None else self._to_port(delivery)

    async def _make_ready(
        self, subscription: Subscription, selecting: FilterExpression | None
    ) -> None:
        """Compile the filter beside the loop, if it is large and was not used lately."""
        wanted = selecting or subscription.filter
        topic = self._shard.views.catalog.find_topic_by_id(subscription.topic_id)
        if wanted is not None and topic is not None:
            await make_ready(wanted, topic.gene)

    def on_filter(self, group_id: int, topic_id: int) -> None:
        """The group wants something else of the topic from now on.

        Who named another filter is told at once; the others wait for what is wanted now.
        """
        interest = Interest(group_id, topic_id)
        self._waiters.refuse(interest, lambda waiter: self._find_mismatch(interest, waiter))
        self._waiters.wake_interest(interest)

    def _find_mismatch(
        self, interest: Interest, waiter: Waiter
    ) -> errors.SubscriptionMismatch | None:
        if waiter.asked is None:
            return None
        return find_mismatch(self._shard.views.catalog, *interest, waiter.asked)

    async def _wait(self, interest: Interest, waiter: Waiter, wait_ms: int) -> Delivery | None:
        queues = [int(one) for one in self._shard.receiver.queues_of(*interest)]
        self._waiters.add(interest, queues, waiter)
        self._look_at_gates(queues)
        if waiter.is_unfinished:
            self._look_on(interest)
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _give_up, waiter.future)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise
        finally:
            timer.cancel()
            self._waiters.discard(interest, waiter)

    def _give_back(self, delivery: Delivery | None) -> None:
        """The caller went away with its answer on the way: end the lease at once."""
        if delivery is not None:
            lease = delivery.lease
            self._shard.receiver.leases.change(lease, lease.first, lease.end, self._now_ms())
            self._rearm()

    def _serve(self, interest: Interest, waiter: Waiter) -> Delivery | None:
        """What a waiter gets now. Raises `SubscriptionMismatch`."""
        mismatch = self._find_mismatch(interest, waiter)
        if mismatch is not None:
            raise mismatch
        now_ms = self._now_ms()
        receiver = self._shard.receiver
        delivery = receiver.receive(
            *interest,
            count_max=waiter.count_max,
            bytes_max=waiter.bytes_max,
            invisible_ms=waiter.invisible_ms,
            now_ms=now_ms,
            selecting=waiter.selecting,
        )
        waiter.is_unfinished = receiver.is_unfinished
        if waiter.selecting is not None:
            receiver.work += _ASKING_WORK
        if receiver.corrupt:
            self.unasked.bury_corrupt()
        self._note_filtering(now_ms)
        if delivery is None:
            if waiter.is_unfinished and not waiter.future.done():
                self._look_on(interest)
            self._unblock(interest, now_ms)
            return None
        self._observe(delivery, now_ms)
        return delivery

    def _look_on(self, interest: Interest) -> None:
        """Look through more of the queues for those who wait, when others have had their turn."""
        if interest in self._unfinished or not self._waiters.is_waiting(interest):
            return
        if not self._unfinished:
            self._soon(self._look_further)
        self._unfinished[interest] = None

    def _look_further(self) -> None:
        """A slice for the one that has waited longest: several would hold up the loop."""
        interest = next(iter(self._unfinished))
        del self._unfinished[interest]
        if self._unfinished:
            self._soon(self._look_further)
        if not self._is_closing:
            self._shard.receiver.work = 0
            self._waiters.wake_interest(interest)

    def _note_filtering(self, now_ms: int) -> None:
        """Count what the filter did, and put what it passed over into the log in good time."""
        receiver, stats = self._shard.receiver, self._stats
        counts, receiver.counts = receiver.counts, Counts()
        stats.filter_masked += counts.masked
        stats.filter_read += counts.read
        stats.filter_refused += counts.refused
        if receiver.passed_over.next_due_ms() is None:
            return
        self.unasked.pass_over(now_ms)
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
        receiver = self._shard.receiver
        for held in receiver.is_blocked(*interest, now_ms):
            self.unasked.pass_over(now_ms, held)
            window = self._shard.views.acks.get(*held)
            start = self._shard.views.queues.get(held.topic_queue).start_position
            if receiver.leases.count_resolved(held, window, start) < WINDOW_POSITIONS // 2:
                continue  # not a hole: that much is being worked on
            for part in receiver.leases.take_at(held, window.first_unresolved(start)):
                self.unasked.give_back(held, part, now_ms)

    def _to_port(self, delivery: Delivery) -> ports.Delivery:
        shard, units = self._shard, delivery.units
        lease = delivery.lease
        due_ms = units["due_ms"]
        sequences = units["sequence"]
        if int(units["attempt"].max()) > 1:
            due_ms = shard.views.sequences.read_many(sequences)[0]
        low, high = int(sequences.min()), int(sequences.max())
        epochs: Any = shard.views.epochs_of(np.array([low, high], np.uint64))
        if int(epochs[0]) == int(epochs[1]):
            epochs = int(epochs[0])
        else:
            epochs = shard.views.epochs_of(sequences)
        return ports.Delivery(
            shard.shard_id,
            shard.epoch,
            *lease.held,
            lease.lease_id,
            lease.first,
            units,
            delivery.blobs,
            epochs,
            due_ms,
            delivery.receive_ms,
            lease.until_ms,
            delivery.topic,
            delivery.to_check,
        )

    # -- waking -----------------------------------------------------------------------------------

    def _postpone(self, interest: Interest) -> bool:
        """Whether those who wait for this have their turn later: enough was looked at in this one.

        Of many groups with filters each would take its slice at once.
        """
        if self._shard.receiver.work < SLICE_WORK:
            return False
        self._look_on(interest)
        return True

    def on_entries(self, queues: set[int]) -> None:
        """These queues got entries."""
        self._shard.receiver.work = 0
        self._waiters.wake(queues)
        self._look_at_gates(self._waiters.waited_queues())

    def open_gate(self, now_ms: int) -> None:
        """Serve those who wait for entries that have become visible."""
        if self._gate_ms is not None and self._gate_ms <= now_ms:
            waited = self._waiters.waited_queues()
            self._shard.receiver.work = 0
            self._waiters.wake(set(waited))
            self._look_at_gates(self._waiters.waited_queues())

    def _look_at_gates(self, queues: list[int]) -> None:
        """Note when the first entry that somebody waits for becomes visible."""
        earliest: int | None = None
        now_ms = self._now_ms()
        for number in queues:
            if self._shard.views.catalog.find_topic_by_id(topic_of(number)) is None:
                continue  # deleted while somebody waited
            queue = self._shard.views.queues.get(number)
            queue.visible_end(now_ms)
            gate = queue.next_gate_ms()
            if gate is not None and (earliest is None or gate < earliest):
                earliest = gate
        if earliest != self._gate_ms:
            self._gate_ms = earliest
            if earliest is not None:
                self._rearm()

    def next_wakeup_ms(self) -> int | None:
        """When a gate opens or a lease ends, or None."""
        times = [at for at in (self._gate_ms, self.unasked.next_wakeup_ms()) if at is not None]
        return min(times, default=None)

    def end_leases(self, now_ms: int) -> bool:
        """Give back what leases that are over still held, and resolve what was passed over.

        Returns whether anything was appended.
        """
        appended = self.unasked.end_leases(now_ms)
        return self.unasked.pass_over(now_ms) or appended

    def retire(self, error: HourwheelError) -> None:
        """Every long poll fails, for its caller to go elsewhere. Leases are of one reign anyway."""
        self._waiters.close(error)
        self.unasked.retire()
        self._gate_ms = self._passed_due_ms = None

    def close(self) -> None:
        """Answer every long poll; nothing is leased any more."""
        self._is_closing = self.unasked.is_closing = True
        self._waiters.close()

    @property
    def waiting_count(self) -> int:
        """Long polls that wait."""
        return len(self._waiters)


def _give_up(future: "asyncio.Future[Delivery | None]") -> None:
    if not future.done():
        future.set_result(None)
