"""Check-backs: when a producer is asked for a transaction's outcome, and when it is rolled back.

A transaction that has been open for its check interval is ready for a check. A producer of its
group that polls gets it: the check is logged first, so that a new master goes on counting. A
transaction is rolled back one interval after its last allowed check, and when it reaches its
maximum age, whether a producer could be asked or not. While commits are refused, no check is handed
out and nothing is rolled back; while dispatching is paused, nothing is rolled back. A new master,
and one at the end of such a time, first gives each transaction another check interval. A
transaction whose messages are damaged on this node is neither asked about nor rolled back.

    timer --> ready, by producer group --> a poll takes it, its check is logged --> timer
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hourwheel.errors import HourwheelError, Unavailable
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import Prepared
from hourwheel.types import FIRST_OFFSET, Offset
from node.broker.transactions.service import TransactionService
from node.broker.transactions.timers import Timers
from node.catalog.serving import Serving
from node.contracts.transactions import Check
from storage.views.transactions import Transaction

LOOKED_AT_ONCE: Final = 1_000
"""Transactions of a look, and of a poll: some milliseconds."""
_ANSWER_BYTES: Final = 4 << 20
"""Of the messages of one poll's checks; a larger transaction comes alone."""
_EXPIRED_AT_ONCE: Final = 256
_AGAIN_MS: Final = 1_000
_STALE_MAX: Final = 1_000
"""Timers of transactions that have ended, beside one for each that is open."""


