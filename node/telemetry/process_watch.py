"""What keeps the event loop from its work: turns that take long, and Python's garbage collector.

    loop     a timer every 25 ms; how much later it comes than it should is how long others had the
             loop. A sample: a turn of 5 ms is seen one time out of five, one of 25 ms always.
    garbage  the collector itself says when it begins and ends, and stops all threads in between.

Costs 40 short turns a second, and under a microsecond for each collection.
"""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from node.telemetry.histogram import DURATION_BOUNDS, Histogram

STALL_S: Final = 0.005
"""What is longer counts as a stall: the objective for lateness is about so much."""
_PERIOD_S: Final = 0.025
_GENERATIONS: Final = 3


@dataclass(slots=True)
class ProcessStats:
    """Since the process started. One thread writes."""

    loop_delay: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS))
    """By how much timers of the loop were late, in seconds: a sample."""
    loop_stalls: int = 0
    """Of these, how many more than `STALL_S`."""
    gc_pauses: tuple[Histogram, ...] = field(
        default_factory=lambda: tuple(Histogram(DURATION_BOUNDS) for _ in range(_GENERATIONS))
    )
    """By generation: how long collections stopped the process, in seconds."""


class ProcessWatch:
    """Watches the running loop, and the process that it is in, from `start` to `close`."""

    def __init__(self, monotonic_ms: Callable[[], float], stats: ProcessStats) -> None:
        """`monotonic_ms`: a clock that never steps."""
        self._monotonic_ms, self.stats = monotonic_ms, stats
        self._timer: asyncio.TimerHandle | None = None
        self._expected_ms = self._collecting_ms = 0.0

    def start(self) -> None:
        """Watch; in the running loop."""
        gc.callbacks.append(self._on_collection)
        self._arm()

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _arm(self) -> None:
        self._expected_ms = self._monotonic_ms() + _PERIOD_S * 1_000
        self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._on_timer)

    def _on_timer(self) -> None:
        late_s = max(0.0, (self._monotonic_ms() - self._expected_ms) / 1_000)
        self.stats.loop_delay.observe(late_s)
        self.stats.loop_stalls += late_s > STALL_S
        self._arm()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector: nothing else of Python runs meanwhile."""
        if phase == "start":
            self._collecting_ms = self._monotonic_ms()
        elif self._collecting_ms:
            took_s = (self._monotonic_ms() - self._collecting_ms) / 1_000
            self.stats.gc_pauses[info["generation"]].observe(took_s)
