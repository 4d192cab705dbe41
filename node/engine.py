"""The engine: drives one shard in an event loop. Time, threads and waiting are here; rules are not.

    callers --> shard --> [flusher thread: write, fdatasync] --> apply --> answers
    timers  --> dispatch what is due, end leases, open the release gate
    [background thread: checkpoints, merges, cascades]

One write is under way at a time; what is proposed meanwhile is written together next (group
commit). While a write is under way, the batches of the one before are applied.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from node.api import ports
from node.api.ports import Failure
from node.background import Background
from node.configurator import Configurator, DefaultsConfig
from node.consuming import Consuming
from node.disk_guard import DiskGuard
from node.intake import Intake
from node.opening import Opened
from node.precise_timer import make_timer
from node.shard import Answer
from node.stats import EngineStats
from node.status import describe, shard_status
from storage.commit_log import LogWrite

_APPLY_BATCHES: Final = 8
_APPLY_SLICE_MS: Final = 5.0
_DISPATCHES_AHEAD: Final = 4
_HOUSEKEEPING_MS: Final = 1_000
_LINGER_S: Final = 0.002


@dataclass(frozen=True)
class EngineConfig:
    """What the engine is told."""

    horizon_ms: int = 1_100 * 86_400_000
    is_durable: bool = True
    """Acknowledge after fdatasync; else after the write."""
    async_flush_ms: int = 200
    """With `is_durable` off: fdatasync at least this often."""
    defaults: DefaultsConfig = field(default_factory=DefaultsConfig)


class _MergedToken:
    """The callers whose messages one batch holds."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[tuple["asyncio.Future[Any]", int, int]]) -> None:
        self.parts = parts


