"""Reads a node when it is scraped, and gives Prometheus what `table` says."""

import platform
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

import hourwheel
from node.broker.consumer_lag import LagReading
from node.broker.due_reading import DueWithin
from node.broker.slewed_clock import SlewedClock
from node.contracts.broker import EnginePort
from node.metrics.family import ClusterFacts, Family, NodeFacts, ProcessFacts, Scrape
from node.metrics.table import FAMILIES
from node.telemetry.histogram import Histogram
from node.telemetry.stats import ApiStats

_SETTLED: Final = tuple(family for family in FAMILIES if family.is_settled)
_LIVE: Final = tuple(family for family in FAMILIES if not family.is_settled)


def read_node(
    engine: EnginePort,
    api: ApiStats,
    clock: SlewedClock,
    started_ms: int,
    lag: LagReading,
    cluster: Callable[[], ClusterFacts] | None = None,
    *,
    due: tuple[DueWithin, ...] = (),
    process: ProcessFacts | None = None,
) -> Scrape:
    """Everything that a scrape shows, as of now; on the loop's thread.

    `lag`: see node/broker/consumer_lag.py; `due`: node/broker/due_reading.py. `cluster` tells what
    is of several nodes; None for a node alone.
    """
    facts = NodeFacts(
        hourwheel.__version__,
        platform.python_version(),
        started_ms,
        clock.error_ms,
        clock.step_pending,
        process or ProcessFacts(),
    )
    of_cluster = None if cluster is None else cluster()
    now_ms, held_bytes = engine.now_ms(), engine.answers.held_bytes
    return Scrape(
        stats=engine.stats,
        status=engine.status(),
        gauges=engine.gauges(),
        lag=lag,
        api=api,
        facts=facts,
        now_ms=now_ms,
        cluster=of_cluster,
        answer_bytes=held_bytes,
        due=due,
    )


class Taken(NamedTuple):
    """A scrape as it leaves the loop's thread."""

    scrape: Scrape
    live: list[Metric]
    """What changes from one moment to the next, as of one moment."""


def take(scrape: Scrape) -> Taken:
    """Fill in what changes; on the loop's thread, and the same whatever topics there are."""
    return Taken(scrape, [_fill(family, scrape) for family in _LIVE])


def families(taken: Taken) -> list[Metric]:
    """The whole table, filled in; on any thread."""
    return [*taken.live, *(_fill(family, taken.scrape) for family in _SETTLED)]


def _fill(family: Family, scrape: Scrape) -> Metric:
    if family.kind == "histogram":
        histograms = HistogramMetricFamily(family.name, family.text, labels=family.labels)
        for labels, value in family.read(scrape):
            if isinstance(value, Histogram):
                histograms.add_metric(labels, *_buckets(value))
        return histograms
    is_counter = family.kind == "counter"
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    metric = kind(family.name, family.text, labels=family.labels)
    for labels, value in family.read(scrape):
        if not isinstance(value, Histogram):
            metric.add_metric(labels, value)
    return metric


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts with their upper bounds, and the sum."""
    value = histogram.read()
    bounds = [*map(floatToGoString, value.bounds), "+Inf"]
    return list(zip(bounds, accumulate(value.counts), strict=True)), value.total


class NodeCollector(Collector):
    """What the registry asks; `read` answers from whatever thread it must."""

    def __init__(self, read: Callable[[], Taken]) -> None:
        """`read`: see the class."""
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when the collector is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The whole table."""
        return families(self._read())


def registry(read: Callable[[], Taken]) -> CollectorRegistry:
    """A registry of this node's own, with the process's and the garbage collector's metrics."""
    found = CollectorRegistry()
    found.register(NodeCollector(read))
    ProcessCollector(registry=found)
    GCCollector(registry=found)
    return found
