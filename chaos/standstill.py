"""Stop processes in the middle of whatever they do: what a machine without power looks like."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Final

from hourwheel import errors

_LOOK_S: Final = 0.002
_HANG_LOOKS: Final = 5_000
_RUNS: Final = frozenset("RS")
"""States of a thread that executes code of its own, or will as soon as something comes. Others
have stopped, are dead, or are in the kernel, and stop before they leave it."""


def stop_at_once(pids: Iterable[int]) -> None:
    """SIGSTOP, and wait until no thread of these processes executes anything any more.

    Raises:
        Unavailable: one goes on.
    """
    stopped = list(pids)
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for _ in range(_HANG_LOOKS):
        if not any(_states(pid) & _RUNS for pid in stopped):
            return
        Event().wait(_LOOK_S)
    raise errors.Unavailable("a process that was stopped goes on")


def _states(pid: int) -> set[str]:
    return set(_state_of_threads(Path(f"/proc/{pid}/task")))


def _state_of_threads(folder: Path) -> Iterator[str]:
    with suppress(OSError):  # it has ended
        for thread in folder.iterdir():
            with suppress(OSError):
                yield (thread / "stat").read_text().rpartition(")")[2].split()[0]
