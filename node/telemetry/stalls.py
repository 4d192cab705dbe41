"""The stalls of a process, counted, and the last ones. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from hourwheel.stalls import CAUSES, KEPT_MAX, Stall
from node.telemetry.histogram import Histogram

STALL_BOUNDS: Final = (0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds in seconds."""


@dataclass(slots=True)
class Stalls:
    """Those since the process started, counted, and the last ones. One thread writes."""

    seconds: Histogram = field(default_factory=lambda: Histogram(STALL_BOUNDS))
    by_cause: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    """How many, by `Stall.cause`: as many keys as there are names in the code."""
    last: "deque[Stall]" = field(default_factory=lambda: deque(maxlen=KEPT_MAX))

    def add(self, stall: Stall) -> None:
        """There was one more."""
        self.seconds.observe(stall.wall_ms / 1_000)
        cause = stall.cause
        self.by_cause[cause] = self.by_cause.get(cause, 0) + 1
        self.last.append(stall)

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.by_cause.values())
