"""Group commit: what is proposed to a shard is written, synced and applied together.

    waiting    nothing to do; or small calls wait a little for others to share a write with them
    writing    one write and one sync, on a thread of its own; what is proposed meanwhile waits for
               the next write, and what the write before has committed is applied
    applying   what is committed is applied in slices, and its proposers are answered

Small calls (node/broker/small_calls.py): callers that were just answered send their next calls
within some milliseconds. A write costs the processor time of several calls, whether one or sixty
wait for it; so it pays to wait as long as calls keep coming, and not a millisecond longer.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.formats.record_batch import RecordBatch
from node.broker.disk_guard import DiskGuard
from node.broker.small_calls import SmallCalls
from node.replica.mastership import Mastership
from node.shard.shard import Applied, Shard
from node.telemetry.stats import EngineStats
from storage.log.commit_log import LogWrite
from storage.queues.consume_queues import Touched, all_freed

APPLY_SLICE_MS: Final = 2.0
"""Apply takes so long at a time, and one batch more: what gets visible meanwhile waits for that."""
_FULL_DISK_PAUSE_S: Final = 0.05
_LINGER_S: Final = 0.006
"""Small calls wait at most so long, and ..."""
_CALL_S: Final = 0.000_15
"""... so much longer for each call that comes: the loop is busy with reading it so long ..."""
_LOOK_S: Final = 0.002
"""... and only while in each such span ..."""
_KEEP_COMING: Final = 2
"""... at least so many calls come."""
_LATE_S: Final = 0.001
"""A look that is later than this proves no silence: the loop was busy, calls may wait to be read.
"""


class Replication(Protocol):
    """The node's part in its shard's replication: it must know how far the log is."""

    def on_appended(self) -> None:
        """A write begins: what is in it can be sent to others."""
        ...

    def on_flushed(self) -> None:
        """It is durable here."""
        ...

    def on_applied(self, applied: list[Applied]) -> None:
        """Records were applied: their proposers are to be answered."""
        ...

    def on_abandoned(self, dropped: list[RecordBatch], error: errors.DiskFull) -> None:
        """A write found no room, and this was dropped."""
        ...

    def on_stalled(self) -> None:
        """A view found no room for what is committed."""
        ...


@dataclass(frozen=True)
class Durability:
    """When the commit log is synced."""

    is_durable: bool = True
    """With each write; else now and then."""
    flush_ms: int = 200
    """With `is_durable` off: nothing that is written waits longer than this for its sync."""


class SyncSchedule:
    """Sees to it that nothing written waits longer than it may for its sync. Pure."""

    def __init__(self, durability: Durability) -> None:
        """Nothing was written yet."""
        self._is_durable, self._flush_s = durability.is_durable, durability.flush_ms / 1_000
        self._since_s: float | None = None
        """When the first write was begun that is not synced yet."""

    def is_due(self, now_s: float) -> bool:
        """Whether a write that begins now is to be synced."""
        return self._is_durable or self.wait_s(now_s) == 0

    def wait_s(self, now_s: float) -> float | None:
        """How long a sync may wait that no write brings along; None where none is needed."""
        return None if self._since_s is None else max(0.0, self._since_s + self._flush_s - now_s)

    def note(self, begun_s: float, *, is_synced: bool) -> bool:
        """A write, or a sync alone, that was begun then has ended. Whether a wait begins so."""
        begins = not is_synced and self._since_s is None
        if is_synced:
            self._since_s = None
        elif begins:
            self._since_s = begun_s
        return begins


class Linger:
    """How long small calls wait for others to share a write with them. One wait at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """No call waits."""
        self._loop = loop
        self._over: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether `wait` is under way."""
        return self._over is not None

    def end(self) -> None:
        """Do not wait any longer; does nothing where no wait is under way."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def wait(self, count_calls: Callable[[], int]) -> None:
        """Return when calls have stopped coming, or by `end`.

        `count_calls` tells how many have come.
        """
        loop = self._loop
        self._over = over = loop.create_future()
        first = count_calls()
        until_s = loop.time() + _LINGER_S
        look: asyncio.TimerHandle

        def look_after(seen: int) -> None:
            nonlocal look
            at_s = loop.time() + _LOOK_S
            look = loop.call_at(at_s, on_look, seen, at_s)

        def on_look(seen: int, at_s: float) -> None:
            now_s, count = loop.time(), count_calls()
            is_silent = count - seen < _KEEP_COMING and now_s < at_s + _LATE_S
            if is_silent or now_s >= until_s + _CALL_S * (count - first):
                self.end()
            else:
                look_after(count)

        look_after(first)
        try:
            await over
        finally:
            look.cancel()
            self._over = None


