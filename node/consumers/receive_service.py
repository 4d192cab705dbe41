"""The receive service: Receive calls, long polls, and the turns that serve them.

Each call, and each callback, is a turn: it reads the clock here, once, and hands the reading down
(node/consumers/polls.py).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from hourwheel.instants import earliest
from hourwheel.types import GroupId, Position, SequenceNumber, TopicId, TopicQueue
from node.catalog.filter_cache import make_ready
from node.catalog.serving import ServingConsumers
from node.catalog.subscriptions import Subscribed
from node.consumers.ack_service import AckService
from node.consumers.housekeeping import Housekeeping
from node.consumers.loop_share import LoopShare
from node.consumers.polls import Polls, Step
from node.consumers.receive_streams import ReceiveStreams
from node.consumers.waiters import Interest, Waiter
from node.contracts import broker
from node.contracts.answer_budget import AnswerBudget
from node.contracts.receive_stream import Piece, Push
from node.delivery.dead_letter_selection import CallFilter
from node.delivery.deliveries import Delivery
from node.delivery.expiry_sweep import ExpirySweep
from storage.queues.consume_queues import Touched, all_freed
from storage.views.catalog_items import Subscription
from storage.views.unit import copied

_COMES_BACK_MS: Final = 5_000
"""The lease of an answer that got lost lasts so long, for the same poll to be repeated."""
_STREAM_LOOK_S: Final = 10.0
"""So often an open stream is asked whether there still is what it reads."""
SCAN_MS: Final = 500
"""A call that does not wait scans queues for so long, in slices; the first slice in any case."""


class ReceiveService:
    """The consumers' side of a mastership."""

    def __init__(
        self,
        serving: ServingConsumers,
        budget: AnswerBudget,
        on_damage: Step,
    ) -> None:
        """`budget`: of answers that clients have not read. `on_damage`: see `Polls`."""
        shard = serving.mastership.shard
        self._shard, self._receiver = shard, serving.mastership.receiver
        self._now_ms, self._rearm = serving.now_ms, serving.rearm
        self._check, self._guarded = serving.check, serving.guarded
        self.housekeeping = Housekeeping(serving)
        self.ack_service = AckService(serving, self.housekeeping.reads)
        self._sweep = ExpirySweep(shard.views, self._receiver, shard.bodies)
        self._polls = Polls(serving, self.housekeeping, self._take_turn_soon, budget, on_damage)
        self._streams = ReceiveStreams(
            self._polls, self._now_ms, self._may_act, self._guarded, self._to_port
        )
        self._streams.restore(self._receiver.leases.polled(), self._now_ms())
        self._turn = asyncio.Lock()
        """Held by the call without a wait that goes on with its scan in this turn of the loop."""
        self._share = LoopShare(lambda: shard.log.end_offset)
        self._is_closing = False

    # -- receive ----------------------------------------------------------------------------------

    async def receive(
        self, subscribed: Subscribed, params: broker.ReceiveParams
    ) -> broker.Delivery | None:
        """Lease messages, waiting for the first; or repeat the answer of the same attempt.

        A call that does not wait gets what it finds within `SCAN_MS`. Where little matches its
        filter, or that costs much, the answer is empty, and the next call goes on with the scan.

        Raises:
            SubscriptionMismatch: the filter was changed meanwhile, and the caller named another.
            NotMaster: the node may not serve, by now.
            Overloaded: there is no room for an answer; a call that waits, waits for room, too.
        """
        interest, waiter = await self._prepare(subscribed, params)
        future, wait_ms = waiter.future, params.wait_ms
        now_ms = self._now_ms()
        delivery = self._polls.begin(interest, waiter, now_ms)
        until_ms = now_ms + SCAN_MS
        while delivery is None and waiter.is_unfinished and wait_ms <= 0 and not self._is_closing:
            async with self._turn:
                await self._share.rest()
                self._check()
                now_ms = self._now_ms()
                delivery = self._polls.receive(interest, waiter, now_ms)
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

    async def _prepare(
        self, subscribed: Subscribed, params: broker.ReceiveParams
    ) -> tuple[Interest, Waiter]:
        """Who is to be served. Raises `NotMaster`: not by this node."""
        subscription, group, requested, call_filter = subscribed
        interest = Interest(group.group_id, subscription.topic_id)
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future, params, params.invisible_ms or group.invisible_ms, requested)
        if call_filter is not None:
            waiter.call_filter = CallFilter(call_filter)
        await self._make_ready(subscription, call_filter)
        self._check()
        return interest, waiter

    async def receive_stream(
        self, subscribed: Subscribed, params: broker.ReceiveParams, push: Push[broker.Delivery]
    ) -> None:
        """Push messages as they become visible, until the caller goes away: see `EnginePort`."""
        if subscribed.call_filter is not None:
            raise errors.InvalidArgument(
                "on a topic of the cluster's own a stream takes no filter", field="filter"
            )
        interest, waiter = await self._prepare(subscribed, params)
        if self._is_closing:
            return
        self._streams.open(interest, waiter, push)
        try:
            while not waiter.future.done() and self._is_there(interest):
                await asyncio.wait([waiter.future], timeout=_STREAM_LOOK_S)
            if waiter.future.done():
                waiter.future.result()
        finally:
            waiter.future.cancel()
            unsent = self._streams.end(interest, waiter)
            self._give_back_unsent(unsent, comes_back=not push.stream.is_given_up)

    def _is_there(self, interest: Interest) -> bool:
        catalog = self._shard.views.catalog
        return (
            catalog.find_group_by_id(interest.group_id) is not None
            and catalog.find_subscription(*interest) is not None
        )

    def _give_back_unsent(self, pieces: Sequence[Piece], *, comes_back: bool) -> None:
        """These were not sent: they are given back, soon where the client may come back for them.

        The client has not seen them, so they are as if they had never been leased; but for what was
        sent before.
        """
        leases, until_ms = self._receiver.leases, self._now_ms()
        until_ms += _COMES_BACK_MS if comes_back else 0
        for piece in pieces:
            lease = leases.get(piece.lease_id)
            if lease is None:
                continue
            end_ms = min(lease.until_ms, until_ms)
            high = lease.count if piece.size is None else piece.first + piece.size
            for first, end in lease.ranges(piece.first, high):
                leases.change(lease, first, end, end_ms, is_unseen=not piece.was_sent)
        if pieces:
            self._rearm()

    async def _make_ready(
        self, subscription: Subscription, call_filter: FilterExpression | None
    ) -> None:
        """Compile the filter on another thread, if it is large and was not used lately."""
        wanted = call_filter or subscription.filter
        topic = self._shard.views.catalog.find_topic_by_id(subscription.topic_id)
        if wanted is not None and topic is not None:
            await make_ready(wanted, topic.gene)

    def on_filter(self, group_id: GroupId, topic_id: TopicId) -> None:
        """The group's filter for the topic has changed."""
        if self._may_act():
            self._polls.on_filter(Interest(group_id, topic_id), self._now_ms())

    def on_reset(self, group_id: GroupId, topic_id: TopicId) -> None:
        """The group begins anew in the topic, or will not."""
        interest = Interest(group_id, topic_id)
        self._polls.on_reset(interest, self._now_ms(), may_act=self._may_act())

    def _may_act(self) -> bool:
        try:
            self._check()
        except HourwheelError:
            return False
        return True

    def _take_turn_soon(self, step: Step) -> None:
        """`step` in a turn of its own, after a rest, if the node may act then."""

        def take() -> None:
            if self._may_act():
                step(self._now_ms())
            else:
                self._polls.stop_scans()

        self._share.after_rest(self._guarded(take))

    async def _answer_to(self, interest: Interest, waiter: Waiter, wait_ms: int) -> Delivery | None:
        """The answer to a poll that waits."""
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
        """The caller went away with its answer on the way and has not seen it: end the lease.

        At once; or soon, where the caller may repeat its poll.
        """
        if delivery is None or not self._polls.is_last(interest, waiter):
            return
        lease, until_ms = delivery.lease, self._now_ms()
        if waiter.params.attempt is not None:
            until_ms = min(lease.until_ms, until_ms + _COMES_BACK_MS)
        self._receiver.leases.change(
            lease, lease.first, lease.end, until_ms, is_unseen=not delivery.is_repeated
        )
        self._rearm()

    def _to_port(self, delivery: Delivery) -> broker.Delivery:
        shard, units = self._shard, delivery.units
        lease = delivery.lease
        due_ms, sequences, rows = units["due_ms"], units["sequence"], delivery.rows
        if rows is None:
            low = SequenceNumber(int(sequences.min()))
            high = SequenceNumber(int(sequences.max()))
            is_otherwise = bool((units["attempt"] != 1).any())
        else:
            own = [row.sequence for row in rows]
            low, high = min(own), max(own)
            is_otherwise = any([row.attempt != 1 for row in rows])  # noqa: C419 - a few
        if is_otherwise:  # given back, or moved: its id has the due time that it was published with
            due_ms = shard.views.sequences.read_many(sequences)[0]
            units = copied(units)
            units["attempt"] = np.maximum(units["attempt"], 1)
        epoch = shard.views.find_epoch(low, high)
        epochs = shard.views.epochs_of(sequences) if epoch is None else epoch
        return broker.Delivery(
            shard=shard.shard_id,
            epoch=self._receiver.epoch,
            group_id=lease.group_queue.group_id,
            topic_queue=lease.group_queue.topic_queue,
            lease_id=lease.lease_id,
            first_position=Position(lease.first),
            units=units,
            blobs=delivery.blobs,
            message_epochs=epochs,
            due_ms=due_ms,
            receive_ms=delivery.receive_ms,
            invisible_until_ms=lease.until_ms,
            topic=delivery.topic,
            to_check=delivery.to_check,
            first_ordinal=delivery.first_ordinal,
        )

    # -- turns ------------------------------------------------------------------------------------

    def turn(self, touched: Touched, now_ms: int) -> bool:
        """Take a turn at `now_ms`, behind records that touched these queues.

        Serves the polls that wait, gives back what ended leases still hold, looks for what has
        expired, and resolves that and filtered ranges. Returns whether anything was appended.
        """
        self._polls.turn(touched, now_ms)
        appended = self.housekeeping.end_leases(now_ms)
        reopened = self.housekeeping.reopened
        if reopened:
            self._polls.turn(all_freed(reopened), now_ms)
            reopened.clear()
        if not self._is_closing:
            self._sweep.step(now_ms)
        return self.housekeeping.resolve_filtered(now_ms) or appended

    def waited_queues(self) -> list[TopicQueue]:
        """Queues with waiters."""
        return self._polls.waited_queues()

    def next_wakeup_ms(self) -> int | None:
        """When the next turn has to be: an entry opens to waiters, or a lease ends; or None."""
        return earliest(
            self._polls.next_wakeup_ms(),
            self.housekeeping.next_wakeup_ms(),
            None if self._is_closing else self._sweep.next_ms(),
        )

    def next_allowance_ms(self, now_ms: int) -> int | None:
        """When a group that its rate holds back may get something again, who waits or not."""
        return self._polls.next_allowance_ms(now_ms)

    def close(self, error: HourwheelError | None = None) -> None:
        """Answer every long poll, with nothing or an error; lease nothing any more."""
        self._is_closing = self.housekeeping.is_closing = True
        self._polls.close(error)
        self._streams.close(error)

    @property
    def waiting_count(self) -> int:
        """Long polls that wait."""
        return len(self._polls)


def _give_up(future: "asyncio.Future[Delivery | None]") -> None:
    if not future.done():
        future.set_result(None)
