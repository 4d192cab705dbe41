"""The first steps of a shard's audit: what is scanned, chosen, cut and planned."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hourwheel.formats.record_batch import Kind
from spark_jobs.audit.shard import AuditOptions, ShardState, checkpoint_limit
from tests.support.audit_states import errors_in, state_of
from tests.support.audited import copied
from tests.support.log_copies import Cluster
from tests.support.log_maker import Made, log_end, replicate, segments, set_high_watermark


def test_scan_of_three_goes_by_the_whole_log(made: Made, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    segments(nodes[0])[1].unlink()
    state = state_of(*nodes)
    assert (state.start_offset, state.end_offset) == (0, log_end(nodes[1]))
    assert [one.from_offset for one in state.ranges[1:]] == [
        one.to_offset for one in state.ranges[:-1]
    ]
    assert {one.check for one in errors_in(state)} == set()  # told by the directory's problems
    assert state.ledger.states.sum() == len(made.accepted) + made.void


def test_end_is_the_highest_that_is_known_to_be_committed(made: Made, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path), 2)
    end = log_end(nodes[0])
    for node in nodes:
        set_high_watermark(node, 0)
        (node / "shard-0" / "checkpoint").unlink()
    last = int(segments(nodes[0])[-1].stem)
    set_high_watermark(nodes[1], last)
    state = state_of(*nodes)
    dispatches = Cluster(nodes).of(Kind.DISPATCH)
    applied = max(int(one.rows["check_offset"][0]) for one in dispatches)
    assert state.end_offset == max(last, applied) < end
    assert {one.check for one in state.findings.kept} >= {"replica-uncommitted"}
    assert errors_in(state) == []


@pytest.mark.parametrize("size", [16, 100, 1 << 20])
def test_buckets_are_of_about_one_size(made: Made, size: int) -> None:
    options = AuditOptions(partition_bytes=1 << 14, bucket_messages=size)
    state = state_of(made.directory, options=options)
    sizes: dict[int, int] = {}
    for (bucket, _), count in state.ledger.queued.items():
        sizes[bucket] = sizes.get(bucket, 0) + count
    assert sum(sizes.values()) == len(made.released)
    assert state.plan is not None
    assert (np.diff(state.plan.bucket_edges.astype(np.int64)) > 0).all()
    records = state.facts.dispatches["check_count"]
    largest = int(np.diff(records.astype(np.int64)).max())  # one record is not divided
    assert max(sizes.values()) <= 2 * size + 2 * largest


def limits_of(state: ShardState, area: str) -> list[tuple[str, str]]:
    return [(one.limit, one.node) for one in state.checks if one.area == area]


def test_replicas_have_nothing_to_be_compared_with_when_a_node_is_alone(made: Made) -> None:
    assert limits_of(state_of(made.directory), "replicas") == [("", "")]


def test_replicas_when_only_one_of_a_cluster_was_given_are_not_compared(
    made: Made, tmp_path: Path
) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    assert limits_of(state_of(nodes[1]), "replicas") == [
        ("replica-single", ""),
        ("replica-absent", "node-1"),  # it was master
    ]
    assert limits_of(state_of(*nodes), "replicas") == [("", "")]


def test_node_that_has_nothing_of_the_shard_is_named(made: Made, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    shutil.rmtree(nodes[2] / "shard-0")
    assert limits_of(state_of(*nodes), "replicas") == [("", ""), ("replica-empty", "node-3")]


def test_checkpoint_that_is_far_behind_leaves_something_out(made: Made) -> None:
    state = state_of(made.directory)
    ((_, copy),) = state.copies
    assert checkpoint_limit(state, copy) == ("", "")
    state.end_offset += 100
    limit, reason = checkpoint_limit(state, copy)
    assert limit == "checkpoint-behind"
    assert "100 bytes behind the log's end" in reason
    state.options = replace(state.options, checkpoint_lag_bytes_max=99)
    assert checkpoint_limit(state, copy)[0] == "checkpoint-far-behind"
    state.end_offset -= 101
    assert checkpoint_limit(state, copy)[0] == "checkpoint-ahead"