class GroupCommit:
    """See the top of this file. On the event loop's thread.

    Invariants: one write is under way at a time; batches are applied in the order of the log, and
    nothing is written or applied any more once one was applied half-way.
    """

    def __init__(
        self,
        shard: Shard,
        guard: DiskGuard,
        stats: EngineStats,
        durability: Durability,
        replication: Replication,
        *,
        now_ms: Callable[[], int],
        on_applied: Callable[[Touched, int], None],
    ) -> None:
        """`on_applied` is called after each slice of apply.

        It gets the queues that were touched, and how many callers at most are answered now.
        """
        self._shard, self._guard, self._stats = shard, guard, stats
        self._replication = replication
        self._now_ms, self._on_applied = now_ms, on_applied
        self._syncs, self._flush_s = SyncSchedule(durability), durability.flush_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._flusher = ThreadPoolExecutor(1, "hourwheel-flusher")
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        """Set when there is nothing to do."""
        self._calls: SmallCalls | None = None
        self.linger = Linger(self._loop)
        """The wait of small calls for others."""
        self.turn = asyncio.Lock()
        """Held while a write is under way: with it held, nothing is being written."""
        self._is_applying = False
        self._appending, self._applying = stats.spans.span("append"), stats.spans.span("apply")
        self._is_broken = False
        """A batch was applied half-way: nothing is written or applied any more."""
        self._task: asyncio.Task[None] | None = None

    def start(self, on_error: Callable[[HourwheelError], None]) -> None:
        """Begin. `on_error` gets the error that ends it; it cannot go on after that."""
        self._on_error = on_error
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(lambda task: _report_error(task, on_error))

    def serve(self, mastership: Mastership) -> SmallCalls:
        """Take small calls for this mastership, until it ends."""
        self._calls = SmallCalls(mastership)
        mastership.hold(self._calls)
        return self._calls

    async def close(self) -> None:
        """End. What is appended and not written is dropped."""
        if self._task is not None:
            self._task.cancel()
        self._flusher.shutdown(wait=True)

    # -- waiting ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something waits to be written, now."""
        self._awake.set()
        self.linger.end()

    def wake_for_small(self) -> None:
        """A small call waits to be written: soon, but others may join it."""
        self._awake.set()
        if self._calls is None or self._calls.is_complete:
            self.linger.end()

    @property
    def _calls_waiting(self) -> int:
        return 0 if self._calls is None else self._calls.waiting_count

    async def drain(self) -> None:
        """Return when everything that is appended or waits to be is applied, or cannot be."""
        if self._task is None:
            return
        self._idle.clear()
        self.wake()
        idle = self._loop.create_task(self._idle.wait())
        await asyncio.wait([self._task, idle], return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()

    async def _run(self) -> None:
        while not self._is_broken:
            calls = self._calls
            if calls and not self._shard.has_appended:
                await self._apply_committed()
                if not calls.is_complete:
                    await self._wait_for_others(calls)
            async with self.turn:
                is_busy = await self._write_once()
            if not is_busy:
                self._awake.clear()
                self._idle.set()
                await self._awake.wait()

    async def _wait_for_others(self, calls: SmallCalls) -> None:
        # Answers leave first: it takes milliseconds, and none of their callers comes back before.
        await asyncio.sleep(0)
        count = calls.waiting_count
        if not calls.is_complete:
            await self.linger.wait(lambda: self._calls_waiting)
            if self._calls_waiting <= count and not self._shard.has_appended:
                calls.on_waited_in_vain()

    # -- writing ----------------------------------------------------------------------------------

    async def _write_once(self) -> bool:
        """Write what there is, and apply what may be. Returns whether there was anything."""
        with self._appending:
            if self._calls is not None:
                self._calls.append(self._now_ms)
            write = self._shard.take_write()
        begun_s = time.perf_counter()
        if write is not None:
            is_durable = self._syncs.is_due(begun_s)
            running = self._loop.run_in_executor(self._flusher, write.run, is_durable)
            self._replication.on_appended()
            await self._apply_committed()
            await self._finish(write, running, begun_s)
        elif self._shard.has_committed:
            await self._apply_committed()
        elif self._syncs.wait_s(begun_s) == 0:
            await self._sync(begun_s)
        else:
            return False
        return True

    async def _sync(self, begun_s: float) -> None:
        """Make durable what the asynchronous mode wrote, where no further write does it."""
        sync = self._shard.log.begin_sync()
        if sync is not None:
            await self._loop.run_in_executor(self._flusher, sync.run)
            self._shard.log.finish_sync(sync)
            self._stats.fsync.observe(time.perf_counter() - begun_s)
        self._syncs.note(begun_s, is_synced=True)

    async def _finish(
        self, write: LogWrite, running: "asyncio.Future[None]", begun_s: float
    ) -> None:
        try:
            await running
        except errors.DiskFull as error:
            self._guard.on_disk_full(self._now_ms())
            self._replication.on_abandoned(self._shard.abandon_write(write), error)
            await asyncio.sleep(_FULL_DISK_PAUSE_S)
            # What was to be dispatched is to be dispatched again.
            self._on_applied(all_freed(()), 0)
            return
        self._shard.finish_write(write)
        duration_s = time.perf_counter() - begun_s
        if self._syncs.note(begun_s, is_synced=write.is_durable):
            self._loop.call_later(self._flush_s, self.wake)
        if write.is_durable:
            self._stats.fsync.observe(duration_s)
        self._stats.append.observe(duration_s)
        self._stats.commit_bytes += write.bytes
        self._stats.commit_batches.observe(write.batch_count)
        self._replication.on_flushed()

    # -- applying ---------------------------------------------------------------------------------

    def apply_soon(self) -> None:
        """More is committed, without a write of ours: apply it, also while one is under way."""
        if not self._is_applying and not self._is_broken and self._shard.has_committed:
            self._apply_slice()
            self._awake.set()

    async def _apply_committed(self) -> None:
        """Apply in slices, so that nothing else on the loop waits long."""
        while self._shard.has_committed and not self._is_broken:
            self._apply_slice()
            await asyncio.sleep(0)

    def _apply_slice(self) -> None:
        self._is_applying = True
        try:
            begun_s, applied = time.perf_counter(), list[Applied]()
            with self._applying:
                while some := self._shard.apply_some(1):
                    applied += some
                    if (time.perf_counter() - begun_s) * 1000 > APPLY_SLICE_MS:
                        break
                if applied:
                    self._replication.on_applied(applied)
        except Exception as error:
            # A batch is half applied, and the caller may not stop for this error.
            self._is_broken = True
            known = error if isinstance(error, HourwheelError) else errors.Internal(repr(error))
            self._on_error(known)
            raise
        finally:
            self._is_applying = False
        if self._shard.is_stalled:
            self._guard.on_disk_full(self._now_ms())
            self._replication.on_stalled()
        answered_count = len(applied)
        if self._calls is not None:
            self._calls.on_answered()
            answered_count += self._calls.taken_count
        self._on_applied(self._shard.applier.take_touched(), answered_count)


def _report_error(task: "asyncio.Task[None]", on_error: Callable[[HourwheelError], None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        on_error(error if isinstance(error, HourwheelError) else errors.Internal(repr(error)))
