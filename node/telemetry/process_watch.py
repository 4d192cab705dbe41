"""What keeps the event loop from its work: a flight recorder that is always on.

    turns    the first work that is noted in a turn of the loop (node/telemetry/spans.py) leaves a
             mark that the next turn begins with. What lies between is the turn's length.
    timer    every 25 ms, or 100 where the loop hardly worked meanwhile; how much later it comes
             than it should is how long others had the loop. A sample: of a busy loop, a turn of
             5 ms is seen one time out of five, one of 25 ms always. It also finds what no turn
             shows: the thread was to wake up, and had no core.
    garbage  the collector itself says when it begins and ends, and stops all threads in between.

What took longer than a stall may is kept with all that is known of it (hourwheel/stalls.py).
Costs 40 short turns a second of a busy loop and 10 of an idle one, a microsecond or two for each
turn in which something is noted, and under a microsecond for each collection.
"""

import asyncio
import gc
from dataclasses import dataclass, field
from typing import Any, Final

from hourwheel.stalls import STALL_MS, Meter, Stall, Usage
from node.telemetry import logs
from node.telemetry.histogram import DURATION_BOUNDS, Histogram
from node.telemetry.spans import Spans
from node.telemetry.stalls import Stalls

_LOGGED_MS_MIN: Final = 50.0
"""A stall that is this long is worth a line in the log ..."""
_LOGGED_EVERY_MS: Final = 10_000
"""... and at most one line in each such span."""
_SUMMED_EVERY_NS: Final = 60 * 10**9
"""All others are in one line, if there were any, in each such span."""
_PERIOD_NS: Final = 25_000_000
_IDLE_PERIOD_NS: Final = 100_000_000
_IDLE_SHARE_MAX: Final = 0.05
"""A loop that took no more of a core lately is idle: to wake it up is most of what it costs."""
_GENERATIONS: Final = 3
_NS_PER_MS: Final = 1e6
_log = logs.get(__name__)


@dataclass(slots=True)
class ProcessStats:
    """Since the process started. One thread writes."""

    loop_delay: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS))
    """By how much timers of the loop were late, in seconds: a sample."""
    stalls: Stalls = field(default_factory=Stalls)
    """What took longer than a stall may."""
    gc_pauses: tuple[Histogram, ...] = field(
        default_factory=lambda: tuple(Histogram(DURATION_BOUNDS) for _ in range(_GENERATIONS))
    )
    """By generation: how long collections stopped the process, in seconds."""


@dataclass(slots=True)
class _Minute:
    """The stalls of one minute, for a line in the log."""

    counts: dict[str, int] = field(default_factory=dict)
    sums_ms: dict[str, float] = field(default_factory=dict)
    longest: Stall | None = None

    def add(self, stall: Stall) -> None:
        cause = stall.cause
        self.counts[cause] = self.counts.get(cause, 0) + 1
        self.sums_ms[cause] = self.sums_ms.get(cause, 0.0) + stall.wall_ms
        if self.longest is None or stall.wall_ms > self.longest.wall_ms:
            self.longest = stall

    def log(self) -> None:
        if self.longest is None:
            return
        worst_first = sorted(self.sums_ms, key=self.sums_ms.__getitem__, reverse=True)
        _log.info(
            "loop_stalls",
            count=sum(self.counts.values()),
            wall_ms=round(sum(self.sums_ms.values()), 1),
            longest_ms=round(self.longest.wall_ms, 1),
            longest_cause=self.longest.cause,
            by_cause={cause: self.counts[cause] for cause in worst_first},
            ms_by_cause={cause: round(self.sums_ms[cause], 1) for cause in worst_first},
        )


