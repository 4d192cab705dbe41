"""Runs handlers: coroutines as tasks, functions in threads, each within its time limit.

Nothing that a handler does ends the process by an exception: `SystemExit` and `KeyboardInterrupt`
cost its message one attempt, as any other does. What a thread does cannot be ended from outside.
So where a function is past its limit, its message is given up and `is_spoiled` says that a thread
of this process is lost: a child is replaced then.
"""

import asyncio
import contextlib
import contextvars
import logging
import os
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

from hourwheel.workers.handler import Handler, MessageContext
from hourwheel.workers.payloads import InvalidPayload
from hourwheel.workers.results import DONE, Result, failed, rejected, result_of

GRACE_S: Final = 2.0
"""How long a cancelled coroutine may take to clean up."""
_log = logging.getLogger("hourwheel.worker")

CallNext: TypeAlias = Callable[[MessageContext], Awaitable[Any]]
Middleware: TypeAlias = Callable[[MessageContext, CallNext], Awaitable[Any]]
"""Called around each handler: it may look, wait, raise, or not call the next one at all."""


class Execution:
    """Runs the handlers of one process."""

    def __init__(self, handlers: Sequence[Handler], middleware: Sequence[Middleware] = ()) -> None:
        """`middleware`: the first one is the outermost."""
        self._middleware = tuple(middleware)
        self._threads = {
            handler: ThreadPoolExecutor(handler.concurrency, f"hourwheel-{handler.name}")
            for handler in handlers
            if not handler.is_coroutine
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
        task = asyncio.ensure_future(self._call(handler, context, note_begun))
        try:
            done, _ = await asyncio.wait({task}, timeout=handler.time_limit_ms / 1_000)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=GRACE_S)
        if not done or not handler.is_coroutine:
            self.is_spoiled = True
        return failed(f"{handler.name} took longer than {handler.time_limit_ms} ms")

    def close(self) -> None:
        """Start nothing any more. Waits for no thread."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def _call(
        self, handler: Handler, context: MessageContext, note_begun: Callable[[], None]
    ) -> Result:
        call: CallNext = partial(self._call_function, handler, note_begun)
        if self._middleware:
            note_begun()
        for one in reversed(self._middleware):
            call = _around(one, call)
        try:
            await call(context)
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

    async def _call_function(
        self, handler: Handler, note_begun: Callable[[], None], context: MessageContext
    ) -> None:
        payload, named = handler.arguments(context)
        if handler.is_coroutine:
            note_begun()
            with _ending_forks():
                await handler.function(*payload, **named)
            return
        call = partial(contextvars.copy_context().run, handler.function, *payload, **named)
        loop = asyncio.get_running_loop()
        error = await loop.run_in_executor(self._threads[handler], _error_of, note_begun, call)
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


def _error_of(note_begun: Callable[[], None], call: Callable[[], object]) -> BaseException | None:
    """What a function raises; a future would not carry each of them (`StopIteration`)."""
    note_begun()
    try:
        with _ending_forks():
            call()
    except BaseException as error:  # noqa: BLE001 - see the top of this file
        return error
    return None
