"""The data source of Spark: log messages read a second, in a session that is warm; numpy alone."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.logs.discovery import discover
from spark_jobs.logs.ranges import plan_ranges
from spark_jobs.logs.segment_reader import FULL, HEADERS, read_blocks
from spark_jobs.session import build_session
from tests.bench import audit_log
from tests.bench.results import Report, Target, at_least
from tests.bench.sizes import Size

TARGET = at_least(3)
CORES = 2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LEDGER = ("sequence", "due_ms", "store_ms", "topic_queue")
_QUERIES = {
    "sequence, due, store time": "sequence,due_ms,store_ms",
    "and offset, topic, queue as numbers": "sequence,due_ms,store_ms,offset,topic_id,queue",
    "all columns, five of them texts": "",
}


async def run(size: Size, folder: Path) -> Report:
    """Read a large log by numpy alone, then by Spark, several times each; nothing else runs."""
    messages = size.pick(100_000, 3_000_000, 20_000_000)
    repeats = size.pick(1, 3, 5)
    per_ms = size.pick(100, 1_000, 1_000)
    log = audit_log.write_log(folder / "node-1", messages=messages, per_ms=per_ms)
    per_batch = log.messages // max(1, log.batches)
    report = Report(
        [
            f"{log.log_rows:,} log messages, {log.log_bytes / 2**20:,.0f} MiB in page cache",
            f"bodies of 100 bytes, about {per_batch:,} messages a record batch",
            f"Spark: local[{CORES}], after one query that warms it up; medians of wall time",
            "the notes give what the CPU time alone would allow on two cores",
        ]
    )
    _measure_numpy(report, log, repeats)
    is_own = SparkSession.getActiveSession() is None  # the test of all benchmarks may share one
    spark = build_session("bench", master=f"local[{CORES}]")
    try:
        _query(spark, log, _QUERIES["sequence, due, store time"])
        for name, columns in _QUERIES.items():
            target = TARGET if columns.count(",") == 2 else None
            work = partial(_query, spark, log, columns)
            _add(report, f"Spark: {name}", work, log.log_rows, repeats, target)
    finally:
        if is_own:
            spark.stop()
    return report


def _measure_numpy(report: Report, log: audit_log.LargeLog, repeats: int) -> None:
    for verify in (FULL, HEADERS):
        name = "all CRCs" if verify == FULL else "CRCs of headers and due times"
        work = partial(_read, log, verify)
        _add(report, f"numpy, one process: {name}", work, log.log_rows, repeats, None)


def _read(log: audit_log.LargeLog, verify: str) -> None:
    ((replica, copy),) = discover([str(log.directory)]).copies(0)
    found = 0
    for one in plan_ranges(replica, copy):
        for table in read_blocks(one, verify=verify):
            assert not table.damages
            for column in _LEDGER:
                table.messages.column(column)
            found += len(table.messages)
    assert found == log.messages


def _query(spark: SparkSession, log: audit_log.LargeLog, columns: str) -> None:
    source = spark.read.format("hourwheel").option("path", str(log.directory))
    frame = (source.option("columns", columns) if columns else source).load()
    wanted = [f"max(`{name}`)" for name in frame.columns]
    row = frame.selectExpr("count(*) AS n", *wanted).collect()[0]
    assert row.n == log.messages


def _add(
    report: Report,
    name: str,
    work: Callable[[], None],
    count: int,
    repeats: int,
    target: Target | None,
) -> None:
    rates, cpu_s = [], 0.0
    for _ in range(repeats):
        cpu, begun = _tree_cpu_seconds(), time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - begun) / 1e6)
        cpu_s += _tree_cpu_seconds() - cpu
    note = f"{CORES * count * repeats / cpu_s / 1e6:.1f} by CPU time" if cpu_s else ""
    report.add_median(name, rates, "M messages/s", target, note)


def _tree_cpu_seconds() -> float:
    """CPU time of this process and all below it, those that have ended included."""
    spent: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent[int(entry.name)] = sum(map(int, words[11:15]))
        below.setdefault(int(words[1]), []).append(int(entry.name))
    todo, ticks = [os.getpid()], 0
    while todo:
        one = todo.pop()
        ticks += spent.get(one, 0)
        todo += below.get(one, [])
    return ticks / _TICKS_PER_S
