"""The delivery audit end to end, and the same accounting by DuckDB and by a Spark groupBy.

The audit reads logs, queues and checkpoints as nodes leave them, verifies every checksum, and makes
all its checks. DuckDB and the groupBy are given Parquet files of per-message facts that somebody
has parsed for them already, which is not in their time.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from hourwheel.formats.record_batch import Kind
from spark_jobs.audit.delivery import audit
from spark_jobs.audit.facts.result import Verdict
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.queue_reader import QueuePiece, plan_queues, read_queue
from spark_jobs.logs.ranges import plan_ranges
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.session import build_session
from tests.bench import audit_log
from tests.bench.results import Report, at_least, at_most
from tests.bench.sizes import Size

CORES = 2
_SAMPLE_S = 0.2
_FACTS = ("messages", "entries", "cancels", "dispatches")


async def run(size: Size, folder: Path) -> Report:
    """Audit a large log of one node, then of three; let the others count the same messages."""
    messages = size.pick(50_000, 3_000_000, 20_000_000)
    repeats = size.pick(1, 2, 3)
    per_ms = size.pick(50, 1_000, 1_000)
    log = audit_log.write_log(folder / "one" / "node-1", messages=messages, per_ms=per_ms)
    (folder / "three").mkdir()
    for node in ("node-1", "node-2", "node-3"):
        audit_log.copy_node(log.directory, folder / "three" / node, node)
    facts = folder / "facts"
    write_facts(log.directory, facts)
    report = Report(
        [
            f"{log.messages:,} scheduled messages, {log.cancelled:,} of them cancelled",
            f"log of {log.log_bytes / 2**20:,.0f} MiB in page cache, bodies of 100 bytes",
            f"Spark: local[{CORES}], after one audit that warms it up; DuckDB: {CORES} threads",
            "medians of wall time; replicas are hard links of one log, and each is read",
            "DuckDB and groupBy read Parquet of per-message facts, made before and not timed",
            "and look at no checksums, order of queues, acknowledgements, replicas or wheel",
            "memory: resident, of this process and all below it; shared pages count in each",
        ]
    )
    is_own = SparkSession.getActiveSession() is None  # the test of all benchmarks may share one
    spark = build_session("bench", master=f"local[{CORES}]")
    try:
        tiny = audit_log.write_log(folder / "tiny" / "node-1", messages=10_000, per_ms=10)
        _audit(spark, tiny.directory, tiny.messages)
        _measure(report, spark, folder, log, repeats)
    finally:
        if is_own:
            spark.stop()
    return report


def _measure(
    report: Report, spark: SparkSession, folder: Path, log: audit_log.LargeLog, repeats: int
) -> None:
    add = partial(_add, report, log.messages, repeats)
    one = add("audit, one replica", partial(_audit, spark, folder / "one", log.messages), True)
    add("audit, three replicas", partial(_audit, spark, folder / "three", log.messages), True)
    theirs = add("DuckDB, one replica", partial(_duckdb, folder / "facts", log), False)
    add("Spark groupBy, one replica", partial(_group, spark, folder / "facts", log), False)
    report.add("audit's time by DuckDB's, one replica", theirs / one, "x", at_most(2))


def _add(
    report: Report, count: int, repeats: int, name: str, work: Callable[[], None], is_ours: bool
) -> float:
    """Measure some work; gives M messages/s."""
    rates, peaks = [], [0.0]
    for _ in range(repeats):
        with _peak_memory(peaks):
            begun = time.perf_counter()
            work()
            rates.append(count / (time.perf_counter() - begun) / 1e6)
    report.add_median(name, rates, "M messages/s", at_least(1) if is_ours else None)
    target = at_most(4) if is_ours else None
    report.add(f"{name}: memory", max(peaks) / 2**30, "GiB", target)
    return float(np.median(rates))


# --- the three ----------------------------------------------------------------------------------


def _audit(spark: SparkSession, folder: Path, messages: int) -> None:
    result = audit(spark, [str(folder)])
    assert result.verdict is Verdict.CLEAN, result.findings[:3]
    (shard,) = result.shards
    assert shard.totals.published == messages
    assert all(one.queue_entries == shard.totals.released for one in shard.replicas)


_ENDS = """
    SELECT count(*) FILTER (m.sequence IS NULL),
           count(*) FILTER (m.due_ms <= d.last AND e.n IS NULL AND c.sequence IS NULL),
           count(*) FILTER (e.n > 1),
           count(*) FILTER (e.n IS NOT NULL AND c.sequence IS NOT NULL),
           count(*) FILTER (e.n IS NOT NULL AND m.due_ms > d.last),
           count(*) FILTER (e.due_ms <> m.due_ms OR e.topic_queue <> m.topic_queue),
           count(m.sequence), count(e.n), count(c.sequence)
    FROM messages m
    FULL JOIN (SELECT sequence, count(*) AS n, any_value(due_ms) AS due_ms,
                      any_value(topic_queue) AS topic_queue
               FROM entries GROUP BY sequence) e USING (sequence)
    LEFT JOIN cancels c USING (sequence),
    (SELECT max(to_due_ms) AS last FROM dispatches) d
