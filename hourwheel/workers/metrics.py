"""What workers, gateways and pushers tell Prometheus: tables of families, and samples of them.

Counts are plain numbers that belong to one event loop; they are read when somebody scrapes, in a
thread of the server (`health`). Labels are few and bounded: names of the configuration and of the
code, never a message, a caller or a URL. docs/METRICS.md is made of the tables.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of the buckets of histograms."""
_SECOND_MS: Final = 1_000


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    labels: tuple[str, ...]
    text: str


class Durations:
    """A histogram of lengths of time."""

    def __init__(self) -> None:
        """None yet."""
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, ms: float) -> None:
        """Another one."""
        self._counts[bisect_left(BOUNDS_S, ms / _SECOND_MS)] += 1
        self._sum_s += ms / _SECOND_MS

    def buckets(self) -> list[tuple[str, float]]:
        """(upper end, so many up to there), as Prometheus wants them."""
        ends = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(ends, map(float, accumulate(self._counts)), strict=True))

    @property
    def sum_s(self) -> float:
        """All of them together."""
        return self._sum_s


Sample = tuple[tuple[str, ...], float | Durations]
"""Values of the labels, and what was counted."""
Samples = Mapping[str, Sequence[Sample]]
"""By name of the family; those of a family that has none may be left out."""

FAMILIES: Final = (
    Family(
        "hourwheel_worker_messages_total",
        "counter",
        ("handler", "topic", "group", "result"),
        "Messages that a handler is done with: done, retry, failed or rejected.",
    ),
    Family(
        "hourwheel_worker_message_duration_seconds",
        "histogram",
        ("handler", "topic", "group"),
        "From a message's place in work to its result: a wait for a child, and what runs there.",
    ),
    Family(
        "hourwheel_worker_lost_leases_total",
        "counter",
        ("handler", "topic", "group"),
        "Leases that could not be made longer while a handler ran: their messages may come twice.",
    ),
    Family(
        "hourwheel_worker_running_messages",
        "gauge",
        ("handler", "topic", "group"),
        "Messages in work.",
    ),
    Family(
        "hourwheel_worker_receiving",
        "gauge",
        ("handler", "topic", "group"),
        "1 if the last poll was answered.",
    ),
    Family("hourwheel_worker_processes", "gauge", (), "Children that take messages."),
    Family(
        "hourwheel_worker_process_restarts_total", "counter", (), "Children that were replaced."
    ),
)


class Collector:
    """Makes Prometheus' objects when somebody asks."""

    def __init__(self, families: Sequence[Family], look: Callable[[], Samples], core: Any) -> None:
        """`look`: called in other threads; `core`: the module prometheus_client.core."""
        self._families, self._look, self._core = families, look, core

    def collect(self) -> Iterator[Any]:
        """All families, those without a sample too."""
        samples = self._look()
        for family in self._families:
            made = self._made(family)
            for values, counted in samples.get(family.name, ()):
                if isinstance(counted, Durations):
                    made.add_metric(values, counted.buckets(), counted.sum_s)
                else:
                    made.add_metric(values, counted)
            yield made

    def _made(self, family: Family) -> Any:
        kinds = {
            "counter": self._core.CounterMetricFamily,
            "gauge": self._core.GaugeMetricFamily,
            "histogram": self._core.HistogramMetricFamily,
        }
        name = family.name.removesuffix("_total")
        return kinds[family.kind](name, family.text, labels=family.labels)
