"""Many faults at once in three replicas: Spark names them all, each exactly, and nothing else."""

import asyncio
import random
import shutil
from collections.abc import Iterator
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
SEEDS = range(115, 215)
OPTIONS = AuditOptions(partition_bytes=1 << 14, bucket_messages=64)


def test_faults_when_there_are_many_are_all_named(spark: SparkSession, tmp_path: Path) -> None:
    sound = tmp_path / "sound"
    sound.mkdir()
    made = asyncio.run(
        make_log(sound / "node-1", seed=2, rounds=4, segment_bytes=16_384, ordered=True)
    )
    nodes = replicate(made.directory)
    assert named(audit(spark, [str(sound)], OPTIONS)) == []
    folder, expected = next(_apart(nodes, tmp_path))
    assert told(audit(spark, [str(folder)], OPTIONS), expected) == sorted(expected)


def _apart(nodes: list[Path], into: Path) -> Iterator[tuple[Path, list[Expected]]]:
    """Copies of these nodes with faults, none of which stands in the way of another one."""
    for seed in SEEDS:
        folder = into / f"seed-{seed}"
        copies = [shutil.copytree(node, folder / node.name) for node in nodes]
        cluster, rng, expected = Cluster(copies), random.Random(seed), list[Expected]()
        for name, fault in FAULTS.items():
            if name not in ALONE:
                expected += fault(cluster, rng)
        places = [(one.node, one.file) for one in expected if one.node]
        offsets = [one.offset for one in expected if not one.node]
        if len({*places}) == len(places) and len({*offsets}) == len(offsets):
            yield folder, expected
