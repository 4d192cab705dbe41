"""Queues of retries and dead letters, against the naive model of the log."""

import asyncio
from pathlib import Path

import pytest

from chaos.log_model import LogModel
from spark_jobs.audit.checks.retries import DynamicQueue, Unit
from spark_jobs.audit.join import Joining
from tests.support.audit_states import state_of
from tests.support.broken_logs import batches_of
from tests.support.log_maker import make_log


@pytest.mark.parametrize("seed", range(4))
def test_dynamic_queues_are_those_of_the_model(tmp_path: Path, seed: int) -> None:
    made = asyncio.run(make_log(tmp_path / "node-1", seed=seed, rounds=3))
    model = LogModel()
    for batch in batches_of(made.directory):
        model.read(batch)
    joining = Joining(state_of(made.directory))
    joining.run()
    retries = joining.retries
    dynamic = {key: entries for key, entries in model.queues.items() if key >> 8 > 3}
    assert dynamic
    found = {
        key: [(one.due_ms, one.sequence, one.attempt) for one in queue.entries]
        for key, queue in retries.queues.items()
        if queue.entries
    }
    assert found == {
        key: [(one.due_ms, one.sequence, one.attempt) for one in entries]
        for key, entries in dynamic.items()
    }
    waiting = [one.unit.sequence for one in retries.scheduled if one.end >= 1 << 62]
    assert sorted(waiting) == sorted(one.sequence for one in model.pending if one.attempt > 1)
    assert retries.undelivered == []
    offsets, sequences = retries.releases()
    assert len(offsets) == len(sequences) == sum(map(len, dynamic.values()))


def test_dynamic_queue_when_trimmed_lets_whole_old_chunks_go() -> None:
    queue = DynamicQueue()
    for at in range(10):
        queue.entries.append(Unit(at, at, 0, 0, 1, 2, 0))
        queue.offsets.append(80)
    queue.trim(1, 8, 4)
    assert queue.start == 8
    queue.trim(2, 100, 4)
    assert queue.start == 8


def test_dynamic_queue_releases_in_the_order_of_keys() -> None:
    queue = DynamicQueue()
    for serial, (end, due, sequence) in enumerate(((160, 5, 1), (80, 9, 7), (80, 9, 2))):
        unit = Unit(due, sequence, 0, 0, 1, 2, 0)
        queue.waiting.append((end, due, sequence, serial, unit))
    queue.waiting.sort()
    queue.release_below(100)
    assert [one.sequence for one in queue.entries] == [2, 7]
    queue.release_below(200)
    assert queue.as_slice(9 << 8).rows["sequence"].tolist() == [2, 7, 1]
