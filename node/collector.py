"""Reads a node when it is scraped, and gives Prometheus what the table in metrics.py says."""

import platform
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final

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
from node.api.ports import EnginePort
from node.histogram import Histogram
from node.metric_family import ClusterFacts, Family, NodeFacts, Scrape
from node.metrics import FAMILIES
from node.process_clock import SlewedClock
from node.stats import ApiStats

_LAG_GROUPS_MAX: Final = 500
"""Lag is told of so many groups, the first by name: more would make a scrape too dear."""


def read_node(
    engine: EnginePort,
    api: ApiStats,
    clock: SlewedClock,
    started_ms: int,
    cluster: Callable[[], ClusterFacts] | None = None,
) -> Scrape:
    """Everything that is told, as of now; on the loop's thread.

    `cluster` tells what is of several nodes; None for a node alone.
    """
    groups = [engine.group(group.name) for group in engine.groups()[:_LAG_GROUPS_MAX]]
    facts = NodeFacts(
        hourwheel.__version__,
        platform.python_version(),
        started_ms,
        clock.error_ms,
        clock.step_pending,
    )
    of_cluster = None if cluster is None else cluster()
    return Scrape(engine.stats, engine.status(), groups, api, facts, engine.now_ms(), of_cluster)


def families(scrape: Scrape) -> list[Metric]:
    """The whole table, filled in."""
    return [_fill(family, scrape) for family in FAMILIES]


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
    """What the registry asks; `read` answers with families, on whatever thread it must."""

    def __init__(self, read: Callable[[], list[Metric]]) -> None:
        """`read`: see the class."""
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when the collector is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The whole table."""
        return self._read()


def registry(read: Callable[[], list[Metric]]) -> CollectorRegistry:
    """A registry of this node's own, with the process's and the garbage collector's metrics."""
    found = CollectorRegistry()
    found.register(NodeCollector(read))
    ProcessCollector(registry=found)
    GCCollector(registry=found)
    return found
