"""Runs, buckets, slots, chains, delay logs."""

import numpy as np
import pytest

from hourwheel.internal.v1.state_pb2 import Checkpoint, RunState
from node.tools.inspect.report import Report
from node.tools.inspect.wheel import (
    Slot,
    _chains,
    is_named,
    number_of,
    open_run,
    show_delay_logs,
    show_hour,
    show_run,
    show_runs,
    slots,
    unit_row,
)
from storage.views.unit import UNIT
from tests.support.inspected import HOUR, files_of, flipped, made_image, numbers, paths, rows
from timewheel.levels import DAY_LEVEL, HOUR_LEVEL


def test_runs_are_shown_and_whether_the_manifest_names_them() -> None:
    image = made_image()
    files = files_of(image)
    report = Report()
    show_runs(files, files.manifest(), report)
    show_runs(files, None, report)
    (told, untold) = (table.rows for table in report.tables)
    assert {row["level"] for row in told} == {"hours", "days"}
    assert {row["in_manifest"] for row in told} == {"yes"}
    assert {row["in_manifest"] for row in untold} == {None}
    assert told[0]["covers"] == "1 .. 5"


def test_buckets_slots_and_units_of_a_run_agree() -> None:
    image = made_image()
    files, path = files_of(image), paths(image, "wheel/", ".run")[0]
    report = Report()
    show_run(files, path, None, report, hour=None, limit=100)
    (bucket,) = [row for row in rows(report, "buckets") if row["bucket"] == HOUR]
    show_run(files, path, None, report, hour=HOUR, limit=100)
    found = rows(report, "slots")
    assert sum(numbers(found, "count")) == bucket["units"] == len(rows(report, "units"))
    assert numbers(found, "global_index")[0] == bucket["global_index"]
    assert numbers(rows(report, "units"), "global_index")[0] == bucket["global_index"]


def test_day_level_runs_are_shown_by_the_hour_of_the_day() -> None:
    image = made_image()
    files = files_of(image)
    path = paths(image, "wheel/0000000002-", ".run")[0]
    run = open_run(files, path)
    first = run.buckets()[0]
    (slot,) = slots(run, first)
    assert (slot.level, slot.unit_count) == (DAY_LEVEL, 3)
    assert list(slots(run, first + 1)) == []
    report = Report()
    show_hour(files, files.manifest(), report, hour=first * 24 + slot.slot, limit=100)
    assert {row["level"] for row in report.tables[0].rows} == {"days"}
    report = Report()
    show_hour(files, files.manifest(), report, hour=first * 24 + slot.slot + 1, limit=100)
    assert report.tables[0].rows == []


def test_other_runs_are_shown_when_the_directory_of_one_is_damaged() -> None:
    image = made_image()
    (path, *_) = paths(image, "wheel/", ".run")
    for position in (64 * 64 + 500, 64 * 64 + 50_000):
        image = flipped(image, path, position)
    for position in range(64 * 63, len(image[path]) - 1_000, 43_200):
        image = flipped(image, path, position)
    files = files_of(image)
    report = Report()
    show_hour(files, files.manifest(), report, hour=HOUR, limit=100)
    assert [damage.file for damage in report.damage] == [path]
    assert report.tables[0].rows
    assert "has none of this second" in str(report.tables[1].rows[0]["chain"])


def slot(run_id: int, previous: int, second: int = 7) -> Slot:
    return Slot(run_id, HOUR_LEVEL, second, 0, 0, 1, previous)


@pytest.mark.parametrize(
    ("found", "ranges", "chain"),
    [
        ([slot(3, 0)], [(3, 3)], "3"),
        ([slot(9, 4), slot(5, 0)], [(9, 9), (1, 5)], "9 -> 5"),
        ([slot(9, 4)], [(9, 9), (1, 5)], "9 -> 5 (has none of this second)"),
        ([slot(9, 9)], [(9, 9)], "9 -> 9 (has none of this second)"),
        ([slot(9, 4)], [(9, 9)], "9 -> 4 (has none of this second)"),
    ],
)
def test_chain_is_followed_to_its_end_or_to_where_it_breaks(
    found: list[Slot], ranges: list[tuple[int, int]], chain: str
) -> None:
    manifest = Checkpoint(
        runs=[RunState(covers_first=first, run_id=last) for first, last in ranges]
    )
    assert list(_chains(found, manifest)) == [{"second": 7, "chain": chain}]


def test_delay_logs_are_shown_with_what_the_manifest_says() -> None:
    image = made_image()
    files = files_of(image)
    report = Report()
    show_delay_logs(files, files.manifest(), report)
    found = rows(report, "delay logs")
    assert numbers(found, "delay_log")[:6] == [1, 2, 3, 4, 5, 6]
    assert {row["in_manifest"] for row in found} == {"yes"}
    assert numbers(found, "bytes")[0] == len(image[str(found[0]["file"])])


def test_units_say_where_their_bytes_lie() -> None:
    units = np.zeros(1, UNIT)
    assert unit_row(units)["lies_in"] == "commit log"
    units["dlog_id"] = 5
    assert unit_row(units)["lies_in"] == "delay log 5"


def test_numbers_of_delay_logs_are_read_from_names() -> None:
    assert (number_of("0000000012.dlog"), number_of("x.dlog")) == (12, -1)
    files = files_of(made_image())
    run = open_run(files, paths(made_image(), "wheel/", ".run")[0])
    assert not is_named(None, run)
