"""The only reader of time. Cores take `now_ms`; shells hold a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where a shell gets its time."""

    def wall_ms(self) -> float:
        """Milliseconds since the Unix epoch, with a fraction. May step when the clock is set."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds from an unspecified start, through suspend. Never steps."""
        ...


class SystemClock:
    """The machine's clocks: CLOCK_REALTIME, and CLOCK_BOOTTIME which runs through suspend."""

    def wall_ms(self) -> float:
        """See `Clock.wall_ms`."""
        return time.time_ns() / 1e6

    def monotonic_ms(self) -> float:
        """See `Clock.monotonic_ms`."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6
