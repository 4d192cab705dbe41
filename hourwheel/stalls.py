"""Stalls: turns of an event loop that took long, and what was to blame; how they are measured.

wall time  =  processor time  +  ready, but without a core  +  waiting
                   |                      |                       |
           what ran, by name           "machine"       the interpreter's lock, the disk

A node records its own (node/telemetry/process_watch.py), and a program those of its blocking
clients, if it wants to:

    with StallRecorder() as recorder:                # before the clients are first used
        with Consumer(server, group="billing", topic="orders") as consumer:
            ...
        for stall in recorder.stalls():
            print(stall.as_dict())

Each blocking client has an event loop in a thread of its own (hourwheel/client/loop_thread.py). A
turn of it that takes long makes messages late, whatever it was for: often it is the program's own
threads, which have the interpreter's lock meanwhile (`waiting`). A turn is what lies between two
waits for the system, so the loop's selector measures it. Costs some microseconds for each turn and
each callback, and nothing where no recorder is on.
"""

import functools
import gc
import os
import resource
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Any,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVarTuple,
    cast,
)

STALL_MS: Final = 5.0
"""What is longer counts as a stall by default: the objective for lateness is about so much."""
KEPT_MAX: Final = 256
"""Of the stalls, the last ones."""
_NS_PER_MS: Final = 1e6
_NOTED_NS_MIN: Final = 200_000
"""What ran for less is not named."""
Callback: TypeAlias = Callable[..., object]
_Arguments = TypeVarTuple("_Arguments")

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

        `several` where nothing did, `unnamed` where no mark says what ran.
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


_on: "list[StallRecorder]" = []


def find_recorder() -> "StallRecorder | None":
    """The recorder that is on, or None."""
    return _on[-1] if _on else None


class StallRecorder:
    """Records the loops of blocking clients that are first used while it is on; until these end."""

    def __init__(self, stall_ms: float = STALL_MS) -> None:
        """Off; what lasts longer than `stall_ms` is kept, up to 256 of them."""
        self.stall_ns = int(stall_ms * _NS_PER_MS)
        self.gc_ns = 0
        """What the garbage collector took so far, in whichever thread."""
        self._collecting_ns = 0
        self._kept: deque[Stall] = deque(maxlen=KEPT_MAX)

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_collection)
        _on.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _on.remove(self)
        gc.callbacks.remove(self._on_collection)

    def stalls(self) -> list[Stall]:
        """The last ones, newest first. Of any thread, at any time."""
        return list(self._kept)[::-1]

    def add(self, stall: Stall) -> None:
        """One of a loop."""
        self._kept.append(stall)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        """Called by the collector: nothing else of Python runs meanwhile."""
        now_ns = ThreadMeter.now_ns()
        if phase == "start":
            self._collecting_ns = now_ns
        elif self._collecting_ns:
            self.gc_ns += now_ns - self._collecting_ns


class TurnRecorder(selectors.DefaultSelector):
    """Of one loop: the selector that it waits with, and the names of what it calls."""

    def __init__(self, recorder: StallRecorder) -> None:
        """Measures from the first wait on."""
        super().__init__()
        self._recorder = recorder
        self._meter: ThreadMeter | None = None
        """Of the loop's thread, which is the first to wait."""
        self._begun_ns = self._begun_cpu_ns = self._begun_gc_ns = 0
        self._usage = Usage()
        self._ran: list[tuple[Callback, int]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait; a turn of the loop ends before it, and another one begins behind it."""
        meter = self._meter
        if meter is None:
            meter = self._meter = ThreadMeter()
        elif meter.now_ns() - self._begun_ns > self._recorder.stall_ns:
            self._note(meter)
        self._ran.clear()
        events = super().select(timeout)
        self._usage, self._begun_gc_ns = meter.usage(), self._recorder.gc_ns
        self._begun_ns, self._begun_cpu_ns = meter.now_ns(), meter.cpu_ns()
        return events

    def close(self) -> None:
        """The loop is closed, in its thread."""
        if self._meter is not None:
            self._meter.close()
        super().close()

    def named(self, callback: Callable[[*_Arguments], object]) -> Callable[[*_Arguments], object]:
        """`callback`, which is noted where it takes long."""
        noted = functools.partial(self.run, callback)
        return cast("Callable[[*_Arguments], object]", noted)

    def run(self, callback: Callable[[*_Arguments], object], *arguments: *_Arguments) -> object:
        """Call it, within a turn."""
        begun_ns = ThreadMeter.now_ns()
        try:
            return callback(*arguments)
        finally:
            took_ns = ThreadMeter.now_ns() - begun_ns
            if took_ns > _NOTED_NS_MIN:
                self._ran.append((callback, took_ns))

    def _note(self, meter: ThreadMeter) -> None:
        took_ns, usage = meter.now_ns() - self._begun_ns, meter.usage()
        before, cpu_ns = self._usage, min(took_ns, meter.cpu_ns() - self._begun_cpu_ns)
        unscheduled_ns = min(took_ns - cpu_ns, usage.unscheduled_ns - before.unscheduled_ns)
        ran_ms: dict[str, float] = {}
        for callback, ns in self._ran:
            name = name_of(callback)
            ran_ms[name] = ran_ms.get(name, 0.0) + ns / _NS_PER_MS
        self._recorder.add(
            Stall(
                at_ms=meter.wall_ms(),
                wall_ms=took_ns / _NS_PER_MS,
                cpu_ms=cpu_ns / _NS_PER_MS,
                unscheduled_ms=unscheduled_ns / _NS_PER_MS,
                gc_ms=(self._recorder.gc_ns - self._begun_gc_ns) / _NS_PER_MS,
                ran_ms=ran_ms,
                major_faults=usage.major_faults - before.major_faults,
                minor_faults=usage.minor_faults - before.minor_faults,
                preemptions=usage.preemptions - before.preemptions,
            )
        )


def name_of(callback: Callback) -> str:
    """What people call it: of a step of a task, its coroutine."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    task = getattr(callback, "__self__", None)
    get_coro = getattr(task, "get_coro", None)
    named = callback if get_coro is None else get_coro()
    return str(getattr(named, "__qualname__", type(named).__name__))