"""
_LATENESS = """
    SELECT topic_queue >> 8, m.due_ms // 3600000, count(*), max(d.store_ms - m.due_ms),
           approx_quantile(d.store_ms - m.due_ms, [0.5, 0.9, 0.99])
    FROM messages m ASOF JOIN dispatches d ON m.due_ms <= d.to_due_ms GROUP BY ALL
"""
_LEDGER = "SELECT due_ms // 1000, count(*) FROM messages GROUP BY ALL"


def _duckdb(facts: Path, log: audit_log.LargeLog) -> None:
    with duckdb.connect(config={"threads": CORES}) as database:
        for name in _FACTS:
            database.execute(f"CREATE VIEW {name} AS FROM '{facts / name}.parquet'")
        (row,) = database.execute(_ENDS).fetchall()
        assert row[:6] == (0, 0, 0, 0, 0, 0), row
        assert row[6:] == (log.messages, log.messages - log.cancelled, log.cancelled)
        assert database.execute(_LATENESS).fetchall()
        assert database.execute(_LEDGER).fetchall()


def _group(spark: SparkSession, facts: Path, log: audit_log.LargeLog) -> None:
    """What each message came to, by one shuffle of rows."""
    parts = []
    for name, number in (("messages", 1), ("entries", 1 << 16), ("cancels", 1 << 32)):
        rows = spark.read.parquet(f"{facts / name}.parquet")
        parts.append(rows.selectExpr("sequence", f"CAST({number} AS BIGINT) AS fact"))
    every = parts[0].unionAll(parts[1]).unionAll(parts[2])
    ends = every.groupBy("sequence").sum("fact").withColumnRenamed("sum(fact)", "facts")
    found = {int(row.facts): int(row["count"]) for row in ends.groupBy("facts").count().collect()}
    alive = log.messages - log.cancelled
    assert found == {1 + (1 << 16): alive, 1 + (1 << 32): log.cancelled}, found


# --- facts for the others -----------------------------------------------------------------------


def write_facts(directory: Path, to: Path) -> None:
    """Parquet files of what a node's log and queues say about each message."""
    to.mkdir()
    ((replica, copy),) = discover([str(directory)]).copies(0)
    found: dict[str, pq.ParquetWriter] = {}

    def add(name: str, columns: dict[str, Any]) -> None:
        table = pa.table(columns)
        if name not in found:
            found[name] = pq.ParquetWriter(to / f"{name}.parquet", table.schema)
        found[name].write_table(table)

    names = ("sequence", "due_ms", "store_ms", "topic_queue")
    for where in plan_ranges(replica, copy):
        for table in read_blocks(where, verify=HEADERS):
            add("messages", {name: _plain(table.messages.column(name)) for name in names})
            _, rows = table.rows(Kind.CANCEL)
            add("cancels", {"sequence": _plain(rows["sequence"])})
            owners, rows = table.rows(Kind.DISPATCH)
            stamps = table.headers["store_ms"][owners]
            add("dispatches", {"to_due_ms": _plain(rows["to_due_ms"]), "store_ms": _plain(stamps)})
    for queue in plan_queues(replica, copy):
        for piece in read_queue(queue):
            assert isinstance(piece, QueuePiece)
            add("entries", {name: _plain(piece.units[name]) for name in names})
    for writer in found.values():
        writer.close()


def _plain(column: Any) -> Any:
    return np.ascontiguousarray(column).astype(np.int64)


# --- memory -------------------------------------------------------------------------------------


@contextmanager
def _peak_memory(peaks: list[float]) -> Iterator[None]:
    """Append how many bytes this process and all below it had at most."""
    stop, seen = threading.Event(), [0]

    def watch() -> None:
        while not stop.wait(_SAMPLE_S):
            seen.append(_tree_rss_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        peaks.append(float(max(seen)))


def _tree_rss_bytes() -> int:
    """Resident bytes of this process and all below it."""
    below: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pages[int(entry.name)] = int(words[21])
        below.setdefault(int(words[1]), []).append(int(entry.name))
    todo, total = [os.getpid()], 0
    while todo:
        one = todo.pop()
        total += pages.get(one, 0)
        todo += below.get(one, [])
    return total * os.sysconf("SC_PAGE_SIZE")
