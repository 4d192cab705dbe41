"""The demo's end: tables, JSON, and the node's own counters."""

import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from hourwheel.client.catalog import GroupInfo, GroupLag
from hourwheel.client.cluster_status import ClusterStatus, ShardStatus
from node.tools.demo.ledger import Failover, KindCount, Lateness, Summary
from node.tools.demo.report import NodeSays, as_json, bound_of, disagreements, node_says, report

METRICS = """
# TYPE hourwheel_delivery_lateness_seconds histogram
hourwheel_delivery_lateness_seconds_bucket{le="0.001"} 98.0
hourwheel_delivery_lateness_seconds_bucket{le="0.005"} 99.0
hourwheel_delivery_lateness_seconds_bucket{le="+Inf"} 100.0
hourwheel_delivery_lateness_seconds_count 100.0
hourwheel_delivery_lateness_seconds_sum 1.0
# TYPE hourwheel_early_deliveries_total counter
hourwheel_early_deliveries_total 0.0
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.25
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 104857600
"""
SHARD = ShardStatus(0, 1, "node-1", 0, 2_000, 2_000, 2_000, 0, 10, 0, 7, 3, 1, 0, 0, 0, 4_096)
GROUP = GroupInfo("shop", 16, 1, 1, 1, (GroupLag("t", 0, 0),))
SUMMARY = Summary(
    orders=4,
    kinds=[KindCount("close-unpaid", 10, 3, 1, 7)],
    scheduled=10,
    cancelled=3,
    too_late=1,
    delivered=7,
    missing=0,
    duplicated=0,
    early=0,
    wrong=0,
    lateness=Lateness(1.0, 2.0, 3.0),
    due_at_once=0,
    problems=[],
)


def says() -> NodeSays:
    status = ClusterStatus("c", "1.2.3", (), (SHARD,))
    return node_says(status, GROUP, list(text_string_to_metric_families(METRICS)))


def text_of(summary: Summary, node: NodeSays | None = None) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(report(summary, node or says()))
    return captured.get()


def test_counters_of_the_node_are_read() -> None:
    found = says()
    assert (found.published, found.released, found.cancelled, found.pending) == (10, 7, 3, 0)
    assert (found.lateness_p99_ms, found.cpu_seconds, found.resident_bytes) == (
        5.0,
        1.25,
        100 << 20,
    )
    assert (found.version, found.log_bytes, found.unresolved, found.early) == ("1.2.3", 2_000, 0, 0)


def test_nothing_disagrees_when_both_count_the_same() -> None:
    assert disagreements(SUMMARY, says()) == []


@pytest.mark.parametrize(
    "field", ["published", "released", "cancelled", "pending", "unresolved", "early"]
)
def test_it_is_told_when_the_node_counts_otherwise(field: str) -> None:
    found = says()
    other = replace(found, **{field: getattr(found, field) + 1})
    (problem,) = disagreements(SUMMARY, other)
    assert "the node counts" in problem


@pytest.mark.parametrize(
    ("buckets", "bound_ms"),
    [
        ([], None),
        ([(0.001, 0.0), (float("inf"), 0.0)], None),
        ([(0.001, 99.0), (0.005, 100.0), (float("inf"), 100.0)], 1.0),
        ([(0.001, 5.0), (float("inf"), 100.0)], None),
    ],
)
def test_bound_is_that_of_the_bucket(
    buckets: list[tuple[float, float]], bound_ms: float | None
) -> None:
    assert bound_of(buckets, 0.99) == bound_ms


def test_tables_tell_all_numbers_and_the_outcome() -> None:
    text = text_of(SUMMARY)
    for part in (
        "close-unpaid",
        "missing",
        "duplicated",
        "early",
        "p99 2.0 ms",
        "1.2.3",
        "100 MiB",
    ):
        assert part in text
    assert "once, on time" in text


def test_problems_are_told_when_there_are_some() -> None:
    text = text_of(replace(SUMMARY, missing=1, problems=["message [x] never came"]))
    assert "message [x] never came" in text
    assert "not how it should be" in text


def test_lines_appear_only_when_they_say_something() -> None:
    assert "due when they were scheduled" not in text_of(SUMMARY)
    assert "due when they were scheduled" in text_of(replace(SUMMARY, due_at_once=3))


def test_json_has_everything() -> None:
    summary = json.loads(json.dumps(as_json(SUMMARY, says())))
    assert summary["good"] is True
    assert summary["lateness"] == {"p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0}
    assert summary["kinds"][0]["label"] == "close-unpaid"
    assert summary["node"]["published"] == 10
    assert json.loads(json.dumps(as_json(replace(SUMMARY, lateness=None), says())))["lateness"] is (
        None
    )


def test_failover_is_told_when_there_was_one() -> None:
    assert "killed" not in text_of(SUMMARY)
    failover = Failover("node-2", "node-3", 5, 612.4, 2_500.0)
    summary = replace(SUMMARY, failover=failover, redelivered=9)
    text = text_of(summary, replace(says(), nodes=3))
    for part in ("node-2", "node-3, epoch 5", "612 ms", "2,500 ms", "the 3 nodes say"):
        assert part in text
    again = replace(says(), published=17)
    (sent,) = (line for line in text_of(summary, again).splitlines() if "sent again" in line)
    assert "7" in sent
    assert disagreements(summary, again) == []
    assert len(disagreements(summary, replace(again, published=9))) == 1
    (line,) = (line for line in text.splitlines() if "handed out again" in line)
    assert "9" in line
    assert "still each message was released once" in text
    assert json.loads(json.dumps(as_json(summary, says())))["failover"]["gap_ms"] == 612.4


def test_counters_of_several_nodes_are_added_up() -> None:
    families = list(text_string_to_metric_families(METRICS))
    status = ClusterStatus("c", "1.2.3", (), (SHARD,))
    found = node_says(status, GROUP, [*families, *families], 2)
    assert (found.cpu_seconds, found.resident_bytes, found.nodes) == (2.5, 200 << 20, 2)
    assert found.lateness_p99_ms == says().lateness_p99_ms
