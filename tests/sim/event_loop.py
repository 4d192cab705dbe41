"""An asyncio event loop of one simulated process: its time is the simulation's, and so is its end.

The tasks that a node runs beside its rules (node/repair/damage_control.py and what it calls) are
the real ones. Each turn is an event of the simulation: it waits while the process is stopped, and
never comes when the process has ended. What would run on a thread runs a little later.
"""

import asyncio
import inspect
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from contextvars import Context

    from tests.sim.cluster_node import SimNode

T = TypeVar("T")
_CREATED = inspect.CORO_CREATED


_loops: "weakref.WeakSet[SimLoop]" = weakref.WeakSet()


def end_abandoned() -> None:
    """A simulation is left off midway: what has not had its first turn never will."""
    for loop in list(_loops):
        loop.end()


class SimLoop(asyncio.AbstractEventLoop):
    """See the top of this file. Only what those tasks use."""

    def __init__(self, node: "SimNode") -> None:
        self._node, self._life = node, node.life
        self._tasks: set[asyncio.Task[None]] = set()
        _loops.add(self)
        self._begun: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.failures: list[str] = []
        """What was raised where nobody catches it."""

    def time(self) -> float:
        return self._node.monotonic_ms() / 1_000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def run_here(self, action: Callable[[], T]) -> T:
        """Do `action` as a turn of this loop."""
        former = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return action()
        finally:
            asyncio._set_running_loop(former)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task that nobody waits for."""

        def turn() -> None:
            task = self.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.run_here(turn)

    async def pause(self, wait_s: float) -> None:
        """Let the simulation's time pass."""
        over = self.create_future()
        self.call_later(wait_s, over.set_result, None)
        await over

    # -- turns ------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: "Context | None" = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._later(0.0, handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: "Context | None" = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: "Context | None" = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._later(max(0.0, when - self.time()) * 1_000, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _later(self, delay_ms: float, handle: asyncio.Handle) -> None:
        def turn() -> None:
            if not handle.cancelled():
                self.run_here(handle._run)

        if self._node.life == self._life:
            self._node.later(delay_ms, turn)

    # -- futures and tasks ------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], **options: Any
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._begun.add(task)
        if self._node.life != self._life:
            self.end()
        return task

    def end(self) -> None:
        """The process has ended: what has not had its first turn never will."""
        for task in list(self._begun):
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == _CREATED:
                work.close()

    def run_in_executor(  # type: ignore[override]
        self, executor: None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Do `func` a little later: a crash of the disk in it ends the process."""
        del executor
        future = self.create_future()
        self._node.later(
            self._node.cluster.events.random.random(), lambda: self.do(future, func, *args)
        )
        return future

    def do(self, future: "asyncio.Future[T]", func: Callable[..., T], *args: Any) -> None:
        """Do `func`, and let `future` have what becomes of it."""
        if future.done():
            return
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - whoever awaits it sees to it
            future.set_exception(error)
        else:
            future.set_result(result)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._node.life == self._life:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")
