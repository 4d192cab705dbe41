"""Each field of a checkpoint that is not what the log makes it is told, by its name."""

import asyncio
from pathlib import Path

from hourwheel.internal.v1.state_pb2 import Checkpoint
from spark_jobs.audit.manifest import _bounds, _differing_items, _ranges
from tests.support.audit_runs import errors_of, run_audit
from tests.support.broken_logs import edit_manifest
from tests.support.log_maker import make_log


def test_manifest_with_several_wrong_fields_tells_each(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=5, rounds=2, deals=True))

    def change(manifest: Checkpoint) -> None:
        manifest.store_ms += 1
        manifest.cancelled_count += 1
        manifest.topics[0].queue_count += 1

    edit_manifest(node, change)
    found = errors_of(run_audit(node))
    assert {(one.check, one.file) for one in found} == {("checkpoint", "shard-0/checkpoint")}
    assert sorted(one.detail.split(" of the checkpoint")[0] for one in found) == [
        "cancelled messages",
        "store_ms",
        "topic",
    ]


def test_ranges_are_told_in_short() -> None:
    assert _bounds(5, [2, 1, 3, 4]) == (5, 7, 8, 11, 15)
    assert _ranges(()) == "nothing"
    assert _ranges((5,)) == "all below 5"
    assert _ranges((5, 7, 8)) == "all below 5, [7, 8)"
    assert _ranges(tuple(range(20))).endswith(", ...")


def test_items_that_are_not_there_are_told() -> None:
    assert list(_differing_items("x", ["a"], ["a"])) == []
    (one,) = _differing_items("x", ["a"], ["a", "b"])
    assert (one.found, one.wanted) == ("none", "b")
    assert len(list(_differing_items("x", [], ["a"] * 50))) == 20
