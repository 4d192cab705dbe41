"""Stalls: turns of the event loop that took long, and what was to blame. Pure.

wall time  =  processor time  +  ready, but without a core  +  waiting
                   |                      |                       |
           what ran, by name           "machine"       the interpreter's lock, the disk
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from node.telemetry.histogram import Histogram

STALL_BOUNDS: Final = (0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds in seconds."""
KEPT_MAX: Final = 256
"""Of the stalls, the last ones."""

GARBAGE: Final = "garbage_collector"
MACHINE: Final = "machine"
WAITING: Final = "waiting"
PAGE_FAULTS: Final = "page_faults"
SEVERAL: Final = "several"
UNNAMED: Final = "unnamed"
_ALWAYS: Final = (GARBAGE, MACHINE, WAITING, PAGE_FAULTS, SEVERAL, UNNAMED)


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


@dataclass(slots=True)
class Stalls:
    """Those since the process started, counted, and the last ones. One thread writes."""

    seconds: Histogram = field(default_factory=lambda: Histogram(STALL_BOUNDS))
    by_cause: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ALWAYS, 0))
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