class ProcessWatch:
    """Watches the running loop, and the process that it is in, from `start` to `close`."""

    def __init__(
        self, spans: Spans, stats: ProcessStats, meter: Meter, *, stall_ms: float = STALL_MS
    ) -> None:
        """`spans` hear of what the loop works on; what lasts longer than `stall_ms` is kept."""
        self.stats = stats
        self._spans, self._meter = spans, meter
        self._stall_ns = int(stall_ms * _NS_PER_MS)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._mark: asyncio.Handle | None = None
        self._begun_ns = self._begun_cpu_ns = self._begun_gc_ns = 0
        """Of the turn."""
        self._timer_ns = self._timer_cpu_ns = self._timer_gc_ns = self._expected_ns = 0
        """Of the last timer, and when the next one is expected."""
        self._usage = Usage()
        """As of the last timer, or the last stall."""
        self._is_noted = False
        """A stall since the last timer is known: its lateness is no other one."""
        self._collecting_ns = self._gc_ns = 0
        self._next_log_ms = 0
        self._unlogged = 0
        self._minute = _Minute()
        self._summed_ns = meter.now_ns()
        """When `_minute` began."""

    def start(self) -> None:
        """Watch; in the running loop."""
        gc.callbacks.append(self._on_collection)
        self._spans.on_begin = self._on_begin
        self._spans.end_turn()  # what began before has no mark
        self._arm()

    def close(self) -> None:
        """Watch no more."""
        self._spans.on_begin = int
        for handle in (self._timer, self._mark):
            if handle is not None:
                handle.cancel()
        self._timer = self._mark = None
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    # -- turns ------------------------------------------------------------------------------------

    def _on_begin(self, now_ns: int) -> None:
        self._begun_ns, self._begun_gc_ns = now_ns, self._gc_ns
        self._begun_cpu_ns = self._meter.cpu_ns()
        self._mark = self._loop.call_soon(self._on_turn_end)

    def _on_turn_end(self) -> None:
        took_ns = self._meter.now_ns() - self._begun_ns
        if took_ns > self._stall_ns:
            cpu_ns = min(took_ns, self._meter.cpu_ns() - self._begun_cpu_ns)
            self._note(took_ns, self._begun_gc_ns, cpu_ns=cpu_ns)
            self._is_noted = True
        self._spans.end_turn()

    # -- the timer --------------------------------------------------------------------------------

    def _arm(self) -> None:
        meter = self._meter
        now_ns, cpu_ns = meter.now_ns(), meter.cpu_ns()
        is_idle = cpu_ns - self._timer_cpu_ns <= _IDLE_SHARE_MAX * (now_ns - self._timer_ns)
        period_ns = _IDLE_PERIOD_NS if is_idle else _PERIOD_NS
        self._timer_ns, self._timer_cpu_ns = now_ns, cpu_ns
        self._usage, self._timer_gc_ns, self._is_noted = meter.usage(), self._gc_ns, False
        self._expected_ns = now_ns + period_ns
        self._timer = self._loop.call_later(period_ns / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        now_ns = self._meter.now_ns()
        self.stats.loop_delay.observe(max(0, now_ns - self._expected_ns) / 1e9)
        # A turn that is under way tells for itself.
        late_ns = (self._begun_ns if self._spans.is_in_turn else now_ns) - self._expected_ns
        if late_ns > self._stall_ns and not self._is_noted:
            self._note(late_ns, self._timer_gc_ns)
        if now_ns >= self._summed_ns + _SUMMED_EVERY_NS:
            self._minute.log()
            self._minute, self._summed_ns = _Minute(), now_ns
        self._arm()

    # -- what is found ----------------------------------------------------------------------------

    def _note(self, took_ns: int, gc_ns: int, *, cpu_ns: int | None = None) -> None:
        """`cpu_ns`: processor time of a turn; None where no turn was under way."""
        meter, spans, before = self._meter, self._spans, self._usage
        self._usage = usage = meter.usage()
        unscheduled_ns = min(took_ns, usage.unscheduled_ns - before.unscheduled_ns)
        if cpu_ns is None:
            cpu_ns = min(took_ns - unscheduled_ns, meter.cpu_ns() - self._timer_cpu_ns)
            ran_ns = dict[str, int]()
        else:
            unscheduled_ns = min(unscheduled_ns, took_ns - cpu_ns)
            ran_ns = spans.ran_ns()
        stall = Stall(
            at_ms=meter.wall_ms(),
            wall_ms=took_ns / _NS_PER_MS,
            cpu_ms=cpu_ns / _NS_PER_MS,
            unscheduled_ms=unscheduled_ns / _NS_PER_MS,
            gc_ms=(self._gc_ns - gc_ns) / _NS_PER_MS,
            ran_ms={name: ns / _NS_PER_MS for name, ns in ran_ns.items()},
            beside=spans.ran_beside(meter.now_ns() - took_ns),
            major_faults=usage.major_faults - before.major_faults,
            minor_faults=usage.minor_faults - before.minor_faults,
            preemptions=usage.preemptions - before.preemptions,
        )
        self.stats.stalls.add(stall)
        self._minute.add(stall)
        self._log(stall)

    def _log(self, stall: Stall) -> None:
        if stall.wall_ms < _LOGGED_MS_MIN:
            return
        if stall.at_ms < self._next_log_ms:
            self._unlogged += 1
            return
        self._next_log_ms = stall.at_ms + _LOGGED_EVERY_MS
        _log.warning(
            "loop_stalled",
            cause=stall.cause,
            wall_ms=round(stall.wall_ms, 1),
            cpu_ms=round(stall.cpu_ms, 1),
            unscheduled_ms=round(stall.unscheduled_ms, 1),
            ran_ms=stall.as_dict()["ran_ms"],
            beside=stall.beside,
            unlogged=self._unlogged,
        )
        self._unlogged = 0

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector: nothing else of Python runs meanwhile."""
        if phase == "start":
            self._collecting_ns = self._meter.now_ns()
        elif self._collecting_ns:
            took_ns = self._meter.now_ns() - self._collecting_ns
            self._gc_ns += took_ns
            self.stats.gc_pauses[info["generation"]].observe(took_ns / 1e9)
