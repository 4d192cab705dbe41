"""Many faults at once in three replicas: Spark names them all, each exactly, and nothing else."""

import asyncio
import random
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.audit.delivery import audit
from spark_jobs.audit.shard import AuditOptions
from tests.support.audit_faults import named, told
from tests.support.log_copies import Cluster, Expected
from tests.support.log_maker import make_log, replicate
from tests.support.tampering import FAULTS

ALONE = {"lost segment, everywhere", "lost end", "dispatch that does not cover"}
"""Behind them the others would not be seen, or not be what they are."""
SEED = 115
"""Of faults that do not stand in one another's way."""
OPTIONS = AuditOptions(partition_bytes=1 << 14, bucket_messages=64)


def test_faults_when_there_are_many_are_all_named(spark: SparkSession, tmp_path: Path) -> None:
    made = asyncio.run(make_log(tmp_path / "node-1", seed=2, rounds=4, segment_bytes=16_384))
    nodes = replicate(made.directory)
    assert named(audit(spark, [str(tmp_path)], OPTIONS)) == []
    cluster, rng, expected = Cluster(nodes), random.Random(SEED), list[Expected]()
    for name, fault in FAULTS.items():
        if name not in ALONE:
            expected += fault(cluster, rng)
    places = [(one.node, one.file) for one in expected if one.node]
    offsets = [one.offset for one in expected if not one.node]
    assert len(set(places)) == len(places), "two faults in one file: another seed"
    assert len(set(offsets)) == len(offsets), "two faults in one record: another seed"
    assert told(audit(spark, [str(tmp_path)], OPTIONS), expected) == sorted(expected)
