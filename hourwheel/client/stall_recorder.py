"""What keeps the event loops of blocking clients from their work: a recorder, for who asks for it.

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
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self, TypeAlias, TypeVarTuple, cast

from hourwheel.stalls import KEPT_MAX, STALL_MS, Stall, ThreadMeter, Usage

_NS_PER_MS: Final = 1e6
_NOTED_NS_MIN: Final = 200_000
"""What ran for less is not named."""
Callback: TypeAlias = Callable[..., object]
_Arguments = TypeVarTuple("_Arguments")

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
