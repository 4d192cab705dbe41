"""Check-backs: who is asked what became of a transaction, when; and when nobody is asked any more.

A transaction that is open for its check interval is ready to be asked about. A producer of its
group that polls gets it: the check is logged first, so that a new master counts on. After so many
checks, and one interval more, it is rolled back; and when its age is over, whether anybody could be
asked or not. Where commits are refused, for want of room on the disk, nothing is rolled back; and a
new master gives each transaction an interval's time before it does.

    timer --> ready, by producer group --> a poll takes it, its check is logged --> timer
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Final

from hourwheel.errors import HourwheelError
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.transaction_step import Step
from node.broker.transactions.service import TransactionService
from node.catalog.serving import Serving
from node.contracts.transactions import Check
from storage.views.transactions import Transaction

_LOOKED_AT_ONCE: Final = 1_000
"""Transactions of a look, and of a poll: some milliseconds."""
_ANSWER_BYTES: Final = 4 << 20
"""Of the messages of one poll's checks; a larger transaction comes alone."""
_EXPIRED_AT_ONCE: Final = 256
_AGAIN_MS: Final = 1_000


class CheckDesk:
    """See the top of this file. Of one mastership; on the event loop's thread."""

    def __init__(self, serving: Serving, service: TransactionService) -> None:
        """Transactions that are open are taken up by and by."""
        self._serving, self._service = serving, service
        self._view = serving.mastership.shard.views.transactions
        self._begun_ms = serving.now_ms()
        self._seen_offset = 0
        """Those up to here have a timer, or are decided."""
        self._timers: list[tuple[int, int]] = []
        """A heap of (when to look at it, offset)."""
        self._ready: dict[str, dict[int, None]] = {}
        """Producer group -> offsets that are to be asked about, in the order they got so."""
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        """Producer group -> polls that wait."""
        self._expiring: set[asyncio.Task[None]] = set()
        self._stats = serving.stats

    # -- time -------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Set the timers of transactions that are new here."""
        for offset in self._view.offsets_after(self._seen_offset, is_open=True)[:_LOOKED_AT_ONCE]:
            self._seen_offset = offset
            one = self._view.find(offset)
            if one is not None:
                first_ms = min(self._next_ms(one), self._end_ms(one))
                heappush(self._timers, (first_ms, offset))

    def _next_ms(self, one: Transaction) -> int:
        """When it is to be asked about; or, after the last check, when it is rolled back."""
        return (one.checked_ms or one.prepared_ms) + one.check_interval_ms

    def _end_ms(self, one: Transaction) -> int:
        """When its age is over."""
        return max(one.prepared_ms + one.age_max_ms, self._begun_ms + one.check_interval_ms)

    def look(self, now_ms: int, *, may_expire: bool) -> None:
        """Once a second: what is due. `may_expire`: commits are taken."""
        self._take_up()
        self._note()
        over: list[int] = []
        for _ in range(_LOOKED_AT_ONCE):
            if not self._timers or self._timers[0][0] > now_ms or len(over) >= _EXPIRED_AT_ONCE:
                break
            _, offset = heappop(self._timers)
            one = self._view.find(offset)
            if one is None or not one.is_open:
                self._forget(offset, one)
            elif self._is_over(one, now_ms):
                if may_expire and not self._service.is_ending(offset):
                    over.append(offset)
                heappush(self._timers, (now_ms + _AGAIN_MS, offset))
            else:
                self._make_ready(one, now_ms)
        if over:
            task = asyncio.get_running_loop().create_task(self._expire(over))
            self._expiring.add(task)
            task.add_done_callback(self._expiring.discard)

    def _note(self) -> None:
        """For the metrics: what is open."""
        offset = self._view.floor_offset
        oldest = None if offset is None else self._view.find(offset)
        self._stats.transactions_open = self._view.open_count
        self._stats.transactions_oldest_ms = 0 if oldest is None else oldest.prepared_ms

    def _is_over(self, one: Transaction, now_ms: int) -> bool:
        next_ms = max(self._next_ms(one), self._begun_ms + one.check_interval_ms)
        is_unanswered = one.checks >= one.checks_max and now_ms >= next_ms
        return is_unanswered or now_ms >= self._end_ms(one)

    def _make_ready(self, one: Transaction, now_ms: int) -> None:
        group = one.producer_group
        if one.checks < one.checks_max and now_ms >= self._next_ms(one):
            self._ready.setdefault(group, {})[one.offset] = None
            self._wake(group)
            heappush(self._timers, (self._end_ms(one), one.offset))
        else:
            later_ms = max(now_ms + _AGAIN_MS, self._next_ms(one))
            heappush(self._timers, (min(later_ms, self._end_ms(one)), one.offset))

    async def _expire(self, offsets: list[int]) -> None:
        with suppress(HourwheelError):  # the next look tries again, or another master does
            await self._service.expire(offsets)

    def _forget(self, offset: int, one: Transaction | None) -> None:
        groups = list(self._ready) if one is None else [one.producer_group]
        for group in groups:
            self._drop(group, offset)

    def _drop(self, group: str, offset: int) -> None:
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
            await asyncio.wait_for(future, left_s)
        except TimeoutError:
            pass
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
        """Log a check of each that is handed out."""
        chosen = self._choose(group, set(topics), count_max)
        if not chosen:
            return []
        done = await self._service.step([one.offset for one in chosen], Step.CHECK)
        checks: list[Check] = []
        for before, is_done in zip(chosen, done.tolist(), strict=True):
            one = self._view.find(before.offset)
            if is_done and one is not None and one.is_open:
                checks.append(await self._check_of(one))
        self._stats.transaction_checks += len(checks)
        return checks

    def _choose(self, group: str, topics: set[str], count_max: int) -> list[Transaction]:
        """Those that are ready, and have no other topics; they are ready no longer."""
        chosen: list[Transaction] = []
        left_bytes = _ANSWER_BYTES
        for offset in list(self._ready.get(group, ()))[:_LOOKED_AT_ONCE]:
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
                heappush(self._timers, (self._serving.now_ms() + _AGAIN_MS, offset))
                if not self._service.is_ending(offset):
                    chosen.append(one)
                    left_bytes -= one.size_bytes
        return chosen

    async def _check_of(self, one: Transaction) -> Check:
        _, prepared, counts = await self._service.read(one)
        return Check(
            self._service.id_of(one),
            list(zip(self._service.names_of(one), counts, strict=True)),
            RecordBatch(prepared.batch),
            prepared.delays_ms,
            one.prepared_ms,
            one.checks,
            one.checks_max,
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
