"""The delay index is summed up as the log is; what differs is named."""

import numpy as np
import pytest

from hourwheel import errors
from spark_jobs.audit_sums import HourSums
from spark_jobs.audit_wheel import (
    UNIT_KEY,
    WheelPart,
    keys_of_hours,
    not_in,
    plan_wheel,
    read_wheel,
    sum_wheel,
)
from tests.support.audited import only_copy
from tests.support.log_maker import Made


def test_units_of_all_runs_are_what_is_pending(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    manifest = copy.manifest
    assert manifest is not None
    total = WheelPart()
    tasks = plan_wheel(replica, copy, manifest)
    for task in tasks:
        total.merge(sum_wheel(task))
    assert total.units == manifest.pending_count == int(total.sums.counts.sum())
    keys = np.concatenate([keys_of_hours(one, total.sums.hours.tolist()) for one in tasks])
    waiting = made.accepted.keys() - made.released - made.cancelled
    assert waiting <= set(keys["sequence"].tolist())
    late = plan_wheel(replica, copy, manifest, first_sequence=100)
    some = np.concatenate([keys_of_hours(one, total.sums.hours.tolist()) for one in late])
    assert set(some["sequence"].tolist()) == {one for one in waiting if one >= 100}


def test_run_when_it_is_missing_is_a_fault(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    assert copy.manifest is not None
    task = plan_wheel(replica, copy, copy.manifest)[0]._replace(run_id=77)
    part = sum_wheel(task)
    assert part.faults
    assert part.units == 0
    task = task._replace(tombstone_file=99, tombstone_bytes=8_268)
    with pytest.raises(errors.CorruptFile, match="missing"):
        list(read_wheel(task))


def test_not_in_counts_repeats() -> None:
    mine = np.array([(1, 5, 256), (1, 5, 256), (2, 6, 256)], UNIT_KEY)
    theirs = np.array([(1, 5, 256), (3, 7, 256)], UNIT_KEY)
    assert not_in(mine, theirs)["sequence"].tolist() == [1, 2]
    assert not_in(theirs, mine)["sequence"].tolist() == [3]
    assert not_in(mine, mine[:0])["sequence"].tolist() == [1, 2]
    assert len(not_in(mine[:0], mine)) == 0
    assert HourSums().differing(HourSums()) == []
