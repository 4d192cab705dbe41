"""Histograms that are fed in batches: the cost is numpy's, not Python's, for each message.

Pure counting; node/metrics/table.py turns them into Prometheus' format when someone asks.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

DURATION_BOUNDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)
"""Upper bounds in seconds, for what lasts microseconds when all is well."""
LATENESS_BOUNDS: Final = (
    *(0.0, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 60.0, 600.0, 3_600.0),
)
"""Upper bounds in seconds, fine where the objective (p99 of 5 ms) lies."""
SIZE_BOUNDS: Final = tuple(float(1 << power) for power in range(0, 19, 2))
"""Upper bounds in things: 1, 4, 16, ... 262,144."""


class HistogramValue(NamedTuple):
    """What a histogram holds at one moment."""

    bounds: tuple[float, ...]
    counts: list[int]
    """Of each bucket, not cumulative; one more than bounds, for what is above the last."""
    total: float
    """Sum of all that was observed."""


class Histogram:
    """Counts of values in buckets (bounds[i-1], bounds[i]]. One thread writes."""

    __slots__ = ("_array", "_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Empty; `bounds` ascend."""
        self._bounds = tuple(bounds)
        self._array = np.asarray(self._bounds, np.float64)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; about 0.3 us."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def observe_many(self, values: NDArray[Any], scale: float = 1.0) -> None:
        """Count `values * scale`, any number of them: scale=0.001 takes milliseconds as seconds."""
        if not len(values):
            return
        scaled = values * scale
        found = np.bincount(np.searchsorted(self._array, scaled, "left"))
        for bucket in np.flatnonzero(found).tolist():
            self._counts[bucket] += int(found[bucket])
        self._total += float(scaled.sum())

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    def read(self) -> HistogramValue:
        """A copy of what is held."""
        return HistogramValue(self._bounds, list(self._counts), self._total)
