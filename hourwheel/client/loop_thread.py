"""An event loop in a thread of its own, for clients that block.

The thread starts with the first call, so that a client that was made before a fork, and not used,
is used in the child as if it had been made there. It ends with the client: by `finish`; when the
client is collected as garbage without; or at the exit of the interpreter, which waits for what is
under way, but not for long. A caller in a thread that runs an event loop (a notebook, an
ASGI application) blocks that loop meanwhile, and nothing else happens.
"""

import asyncio
import atexit
import concurrent.futures
import contextvars
import os
import selectors
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple

from hourwheel import errors
from hourwheel.errors import required
from hourwheel.stalls import StallRecorder, TurnRecorder, find_recorder
from hourwheel.transport.fork_guard import Home

EXIT_S: Final = 3.0
"""How long the exit of the interpreter waits for clients that are not closed."""
GATHER_S: Final = 0.0005
"""How long a call waits for those of other threads that have just got their results."""
Result = TypeVar("Result")
_Arguments = TypeVarTuple("_Arguments")
Closing: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_started: "Final[weakref.WeakSet[LoopThread]]" = weakref.WeakSet()


class LoopThread:
    """Runs coroutines for callers that wait. All methods may be called from any thread."""

    def __init__(self, close_in_background: Closing) -> None:
        """`close_in_background` ends a client that no caller closed; it must not refer to it."""
        self._close_in_background = close_in_background
        self._home = Home()
        self._lock = threading.RLock()
        """Between "is it open?" and what follows from that. No caller waits with it; a signal
        handler or a destructor may come in between, so it is one that its thread may take again."""
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def check(self) -> None:
        """Whether calls may be made, for a caller that needs none of them now.

        Raises:
            Cancelled: the client is closed.
            Forked: it belongs to another process.
        """
        self._home.enter()
        if self._is_closed:
            raise errors.Cancelled("the client is closed")

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The result of `coroutine`; an interrupt of the waiting thread cancels it.

        Raises:
            Cancelled: the client is closed, or was closed meanwhile.
            FailedPrecondition: this is the client's own thread, which must not wait for itself.
            Forked: the client belongs to another process.
        """
        return _wait(self.begin(coroutine))

    def begin(self, coroutine: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """As `run`, for who waits in another way. Raises as that does."""
        try:
            self.check()
            self._check_thread()
            with self._lock:
                self.check()
                return asyncio.run_coroutine_threadsafe(coroutine, self._start())
        except BaseException:
            coroutine.close()
            raise

    def wait_for(self, start: "Callable[[], asyncio.Future[Result]]") -> Result:
        """As `run`, of what needs no task: `start` is called in the loop, and gives a future.

        Raises as `run`, and what `start` raises.
        """
        self.check()
        self._check_thread()
        begun = _Begun(start)
        try:
            with self._lock:
                self.check()
                begun.hand_over(self._start())
            return begun.wait()
        except BaseException:
            begun.abandon()
            raise

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop, without waiting. Raises as `check`."""
        self.check()
        with self._lock:
            self.check()
            self._start().call_soon_threadsafe(callback)

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine and end the thread, whatever comes of it.

        Who comes second waits for the first one. Does nothing to a client that was never used, or
        that belongs to another process.

        Raises:
            FailedPrecondition: this is the client's own thread.
        """
        try:
            is_elsewhere = self._home.is_elsewhere
            if not is_elsewhere:
                self._check_thread()
            future = None if is_elsewhere else self._begin_end(coroutine)
        except BaseException:
            coroutine.close()
            raise
        if future is None:
            coroutine.close()
            self._is_closed = True
            self.join()
            return
        try:
            _wait(future)
        finally:
            self.stop()
            self.join()

    def abandon(self) -> None:
        """The owner is gone, and has not closed: end in the background. Never waits."""
        if self._is_closed or self._loop is None or self._home.is_elsewhere:
            return
        self.begin_background_end()
        warnings.warn("a Hourwheel client was not closed", ResourceWarning, stacklevel=2)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise errors.FailedPrecondition(
                "the client's own thread (a callback) cannot wait for the client"
            )

    def _begin_end(
        self, coroutine: Coroutine[Any, Any, None]
    ) -> "concurrent.futures.Future[None] | None":
        """None: it has begun before, or there is nothing to end."""
        with self._lock:
            if self._is_closed or self._loop is None:
                return None
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.begin_gathered)
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def begin_background_end(self) -> None:
        """Close the client as far as that goes in a short time, then end the thread; no waiting."""
        if self._home.is_elsewhere:
            return
        with self._lock:
            if self._is_closed or self._loop is None:
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.begin_gathered)
            end = asyncio.run_coroutine_threadsafe(self._close_in_background(), self._loop)
        end.add_done_callback(self._on_background_end)

    def _on_background_end(self, end: "concurrent.futures.Future[None]") -> None:
        if not end.cancelled():
            end.exception()  # no caller is left to get it
        self.stop()

    def _start(self) -> "_Loop":
        if self._loop is None:
            recorder = find_recorder()
            loop = _Loop() if recorder is None else _RecordedLoop(recorder)
            thread = threading.Thread(
                target=_serve, args=(loop,), name="hourwheel-client", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                loop.close()
                raise errors.FailedPrecondition(f"no thread for the client: {error}") from None
            self._loop, self._thread = loop, thread
            _started.add(self)
        return self._loop

    def stop(self) -> None:
        """End the loop as it is: what is under way is cancelled. Does not wait."""
        if self._loop is not None and not self._home.is_elsewhere:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread, if it is one of this process."""
        if self._thread is not None and not self._home.is_elsewhere:
            self._thread.join(timeout_s)

    def renew_lock(self) -> None:
        """After a fork: a thread that does not exist here may hold it."""
        self._lock = threading.RLock()


