"""What became of each message, against the naive model of the log."""

import numpy as np
import pytest

from chaos.log_model import LogModel
from spark_jobs.audit.checks.ledger import (
    AT_ONCE,
    BY_DISPATCH,
    CANCELLED,
    PENDING,
    REJECTED,
    RELEASED,
    LedgerPart,
    find_states,
    tally,
)
from spark_jobs.audit.facts.result import BIN_COUNT
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from tests.support.audit_states import AuditOptions, state_of
from tests.support.broken_logs import batches_of
from tests.support.log_maker import Made


def model_of(made: Made) -> LogModel:
    model = LogModel()
    for batch in batches_of(made.directory):
        model.read(batch)
    return model


@pytest.mark.parametrize("partition_bytes", [1 << 13, 1 << 26])
def test_states_are_those_of_the_model(made: Made, partition_bytes: int) -> None:
    model = model_of(made)
    state = state_of(made.directory, options=AuditOptions(partition_bytes=partition_bytes))
    assert state.plan is not None
    seen: dict[int, int] = {}
    for where in state.ranges:
        for table in read_blocks(where, verify=HEADERS):
            found = find_states(table, state.plan)
            seen.update(zip(found.sequence.tolist(), found.state.tolist(), strict=True))
    assert len(seen) == model.next_sequence
    of = {name: {seq for seq, each in seen.items() if each == name} for name in range(6)}
    assert of[AT_ONCE] | of[RELEASED] == model.released
    assert of[CANCELLED] == model.cancelled
    assert of[PENDING] == {one.sequence for one in model.pending if one.attempt == 1}
    assert of[REJECTED] == seen.keys() - model.messages.keys()


def test_tally_spreads_releases_by_bucket_and_counts_them(made: Made) -> None:
    state = state_of(made.directory)
    assert state.plan is not None
    plan, total, rows = state.plan, LedgerPart(), 0
    assert len(plan.bucket_edges) > 2
    for where in state.ranges:
        for table in read_blocks(where, verify=HEADERS):
            part, buckets = tally(find_states(table, plan), plan)
            total.merge(part)
            for number, found in buckets.items():
                rows += len(found)
                bucket = np.searchsorted(plan.bucket_edges, found["offset"] & ~BY_DISPATCH, "right")
                assert set(bucket.tolist()) == {number}
                assert (np.diff(found["sequence"].astype(np.int64)) > 0).all()
    assert rows == len(made.released) == sum(total.queued.values())
    assert total.states.tolist() == state.ledger.states.tolist()
    assert total.seconds.counts.tolist() == state.ledger.seconds.counts.tolist()
    dispatched = int(total.states[RELEASED])
    assert int(total.lateness.counts.sum()) == dispatched
    topics = (total.lateness.keys // BIN_COUNT) >> 32
    assert set(topics.tolist()) <= {1, 2, 3}
    (applied,) = plan.wheel_at
    assert int(total.wheels[applied].counts.sum()) == int(total.states[PENDING])
