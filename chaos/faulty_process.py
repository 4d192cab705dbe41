"""A node whose calls of the operating system go wrong as planned: the child's side.

    python -m chaos.faulty_process '{"calls": ["fdatasync"], "first": 7, "effect": "EIO"}' ...

    python -m chaos.faulty_process '{"clock_file": "/tmp/offset_ms"}' ...

Everything behind the plan is for `python -m node`. With `clock_file` the wall clock is wrong by the
milliseconds in that file, while there is one. With `calls` some of these go wrong: they are counted
over all threads from the process's beginning. What maps files into memory writes without a call and
is not seen here. The product knows nothing of this: functions of `os` and `time` are replaced
before it is loaded.
"""

import errno
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from hourwheel import program

_ERRORS: Final = ("EIO", "ENOSPC")


class Plan:
    """Which calls to count, and what to do to some of them."""

    def __init__(self, calls: list[str], first: int, last: int, effect: str) -> None:
        """Affect the calls number `first` to `last` of those in `calls`, counted from 1."""
        self._first, self._last, self._effect = first, last, effect
        self._count = 0
        self._lock = threading.Lock()
        for name in calls:
            setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if not self._is_hit():
                return real(*args, **named)
            if self._effect in _ERRORS:
                code = getattr(errno, self._effect)
                raise OSError(code, os.strerror(code))
            if self._effect == "kill after":
                with suppress(OSError):  # what exists already, for one
                    real(*args, **named)
            elif self._effect == "torn" and name == "pwritev":
                _write_a_part(real, *args)
            return _die()

        return call

    def _is_hit(self) -> bool:
        with self._lock:
            self._count += 1
            return self._first <= self._count <= self._last


class WrongClock:
    """The wall clock, off by what a file says."""

    def __init__(self, path: Path) -> None:
        """From now on `time.time_ns` is wrong."""
        self._path, self._real = path, time.time_ns
        time.time_ns = self.now_ns

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        try:
            offset_ms = float(self._path.read_text() or 0.0)
        except FileNotFoundError:
            offset_ms = 0.0
        return self._real() + int(offset_ms * 1e6)


def _write_a_part(pwritev: Callable[..., Any], fd: int, pieces: list[Any], position: int) -> None:
    """Half of what was to be written, to the byte."""
    whole = b"".join(bytes(piece) for piece in pieces)
    pwritev(fd, [whole[: len(whole) // 2]], position)


def _die() -> NoReturn:
    while True:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Take the plan off the command line, carry it out, run a node."""
    plan = json.loads(sys.argv.pop(1))
    if "clock_file" in plan:
        WrongClock(Path(plan["clock_file"]))
    if "calls" in plan:
        first = plan["first"]
        Plan(plan["calls"], first, plan.get("last", first), plan["effect"])
    program.run(lambda: importlib.import_module("node.process.command").main)


if __name__ == "__main__":
    main()
