"""Each fault that is made in copies of a real log is named exactly, and nothing else is."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from hourwheel.formats.record_batch import Kind
from spark_jobs.audit.facts.result import Verdict
from spark_jobs.audit.shard import AuditOptions
from tests.bench import audit_log
from tests.support.audit_faults import copies, named, roots
from tests.support.audit_runs import run_audit
from tests.support.log_copies import Cluster, Expected, changed, log_file, with_rows
from tests.support.log_maker import log_end, make_log, replicate, set_high_watermark
from tests.support.naive_replica import NaiveReplica
from tests.support.tampering import FAULTS

SEGMENT_BYTES = 16_384
LOGS = (1, 2, 3, 4) if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else (1,)
SEED = 4


@pytest.fixture(scope="module", params=LOGS)
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three replicas of a log that nobody may change."""
    place = tmp_path_factory.mktemp("nodes") / "node-1"
    life = make_log(place, seed=request.param, rounds=3, segment_bytes=SEGMENT_BYTES, ordered=True)
    made = asyncio.run(life)
    return replicate(made.directory)


def test_audit_is_clean_when_nothing_was_changed(nodes: list[Path]) -> None:
    result = run_audit(*nodes)
    assert named(result) == []
    assert result.verdict is Verdict.CLEAN


def test_audit_is_clean_when_producers_were_answered_about_dedup_keys(tmp_path: Path) -> None:
    """What a batch was told is remembered with it, in the checkpoint."""
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=2, rounds=2, dedup=True))
    states = NaiveReplica(node).manifest.producers
    assert any(batch.deduped for one in states for batch in one.batches)
    result = run_audit(node)
    assert named(result) == []
    assert result.verdict is Verdict.CLEAN


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_when_it_is_the_only_one_is_all_that_is_named(
    nodes: list[Path], tmp_path: Path, fault: str
) -> None:
    broken = copies(nodes, tmp_path)
    expected = FAULTS[fault](Cluster(broken), random.Random(SEED))
    result = run_audit(*broken)
    assert roots(result) == sorted(expected)
    assert result.verdict.exit_code in {1, 2}


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_high_watermark_when_it_is_halved_everywhere_hides_nothing_that_was_applied(
    nodes: list[Path], tmp_path: Path, with_checkpoint: bool
) -> None:
    """By checkpoints; without any by what DISPATCH records say of the log before them."""
    broken = copies(nodes, tmp_path)
    for node in broken:
        set_high_watermark(node, log_end(node) // 2)
        if not with_checkpoint:
            (node / "shard-0" / "checkpoint").unlink()
    cluster = Cluster(broken)
    *_, last = cluster.of(Kind.DISPATCH)
    (shard,) = run_audit(*broken).shards
    assert shard.end_offset >= int(last.rows["check_offset"][0]) > log_end(broken[0]) // 2
    batch = cluster.of(Kind.DISPATCH)[-2]
    rows = batch.rows.copy()
    rows["check_count"] += 1
    cluster.put(batch, with_rows(batch, rows))
    assert roots(run_audit(*broken)) == [Expected("dispatch-check", offset=batch.header.offset)]


@pytest.mark.parametrize("victim", [0, 1])
def test_divergence_when_the_log_is_long_is_named_and_nothing_else(
    tmp_path: Path, victim: int
) -> None:
    log = audit_log.write_log(
        tmp_path / "node-1", messages=12_000, per_ms=12, segment_bytes=3 << 20
    )
    nodes = [
        log.directory,
        *(
            audit_log.copy_node(log.directory, tmp_path / name, name, link=False)
            for name in ("node-2", "node-3")
        ),
    ]
    cluster, offset = Cluster(nodes), 1_200_000
    batch = next(one for one in cluster.batches if one.header.offset > offset)
    raw = changed(batch, store_ms=batch.header.store_ms + 1)
    cluster.put(batch, raw, nodes[victim])
    result = run_audit(*nodes, options=AuditOptions(partition_bytes=1 << 20, bucket_messages=4_000))
    place = log_file(nodes[victim], batch.header.offset)
    assert named(result) == [
        Expected("replica-diverges", nodes[victim].name, place, batch.header.offset)
    ]
