"""Receive, acknowledge, give back: leases on one side, RESOLVE records on the other."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.types import topic_of
from hourwheel.wire.consumer_pb2 import ReceiptOutcome
from node.api import ports
from node.api.ports import Selection
from node.configurator import Propose
from node.leases import Held
from node.receive import Delivery
from node.retries import ack_rows, dead_rows, retry_rows, unresolved_of
from node.shard import Shard
from node.stats import EngineStats
from node.waiters import Interest, Waiter, Waiters
from storage.ack_state import WINDOW_POSITIONS
from storage.catalog import Group, Subscription
from storage.unit import release_ms

_LEASES_AT_ONCE: Final = 4_096
_TRY_AGAIN_MS: Final = 1_000


class Consuming:
    """The consumers' side of the engine."""

    def __init__(
        self,
        shard: Shard,
        now_ms: Callable[[], int],
        propose: Propose,
        rearm: Callable[[], None],
        stats: EngineStats,
    ) -> None:
        """`rearm` is called when something may have to happen earlier than was planned."""
        self._shard, self._now_ms, self._propose = shard, now_ms, propose
        self._rearm, self._stats = rearm, stats
        self._waiters = Waiters(self._serve)
        self._gate_ms: int | None = None
        self._is_closing = False

    # -- receive ----------------------------------------------------------------------------------

    async def receive(
        self,
        subscription: Subscription,
        group: Group,
        *,
        max_messages: int,
        max_bytes: int,
        wait_ms: int,
        invisible_ms: int,
    ) -> ports.Delivery | None:
        """Lease messages, waiting for the first."""
        interest = Interest(group.group_id, subscription.topic_id)
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future, max_messages, max_bytes, invisible_ms)
        delivery = self._serve(interest, waiter)
        if delivery is None and wait_ms > 0 and not self._is_closing:
            delivery = await self._wait(interest, waiter, wait_ms)
        return None if delivery is None else self._to_port(delivery)

    async def _wait(self, interest: Interest, waiter: Waiter, wait_ms: int) -> Delivery | None:
        queues = [int(one) for one in self._shard.receiver.queues_of(*interest)]
        self._waiters.add(interest, queues, waiter)
        self._look_at_gates(queues)
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _give_up, waiter.future)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled():
                self._give_back(waiter.future.result())
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
        now_ms = self._now_ms()
        receiver = self._shard.receiver
        delivery = receiver.receive(
            *interest,
            count_max=waiter.count_max,
            bytes_max=waiter.bytes_max,
            invisible_ms=waiter.invisible_ms,
            now_ms=now_ms,
        )
        if receiver.corrupt:
            self._bury_corrupt()
        if delivery is None:
            self._unblock(interest, now_ms)
            return None
        self._observe(delivery, now_ms)
        return delivery

    def _observe(self, delivery: Delivery, now_ms: int) -> None:
        units, stats = delivery.units, self._stats
        stats.delivered += len(units)
        late = now_ms - release_ms(units)
        stats.lateness.observe_many(late, 0.001)
        early = int((late < 0).sum())
        if early:
            stats.early_deliveries += early
            errors.violated("a message was about to be delivered early", count=early)

    def _bury_corrupt(self) -> None:
        """Corrupt messages become dead letters: never served, and the queue goes on."""
        corrupt, self._shard.receiver.corrupt = self._shard.receiver.corrupt, []
        for one in corrupt:
            self._stats.crc_errors += 1
            self._on_corrupt(one.error)
            ranges = [(one.position, one.position + 1)]
            rows = ack_rows if self._is_buried(one.held) else dead_rows
            self._resolve_unasked(one.held, ranges, rows(one.held, ranges))

    def _is_buried(self, held: Held) -> bool:
        """Whether these are a group's own dead letters: to bury one again would never end."""
        group = self._shard.views.catalog.find_group_by_id(held.group_id)
        return group is not None and group.dead_letter_topic_id == topic_of(held.topic_queue)

    on_corrupt: Callable[[errors.DataLoss], None] | None = None
    """Told of each message whose bytes are lost, for the log."""

    def _on_corrupt(self, error: errors.DataLoss) -> None:
        if self.on_corrupt is not None:
            self.on_corrupt(error)

    def _unblock(self, interest: Interest, now_ms: int) -> None:
        """A window is full, mostly of resolved positions: end the lease at its floor."""
        receiver = self._shard.receiver
        for held in receiver.is_blocked(*interest, now_ms):
            window = self._shard.views.acks.get(*held)
            resolved = sum(end - first for first, end in window.ranges())
            if resolved < WINDOW_POSITIONS // 2:
                continue  # not a hole: that much is being worked on
            for part in receiver.leases.take_at(held, window.floor):
                self._give_up(held, unresolved_of(self._shard.views, held, part), now_ms)

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
        )

    # -- waking -----------------------------------------------------------------------------------

    def on_entries(self, queues: set[int]) -> None:
        """These queues got entries."""
        self._waiters.wake(queues)
        self._look_at_gates(self._waiters.waited_queues())

    def open_gate(self, now_ms: int) -> None:
        """Serve those who wait for entries that have become visible."""
        if self._gate_ms is not None and self._gate_ms <= now_ms:
            waited = self._waiters.waited_queues()
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
        ends = self._shard.receiver.leases.next_end_ms()
        times = [at for at in (self._gate_ms, ends) if at is not None]
        return min(times, default=None)

    # -- leases that end --------------------------------------------------------------------------

    def end_leases(self, now_ms: int) -> bool:
        """Give back what leases that are over still held. Returns whether anything was appended."""
        leases = self._shard.receiver.leases
        if self._is_closing:
            return False
        ended = leases.take_ended(now_ms, _LEASES_AT_ONCE)
        appended = False
        for held, part in ended:
            ranges = unresolved_of(self._shard.views, held, part)
            if ranges:
                self._stats.lease_expirations += 1
                appended |= self._give_up(held, ranges, now_ms)
        return appended

    def _give_up(self, held: Held, ranges: list[tuple[int, int]], now_ms: int) -> bool:
        group = self._shard.views.catalog.find_group_by_id(held.group_id)
        if group is None or not self._reads(group, held.topic_queue) or self._is_closing:
            return False
        rows = retry_rows(self._shard.views, group, held, ranges, now_ms, None)
        self._resolve_unasked(held, ranges, rows)
        return True

    def _resolve_unasked(
        self, held: Held, ranges: list[tuple[int, int]], rows: NDArray[Any]
    ) -> None:
        """Resolve what no consumer asked for. Where there is no room for it, try again later."""

        def end(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled() and done.exception() is not None:
                again_ms = self._now_ms() + _TRY_AGAIN_MS
                for first, end in ranges:
                    self._shard.receiver.leases.hold(held, first, end, again_ms)
                self._rearm()

        future = self._propose(lambda now, token: self._shard.resolve(rows, now, token))
        future.add_done_callback(end)

    # -- acknowledgements -------------------------------------------------------------------------

    async def resolve(
        self,
        group: Group,
        selections: Sequence[Selection],
        *,
        retry_delay_ms: int | None,
        is_ack: bool,
    ) -> list[int]:
        """A ReceiptOutcome for each selection."""
        outcomes = [int(ReceiptOutcome.RECEIPT_OUTCOME_INVALID)] * len(selections)
        rows, asked = [], []
        now_ms = self._now_ms()
        for ordinal, one in enumerate(selections):
            span = self._positions(group, one)
            if span is None:
                continue
            held = Held(group.group_id, one.receipt.topic_queue)
            made = (
                ack_rows(held, [span])
                if is_ack
                else retry_rows(self._shard.views, group, held, [span], now_ms, retry_delay_ms)
            )
            rows.append(made)
            asked.append((ordinal, len(made), span[1] - span[0]))
        if not rows:
            return outcomes
        merged = np.concatenate(rows) if len(rows) > 1 else rows[0]
        counts: list[int] = await self._propose(
            lambda now, token: self._shard.resolve(merged, now, token)
        )
        at = 0
        for ordinal, width, count in asked:
            done = sum(counts[at : at + width])
            at += width
            complete = done == count
            outcomes[ordinal] = int(
                ReceiptOutcome.RECEIPT_OUTCOME_OK
                if complete
                else ReceiptOutcome.RECEIPT_OUTCOME_STALE
            )
            if is_ack:
                self._stats.acknowledged += done
            if complete:
                self._end_if_whole(selections[ordinal])
        return outcomes

    def _positions(self, group: Group, one: Selection) -> tuple[int, int] | None:
        """[first, end) of a selection, or None where no such lease was ever given to the group."""
        shard, receipt = self._shard, one.receipt
        if receipt.cluster != shard.cluster or receipt.group_id != group.group_id:
            return None
        if receipt.epoch > shard.epoch or not self._reads(group, receipt.topic_queue):
            return None
        first = receipt.first_position + one.first
        end = first + one.count
        held = Held(group.group_id, receipt.topic_queue)
        limit: int = shard.views.queues.get(receipt.topic_queue).end_position
        if receipt.epoch == shard.epoch:
            limit = shard.receiver.leases.next_position(held)
        return (first, end) if one.count > 0 and end <= limit else None

    def _reads(self, group: Group, topic_queue: int) -> bool:
        catalog, topic_id = self._shard.views.catalog, topic_of(topic_queue)
        retries = catalog.find_subscription_by_retry(topic_id)
        if retries is not None and retries.group_id == group.group_id:
            return True
        return catalog.find_subscription(group.group_id, topic_id) is not None

    def _end_if_whole(self, one: Selection) -> None:
        leases = self._shard.receiver.leases
        lease = leases.get(one.receipt.lease_id)
        if (
            lease is not None
            and one.receipt.epoch == self._shard.epoch
            and one.count >= lease.count
        ):
            leases.end(lease.lease_id)

    def change_invisible(
        self, group: Group, selections: Sequence[Selection], invisible_ms: int
    ) -> tuple[list[int], int]:
        """A ReceiptOutcome for each selection, and when the changed leases end."""
        until_ms = self._now_ms() + invisible_ms
        outcomes = [self._change_one(group, one, until_ms) for one in selections]
        self._rearm()
        return outcomes, until_ms

    def _change_one(self, group: Group, one: Selection, until_ms: int) -> int:
        if self._positions(group, one) is None:
            return int(ReceiptOutcome.RECEIPT_OUTCOME_INVALID)
        leases = self._shard.receiver.leases
        lease = leases.get(one.receipt.lease_id)
        if lease is None or one.receipt.epoch != self._shard.epoch:
            return int(ReceiptOutcome.RECEIPT_OUTCOME_STALE)
        if one.receipt.first_position != lease.first:
            return int(ReceiptOutcome.RECEIPT_OUTCOME_INVALID)
        first = lease.first + one.first
        leases.change(lease, first, first + one.count, until_ms)
        return int(ReceiptOutcome.RECEIPT_OUTCOME_OK)

    def retire(self, error: HourwheelError) -> None:
        """Every long poll fails, for its caller to go elsewhere. Leases are of one reign anyway."""
        self._waiters.close(error)
        self._gate_ms = None

    def close(self) -> None:
        """Answer every long poll; nothing is leased any more."""
        self._is_closing = True
        self._waiters.close()

    @property
    def waiting_count(self) -> int:
        """Long polls that wait."""
        return len(self._waiters)


def _give_up(future: "asyncio.Future[Delivery | None]") -> None:
    if not future.done():
        future.set_result(None)