class Engine:
    """One node's broker (node/api/ports.py has the contract). All calls on the loop's thread."""

    def __init__(
        self,
        opened: Opened,
        config: EngineConfig,
        *,
        now_ms: Callable[[], int],
        guard: DiskGuard,
        failure: Failure,
        cluster_id: bytes,
    ) -> None:
        """Take over an open shard; `start` begins its reign."""
        self.shard = opened.shard
        self.config = config
        self.cluster_id = cluster_id
        self.stats = EngineStats()
        self._now_ms, self._failure = now_ms, failure
        self._loop = asyncio.get_running_loop()
        self._flusher = ThreadPoolExecutor(1, "hourwheel-flusher")
        self._wake_writer = asyncio.Event()
        self._idle = asyncio.Event()
        """Set when the writer finds nothing to do."""
        self._lingering: asyncio.Future[None] | None = None
        self._is_closing = False
        self._timer = make_timer(self._loop, self._or_fail(self._on_timer))
        self._writer_task: asyncio.Task[None] | None = None
        self._timer_ms: float | None = None
        self._guard = guard
        self._last_sync_s = 0.0
        self.background = Background(
            opened.maintenance, now_ms, self._on_job_end, failure, self.stats
        )
        self.consuming = Consuming(self.shard, now_ms, self.propose, self.rearm, self.stats)
        self.configurator = Configurator(self.shard, now_ms, self.propose, config.defaults)
        self.intake = Intake(self, config.horizon_ms, guard)
        self._delegate()
        self._housekeeping: asyncio.TimerHandle | None = None

    def _delegate(self) -> None:
        """The calls of EnginePort that are somebody else's as they stand."""
        intake, configurator = self.intake, self.configurator
        self.publish_batch = intake.publish_batch
        self.publish_messages = intake.publish_messages
        self.cancel = intake.cancel
        self.create_topic = configurator.create_topic
        self.delete_topic = configurator.delete_topic
        self.topic, self.topics = configurator.topic, configurator.topics
        self.put_group = configurator.put_group
        self.delete_group = configurator.delete_group
        self.group, self.groups = configurator.group, configurator.groups

    # -- life -------------------------------------------------------------------------------------

    async def start(self, node_id: str, boot_id: str) -> None:
        """Begin the reign: its first records are durable and applied when this returns."""
        self.shard.begin_epoch(node_id, boot_id, self._now_ms())
        self._writer_task = self._loop.create_task(self._write_forever())
        self._writer_task.add_done_callback(self._on_writer_end)
        await self._drain(self._writer_task)
        self._keep_house()
        self._on_timer()

    def _on_writer_end(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        self.fail(error if isinstance(error, HourwheelError) else errors.Internal(repr(error)))

    def fail(self, error: HourwheelError) -> None:
        """The node cannot go on: the process must end, and nobody is answered any more."""
        self._is_closing = True
        self._failure.report(error)

    def _or_fail(self, step: Callable[[], None]) -> Callable[[], None]:
        """`step` as a callback of the loop, which would only log an exception and go on."""

        def call() -> None:
            try:
                step()
            except HourwheelError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
                self.fail(errors.Internal(repr(error)))

        return call

    async def close(self) -> None:
        """Stop dispatching, finish what is under way, write a checkpoint, close the files."""
        self._is_closing = True
        self._timer.close()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        self.consuming.close()
        if self._writer_task is not None and not self._failure.found.done():
            await self._drain(self._writer_task)
            self._writer_task.cancel()
        if not self._failure.found.done():
            await self.background.close(save=True)
            self.shard.log.close()
            self.shard.views.queues.close()
        else:
            await self.background.close(save=False)
        self._flusher.shutdown(wait=True)

    @property
    def is_closing(self) -> bool:
        """Nothing new is accepted any more."""
        return self._is_closing

    def wake_writer(self) -> None:
        """Something waits to be written, now."""
        self._wake_writer.set()
        self._end_linger()

    def wake_for_single(self) -> None:
        """A single publish waits to be written: soon, but others may join it."""
        self._wake_writer.set()
        if self.intake.is_complete:
            self._end_linger()

    def _end_linger(self) -> None:
        if self._lingering is not None and not self._lingering.done():
            self._lingering.set_result(None)

    def now_ms(self) -> int:
        """The cluster clock."""
        return self._now_ms()

    # -- writing ----------------------------------------------------------------------------------

    def propose(self, append: Callable[[int, Any], None]) -> "asyncio.Future[Any]":
        """Append something: `append(now_ms, token)`. The future gets its verdict.

        Raises:
            ShuttingDown: nothing is appended any more.
        """
        if self._is_closing:
            raise errors.ShuttingDown
        future: asyncio.Future[Any] = self._loop.create_future()
        append(self._now_ms(), future)
        self.wake_writer()
        return future

    async def _drain(self, writer: "asyncio.Task[None]") -> None:
        """Return when everything that is appended or waits to be is applied, or cannot be."""
        self._idle.clear()
        self.wake_writer()
        idle = self._loop.create_task(self._idle.wait())
        await asyncio.wait([writer, idle], return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()

    async def _write_forever(self) -> None:
        """Write, and apply what the write before committed while it is under way."""
        while True:
            if self.intake.has_merges and not self.shard.has_appended:
                await self._apply_committed()
                await self._linger()
            write = self._next_write()
            if write is None and not self.shard.has_committed:
                self._wake_writer.clear()
                self._idle.set()
                await self._wake_writer.wait()
                continue
            running = None
            begun = time.perf_counter()
            if write is not None:
                durable = self.config.is_durable or self._is_sync_due(begun)
                running = self._loop.run_in_executor(self._flusher, write.run, durable)
            await self._apply_committed()
            if running is not None and write is not None:
                await self._finish(write, running, begun)

    async def _linger(self) -> None:
        """Wait a little for more single publishes, where several callers send them.

        Callers that were just answered send their next ones within a millisecond or two; to write
        for each few of them would cost more than their calls do. One or two callers do not wait,
        and nothing else that is to be written does.
        """
        if self.intake.is_complete:
            return
        self._lingering = self._loop.create_future()
        timer = self._loop.call_later(_LINGER_S, self._end_linger)
        await self._lingering
        timer.cancel()
        self._lingering = None

    def _next_write(self) -> LogWrite | None:
        for merge in self.intake.take_merges():
            batch = merge.build()
            self.shard.publish(
                batch,
                batch.due_ms,
                batch.topic_queue,
                self._now_ms(),
                _MergedToken(merge.tokens),
            )
        return self.shard.take_write()

    def _is_sync_due(self, now_s: float) -> bool:
        return (now_s - self._last_sync_s) * 1000 >= self.config.async_flush_ms

    async def _finish(self, write: LogWrite, running: "asyncio.Future[None]", begun: float) -> None:
        try:
            await running
        except errors.DiskFull as error:
            self._guard.on_disk_full(self._now_ms())
            self._answer(self.shard.abandon_write(write, error))
            await asyncio.sleep(0.05)
            return
        self.shard.finish_write(write)
        duration = time.perf_counter() - begun
        self._last_sync_s = begun + duration
        self.stats.append.observe(duration)
        self.stats.fsync.observe(duration)
        self.stats.commit_bytes += write.bytes
        self.stats.commit_batches.observe(write.batch_count)
        self.shard.dispatcher.observe_commit(duration * 1000)

    async def _apply_committed(self) -> None:
        """Apply in slices, so that nothing else on the loop waits long."""
        while self.shard.has_committed:
            begun = time.perf_counter()
            while True:
                answers = self.shard.apply_some(_APPLY_BATCHES)
                self._answer(answers)
                if not answers or (time.perf_counter() - begun) * 1000 > _APPLY_SLICE_MS:
                    break
            touched = self.shard.applier.touched
            if touched:
                self.shard.applier.touched = set()
                self.consuming.on_entries(touched)
            self._on_timer()
            self.background.start_if_due()
            await asyncio.sleep(0)

    def _answer(self, answers: list[Answer]) -> None:
        for token, verdict, error in answers:
            if isinstance(token, _MergedToken):
                self._answer_merged(token, verdict, error)
            elif token is not None and not token.done():
                if error is not None:
                    token.set_exception(error)
                else:
                    token.set_result(verdict)

    @staticmethod
    def _answer_merged(
        token: _MergedToken, verdicts: dict[int, Any], error: HourwheelError | None
    ) -> None:
        for future, first, _ in token.parts:
            if future.done():
                continue
            verdict = error if error is not None else verdicts[first]
            if isinstance(verdict, HourwheelError):
                future.set_exception(verdict)
            else:
                future.set_result(verdict)

    # -- time -------------------------------------------------------------------------------------

    def rearm(self) -> None:
        """Something may be due earlier than the timer is set for."""
        self._set_timer(self._now_ms())

    def _on_timer(self) -> None:
        """Dispatch what is due, end leases, open the release gate, set the next alarm."""
        if self._is_closing:
            return
        now_ms = self._now_ms()
        dispatched = 0
        while self.shard.dispatches_in_flight < _DISPATCHES_AHEAD:
            if not self.shard.dispatch_due(now_ms):
                break
            dispatched += 1
        self.shard.views.wheel.load_ahead(self.shard.views.cursor.key, now_ms)
        if self.consuming.end_leases(now_ms) or dispatched:
            self.wake_writer()
        self.consuming.open_gate(now_ms)
        self._set_timer(now_ms)

    def _set_timer(self, now_ms: int) -> None:
        wakeups = [
            self.shard.dispatcher.next_wakeup_ms(self.shard.views),
            self.consuming.next_wakeup_ms(),
        ]
        times = [at for at in wakeups if at is not None]
        if not times:
            self._timer.clear()
            return
        self._timer.set_in(min(times) - now_ms)

    def _keep_house(self) -> None:
        """Once a second: room on the disk, retention, forgotten producers."""
        if self._is_closing:
            return
        now_ms = self._now_ms()
        self._guard.check(now_ms)
        maintenance = self.background.maintenance
        if maintenance.is_clean_up_due(now_ms):
            trim, expire = maintenance.plan_trim_ms(now_ms), maintenance.plan_expire_ms(now_ms)
            if trim is not None:
                self.shard.trim(trim, now_ms)
            if expire is not None:
                self.shard.expire_producers(expire, now_ms)
            self.wake_writer()
        if not self.config.is_durable:
            self.wake_writer()
        self.background.start_if_due()
        self._housekeeping = self._loop.call_later(
            _HOUSEKEEPING_MS / 1000, self._or_fail(self._keep_house)
        )

    def _on_job_end(self) -> None:
        self.rearm()

    # -- the rest, by those who know --------------------------------------------------------------

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        max_messages: int,
        max_bytes: int,
        wait_ms: int,
        invisible_ms: int,
    ) -> ports.Delivery | None:
        """See EnginePort."""
        if self._is_closing:
            raise errors.ShuttingDown
        known, group_config = await self.configurator.subscribe(group, topic)
        return await self.consuming.receive(
            known,
            group_config,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            invisible_ms=invisible_ms or group_config.invisible_ms,
        )

    async def resolve(
        self,
        group: str,
        selections: "list[ports.Selection]",
        *,
        retry_delay_ms: int | None,
        is_ack: bool,
    ) -> list[int]:
        """See EnginePort."""
        found = self.shard.views.catalog.get_group(group)
        return await self.consuming.resolve(
            found, selections, retry_delay_ms=retry_delay_ms, is_ack=is_ack
        )

    def change_invisible(
        self, group: str, selections: "list[ports.Selection]", invisible_ms: int
    ) -> tuple[list[int], int]:
        """See EnginePort."""
        found = self.shard.views.catalog.get_group(group)
        return self.consuming.change_invisible(found, selections, invisible_ms)

    def status(self) -> ports.ShardStatusData:
        """See EnginePort."""
        return shard_status(self.shard, self.background.maintenance, self._guard, self._now_ms())

    def describe(self, message_id: Any) -> ports.MessageInfo:
        """See EnginePort."""
        return describe(self.shard, message_id)