class CheckBackService:
    """See the top of this file. Of one mastership; on the event loop's thread."""

    def __init__(self, serving: Serving, service: TransactionService) -> None:
        """Transactions that are open are taken up by and by."""
        self._serving, self._service = serving, service
        self._view = serving.mastership.shard.views.transactions
        self._begun_ms = serving.now_ms()
        """Since when they may be rolled back."""
        self._may_ask = self._may_expire = True
        self._seen_offset = FIRST_OFFSET
        """Those up to here have a timer, or are decided."""
        self._timers = Timers()
        """When to look at each."""
        self._ready: dict[str, dict[Offset, None]] = {}
        """Producer group -> offsets that are to be asked about, in the order they got so."""
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        """Producer group -> polls that wait."""
        self._expiring: set[asyncio.Task[None]] = set()
        self._stats = serving.stats

    # -- time -------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Set the timers of transactions that are new here."""
        for offset in self._view.offsets_after(self._seen_offset, is_open=True)[:LOOKED_AT_ONCE]:
            self._seen_offset = offset
            one = self._view.find(offset)
            if one is not None:
                self._timers.set(offset, min(self._next_ms(one), self._end_ms(one, 0)))

    def _next_ms(self, one: Transaction) -> int:
        """When it is to be asked about; or, after the last check, when it is rolled back."""
        return (one.checked_ms or one.prepared_ms) + one.check_interval_ms

    def _end_ms(self, one: Transaction, now_ms: int) -> int:
        """When its age is over."""
        return max(one.prepared_ms + one.age_max_ms, self._grace_ms(one, now_ms))

    def _grace_ms(self, one: Transaction, now_ms: int) -> int:
        """Before then nothing rolls it back."""
        begun_ms = self._begun_ms + one.check_interval_ms
        return max(begun_ms, self._service.withheld.until_ms(one, now_ms))

    def look(self, now_ms: int) -> None:
        """Once a second: what is due."""
        self._take_up()
        self._note()
        for offset in self._service.withheld.look(now_ms, self._view.is_open):
            self._timers.set(offset, now_ms)
        if len(self._timers) > 2 * self._view.open_count + _STALE_MAX:
            self._forget_ended()
        may_ask = self._service.is_committing
        may_expire = may_ask and not self._service.is_paused
        if may_expire and not self._may_expire:
            self._begun_ms = now_ms
        if may_ask and not self._may_ask:
            for group in self._ready:
                self._wake(group)
        self._may_ask, self._may_expire = may_ask, may_expire
        if may_ask:
            self._look_at_due(now_ms)

    def _look_at_due(self, now_ms: int) -> None:
        over: dict[Offset, None] = {}
        for _ in range(LOOKED_AT_ONCE):
            offset = self._timers.pop_due(now_ms) if len(over) < _EXPIRED_AT_ONCE else None
            if offset is None:
                break
            one = self._view.find(offset)
            if one is None or not one.is_open:
                self._forget(offset, one)
            elif self._is_over(one, now_ms):
                if self._may_expire and not self._service.is_ending(offset):
                    over[offset] = None
                self._timers.set(offset, now_ms + _AGAIN_MS)
            else:
                self._make_ready(one, now_ms)
        if over:
            task = asyncio.get_running_loop().create_task(self._expire(list(over)))
            self._expiring.add(task)
            task.add_done_callback(self._expiring.discard)

    def _forget_ended(self) -> None:
        """Those that end before anybody has to ask are most of them."""
        self._timers.keep(self._view.is_open)
        for group, ready in list(self._ready.items()):
            for offset in [one for one in ready if not self._view.is_open(one)]:
                self._drop(group, offset)

    def _note(self) -> None:
        """For the metrics: what is open."""
        offset = self._view.floor_offset
        oldest = None if offset is None else self._view.find(offset)
        self._stats.transactions_open = self._view.open_count
        self._stats.transactions_oldest_ms = 0 if oldest is None else oldest.prepared_ms

    def _is_over(self, one: Transaction, now_ms: int) -> bool:
        next_ms = max(self._next_ms(one), self._grace_ms(one, now_ms))
        is_unanswered = one.checks >= one.checks_max and now_ms >= next_ms
        return is_unanswered or now_ms >= self._end_ms(one, now_ms)

    def _make_ready(self, one: Transaction, now_ms: int) -> None:
        group, end_ms = one.producer_group, self._end_ms(one, now_ms)
        is_due = one.checks < one.checks_max and now_ms >= self._next_ms(one)
        if is_due and not self._service.withheld.is_damaged(one.offset):
            self._ready.setdefault(group, {})[one.offset] = None
            self._wake(group)
            self._timers.set(one.offset, end_ms)
        else:
            later_ms = max(now_ms + _AGAIN_MS, self._next_ms(one))
            self._timers.set(one.offset, min(later_ms, end_ms))

    async def _expire(self, offsets: list[Offset]) -> None:
        with suppress(HourwheelError):  # the next look tries again, or another master does
            await self._service.expire(offsets)

    def _forget(self, offset: Offset, one: Transaction | None) -> None:
        groups = list(self._ready) if one is None else [one.producer_group]
        for group in groups:
            self._drop(group, offset)

    def _drop(self, group: str, offset: Offset) -> None:
        ready = self._ready.get(group)
        if ready is not None:
            ready.pop(offset, None)
            if not ready:
                del self._ready[group]

    # -- polls ------------------------------------------------------------------------------------

    async def poll(
        self, group: str, topics: Sequence[str], count_max: int, wait_ms: int
    ) -> list[Check]:
        """See TransactionPort.poll_checks."""
        self._serving.check()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1_000
        while True:
            found = await self._take(group, topics, count_max)
            left_s = until_s - loop.time()
            if found or left_s <= 0:
                return found
            await self._wait(group, left_s)

    async def _wait(self, group: str, left_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, set()).add(future)
        try:
            # Not `asyncio.wait_for`: Python 3.11's loses a cancellation that meets the result.
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await future
        finally:
            others = self._waiting[group]
            others.discard(future)
            if not others:
                del self._waiting[group]

    def _wake(self, group: str) -> None:
        for one in self._waiting.get(group, ()):
            if not one.done():
                one.set_result(None)

    async def _take(self, group: str, topics: Sequence[str], count_max: int) -> list[Check]:
        """Log a check of each that is handed out: of those that can be read."""
        chosen = await self._choose(group, set(topics), count_max)
        async with self._service.reading.holding(sum(one.size_bytes for one in chosen)):
            return await self._log_checks(chosen)

    async def _log_checks(self, chosen: list[Transaction]) -> list[Check]:
        read = await self._read(chosen)
        if not read:
            return []
        done = await self._service.step([one.offset for one, _, _ in read], Step.CHECK)
        checks: list[Check] = []
        for (before, prepared, counts), is_done in zip(read, done.tolist(), strict=True):
            one = self._view.find(before.offset)
            if is_done and one is not None and one.is_open:
                checks.append(self._check_of(one, prepared, counts))
        self._stats.transaction_checks += len(checks)
        return checks

    async def _read(
        self, chosen: list[Transaction]
    ) -> list[tuple[Transaction, Prepared, list[int]]]:
        """What they are about, of those that are not damaged."""
        found = []
        for one in chosen:
            with suppress(Unavailable):
                _, prepared, counts = await self._service.read(one)
                found.append((one, prepared, counts))
        return found

    async def _choose(self, group: str, topics: set[str], count_max: int) -> list[Transaction]:
        """As `_choose_some`, of all of the group."""
        for _ in range(0, len(self._ready.get(group, ())), LOOKED_AT_ONCE):
            chosen = self._choose_some(group, topics, count_max)
            if chosen or not self._service.is_committing:
                return chosen
            await asyncio.sleep(0)
        return []

    def _choose_some(self, group: str, topics: set[str], count_max: int) -> list[Transaction]:
        """Those that are ready, and have no other topics; they are ready no longer.

        Others go to the end of the line, where they are not in the way.
        """
        if not self._service.is_committing:
            return []
        chosen: list[Transaction] = []
        left_bytes = _ANSWER_BYTES
        for offset in list(self._ready.get(group, ()))[:LOOKED_AT_ONCE]:
            if len(chosen) >= count_max:
                break
            one = self._view.find(offset)
            if one is not None and chosen and one.size_bytes > left_bytes:
                break
            if one is None or not one.is_open:
                self._drop(group, offset)
            elif topics.issuperset(self._service.names_of(one)):
                self._drop(group, offset)
                # Also where the poll ends before its checks are logged.
                self._timers.set(offset, self._serving.now_ms() + _AGAIN_MS)
                if not self._service.is_ending(offset):
                    chosen.append(one)
                    left_bytes -= one.size_bytes
            else:
                ready = self._ready[group]
                ready[offset] = ready.pop(offset)
        return chosen

    def _check_of(self, one: Transaction, prepared: Prepared, counts: list[int]) -> Check:
        return Check(
            transaction_id=self._service.id_of(one),
            topics=list(zip(self._service.names_of(one), counts, strict=True)),
            batch=RecordBatch(prepared.batch),
            delays_ms=prepared.delays_ms,
            prepared_ms=one.prepared_ms,
            number=one.checks,
            checks_max=one.checks_max,
        )

    # -- the end ----------------------------------------------------------------------------------

    def close(self, error: HourwheelError) -> None:
        """Answer all polls that wait."""
        for polls in list(self._waiting.values()):
            for one in polls:
                if not one.done():
                    one.set_exception(error)
        for task in self._expiring:
            task.cancel()
        self._stats.transactions_open = self._stats.transactions_oldest_ms = 0
