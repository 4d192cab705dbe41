"""What an audit leaves behind, in one folder: Parquet files for programs, a page for people.

    findings.parquet   a row a finding: `findings.FINDING_COLUMNS`
    lateness.parquet   shard, topic_id, topic, hour_ms, late_ms (upper end of a bin), messages
    ledger.parquet     shard, start_ms, step_ms, due, released, cancelled, pending
    pending.parquet    shard, hour_ms, messages
    summary.json       verdict, counts, totals, percentiles, what was checked
    report.html        all of that with plots; needs no network

The folder may be a URI. `summary.json` is written last: who waits for it finds the rest.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.audit import report_html
from spark_jobs.audit.facts.result import AuditResult, ShardAudit, bin_upper_ms
from spark_jobs.runtime import output_files, paths

FINDINGS: Final = "findings.parquet"
LATENESS: Final = "lateness.parquet"
LEDGER: Final = "ledger.parquet"
PENDING: Final = "pending.parquet"
SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"


def write(result: AuditResult, folder: str, *, made_ms: int) -> dict[str, str]:
    """Write all files; gives name -> place.

    Args:
        result: of the audit.
        folder: path or URI; made if need be, files of an earlier audit are replaced.
        made_ms: when it was made, epoch ms.

    Raises:
        ConfigError: a URI that pyarrow cannot use.
        OSError: it cannot be written.
    """
    place = paths.normalise(folder)
    tables = {
        FINDINGS: result.findings_table(),
        LATENESS: lateness_table(result.shards),
        LEDGER: ledger_table(result.shards),
        PENDING: pending_table(result.shards),
    }
    written = {}
    for name, rows in tables.items():
        written[name] = paths.child(place, name)
        with output_files.opened(written[name]) as sink:
            pq.write_table(rows, sink)
    written[REPORT] = paths.child(place, REPORT)
    page = report_html.render(result, made_ms=made_ms, folder=written[FINDINGS])
    output_files.write(written[REPORT], page.encode())
    written[SUMMARY] = paths.child(place, SUMMARY)
    output_files.write_json(written[SUMMARY], {**result.summary(), "made_ms": made_ms})
    return written


def lateness_table(shards: tuple[ShardAudit, ...]) -> pa.Table:
    """One row a (shard, topic, hour of the due time, bin) that has messages."""
    parts = [
        {
            "shard": np.full(len(one.lateness.bin), one.shard, np.int32),
            "topic_id": one.lateness.topic_id,
            "topic": [
                one.topics.get(topic, f"#{topic}") for topic in one.lateness.topic_id.tolist()
            ],
            "hour_ms": one.lateness.hour_ms,
            "late_ms": bin_upper_ms(one.lateness.bin),
            "messages": one.lateness.count,
        }
        for one in shards
    ]
    return _table(parts, {"shard": pa.int32(), "topic": pa.string()}, tuple(_LATENESS))


def ledger_table(shards: tuple[ShardAudit, ...]) -> pa.Table:
    """One row a (shard, step of time) that has messages."""
    parts = [
        {
            "shard": np.full(len(one.ledger.start_ms), one.shard, np.int32),
            "start_ms": one.ledger.start_ms,
            "step_ms": np.full(len(one.ledger.start_ms), one.ledger.step_ms),
            "due": one.ledger.due,
            "released": one.ledger.released,
            "cancelled": one.ledger.cancelled,
            "pending": one.ledger.pending,
        }
        for one in shards
    ]
    return _table(parts, {"shard": pa.int32()}, tuple(_LEDGER))


def pending_table(shards: tuple[ShardAudit, ...]) -> pa.Table:
    """One row a (shard, hour) in which messages fall due."""
    parts = [
        {
            "shard": np.full(len(one.pending.hour_ms), one.shard, np.int32),
            "hour_ms": one.pending.hour_ms,
            "messages": one.pending.count,
        }
        for one in shards
    ]
    return _table(parts, {"shard": pa.int32()}, tuple(_PENDING))


_LATENESS: Final = ("shard", "topic_id", "topic", "hour_ms", "late_ms", "messages")
_LEDGER: Final = ("shard", "start_ms", "step_ms", "due", "released", "cancelled", "pending")
_PENDING: Final = ("shard", "hour_ms", "messages")


def _table(
    parts: list[dict[str, Any]], kinds: dict[str, pa.DataType], names: tuple[str, ...]
) -> pa.Table:
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
    return pa.concat_tables(
        [schema.empty_table(), *(pa.table(part, schema=schema) for part in parts)]
    )
