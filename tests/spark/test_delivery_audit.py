"""In Spark the audit says what it says in this process."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.audit_result import AuditResult
from spark_jobs.audit_runner import LocalRunner, SparkRunner
from spark_jobs.audit_shard import AuditOptions
from spark_jobs.delivery_audit import audit, audit_with
from tests.support.broken_logs import read_queue, rewrite_queue
from tests.support.log_maker import make_log, replicate

OPTIONS = AuditOptions(partition_bytes=1 << 14, bucket_messages=64)


def untimed(result: AuditResult) -> dict[str, Any]:
    return {k: v for k, v in result.summary().items() if k not in {"seconds", "step_seconds"}}


def test_audit_in_spark_is_that_of_this_process(spark: SparkSession, tmp_path: Path) -> None:
    made = asyncio.run(make_log(tmp_path / "node-1", seed=21, rounds=2))
    nodes = replicate(made.directory)
    units = read_queue(nodes[1], 256)
    rewrite_queue(nodes[1], 256, units[units["sequence"] != units["sequence"][5]])
    told: list[str] = []
    found = audit(spark, [str(tmp_path)], OPTIONS, progress=told.append)
    afar = audit_with(SparkRunner(spark.sparkContext, is_here=False), [str(tmp_path)], OPTIONS)
    wanted = audit_with(LocalRunner(), [str(tmp_path)], OPTIONS)
    assert told
    assert found.findings == afar.findings == wanted.findings
    errors = [one for one in found.findings if one.severity == "error"]
    assert [(one.check, one.node, one.sequence) for one in errors] == [
        ("queue-missing", "node-2", int(units["sequence"][5]))
    ]
    assert found.checks == afar.checks == wanted.checks
    mine, far, theirs = map(untimed, (found, afar, wanted))
    assert mine == far == theirs
    assert replace(found, seconds=0.0).verdict.exit_code == 1
