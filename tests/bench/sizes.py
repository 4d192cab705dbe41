"""How large a run is. Targets are meant for `FULL`; the others show that a benchmark works."""

from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")


class Size(IntEnum):
    """Of all benchmarks of a run."""

    TINY = 0
    """Seconds: for the test of the benchmarks themselves."""
    QUICK = 1
    FULL = 2

    def pick(self, tiny: T, quick: T, full: T) -> T:
        """The one for this size."""
        return (tiny, quick, full)[self]
