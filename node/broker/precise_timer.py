"""A timer of the event loop that is exact to some 50 microseconds.

asyncio's own timers wait in epoll, whose time-out is rounded up to whole milliseconds: half a
millisecond late on average, of the 1.5 that a release may be. Where Linux offers it, a timerfd is
watched by the loop instead; elsewhere this is `call_later`.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Final, Protocol

_CLOCK_MONOTONIC: Final = 1
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


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
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None], libc: ctypes.CDLL
    ) -> None:
        self._loop, self._callback, self._libc = loop, callback, libc
        self._is_closed = False
        self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._fire)

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set again after it fired and before the loop read it
        self._callback()

    def set_in(self, delay_ms: float) -> None:
        self._set(max(1, int(delay_ms * _NS_PER_MS)))

    def clear(self) -> None:
        self._set(0)

    def _set(self, delay_ns: int) -> None:
        if self._is_closed:
            return  # the number may be another file's by now
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(*divmod(delay_ns, _NS_PER_S)))
        if self._libc.timerfd_settime(self._fd, 0, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def make_timer(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> Timer:
    """The most exact timer that this system has."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "timerfd_create"):
            return _FdTimer(loop, callback, libc)
    return _LoopTimer(loop, callback)
