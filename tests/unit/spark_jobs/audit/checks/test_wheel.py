"""The delay index is summed up as the log is; what differs is named."""

from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from spark_jobs.audit.checks.wheel import (
    UNIT_KEY,
    WheelPart,
    WheelRange,
    delay_log_faults,
    keys_of_hours,
    not_in,
    plan_delay_logs,
    plan_wheel,
    read_wheel,
    sum_wheel,
)
from spark_jobs.audit.facts.sums import HourSums
from storage.files.file_header import FileType, pack_file_header
from tests.support.audit_runs import errors_of, run_audit
from tests.support.audited import copied, only_copy
from tests.support.broken_logs import IDENTITY
from tests.support.log_maker import Made
from timewheel.run_format import unit_at


def test_units_of_all_runs_are_what_is_pending(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    manifest = copy.manifest
    assert manifest is not None
    total = WheelPart()
    tasks = plan_wheel(replica, copy, manifest)
    for task in tasks:
        total.merge(sum_wheel(task))
    total.settle_moved()
    assert total.units == manifest.pending_count == int(total.sums.counts.sum())
    keys = np.concatenate([keys_of_hours(one, total.sums.hours.tolist())[0] for one in tasks])
    waiting = made.accepted.keys() - made.released - made.cancelled
    assert waiting <= set(keys["sequence"].tolist())
    late = plan_wheel(replica, copy, manifest, first_sequence=100)
    some = np.concatenate([keys_of_hours(one, total.sums.hours.tolist())[0] for one in late])
    assert set(some["sequence"].tolist()) == {one for one in waiting if one >= 100}


def test_run_when_it_is_missing_is_a_fault(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    assert copy.manifest is not None
    task = plan_wheel(replica, copy, copy.manifest)[0]._replace(run_id=77)
    part = sum_wheel(task)
    assert part.faults
    assert part.units == 0
    task = task._replace(marks=task.marks._replace(number=99, valid_bytes=8_268))
    with pytest.raises(errors.CorruptFile, match="missing"):
        list(read_wheel(task))


def only_task(directory: Path) -> tuple[WheelRange, Path]:
    """A range of a directory's delay index, and the file of its run."""
    replica, copy = only_copy(directory)
    assert copy.manifest is not None
    tasks = plan_wheel(replica, copy, copy.manifest)
    task = next(one for one in tasks if sum_wheel(one).units)
    return task, directory / task.path


def test_slot_directory_when_it_is_damaged_is_a_fault(made: Made, tmp_path: Path) -> None:
    task, path = only_task(copied(made.directory, tmp_path))
    assert not sum_wheel(task).faults
    raw = bytearray(path.read_bytes())
    raw[unit_at(task.unit_count) + 100] ^= 1
    path.write_bytes(raw)
    ((file, why),) = sum_wheel(task).faults
    assert (file, "slot directory" in why) == (task.path, True)
    past = task._replace(cursor=(1 << 60, 0))
    assert not sum_wheel(past).faults  # nobody looks for units in it any more


def test_tombstones_when_they_are_another_file_are_a_fault(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    task, _ = only_task(node)
    path = node / task.marks.path
    raw = path.read_bytes()
    path.write_bytes(pack_file_header(FileType.RUN, IDENTITY, 1) + raw[64:])
    assert sum_wheel(task).faults


def test_delay_log_when_it_is_missing_or_short_has_lost_bodies(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    replica, copy = only_copy(node)
    assert copy.manifest is not None
    logs = plan_delay_logs(replica, copy, copy.manifest)
    assert delay_log_faults(logs) == []
    first, second, third = (node / logs.path(number) for number, _ in logs.sizes[:3])
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(b"HWHEEL" + bytes(third.stat().st_size - 6))
    found = dict(delay_log_faults(logs))
    names = [str(one.relative_to(node)) for one in (first, second, third)]
    assert list(found) == names
    assert "missing" in found[names[0]]
    assert "by the checkpoint" in found[names[1]]
    result = run_audit(node)
    assert {(one.check, one.file) for one in errors_of(result)} == {
        ("body-lost", name) for name in names
    }


def test_unit_when_no_delay_log_has_its_body_is_told(made: Made) -> None:
    task, _ = only_task(made.directory)
    part = sum_wheel(task)
    assert part.lost == []
    short = task._replace(delay_logs=tuple((number, 65) for number, _ in task.delay_logs))
    assert 0 < len(sum_wheel(short).lost) <= 10
    file, _, why = sum_wheel(task._replace(delay_logs=())).lost[0]
    assert (file, "delay log" in why) == (task.path, True)


def test_not_in_counts_repeats() -> None:
    mine = np.array([(1, 5, 256), (1, 5, 256), (2, 6, 256)], UNIT_KEY)
    theirs = np.array([(1, 5, 256), (3, 7, 256)], UNIT_KEY)
    assert not_in(mine, theirs)["sequence"].tolist() == [1, 2]
    assert not_in(theirs, mine)["sequence"].tolist() == [3]
    assert not_in(mine, mine[:0])["sequence"].tolist() == [1, 2]
    assert len(not_in(mine[:0], mine)) == 0
    assert HourSums().differing(HourSums()) == []
