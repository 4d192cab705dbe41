"""Runs a shard's background jobs on one thread, and wakes callers that wait for them."""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from hourwheel import errors
from node.shard.job_planner import Job, Maintenance, Work
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats
from timewheel.compaction import Pause

T = TypeVar("T")

_DUTY: Final = 0.5
"""Merges and cascades rest as long as they work: half of one core at most, in slices."""
_REST_S_MAX: Final = 0.2
_RETRY_S: Final = 1.0
_LOOK_S: Final = 1.0
"""So often the jobs' thread, which waits for the loop, looks whether that still runs."""


class Background:
    """One job at a time, on a thread of its own."""

    def __init__(
        self,
        maintenance: Maintenance,
        now_ms: Callable[[], int],
        on_end: Callable[[], None],
        failure: Failure,
        stats: EngineStats,
    ) -> None:
        """`on_end` is called in the loop after each job that changed the wheel."""
        self.maintenance = maintenance
        self._now_ms, self._on_end, self._failure, self._stats = now_ms, on_end, failure, stats
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "hourwheel-background")
        self._task: asyncio.Task[None] | None = None
        self._job_name = ""
        """Of the job that is under way, or was last."""
        self._planning = stats.spans.span("plan_job")
        self._ending = stats.spans.span("finish_job")
        self._stopping = threading.Event()
        self._settling: asyncio.Handle | None = None
        """The next turn in which a plan is prepared."""
        self._near = asyncio.Event()
        self._not_before_s = 0.0
        self._is_save_requested = False
        """A checkpoint is requested, whether one is due or not."""
        self._is_beside_wanted = threading.Event()
        """A merge is to wait for a checkpoint."""
        self._beside: asyncio.Future[None] | None = None
        """The end of the checkpoint that a merge waits for."""
        self._has_no_room = False
        """The last job found the disk full, or could not even begin."""

    def start_if_due(self) -> None:
        """Begin the next job, if there is one and none is under way."""
        if self._stopping.is_set() or self._failure.found.done():
            return
        if self._task is not None and not self.maintenance.can_save_beside:
            return
        if self._loop.time() < self._not_before_s or self._settling is not None:
            return
        with self._planning:
            if not self.maintenance.settle(self._now_ms()):
                self._settling = self._loop.call_soon(self._settle_on)
                return
            if self._task is not None:
                self._is_beside_wanted.set()
                return
            job = self._plan(save=self._is_save_requested)
        if job is not None:
            self._is_save_requested = False
            self._job_name = job.name
            self._task = self._loop.create_task(self._run(job))
            self._task.add_done_callback(self._on_task_end)

    def save_soon(self) -> None:
        """Begin a checkpoint when what is under way is done: its files were found damaged."""
        self._is_save_requested = True
        self.start_if_due()

    def _settle_on(self) -> None:
        self._settling = None
        with self._failure.catching():
            self.start_if_due()

    def _plan(self, *, save: bool = False) -> Job | None:
        try:
            return self.maintenance.plan(self._now_ms(), force_checkpoint=save)
        except errors.DiskFull:
            self._on_no_room()
            return None

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        self._is_beside_wanted.clear()
        self._end_beside()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            known = error if isinstance(error, errors.HourwheelError) else None
            self._failure.report(known or errors.Internal(repr(error)))
            return
        self._wake_waiting()
        self._on_end()
        self.start_if_due()

    def _wake_waiting(self) -> None:
        """Wake callers that wait for flushing to catch up."""
        self._near.set()
        self._near.clear()

    async def _run(self, job: Job) -> None:
        begun = time.perf_counter()
        try:
            await self._loop.run_in_executor(self._thread, self._work, job)
        except errors.DiskFull:
            self.maintenance.fail(job)
            self._has_no_room = True
            self._not_before_s = self._loop.time() + _RETRY_S
            return
        except _Stopped:
            self.maintenance.fail(job)
            return
        self._has_no_room = False
        with self._ending:
            removals = self.maintenance.finish(job, self._now_ms())
        if removals:
            await self._loop.run_in_executor(self._thread, _run_all, removals)
        self._count(job.name, time.perf_counter() - begun)

    def _work(self, job: Job) -> None:
        """On the jobs' thread."""
        with self._stats.spans.aside(job.name):
            job.run(_Throttle(self._stopping, self._save_beside))

    def _save_beside(self) -> None:
        """On the jobs' thread, where a merge rests: the checkpoint that is wanted, if one is."""
        if not self._is_beside_wanted.is_set():
            return
        job = self._in_loop(self._plan_beside)
        if job is None:
            return
        begun = time.perf_counter()
        try:
            with self._stats.spans.aside(job.name):
                job.run(_go_on)
        except errors.DiskFull:
            self._in_loop(partial(self._fail_beside, job))
        else:
            _run_all(self._in_loop(partial(self._finish_beside, job, begun)))

    def _in_loop(self, step: Callable[[], T]) -> T:
        """What `step` gives in the loop; on the jobs' thread, which waits for it."""
        found: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                found.set_result(step())
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                found.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        while not concurrent.futures.wait([found], _LOOK_S).done:
            if not self._loop.is_running():
                raise _Stopped
        return found.result()

    def _plan_beside(self) -> Job | None:
        self._is_beside_wanted.clear()
        if self._stopping.is_set():
            return None
        try:
            with self._planning:
                job = self.maintenance.plan_beside(self._now_ms())
        except errors.DiskFull:
            self._on_no_room()
            return None
        if job is not None:
            self._beside = self._loop.create_future()
        return job

    def _finish_beside(self, job: Job, begun: float) -> list[Work]:
        with self._ending:
            removals = self.maintenance.finish(job, self._now_ms())
        self._count(job.name, time.perf_counter() - begun)
        self._has_no_room = False
        self._end_beside()
        self._on_end()
        return removals

    def _fail_beside(self, job: Job) -> None:
        self.maintenance.fail(job)
        self._on_no_room()
        self._end_beside()

    def _end_beside(self) -> None:
        if self._beside is not None:
            self._beside.set_result(None)
            self._beside = None
            self._wake_waiting()

    def _on_no_room(self) -> None:
        self._has_no_room = True
        self._not_before_s = self._loop.time() + _RETRY_S
        self._wake_waiting()

    def _count(self, name: str, seconds: float) -> None:
        stats = self._stats
        if name == "checkpoint":
            stats.checkpoints += 1
            stats.flushes += 1
            stats.checkpoint_seconds = seconds
            stats.checkpoint_ms = self._now_ms()
        elif name == "merge":
            stats.merges += 1
        else:
            stats.cascades += 1

    async def run_aside(self, work: Callable[[Pause], T]) -> T:
        """Run `work(pause)` on the jobs' thread, between two jobs.

        What it has to do with files is so never done while a job's files are removed.

        Raises:
            ShuttingDown: it was not begun, or left off.
        """
        if self._stopping.is_set():
            raise errors.ShuttingDown
        try:
            throttle = _Throttle(self._stopping, _go_on)
            return await self._loop.run_in_executor(self._thread, work, throttle)
        except _Stopped:
            raise errors.ShuttingDown from None

    def end_with(self, step: Callable[[], object]) -> "asyncio.Future[None]":
        """Begin no job any more, and call `step` when none is under way: merges are left for it.

        The future is done then. What `step` does with the manifest no job undoes.
        """
        self._stopping.set()
        ended = self._loop.create_future()

        def end(_: object = None) -> None:
            try:
                step()
            finally:
                ended.set_result(None)

        if self._task is None:
            end()
        else:
            self._task.add_done_callback(end)
        return ended

    async def wait_for_checkpoint(self) -> None:
        """Return when no checkpoint is under way: only then may the log be cut.

        (A checkpoint saves the log's indexes as of its beginning; merges and cascades read only
        what is committed, and that is never cut.)
        """
        while True:
            if self._task is not None and self._job_name == "checkpoint":
                await asyncio.wait([self._task])
            elif self._beside is not None:
                await asyncio.wait([self._beside])
            else:
                return

    async def wait_until_near(self) -> None:
        """Wait until publishing no longer outruns flushing.

        Not where the disk has no room to flush to: there the log has none either, and the publish
        fails with that error.
        """
        while self.maintenance.is_far_behind and not (self._stopping.is_set() or self._has_no_room):
            self.start_if_due()
            await self._near.wait()

    async def close(self, *, save: bool) -> None:
        """End what is under way (merges are dropped), then with `save` write a last checkpoint."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._near.set()
        if save and self.maintenance.unsaved_bytes and not self._failure.found.done():
            job = self._plan(save=True)
            if job is not None:
                await self._run(job)
        self._thread.shutdown(wait=True)


def _run_all(works: list[Work]) -> None:
    for work in works:
        work()


def _go_on() -> None:
    """Between two slices there is nothing to do."""


class _Stopped(Exception):
    """The node closes: leave the merge."""


class _Throttle:
    """What a job calls between two slices: rest as long as the slice took, and `then`."""

    def __init__(self, stopping: threading.Event, then: Callable[[], None]) -> None:
        self._stopping, self._then = stopping, then
        self._since = time.perf_counter()

    def __call__(self) -> None:
        worked = time.perf_counter() - self._since
        rest = min(worked * (1 - _DUTY) / _DUTY, _REST_S_MAX)
        if self._stopping.wait(rest):
            raise _Stopped
        self._then()
        self._since = time.perf_counter()
