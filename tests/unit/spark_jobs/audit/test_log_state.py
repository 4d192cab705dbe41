from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs.audit.checks.ledger import CANCELLED, REJECTED, find_states
from spark_jobs.audit.log_state import read_logs
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.runtime.runner import LocalRunner
from tests.support.log_maker import Made


def test_a_log_is_ready_to_be_judged(made: Made) -> None:
    steps: list[str] = []
    (log,) = read_logs(LocalRunner(), [str(made.directory)], progress=steps.append)
    states = [
        state
        for where in log.ranges
        for table in read_blocks(where, verify=HEADERS)
        for state in find_states(table, log.plan).state.tolist()
    ]
    assert len(states) == len(made.accepted) + made.void
    assert states.count(REJECTED) == made.void
    assert states.count(CANCELLED) == len(made.cancelled)
    assert (log.shard, log.start_offset, log.doubts) == (0, 0, ())
    assert {name for name, _ in made.accepted.values()} <= set(log.topics.values())
    assert log.last_store_ms > 0
    assert any("scan" in step for step in steps)


def test_without_a_log_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.NoLogs):
        read_logs(LocalRunner(), [str(tmp_path)])
