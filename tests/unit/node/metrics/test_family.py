"""The kinds of metrics that the table is made of."""

from hourwheel.v1.status_pb2 import ShardStatus
from node.contracts.broker import ShardGauges
from node.metrics.family import NodeFacts, Scrape, node_gauge, shard_counter, shard_gauge
from node.telemetry.stats import ApiStats, EngineStats

SCRAPE = Scrape(
    EngineStats(published=3),
    ShardStatus(pending_count=7),
    ShardGauges(),
    [],
    ApiStats(),
    NodeFacts("1", "3", 0, 2.0, False),
    0,
)


def test_shards_are_told_apart_by_a_label() -> None:
    family = shard_counter("a_total", "A.", lambda it: it.stats.published)
    assert (family.kind, family.labels) == ("counter", ("shard",))
    assert list(family.read(SCRAPE)) == [(("0",), 3)]
    gauge = shard_gauge("b", "B.", lambda it: it.status.pending_count)
    assert (gauge.kind, list(gauge.read(SCRAPE))) == ("gauge", [(("0",), 7)])


def test_node_has_one_of_it() -> None:
    family = node_gauge("c", "C.", lambda it: it.facts.clock_error_ms)
    assert (family.kind, family.labels, list(family.read(SCRAPE))) == ("gauge", (), [((), 2.0)])
