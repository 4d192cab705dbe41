"""The report of an audit as one HTML page: no script, no network, light and dark, for print, too.

The page says the verdict first, then what was found, then what was looked at and how far, then the
figures. Each plot has its numbers in a table below it, folded. Anything that comes from the logs
(names, details) is escaped; the page's policy lets nothing be loaded.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np

from spark_jobs.audit import plots
from spark_jobs.audit.facts.findings import ALL_CHECKS, Finding, Made, rank_of
from spark_jobs.audit.facts.result import EXACT_MS, AuditResult, ShardAudit, bin_upper_ms
from spark_jobs.audit.plots import Caption, Series, instant_text, join_steps, table
from spark_jobs.audit.words import WORDS, sentences
from spark_jobs.logs.replica import INFO
from spark_jobs.runtime.instants import exact_instant_text

FINDINGS_SHOWN: Final = 200
ROWS_SHOWN: Final = 200
_EDGES: Final = (
    *(0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500),
    *(2_000, 3_000, 5_000, 7_000, EXACT_MS),
)
_STYLE: Final = """
:root { color-scheme: light dark; --bg: #fff; --ink: #1b1f24; --dim: #57606a; --line: #8c959f;
  --soft: #d8dee4; --panel: #f6f8fa; --a: #0072b2; --b: #b34700; --c: #00664b; --d: #8a4f7d;
  --good: #00664b; --bad: #b31d28; --warn: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --ink: #e6edf3; --dim: #9da7b1;
  --line: #6e7681; --soft: #30363d; --panel: #161b22; --a: #56b4e9; --b: #f0a35e; --c: #3ecf9e;
  --d: #d8a0cb; --good: #3ecf9e; --bad: #ff8a8a; --warn: #e3b341; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1.5rem 1rem 4rem; background: var(--bg);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; } p { margin: .3rem 0; } .dim { color: var(--dim); }
.verdict { border-left: .4rem solid var(--mark); background: var(--panel); padding: .8rem 1rem;
  margin: 1rem 0; } .verdict strong { font-size: 1.3rem; color: var(--mark); }
.clean { --mark: var(--good); } .faulty { --mark: var(--bad); }
.incomplete, .late { --mark: var(--warn); }
.tiles { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
.tiles div { background: var(--panel); padding: .5rem .7rem; } .tiles b { display: block;
  font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--soft);
  vertical-align: top; white-space: nowrap; } th.n, td.n { text-align: right;
  font-variant-numeric: tabular-nums; }
td.t { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
tr.o td { border-bottom: 0; white-space: normal; overflow-wrap: break-word; }
tr.o td:nth-child(-n+2) { white-space: nowrap; }
tr.n td { padding-top: 0; padding-left: 1.4rem; color: var(--dim); }
svg { width: 100%; height: auto; background: var(--panel); } svg text { fill: var(--dim);
  font: 12px system-ui, sans-serif; } .grid { stroke: var(--soft); } .axis { stroke: var(--line); }
.a { fill: var(--a); color: var(--a); } .b { fill: var(--b); color: var(--b); }
.c { fill: var(--c); color: var(--c); } .d { fill: var(--d); color: var(--d); }
.stroke { fill: none; stroke: currentColor; stroke-width: 1.6; } .area { opacity: .22; }
summary { cursor: pointer; color: var(--dim); margin: .4rem 0; } code { font-size: .9em; }
@media print { body { max-width: none; } details { display: none; } }
"""


def render(result: AuditResult, *, made_ms: int, folder: str = "") -> str:
    """The page.

    Args:
        result: of the audit.
        made_ms: when, epoch ms.
        folder: where the findings' Parquet file lies, to be named on the page.
    """
    parts = [
        _head(result, made_ms),
        _findings(result, folder),
        _checks(result),
        *(_shard(shard) for shard in result.shards),
        _inputs(result),
    ]
    title = f"Hourwheel audit: {WORDS[result.verdict]}"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _head(result: AuditResult, made_ms: int) -> str:
    word = WORDS[result.verdict]
    messages = sum(shard.totals.published - shard.totals.void for shard in result.shards)
    cluster = result.cluster or "unknown"
    said = "".join(f"<p>{escape(one)}</p>" for one in sentences(result))
    return (
        f"<h1>Delivery audit</h1><p class='dim'>Cluster {escape(cluster)}. Made"
        f" {instant_text(made_ms)} UTC in {result.seconds:,.1f} s. All times are UTC.</p>"
        f'<div class="verdict {result.verdict.value}"><strong>{word}</strong>'
        f"{said}<p>{messages:,} messages, {len(result.shards)}"
        f" {'shard' if len(result.shards) == 1 else 'shards'}.</p></div>"
    )


def _findings(result: AuditResult, folder: str) -> str:
    if not result.finding_counts:
        return "<h2>Findings</h2><p>None.</p>"
    counts = [
        (severity, check, shard, count, ALL_CHECKS.get(check, ""))
        for (severity, check, shard), count in sorted(
            result.finding_counts.items(),
            key=lambda item: (_rank(item[0][0]), rank_of(item[0][1]), item[0][1:]),
        )
    ]
    shown = list(result.findings[:FINDINGS_SHOWN])
    total = sum(result.finding_counts.values())
    where = f" in <code>{escape(folder)}</code>" if folder else ""
    some = f"{len(shown):,} of {total:,} are shown; the Parquet file{where} has more."
    more = f"<p class='dim'>{some}</p>"
    worth = [one for one in shown if one.severity != INFO and not one.cause]
    follows = [one for one in shown if one.severity != INFO and one.cause]
    usual = [one for one in shown if one.severity == INFO]
    return (
        "<h2>Findings</h2>"
        + table(("severity", "check", "shard", "count", "what it says"), counts)
        + "<h3>One by one</h3>"
        + (_finding_table(worth) if worth else "")
        + (
            _folded(f"{len(follows):,} that follow from these", _finding_table(follows))
            * bool(follows)
        )
        + (_folded(f"{len(usual):,} for information", _finding_table(usual)) if usual else "")
        + (more if total > len(shown) else "")
    )


def _finding_table(found: Sequence[Finding]) -> str:
    """A row a finding, of the columns that any of them has, and below it place and detail."""
    heads = ("severity", "check", "shard", "node", "sequence", "topic", "due", "cause")
    rows = [_finding_row(one) for one in found]
    is_one = len({one.shard for one in found}) == 1
    used = [
        at
        for at, head in enumerate(heads)
        if any(row[at] for row in rows) and not (head == "shard" and is_one)
    ]
    return table(
        [heads[at] for at in used],
        [[row[at] for at in used] for row in rows],
        notes=[_note(one) for one in found],
    )


def _finding_row(one: Finding) -> Sequence[Any]:
    due = exact_instant_text(one.due_ms) if one.due_ms >= 0 else ""
    sequence = f"{one.sequence}" if one.sequence >= 0 else ""
    shard = f"{one.shard}" if one.shard >= 0 else ""
    return (one.severity, one.check, shard, one.node, sequence, one.topic, due, one.cause)


def _note(one: Finding) -> str:
    where = (
        one.file,
        f"offset {one.offset}" if one.offset >= 0 else "",
        f"position {one.position}" if one.position >= 0 else "",
    )
    place = ", ".join(part for part in where if part)
    return ": ".join(part for part in (place, one.detail or ALL_CHECKS.get(one.check, "")) if part)


def _rank(severity: str) -> int:
    return ("error", "warning", "info").index(severity)


def _checks(result: AuditResult) -> str:
    rows = [
        (one.area, one.shard, one.node, one.made.value, one.limit, one.reason)
        for one in result.checks
    ]
    full = sum(one.made is Made.FULL for one in result.checks)
    return f"<h2>What was checked</h2><p>{full} of {len(rows)} in full.</p>" + table(
        ("area", "shard", "node", "how far", "limit", "why not in full"), rows
    )


def _shard(shard: ShardAudit) -> str:
    totals = shard.totals
    tiles = (
        ("accepted", totals.published - totals.void),
        ("released", totals.released),
        ("cancelled", totals.cancelled),
        ("pending", totals.pending),
        ("redelivered", totals.redelivered),
        ("dead letters", totals.dead_lettered),
        ("refused or repeated", totals.void),
        ("discarded", totals.discarded),
    )
    boxes = "".join(f"<div><b>{count:,}</b>{name}</div>" for name, count in tiles)
    span = ""
    if shard.first_store_ms >= 0:
        span = f", {instant_text(shard.first_store_ms)} to {instant_text(shard.last_store_ms)}"
    return (
        f"<h2>Shard {shard.shard}</h2><p class='dim'>Log offsets {shard.start_offset:,} to"
        f" {shard.end_offset:,}, sequences {shard.first_sequence:,} to {shard.next_sequence:,}"
        f"{span}.</p><div class='tiles'>{boxes}</div>"
        + _lateness(shard)
        + _ledger(shard)
        + _pending(shard)
        + _replicas(shard)
        + _groups(shard)
    )


def _lateness(shard: ShardAudit) -> str:
    late = shard.lateness
    if not late.count.sum():
        return "<h3>Lateness</h3><p>No message went through the wheel.</p>"
    p50, p90, p99, worst = late.percentiles()
    bins, counts = late.histogram()
    edges = np.array(_EDGES)
    upper = bin_upper_ms(bins)
    place = np.minimum(np.searchsorted(edges, upper, "right") - 1, len(edges) - 1)
    values = np.bincount(place, counts, len(edges)).astype(np.int64)
    labels = [_edge_label(at) for at in range(len(edges))]
    used = int(np.flatnonzero(values).max()) + 1
    text = f"half within {p50:,} ms, 90% within {p90:,} ms, 99% within {p99:,} ms, all {worst:,} ms"
    caption = Caption(
        "Lateness",
        f"Histogram of how late messages were released: {text}.",
        "released so many ms after the due time",
        "messages (logarithmic)",
    )
    rows = [
        (shard.topics.get(topic, f"#{topic}"), instant_text(hour), count, *at)
        for topic, hour, count, at in late.by_topic_and_hour()[:ROWS_SHOWN]
    ]
    heads = ("topic", "hour due", "messages", "p50 ms", "p90 ms", "p99 ms", "max ms")
    return (
        f"<h3>Lateness</h3><p>{text[0].upper()}{text[1:]}. Lateness is the time of the dispatch"
        " record less the due time.</p>"
        + plots.bars(caption, labels[:used], values[:used])
        + _folded("by topic and hour", table(heads, rows))
        + _folded(
            "the plot's numbers",
            table(("ms late", "messages"), list(zip(labels, values.tolist(), strict=True))[:used]),
        )
    )


def _edge_label(at: int) -> str:
    low = _EDGES[at]
    if at + 1 == len(_EDGES):
        return f"{low:,}+"
    high = _EDGES[at + 1] - 1
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def _ledger(shard: ShardAudit) -> str:
    ledger = shard.ledger
    if not len(ledger.start_ms):
        return ""
    names = ("due", "released", "cancelled", "pending")
    given = [getattr(ledger, name) for name in names]
    columns = join_steps(ledger.start_ms, ledger.step_ms, given)
    series = [
        Series(name, values, is_area=name == "due")
        for name, values in zip(names, columns.values, strict=True)
        if name == "due" or values.any()
    ]
    per = f"per {_step_text(columns.step_ms)}"
    caption = Caption(
        "Ledger",
        f"Messages {per} by due time: "
        + ", ".join(
            f"{name} {int(values.sum()):,}" for name, values in zip(names, given, strict=True)
        ),
        "time (UTC)",
        f"messages {per}",
    )
    rows = [
        (instant_text(int(start)), *(int(values[at]) for values in columns.values))
        for at, start in enumerate(columns.start_ms.tolist())
        if any(values[at] for values in columns.values)
    ]
    return (
        f"<h3>Ledger</h3><p>What fell due, and what became of it, {per}.</p>"
        + plots.lines(caption, columns, series)
        + _folded("the plot's numbers", table(("from", *names), rows))
    )


def _pending(shard: ShardAudit) -> str:
    pending = shard.pending
    if not len(pending.hour_ms):
        return "<h3>Pending</h3><p>Nothing is pending.</p>"
    columns = join_steps(pending.hour_ms, 3_600_000, [pending.count], 240)
    per = f"per {_step_text(columns.step_ms)}"
    caption = Caption(
        "Pending by due time",
        f"{int(pending.count.sum()):,} messages wait, from {instant_text(int(pending.hour_ms[0]))}"
        f" to {instant_text(int(pending.hour_ms[-1]))}",
        "due (UTC)",
        f"messages {per}",
    )
    rows = [
        (instant_text(int(start)), int(count))
        for start, count in zip(columns.start_ms, columns.values[0], strict=True)
        if count
    ]
    return (
        f"<h3>Pending by due time</h3><p>{caption.description}.</p>"
        + plots.time_bars(caption, columns)
        + _folded("the plot's numbers", table(("from", "messages"), rows))
    )


def _replicas(shard: ShardAudit) -> str:
    heads = (
        *("node", "log", "committed", "applied", "batches", "messages", "damaged", "missing bytes"),
        *("lag bytes", "first difference", "queue entries", "wheel units"),
    )
    rows = [
        (
            one.node,
            f"{one.log_start:,} to {one.log_end:,}",
            one.committed_offset,
            one.applied_offset,
            one.batches,
            one.messages,
            one.damage_count,
            one.missing_bytes,
            one.lag_bytes,
            f"offset {one.diverges_at:,}" if one.diverges_at >= 0 else "none",
            one.queue_entries,
            one.wheel_units,
        )
        for one in shard.replicas
    ]
    epochs = [
        (epoch, start, instant_text(store_ms) if store_ms >= 0 else "", node)
        for epoch, start, store_ms, node in shard.epochs
    ]
    return (
        "<h3>Replicas</h3>"
        + table(heads, rows)
        + _folded("masterships", table(("epoch", "from offset", "since", "master"), epochs))
    )


def _groups(shard: ShardAudit) -> str:
    if not shard.groups:
        return ""
    heads = (
        *("group", "topic", "released", "acknowledged", "retries", "dead letters", "outstanding"),
        *("in retry", "oldest outstanding", "attempts"),
    )
    rows = [
        (
            one.group,
            one.topic,
            one.released,
            one.acked,
            one.retries,
            one.dead,
            one.outstanding,
            one.retry_pending,
            instant_text(one.oldest_outstanding_ms) if one.oldest_outstanding_ms >= 0 else "",
            ", ".join(f"{attempt}: {count:,}" for attempt, count in sorted(one.attempts.items())),
        )
        for one in shard.groups[:ROWS_SHOWN]
    ]
    return "<h3>Consumer groups</h3>" + table(heads, rows)


def _inputs(result: AuditResult) -> str:
    facts = [(name, value) for name, value in sorted(result.facts.items())]
    return (
        "<h2>What was read</h2>"
        + table(("directory",), [(uri,) for uri in result.inputs])
        + _folded("more facts", table(("", ""), [(n, _fact(v)) for n, v in facts]))
    )


def _fact(value: Any) -> Any:
    return value if isinstance(value, int | str) else str(value)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _step_text(ms: int) -> str:
    units = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
    size, name = next((unit for unit in units if ms % unit[0] == 0), (1, "ms"))
    return name if ms == size else f"{ms // size} {name}{'s' if size > 1 else ''}"