class _Loop(asyncio.SelectorEventLoop):
    """A loop to which nothing can be handed over once it is closed.

    gRPC serves all loops of a process from one queue: whichever loop is awake takes the events of
    all from there. What comes late for a loop that is closed would raise an exception in another
    one, which would lose its own events by it: closing one client would stop another.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(selector)
        self.begun: set[asyncio.Future[Any]] = set()
        """That another thread waits for."""
        self._handed_over: list[_Begun[Any]] = []
        self._expected_count = 0
        """Threads that have got their results since calls were begun last."""
        self._timer: asyncio.TimerHandle | None = None

    def gather(self, call: "_Begun[Any]") -> None:
        """Begin a call together with those of the threads that come back now, as they often do.

        They come one by one, for they share an interpreter: begun at once, each would make a
        request of its own.
        """
        self._handed_over.append(call)
        if len(self._handed_over) >= self._expected_count:
            self.begin_gathered()
        elif self._timer is None:
            self._timer = self.call_later(GATHER_S, self.begin_gathered)

    def on_result(self) -> None:
        """A thread goes on, and may come back."""
        self._expected_count += 1

    def begin_gathered(self) -> None:
        """Begin what was handed over so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._expected_count = 0
        calls, self._handed_over = self._handed_over, []
        for one in calls:
            one.begin()

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As that of any loop; nothing where it is closed."""
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return asyncio.Handle(callback, args, self, context)


class _RecordedLoop(_Loop):
    """A loop of which is known what takes long."""

    def __init__(self, recorder: StallRecorder) -> None:
        self._turns = TurnRecorder(recorder)
        super().__init__(self._turns)

    def call_soon(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon(self._turns.named(callback), *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._turns.named(callback), *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._turns.named(callback), *args, context=context)

    def add_reader(
        self, fd: Any, callback: Callable[[*_Arguments], Any], *args: *_Arguments
    ) -> None:
        super().add_reader(fd, self._turns.named(callback), *args)


class _Begun(Generic[Result]):
    """A future of the loop, and the one thread that waits for it: with a lock, and nothing else."""

    def __init__(self, start: "Callable[[], asyncio.Future[Result]]") -> None:
        self._start = start
        self._loop: _Loop | None = None
        self._future: asyncio.Future[Result] | None = None
        self._error: Exception | None = None
        self._is_known = False
        self._is_abandoned = False
        """Before it was begun."""
        self._is_open = threading.Lock()
        self._is_open.acquire()

    def hand_over(self, loop: _Loop) -> None:
        """Begin it, in the loop."""
        self._loop = loop
        loop.call_soon_threadsafe(loop.gather, self)

    def begin(self) -> None:
        """Begin it now. Called in the loop."""
        if self._is_abandoned:
            return
        try:
            self._future = future = self._start()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
            self._is_open.release()
            return
        required(self._loop, "no loop").begun.add(future)
        future.add_done_callback(self._on_done)

    def _on_done(self, future: "asyncio.Future[Result]") -> None:
        loop = required(self._loop, "no loop")
        loop.begun.discard(future)
        loop.on_result()
        self._is_open.release()

    def wait(self) -> Result:
        """Its result. Raises what it raises; Cancelled: the client was closed meanwhile."""
        self._is_open.acquire()
        self._is_known = True
        if self._error is not None:
            raise self._error
        future = required(self._future, "nothing was begun")
        if future.cancelled():
            raise errors.Cancelled("the client was closed meanwhile")
        return future.result()

    def abandon(self) -> None:
        """Its caller has gone: it is cancelled, unless its outcome is known."""
        if self._loop is not None and not self._is_known:
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._future is None:
            self._is_abandoned = True
        else:
            self._future.cancel()


def _wait(future: "concurrent.futures.Future[Result]") -> Result:
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise errors.Cancelled("the client was closed meanwhile") from None
    except BaseException:
        future.cancel()
        raise


def _serve(loop: _Loop) -> None:
    """The thread: runs the loop until it is stopped; then no call is left waiting in it.

    The loop is ended here and nowhere else: another thread may run a loop of its own.
    """
    try:
        loop.run_forever()
        loop.run_until_complete(_wind_up(loop))
    finally:
        loop.close()


async def _wind_up(loop: _Loop) -> None:
    await asyncio.sleep(0)  # what was handed over before the end has begun, or is gathered
    loop.begin_gathered()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for one in (*tasks, *loop.begun):
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()


def _end_all() -> None:
    """At exit: close what is open, all at a time, and wait for it, but not for ever."""
    ending = list(_started)
    for one in ending:
        one.begin_background_end()
    for one in ending:
        one.join(EXIT_S)
        one.stop()
        one.join(EXIT_S)


def _renew_locks() -> None:
    for one in list(_started):
        one.renew_lock()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_renew_locks)
