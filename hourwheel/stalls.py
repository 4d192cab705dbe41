"""Stalls: turns of an event loop that took long, and what was to blame; how they are measured.

wall time  =  processor time  +  ready, but without a core  +  waiting
                   |                      |                       |
           what ran, by name           "machine"       the interpreter's lock, the disk

A node records its own (node/telemetry/process_watch.py), and a program those of its blocking
clients, if it wants to (hourwheel/client/stall_recorder.py).
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

STALL_MS: Final = 5.0
"""What is longer counts as a stall by default: the objective for lateness is about so much."""
KEPT_MAX: Final = 256
"""Of the stalls, the last ones."""

GARBAGE: Final = "garbage_collector"
MACHINE: Final = "machine"
WAITING: Final = "waiting"
PAGE_FAULTS: Final = "page_faults"
SEVERAL: Final = "several"
UNNAMED: Final = "unnamed"
CAUSES: Final = (GARBAGE, MACHINE, WAITING, PAGE_FAULTS, SEVERAL, UNNAMED)
"""Besides names of work."""


@dataclass(frozen=True, slots=True)
class Stall:
    """One turn that took long."""

    at_ms: int
    """Wall clock at its end, in epoch milliseconds."""
    wall_ms: float
    """How long nothing else could have its turn."""
    cpu_ms: float
    """What of that the loop's thread worked."""
    unscheduled_ms: float
    """What of that it could have worked, and others had the cores; 0 where Linux does not say."""
    gc_ms: float
    """What of that the garbage collector took, in whichever thread."""
    ran_ms: Mapping[str, float]
    """What ran on the loop, by name, each without what ran within it."""
    beside: tuple[str, ...] = ()
    """What other threads worked on meanwhile."""
    major_faults: int = 0
    """Pages that this thread waited for the disk for, since shortly before."""
    minor_faults: int = 0
    """Pages that it got without waiting."""
    preemptions: int = 0
    """How often the kernel gave its core to somebody else, since shortly before."""

    @property
    def cause(self) -> str:
        """The one thing that took at least half of it: work by its name, or what it waited for.

        `several` where nothing did, `unnamed` where nobody noted what ran.
        """
        half_ms = self.wall_ms / 2
        if self.gc_ms >= half_ms:
            return GARBAGE
        if self.unscheduled_ms >= half_ms:
            return MACHINE
        if self.wall_ms - self.cpu_ms - self.unscheduled_ms >= half_ms:
            return PAGE_FAULTS if self.major_faults else WAITING
        longest = max(self.ran_ms, key=self.ran_ms.__getitem__, default="")
        if longest and self.ran_ms[longest] >= half_ms:
            return longest
        return SEVERAL if sum(self.ran_ms.values()) >= half_ms else UNNAMED

    def as_dict(self) -> dict[str, Any]:
        """For people and machines: times in milliseconds, longest work first."""
        ran = sorted(self.ran_ms.items(), key=lambda one: -one[1])
        return {
            "at_ms": self.at_ms,
            "cause": self.cause,
            "wall_ms": round(self.wall_ms, 3),
            "cpu_ms": round(self.cpu_ms, 3),
            "unscheduled_ms": round(self.unscheduled_ms, 3),
            "gc_ms": round(self.gc_ms, 3),
            "ran_ms": {name: round(ms, 3) for name, ms in ran},
            "beside": list(self.beside),
            "major_faults": self.major_faults,
            "minor_faults": self.minor_faults,
            "preemptions": self.preemptions,
        }


class Usage(NamedTuple):
    """What the kernel counts of one thread, since it began."""

    unscheduled_ns: int = 0
    """How long it was ready and had no core; 0 where the system does not say."""
    major_faults: int = 0
    minor_faults: int = 0
    preemptions: int = 0


class Meter(Protocol):
    """Clocks and counters of the thread that asks."""

    def now_ns(self) -> int:
        """A clock that never steps."""
        ...

    def cpu_ns(self) -> int:
        """Processor time of this thread."""
        ...

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        ...

    def usage(self) -> Usage:
        """Of this thread."""
        ...


class ThreadMeter:
    """The machine's; of the thread that makes it, which closes it."""

    def __init__(self) -> None:
        """Find what the system offers."""
        path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._schedstat: int | None = None
        with suppress(OSError):
            self._schedstat = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    now_ns = staticmethod(time.perf_counter_ns)
    cpu_ns = staticmethod(time.thread_time_ns)

    def wall_ms(self) -> int:
        """See `Meter`."""
        return time.time_ns() // 1_000_000

    def usage(self) -> Usage:
        """See `Meter`; some three microseconds."""
        unscheduled_ns = 0
        if self._schedstat is not None:
            unscheduled_ns = int(os.pread(self._schedstat, 64, 0).split()[1])
        if sys.platform != "linux":
            return Usage()
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return Usage(unscheduled_ns, used.ru_majflt, used.ru_minflt, used.ru_nivcsw)

    def close(self) -> None:
        """Let go of what it has open."""
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None
