"""In Spark the audit says what it says in this process."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.audit.delivery import audit, audit_with
from spark_jobs.audit.facts.result import AuditResult
from spark_jobs.audit.shard import AuditOptions
from spark_jobs.runtime.runner import LocalRunner, SparkRunner
from tests.support.broken_logs import read_queue, rewrite_queue
from tests.support.log_edits import EDITS
from tests.support.log_maker import make_log, replicate

SOME_EDITS = (
    *("index: state", "index: tail", "tombstone marked: pending", "slot: count +1"),
    *("entry of a retry: attempt", "checkpoint: groups.attempts_max"),
)
"""One of each step of the audit that reads views."""
OPTIONS = AuditOptions(partition_bytes=1 << 14, bucket_messages=64)


def untimed(result: AuditResult) -> dict[str, Any]:
    return {k: v for k, v in result.summary().items() if k not in {"seconds", "step_seconds"}}


def test_audit_in_spark_is_that_of_this_process(spark: SparkSession, tmp_path: Path) -> None:
    made = asyncio.run(make_log(tmp_path / "node-1", seed=21, rounds=2))
    nodes = replicate(made.directory)
    units = read_queue(nodes[1], 256)
    rewrite_queue(nodes[1], 256, units[units["sequence"] != units["sequence"][5]])
    edited = [EDITS[name](nodes[2], random.Random(3)) for name in SOME_EDITS]
    told: list[str] = []
    found = audit(spark, [str(tmp_path)], OPTIONS, progress=told.append)
    afar = audit_with(SparkRunner(spark.sparkContext, is_here=False), [str(tmp_path)], OPTIONS)
    wanted = audit_with(LocalRunner(), [str(tmp_path)], OPTIONS)
    assert told
    assert found.findings == afar.findings == wanted.findings
    errors = [one for one in found.findings if one.severity == "error"]
    assert [(one.check, one.sequence) for one in errors if one.node == "node-2"] == [
        ("queue-missing", int(units["sequence"][5]))
    ]
    for edit in edited:
        assert any(
            one.check in edit.checks and one.file == edit.file and one.node == "node-3"
            for one in errors
        ), edit
    assert found.checks == afar.checks == wanted.checks
    mine, far, theirs = map(untimed, (found, afar, wanted))
    assert mine == far == theirs
    assert replace(found, seconds=0.0).verdict.exit_code == 1
