"""The writer: group commits of one shard, and the apply of what they committed.

One write is under way at a time, on a thread of its own; what is proposed meanwhile is written
together next (group commit). While a write is under way, the batches of the one before are applied,
in slices.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.errors import HourwheelError
from node.broker.disk_guard import DiskGuard
from node.broker.linger import Linger
from node.broker.merged_token import MergedToken
from node.broker.publish_service import Intake
from node.broker.sync_schedule import SyncSchedule
from node.shard.shard import Answer, Shard
from node.telemetry.stats import EngineStats
from storage.log.commit_log import LogWrite

_APPLY_BATCHES: Final = 8
_APPLY_SLICE_MS: Final = 5.0
_FULL_DISK_PAUSE_S: Final = 0.05


class Replication(Protocol):
    """Whoever must know how far the log is, where there are other nodes."""

    def on_appended(self) -> None:
        """A write begins: what is in it can be sent to others."""
        ...

    def on_flushed(self) -> None:
        """It is durable here."""
        ...

    def on_applied(self) -> None:
        """Records were applied."""
        ...

    def on_full_disk(self) -> None:
        """A write found no room and was dropped."""
        ...

    def on_stalled(self) -> None:
        """A view found no room for what is committed."""
        ...


class Writer:
    """Writes what is proposed to a shard, applies it, and answers who proposed it."""

    def __init__(
        self,
        shard: Shard,
        guard: DiskGuard,
        stats: EngineStats,
        *,
        now_ms: Callable[[], int],
        on_applied: Callable[[set[int]], None],
        syncs: SyncSchedule,
        flush_ms: int,
    ) -> None:
        """`on_applied` is told the queues that got entries, after each slice of apply."""
        self._shard, self._guard, self._stats = shard, guard, stats
        self._now_ms, self._on_applied = now_ms, on_applied
        self._syncs, self._flush_s = syncs, flush_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._flusher = ThreadPoolExecutor(1, "hourwheel-flusher")
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        """Set when there is nothing to do."""
        self.replication: Replication | None = None
        """None for a node alone."""
        self.turn = asyncio.Lock()
        """Held while a write is under way: who holds it knows that nothing is being written."""
        self._is_applying = False
        self._is_broken = False
        """A batch was applied half-way: nothing is written or applied any more."""
        self._linger = Linger(self._loop)
        self._task: asyncio.Task[None] | None = None

    def start(self, intake: Intake, on_error: Callable[[HourwheelError], None]) -> None:
        """Begin. `on_error` is told of what ends it; it cannot go on after that."""
        self._intake, self._on_error = intake, on_error
        self._task = self._loop.create_task(self._write_forever())
        self._task.add_done_callback(lambda task: _tell(task, on_error))

    async def close(self) -> None:
        """End. What is appended and not written is dropped."""
        if self._task is not None:
            self._task.cancel()
        self._flusher.shutdown(wait=True)

    def wake(self) -> None:
        """Something waits to be written, now."""
        self._awake.set()
        self._linger.end()

    def wake_for_single(self) -> None:
        """A single publish waits to be written: soon, but others may join it."""
        self._awake.set()
        if self._intake.is_complete:
            self._linger.end()

    async def drain(self) -> None:
        """Return when everything that is appended or waits to be is applied, or cannot be."""
        if self._task is None:
            return
        self._idle.clear()
        self.wake()
        idle = self._loop.create_task(self._idle.wait())
        await asyncio.wait([self._task, idle], return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()

    async def _write_forever(self) -> None:
        """Write, and apply what the write before committed while it is under way."""
        while not self._is_broken:
            if self._intake.has_merges and not self._shard.has_appended:
                await self._apply_committed()
                if not self._intake.is_complete:
                    await self._linger.wait(lambda: self._intake.waiting_count)
            async with self.turn:
                is_busy = await self._write_once()
            if not is_busy:
                self._awake.clear()
                self._idle.set()
                await self._awake.wait()

    async def _write_once(self) -> bool:
        """Write what there is, and apply what may be. Returns whether there was anything."""
        write = self._next_write()
        begun = time.perf_counter()
        if write is None and not self._shard.has_committed:
            if self._syncs.wait_s(begun) == 0:
                await self._sync(begun)
                return True
            return False
        running = None
        if write is not None:
            durable = self._syncs.is_due(begun)
            running = self._loop.run_in_executor(self._flusher, write.run, durable)
            if self.replication is not None:
                self.replication.on_appended()
        await self._apply_committed()
        if running is not None and write is not None:
            await self._finish(write, running, begun)
        return True

    def _next_write(self) -> LogWrite | None:
        for merge in self._intake.take_merges():
            batch = merge.build()
            self._shard.publish(
                batch,
                batch.due_ms,
                batch.topic_queue,
                self._now_ms(),
                MergedToken(merge.tokens),
            )
        return self._shard.take_write()

    async def _sync(self, begun: float) -> None:
        """Make durable what the asynchronous mode wrote, where no further write does it."""
        sync = self._shard.log.begin_sync()
        if sync is not None:
            await self._loop.run_in_executor(self._flusher, sync.run)
            self._shard.log.finish_sync(sync)
            self._stats.fsync.observe(time.perf_counter() - begun)
        self._syncs.note(begun, is_synced=True)

    async def _finish(self, write: LogWrite, running: "asyncio.Future[None]", begun: float) -> None:
        try:
            await running
        except errors.DiskFull as error:
            self._guard.on_disk_full(self._now_ms())
            answer: HourwheelError = error
            if self.replication is not None:  # others may have it, and may keep it
                answer = errors.Timeout("the disk is full: the outcome is unknown")
            self.answer(self._shard.abandon_write(write, answer))
            if self.replication is not None:
                self.replication.on_full_disk()
            await asyncio.sleep(_FULL_DISK_PAUSE_S)
            self._on_applied(set())  # what was to be dispatched is to be dispatched again
            return
        self._shard.finish_write(write)
        duration = time.perf_counter() - begun
        if self._syncs.note(begun, is_synced=write.is_durable):
            self._loop.call_later(self._flush_s, self.wake)
        self._stats.append.observe(duration)
        if write.is_durable:
            self._stats.fsync.observe(duration)
        self._stats.commit_bytes += write.bytes
        self._stats.commit_batches.observe(write.batch_count)
        if self.replication is None:
            self._shard.dispatcher.observe_commit(duration * 1000)
        else:
            self.replication.on_flushed()

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
            begun = time.perf_counter()
            while True:
                answers = self._shard.apply_some(_APPLY_BATCHES)
                self.answer(answers)
                if not answers or (time.perf_counter() - begun) * 1000 > _APPLY_SLICE_MS:
                    break
        except Exception as error:
            # A batch is half applied. Whoever asked for this may have other reasons to go on.
            self._is_broken = True
            told = error if isinstance(error, HourwheelError) else errors.Internal(repr(error))
            self._on_error(told)
            raise
        finally:
            self._is_applying = False
        if self._shard.is_stalled:
            self._guard.on_disk_full(self._now_ms())
            if self.replication is not None:
                self.replication.on_stalled()
        self._intake.expect_answered()
        touched, self._shard.applier.touched = self._shard.applier.touched, set()
        self._on_applied(touched)
        if self.replication is not None:
            self.replication.on_applied()

    @staticmethod
    def answer(answers: list[Answer]) -> None:
        """Tell who proposed something what became of it."""
        for token, verdict, error in answers:
            if isinstance(token, MergedToken):
                token.answer(verdict, error)
            elif token is not None and not token.done():
                if error is not None:
                    token.set_exception(error)
                else:
                    token.set_result(verdict)


def _tell(task: "asyncio.Task[None]", on_error: Callable[[HourwheelError], None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        on_error(error if isinstance(error, HourwheelError) else errors.Internal(repr(error)))
