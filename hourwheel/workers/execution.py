"""Runs handlers: coroutines as tasks, functions in threads, each within its time limit.

Nothing that a handler does ends the process by an exception: `SystemExit` and `KeyboardInterrupt`
cost its message one attempt, as any other does. What a thread does cannot be ended from outside.
So where a function is past its limit, its message is given up, another thread takes the place of
the one that hangs, and `is_spoiled` says that a thread of this process is lost: a child is replaced
then. Where nothing replaces the process (`App.serve`), so many threads of a handler may hang and no
more; then its messages wait for one of them, without a limit, for they have not begun.
"""

import asyncio
import contextlib
import contextvars
import logging
import os
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

from hourwheel.workers.handler import Handler, MessageContext
from hourwheel.workers.payloads import InvalidPayload
from hourwheel.workers.results import DONE, Result, failed, rejected, result_of

GRACE_S: Final = 2.0
"""How long a cancelled coroutine may take to clean up."""
HUNG_MAX: Final = 64
"""Threads of one handler that may hang until its messages wait for them."""
_log = logging.getLogger("hourwheel.worker")

CallNext: TypeAlias = Callable[[MessageContext], Awaitable[Any]]
Middleware: TypeAlias = Callable[[MessageContext, CallNext], Awaitable[Any]]
"""Called around each handler: it may look, wait, raise, or not call the next one at all."""


class _Call:
    """One message in work."""

    def __init__(self, handler: Handler, note_begun: Callable[[], None]) -> None:
        """`note_begun`: see `Execution.run`."""
        self.handler, self.note_begun = handler, note_begun
        self._loop = asyncio.get_running_loop()
        self._begun_s: float | None = None
        self.thread: Future[BaseException | None] | None = None
        """What runs its function, where that is no coroutine."""

    def begin(self) -> None:
        """The program's own code runs from now on. Called in threads, too, perhaps twice."""
        if self._begun_s is None:
            self._begun_s = self._loop.time()
        self.note_begun()

    def left_s(self) -> float:
        """How long it may still take: all of its time while it has not begun."""
        limit_s = self.handler.time_limit_ms / 1_000
        if self._begun_s is None:
            return limit_s
        return self._begun_s + limit_s - self._loop.time()

    def drop(self) -> None:
        """Its function is called no more, or has begun."""
        if self.thread is not None and not self.thread.cancel():
            self.note_begun()

    @property
    def hangs(self) -> bool:
        """A thread is still at it."""
        return self.thread is not None and not self.thread.done()


class _Threads:
    """Those of one handler: one for each of its places, and those that hang."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._executor = self._make()
        self._hung_count = 0
        self.places = asyncio.Semaphore(handler.concurrency)
        """Who has one finds a thread."""

    def _make(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._handler.concurrency, f"hourwheel-{self._handler.name}")

    def submit(self, function: Callable[[], BaseException | None]) -> Future[BaseException | None]:
        """Run it. Its caller has a place."""
        return self._executor.submit(function)

    def leave(self, call: _Call) -> None:
        """The call is given up or done with: its place is free, unless too many threads hang."""
        if call.thread is None or call.thread.done():
            self.places.release()
            return
        self._executor.shutdown(wait=False)  # what runs there ends there
        self._executor = self._make()
        self._hung_count += 1
        has_place = self._hung_count <= HUNG_MAX
        if has_place:
            self.places.release()
        _log.warning(
            "%d functions of %s are past their time limit and hang in their threads%s",
            self._hung_count,
            self._handler.name,
            "" if has_place else f": more than {HUNG_MAX}, so messages wait for them",
        )
        loop = asyncio.get_running_loop()
        call.thread.add_done_callback(lambda _: self._tell(loop, has_place=has_place))

    def _tell(self, loop: asyncio.AbstractEventLoop, *, has_place: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(partial(self._on_return, has_place=has_place))

    def _on_return(self, *, has_place: bool) -> None:
        self._hung_count -= 1
        if not has_place:
            self.places.release()

    def close(self) -> None:
        """Start nothing any more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Execution:
    """Runs the handlers of one process."""

    def __init__(self, handlers: Sequence[Handler], middleware: Sequence[Middleware] = ()) -> None:
        """`middleware`: the first one is the outermost."""
        self._middleware = tuple(middleware)
        self._threads = {
            handler: _Threads(handler) for handler in handlers if not handler.is_coroutine
        }
        self.is_spoiled = False
        """A handler is past its time limit and cannot be ended: so this process should be."""

    async def run(
        self,
        handler: Handler,
        context: MessageContext,
        note_begun: Callable[[], None] = lambda: None,
    ) -> Result:
        """What became of one message. Raises nothing but `CancelledError`.

        Args:
            handler: is called.
            context: of the message.
            note_begun: called before the program's own code is, in the thread that runs it;
                perhaps more than once.
        """
        call = _Call(handler, note_begun)
        threads = self._threads.get(handler)
        if threads is None:
            return await self._run_within_limit(call, context)
        await threads.places.acquire()
        try:
            return await self._run_within_limit(call, context)
        finally:
            threads.leave(call)

    async def _run_within_limit(self, call: _Call, context: MessageContext) -> Result:
        handler = call.handler
        task = asyncio.ensure_future(self._call(call, context))
        try:
            while (left_s := call.left_s()) > 0:
                done, _ = await asyncio.wait({task}, timeout=left_s)
                if done:
                    return task.result()
        except asyncio.CancelledError:
            task.cancel()
            call.drop()
            raise
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=GRACE_S)
        if not done or call.hangs:
            self.is_spoiled = True
        return failed(f"{handler.name} took longer than {handler.time_limit_ms} ms")

    def close(self) -> None:
        """Start nothing any more. Waits for no thread."""
        for threads in self._threads.values():
            threads.close()

    async def _call(self, call: _Call, context: MessageContext) -> Result:
        handler = call.handler
        call_next: CallNext = partial(self._call_function, call)
        if self._middleware:
            call.begin()
        for one in reversed(self._middleware):
            call_next = _around(one, call_next)
        try:
            await call_next(context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return failed(f"{handler.name} was cancelled by itself: {error!r}")
        except InvalidPayload as error:
            return rejected(f"{handler.name}: {error}")
        except BaseException as error:  # noqa: BLE001 - a handler ends no worker
            return result_of(error, "".join(traceback.format_exception(error)))
        return DONE

    async def _call_function(self, call: _Call, context: MessageContext) -> None:
        handler = call.handler
        payload, named = handler.arguments(context)
        if handler.is_coroutine:
            call.begin()
            with _ending_forks():
                await handler.function(*payload, **named)
            return
        function = partial(contextvars.copy_context().run, handler.function, *payload, **named)
        thread = self._threads[handler].submit(partial(_error_of, call.begin, function))
        call.thread = thread
        error = await asyncio.wrap_future(thread)
        if error is not None:
            raise error


def _around(middleware: Middleware, call_next: CallNext) -> CallNext:
    return lambda context: middleware(context, call_next)


@contextlib.contextmanager
def _ending_forks() -> Iterator[None]:
    """What a program forks in a handler ends where the handler does: the message is its parent's.

    It would answer the worker once more, or wait for ever in a thread that has no loop any more.
    """
    own_pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own_pid:
            os._exit(0)


def _error_of(begin: Callable[[], None], call: Callable[[], object]) -> BaseException | None:
    """What a function raises; a future would not carry each of them (`StopIteration`)."""
    begin()
    try:
        with _ending_forks():
            call()
    except BaseException as error:  # noqa: BLE001 - see the top of this file
        return error
    return None
