"""The end of the demo: tables for people, JSON for scripts, and what the node says of itself."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from prometheus_client.core import Metric
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hourwheel.client.catalog import GroupInfo
from hourwheel.client.cluster_status import ClusterStatus
from node.tools.demo.ledger import Failover, Summary
from node.tools.demo.progress import lateness_text

_LATENESS: Final = "hourwheel_delivery_lateness_seconds"
_CPU: Final = "process_cpu_seconds"
_MEMORY: Final = "process_resident_memory_bytes"
_EARLY: Final = "hourwheel_early_deliveries"
_MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class NodeSays:
    """What the node counted by itself."""

    version: str
    published: int
    released: int
    cancelled: int
    pending: int
    unresolved: int
    """Released messages that the consumer group has not acknowledged."""
    early: int
    lateness_p99_ms: float | None
    """99 % became visible within so many ms of their due time (an upper bound); None: no limit."""
    cpu_seconds: float
    """Of all nodes, but not of processes that were killed."""
    resident_bytes: int
    """Of all nodes."""
    log_bytes: int
    nodes: int = 1


def node_says(
    status: ClusterStatus, group: GroupInfo, metrics: Iterable[Metric], nodes: int = 1
) -> NodeSays:
    """Read the nodes' own counters.

    Args:
        status: of the node, or of the master.
        group: the demo's consumer group.
        metrics: of all nodes, parsed.
        nodes: how many those are.
    """
    shard = status.shards[0]
    samples: dict[str, float] = defaultdict(float)
    bounds: dict[float, float] = defaultdict(float)
    for family in metrics:
        for sample in family.samples:
            if sample.name == f"{_LATENESS}_bucket":
                bounds[float(sample.labels["le"])] += sample.value
            else:
                samples[sample.name] += sample.value
    buckets = list(bounds.items())
    return NodeSays(
        version=status.version,
        published=shard.published_count,
        released=shard.released_count,
        cancelled=shard.cancelled_count,
        pending=shard.pending_count,
        unresolved=sum(lag.unresolved_count for lag in group.lags),
        early=int(samples.get(f"{_EARLY}_total", 0)),
        lateness_p99_ms=bound_of(buckets, 0.99),
        cpu_seconds=round(samples.get(f"{_CPU}_total", 0.0), 2),
        resident_bytes=int(samples.get(_MEMORY, 0)),
        log_bytes=shard.log_end_offset - shard.log_start_offset,
        nodes=nodes,
    )


def bound_of(buckets: list[tuple[float, float]], share: float) -> float | None:
    """The bucket of a histogram below which `share` of all values lie: its bound, in ms.

    None where the histogram is empty, or they reach beyond its last bound.
    """
    total = max((count for _, count in buckets), default=0.0)
    for bound, count in sorted(buckets):
        if total and count >= share * total and bound != float("inf"):
            return bound * 1_000
    return None


def disagreements(summary: Summary, node: NodeSays) -> list[str]:
    """Where the node's counters differ from the demo's."""
    # What was under way to a killed master is sent again; what the next one recognises as sent
    # twice has used up numbers, and nothing else.
    again = 0 if summary.failover is None else max(0, node.published - summary.scheduled)
    expected = (
        ("published", node.published, summary.scheduled + again),
        ("released", node.released, summary.delivered + summary.missing),
        ("cancelled", node.cancelled, summary.cancelled),
        ("pending", node.pending, 0),
        ("not acknowledged", node.unresolved, 0),
        ("early", node.early, 0),
    )
    return [
        f"the node counts {counted:,} messages {name}, and it should be {right:,}"
        for name, counted, right in expected
        if counted != right
    ]


def as_json(summary: Summary, node: NodeSays) -> dict[str, Any]:
    """Everything, for scripts."""
    facts = asdict(summary)
    facts["kinds"] = [one._asdict() for one in summary.kinds]
    facts["lateness"] = summary.lateness._asdict() if summary.lateness else None
    facts["failover"] = summary.failover._asdict() if summary.failover else None
    return {"good": summary.is_good, **facts, "node": asdict(node)}


def report(summary: Summary, node: NodeSays) -> RenderableType:
    """All tables."""
    parts: list[RenderableType] = [_kinds(summary), _totals(summary)]
    if summary.failover is not None:
        parts.append(_failover(summary.failover, node.published - summary.scheduled))
    parts.append(_node(node))
    parts += [Text(f"  problem: {problem}", style="red") for problem in summary.problems]
    outcome = (
        Text(f"  {_outcome(summary)}", style="bold green")
        if summary.is_good
        else Text("  That is not how it should be.", style="bold red")
    )
    return Group(*parts, outcome)


def _outcome(summary: Summary) -> str:
    if summary.failover is None:
        return "Each message came once, on time."
    return "A master was killed, and still each message was released once, and none too early."


def _failover(failover: Failover, again: int) -> Table:
    title = "the master was killed (kill -9)"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in (
        ("killed", failover.killed),
        ("next master", f"{failover.successor}, epoch {failover.epoch}"),
        ("longest time without a delivery since", f"{failover.gap_ms:,.0f} ms"),
        ("started again, and in sync after", f"{failover.in_sync_ms:,.0f} ms"),
        ("sent again by the producer, recognised and not stored", f"{again:,}"),
    ):
        table.add_row(*row)
    return table


def _kinds(summary: Summary) -> Table:
    table = Table(title=f"{summary.orders:,} orders", title_justify="left", show_footer=True)
    columns = (
        ("scheduled", summary.scheduled),
        ("cancelled", summary.cancelled),
        ("too late to cancel", summary.too_late),
        ("delivered", summary.delivered),
    )
    table.add_column("timer", footer="all")
    for name, total in columns:
        table.add_column(name, footer=f"{total:,}", justify="right")
    for one in summary.kinds:
        table.add_row(one.label, *(f"{count:,}" for count in one[1:]))
    return table


def _totals(summary: Summary) -> Table:
    table = Table(title="what the consumers got", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in (
        ("scheduled", summary.scheduled),
        ("cancelled", summary.cancelled),
        ("delivered", summary.delivered),
    ):
        table.add_row(name, f"{count:,}")
    for name, count in (
        ("missing", summary.missing),
        ("duplicated (released twice)", summary.duplicated),
        ("early", summary.early),
        ("wrong", summary.wrong),
    ):
        table.add_row(name, Text(f"{count:,}", style="bold red" if count else "green"))
    if summary.failover is not None:
        table.add_row("handed out again by the next master", f"{summary.redelivered:,}")
    table.add_row("lateness", lateness_text(summary.lateness))
    if summary.due_at_once:
        table.add_row("due when they were scheduled", f"{summary.due_at_once:,}")
    return table


def _node(node: NodeSays) -> Table:
    who = "the node says of itself" if node.nodes == 1 else f"the {node.nodes} nodes say"
    title = f"what {who} (version {node.version})"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    late = (
        "more than it measures" if node.lateness_p99_ms is None else f"{node.lateness_p99_ms:g} ms"
    )
    rows = (
        ("published", f"{node.published:,}"),
        ("cancelled", f"{node.cancelled:,}"),
        ("released", f"{node.released:,}"),
        ("pending", f"{node.pending:,}"),
        ("released and not acknowledged", f"{node.unresolved:,}"),
        ("99 % visible to consumers within", late),
        ("commit log", f"{node.log_bytes / _MIB:,.1f} MiB"),
        ("processor time", f"{node.cpu_seconds:,.1f} s"),
        ("memory", f"{node.resident_bytes / _MIB:,.0f} MiB"),
    )
    for row in rows:
        table.add_row(*row)
    return table
