"""A timer of the event loop that is exact to some 50 microseconds.

asyncio's own timers wait in epoll, whose time-out is rounded up to whole milliseconds: half a
millisecond late on average, of the 1.5 that a release may be. Where Linux offers it, a timerfd is
watched by the loop instead; elsewhere this is `call_later`.

A busy node sets it in each of some thousand turns a second, mostly to what it is set to already: so
that costs a look at the clock, and the timer is set in the system only when it changes.
"""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol

_CLOCK_MONOTONIC: Final = 1
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_SAME_NS: Final = 20_000
"""Two instants that differ by less are one: a turn takes longer."""
_UNSET: Final = -1


class Timer(Protocol):
    """Calls back once for each time it is set."""

    def set_in(self, delay_ms: float) -> None:
        """Fire after `delay_ms` (at once, from the loop, if it is <= 0); replaces what was set."""
        ...

    def clear(self) -> None:
        """Do not fire."""
        ...

    def close(self) -> None:
        """Do not fire any more, and release what it holds."""
        ...


class _LoopTimer:
    """By `call_later`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._handle: asyncio.TimerHandle | None = None
        self._is_closed = False

    def set_in(self, delay_ms: float) -> None:
        self.clear()
        if self._is_closed:
            return
        self._handle = self._loop.call_later(max(0.0, delay_ms) / 1000, self._callback)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
        self._is_closed = True
        self.clear()


class _FdTimer:
    """By a timerfd that the loop reads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None], libc: ctypes.PyDLL
    ) -> None:
        self._loop, self._callback, self._libc = loop, callback, libc
        self._is_closed = False
        self._at_ns = _UNSET
        """When it is to fire, by the monotonic clock."""
        self._spec = (ctypes.c_long * 4)()
        """struct itimerspec: seconds and nanoseconds of the interval, and until it fires."""
        self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._fire)

    def _fire(self) -> None:
        if not 0 <= self._at_ns <= time.monotonic_ns():
            return  # set again after it fired and before the loop looked
        self._at_ns = _UNSET
        try:
            self._callback()
        finally:
            if self._at_ns == _UNSET:
                self._tell(0)  # it has fired, and is not set to anything else

    def set_in(self, delay_ms: float) -> None:
        delay_ns = max(1, int(delay_ms * _NS_PER_MS))
        at_ns = time.monotonic_ns() + delay_ns
        if self._at_ns == _UNSET or abs(at_ns - self._at_ns) > _SAME_NS:
            self._at_ns = at_ns
            self._tell(delay_ns)

    def clear(self) -> None:
        if self._at_ns != _UNSET:
            self._at_ns = _UNSET
            self._tell(0)

    def _tell(self, delay_ns: int) -> None:
        if self._is_closed:
            return  # the number may be another file's by now
        self._spec[2], self._spec[3] = divmod(delay_ns, _NS_PER_S)
        if self._libc.timerfd_settime(self._fd, 0, self._spec, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def make_timer(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> Timer:
    """The most exact timer that this system has."""
    if sys.platform == "linux":
        # It never blocks: so it keeps the interpreter, which others might hold for long.
        libc = ctypes.PyDLL(None, use_errno=True)
        if hasattr(libc, "timerfd_create"):
            return _FdTimer(loop, callback, libc)
    return _LoopTimer(loop, callback)
