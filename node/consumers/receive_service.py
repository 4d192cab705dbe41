"""Receive, acknowledge, give back: leases on one side, RESOLVE records on the other.

Here is the clock of the consumers' side: each call, and each callback, is a turn that reads it once
and hands the reading down (node/consumers/polls.py).
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from node.catalog.filter_cache import make_ready
from node.catalog.serving import Serving
from node.catalog.subscriptions import Subscribed
from node.consumers.ack_service import Resolving
from node.consumers.housekeeping import Unasked
from node.consumers.loop_share import LoopShare
from node.consumers.polls import Polls, Step
from node.consumers.waiters import Interest, Waiter
from node.contracts import broker
from node.contracts.answer_budget import AnswerBudget, HeldAnswer
from node.delivery.dead_letter_selection import Selecting
from node.delivery.receiver import Delivery
from storage.views.catalog_items import Subscription

_COMES_BACK_MS: Final = 5_000
"""So long what was leased by an answer that got lost is kept for who asks for it again."""
LOOK_MS: Final = 500
"""So long a call that does not wait looks through queues, in slices; in the first in any case."""


class Consuming:
    """The consumers' side of the engine."""

    def __init__(
        self,
        serving: Serving,
        budget: AnswerBudget,
        on_damage: Step,
    ) -> None:
        """`budget`: of answers that are not read. `on_damage`: see `Polls`."""
        shard = serving.mastership.shard
        self._shard, self._receiver = shard, serving.mastership.receiver
        self._now_ms, self._rearm = serving.now_ms, serving.rearm
        self._check, self._guarded = serving.check, serving.guarded
        self.unasked = Unasked(serving)
        self.acks = Resolving(serving, self.unasked.reads)
        self._polls = Polls(serving, self.unasked, self._take_turn_soon, budget, on_damage)
        self._turn = asyncio.Lock()
        """Held by the call without a wait that looks further in this turn of the loop."""
        self._share = LoopShare(lambda: shard.log.end_offset)
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
        attempt: broker.Attempt | None = None,
        held: HeldAnswer | None = None,
    ) -> broker.Delivery | None:
        """Lease messages, waiting for the first; or what the same attempt was answered before.

        Who does not wait gets what is found within `LOOK_MS`: where a filter leaves much out, or
        costs much, the answer is empty then, and the next call goes on behind what was looked at.

        Raises:
            SubscriptionMismatch: the filter was changed meanwhile, and the caller named another.
            NotMaster: the node may not serve, by now.
            Overloaded: there is no room for an answer; who waits, waits for room, too.
        """
        subscription, group, asked, selecting = subscribed
        interest = Interest(group.group_id, subscription.topic_id)
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future, max_messages, max_bytes, invisible_ms, asked)
        waiter.attempt, waiter.held = attempt, held
        if selecting is not None:
            waiter.selecting = Selecting(selecting)
        await self._make_ready(subscription, selecting)
        self._check()
        now_ms = self._now_ms()
        delivery = self._polls.begin(interest, waiter, now_ms)
        until_ms = now_ms + LOOK_MS
        while delivery is None and waiter.is_unfinished and wait_ms <= 0 and not self._is_closing:
            async with self._turn:
                await self._share.rest()
                self._check()
                now_ms = self._now_ms()
                delivery = self._polls.ask(interest, waiter, now_ms)
            if now_ms >= until_ms:
                break
        if waiter.is_starved and wait_ms <= 0:
            raise errors.Overloaded(
                "too many bytes of answers are not read", limit="limits.answer_bytes"
            )
        if delivery is None and wait_ms > 0 and not self._is_closing and not future.done():
            self._polls.wait(interest, waiter, now_ms)  # in the turn that found nothing
            delivery = await self._answer_to(interest, waiter, wait_ms)
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
        """The group wants something else of the topic from now on."""
        if self._may_act():
            self._polls.on_filter(Interest(group_id, topic_id), self._now_ms())

    def _may_act(self) -> bool:
        try:
            self._check()
        except HourwheelError:
            return False
        return True

    def _take_turn_soon(self, step: Step) -> None:
        """`step` in a turn of its own, after a rest, if anybody may be served then."""

        def take() -> None:
            if self._may_act():
                step(self._now_ms())
            else:
                self._polls.look_no_further()

        self._share.after_rest(self._guarded(take))

    async def _answer_to(self, interest: Interest, waiter: Waiter, wait_ms: int) -> Delivery | None:
        """What a waiter gets in the end."""
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _give_up, waiter.future)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(interest, waiter, future.result())
            raise
        finally:
            timer.cancel()
            self._polls.discard(interest, waiter)

    def _give_back(self, interest: Interest, waiter: Waiter, delivery: Delivery | None) -> None:
        """The caller went away with its answer on the way: end the lease.

        At once; or soon, where the caller may come back for the answer.
        """
        if delivery is None or not self._polls.is_last(interest, waiter):
            return
        lease, until_ms = delivery.lease, self._now_ms()
        if waiter.attempt is not None:
            until_ms = min(lease.until_ms, until_ms + _COMES_BACK_MS)
        self._receiver.leases.change(lease, lease.first, lease.end, until_ms)
        self._rearm()

    def _to_port(self, delivery: Delivery) -> broker.Delivery:
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
        return broker.Delivery(
            shard.shard_id,
            self._receiver.epoch,
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

    # -- turns ------------------------------------------------------------------------------------

    def turn(self, touched: Iterable[int], now_ms: int) -> bool:
        """Do what is to be done at `now_ms`, of which some queues were touched by new records.

        Serves those who wait, gives back what leases that are over still held, and resolves what
        was passed over. Returns whether anything was appended.
        """
        self._polls.turn(touched, now_ms)
        appended = self.unasked.end_leases(now_ms)
        return self.unasked.pass_over(now_ms) or appended

    def waited_queues(self) -> list[int]:
        """Queues that somebody waits for."""
        return self._polls.waited_queues()

    def next_wakeup_ms(self) -> int | None:
        """When an entry opens that somebody waits for, or a lease ends; or None."""
        times = self._polls.next_wakeup_ms(), self.unasked.next_wakeup_ms()
        return min((at for at in times if at is not None), default=None)

    def close(self, error: HourwheelError | None = None) -> None:
        """Answer every long poll, with nothing or an error; nothing is leased any more."""
        self._is_closing = self.unasked.is_closing = True
        self._polls.close(error)

    @property
    def waiting_count(self) -> int:
        """Long polls that wait."""
        return len(self._polls)


def _give_up(future: "asyncio.Future[Delivery | None]") -> None:
    if not future.done():
        future.set_result(None)
