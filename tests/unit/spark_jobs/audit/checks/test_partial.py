"""Queues beside a log without a beginning: sums of what the log has must be those of the queue."""

import asyncio
from pathlib import Path

from hourwheel.internal.v1.state_pb2 import Checkpoint
from spark_jobs.audit.checks.partial import SetSum, by_key, find_sum_difference
from spark_jobs.audit.delivery import audit_with
from spark_jobs.audit.facts.findings import Made
from spark_jobs.runtime.runner import LocalRunner
from tests.support.broken_logs import edit_manifest, lose_beginning, read_queue, rewrite_queue
from tests.support.log_maker import make_log, segments


def test_sums_tell_equal_fewer_and_other_entries() -> None:
    wanted = SetSum(3, 10)
    assert find_sum_difference(wanted, wanted, is_trimmed=False) == ""
    assert "2 entries" in find_sum_difference(wanted, SetSum(2, 10), is_trimmed=False)
    assert "not the same" in find_sum_difference(wanted, SetSum(3, 11), is_trimmed=False)
    assert find_sum_difference(wanted, SetSum(2, 5), is_trimmed=True) == ""
    assert "4 entries" in find_sum_difference(wanted, SetSum(4, 5), is_trimmed=True)
    assert by_key([((1, 2), wanted), ((1, 2), wanted)]) == {(1, 2): SetSum(6, 20)}


def run(directory: Path) -> tuple[set[str], list[Made]]:
    result = audit_with(LocalRunner(), [str(directory)])
    errors = {one.check for one in result.findings if one.severity == "error"}
    return errors, [one.made for one in result.checks if one.area == "queues"]


def test_log_when_its_beginning_is_gone_is_audited_from_there(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=5, deals=True))
    lose_beginning(node)
    assert run(node) == (set(), [Made.LIMITED])
    units = read_queue(node, 512)
    rewrite_queue(node, 512, units[:-1])
    assert run(node)[0] == {"queue-end"}


def test_segment_when_it_was_lost_and_not_trimmed_is_told(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=5, deals=True))
    segments(node)[0].unlink()
    assert run(node)[0] == {"body-lost"}
    (node / "shard-0" / "checkpoint").unlink()
    assert run(node)[0] >= {"log-begins-late"}


def test_manifest_stays_what_it_was(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=5, rounds=1))
    seen: list[int] = []

    def look(manifest: Checkpoint) -> None:
        seen.append(manifest.applied_offset)

    edit_manifest(node, look)
    assert seen[0] > 0
