"""What a benchmark found: rows with a number, its unit and what the project promises of it."""

import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A promise: `value` compared so with the number."""

    comparison: str
    value: float

    def is_reached(self, found: float) -> bool:
        """Whether `found` keeps the promise."""
        return _COMPARISONS[self.comparison](found, self.value)

    def __str__(self) -> str:
        return f"{self.comparison} {number(self.value)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One number."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    values: Sequence[float] = ()
    """Of each repetition, where `value` is their median."""
    note: str = ""
    """What else was seen at the same time, for people."""

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None without one."""
        return None if self.target is None else self.target.is_reached(self.value)

    def as_json(self) -> dict[str, Any]:
        """The row for programs."""
        target = self.target
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": None if target is None else {"is": target.comparison, "value": target.value},
            "is_reached": self.is_reached,
            "values": list(self.values),
            "note": self.note,
        }


@dataclass(slots=True)
class Report:
    """What one benchmark found."""

    conditions: list[str]
    """How it was measured."""
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Parts that came to nothing while others did not."""

    def add(
        self, name: str, value: float, unit: str, target: Target | None = None, note: str = ""
    ) -> None:
        """Add a number that was measured once."""
        self.rows.append(Row(name, value, unit, target, (), note))

    def add_median(
        self,
        name: str,
        values: Sequence[float],
        unit: str,
        target: Target | None = None,
        note: str = "",
    ) -> None:
        """Add the median of several repetitions."""
        self.rows.append(Row(name, statistics.median(values), unit, target, tuple(values), note))


def at_least(value: float) -> Target:
    """The number must not be smaller."""
    return Target(">=", value)


def at_most(value: float) -> Target:
    """The number must not be larger."""
    return Target("<=", value)


def below(value: float) -> Target:
    """The number must be smaller."""
    return Target("<", value)


def number(value: float) -> str:
    """A number as people read it: three digits that say something, thousands set apart."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def add_lateness(
    report: Report,
    name: str,
    late_ms: NDArray[np.float64],
    p50_target: Target | None = None,
    p99_target: Target | None = None,
    p999_target: Target | None = None,
) -> None:
    """Add the distribution of float64[n] latenesses: percentiles, the largest, the smallest."""
    p50, p99, p999 = np.percentile(late_ms, (50, 99, 99.9)).tolist()
    report.add(f"{name}: p50", p50, "ms", p50_target, f"{len(late_ms):,} messages")
    report.add(f"{name}: p99", p99, "ms", p99_target)
    report.add(f"{name}: p99.9", p999, "ms", p999_target)
    report.add(f"{name}: max", float(late_ms.max()), "ms")
    report.add(f"{name}: min (never early)", float(late_ms.min()), "ms", at_least(0))
