"""What an export takes, and what it makes of what it finds in a lake. The whole: tests/spark."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs.audit.log_state import read_logs
from spark_jobs.lake import export
from spark_jobs.lake.export import Span, check_whole, claim_lake, cut_ranges, find_span
from spark_jobs.runtime import output_files
from spark_jobs.runtime.runner import LocalRunner
from tests.support.log_maker import Made


def mark(folder: Path, low: int, high: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{low:020d}-{high:020d}.json").write_text("{}")


def test_span_goes_on_where_the_last_complete_range_ends(tmp_path: Path) -> None:
    assert find_span(str(tmp_path), 0, 800) == Span(0, 800, 0)
    mark(tmp_path, 0, 800)
    mark(tmp_path, 800, 1_600)
    assert find_span(str(tmp_path), 0, 1_600) == Span(1_600, 1_600, 0)
    assert find_span(str(tmp_path), 0, 4_000) == Span(1_600, 4_000, 0)
    assert find_span(str(tmp_path), 2_000, 4_000) == Span(2_000, 4_000, 400)
    # The directories that are given are older than the lake.
    assert find_span(str(tmp_path), 0, 800) == Span(1_600, 1_600, 0)


def test_span_when_a_run_was_broken_off_is_that_runs(tmp_path: Path) -> None:
    mark(tmp_path, 0, 800)
    broken = Span(800, 1_600, 0)
    output_files.write_json(str(tmp_path / "next.json"), broken._asdict())
    assert find_span(str(tmp_path), 0, 4_000) == broken
    mark(tmp_path, 800, 1_600)  # it ended between the last two steps
    assert find_span(str(tmp_path), 0, 4_000) == Span(1_600, 4_000, 0)


def test_span_when_a_run_was_killed_while_it_wrote_its_note_leaves_nothing_out(
    tmp_path: Path,
) -> None:
    mark(tmp_path, 0, 800)
    left = json.dumps(Span(800, 1_600, 0)._asdict())
    (tmp_path / "next.json.0123456789abcdef.part").write_text(left)
    (tmp_path / f"{800:020d}-{1_600:020d}.json.0123456789abcdef.part").write_text(left)
    assert find_span(str(tmp_path), 0, 1_600) == Span(800, 1_600, 0)


@pytest.mark.parametrize("raw", ["[]", "{}", '{"from_offset": 1}', "null"])
def test_span_when_the_note_says_something_else_is_an_error(tmp_path: Path, raw: str) -> None:
    (tmp_path / "next.json").write_text(raw)
    if raw == "null":
        assert find_span(str(tmp_path), 0, 8) == Span(0, 8, 0)
        return
    with pytest.raises(errors.CorruptFile, match="to_offset"):
        find_span(str(tmp_path), 0, 8)


def test_lake_belongs_to_one_cluster_and_one_choice_of_bodies(tmp_path: Path) -> None:
    claim_lake(str(tmp_path), "ab", with_bodies=True)
    claim_lake(str(tmp_path), "ab", with_bodies=True)
    with pytest.raises(errors.ConfigError, match="--bodies"):
        claim_lake(str(tmp_path), "ab", with_bodies=False)
    with pytest.raises(errors.MixedClusters, match="ab, and this is cd"):
        claim_lake(str(tmp_path), "cd", with_bodies=True)
    (tmp_path / "_exports" / "lake.json").write_text('{"cluster": "ab"}')
    claim_lake(str(tmp_path), "ab", with_bodies=False)
    (tmp_path / "_exports" / "lake.json").write_text('"ab"')
    with pytest.raises(errors.CorruptFile, match="cluster"):
        claim_lake(str(tmp_path), "ab", with_bodies=True)


def test_picture_of_outcomes_is_made_unless_there_is_one_as_new(tmp_path: Path) -> None:
    assert export.needs_picture(str(tmp_path), 800)
    picture = tmp_path / f"as_of={1_600:020d}"
    picture.mkdir()
    assert export.needs_picture(str(tmp_path), 1_600)
    (picture / "_SUCCESS").touch()
    assert not export.needs_picture(str(tmp_path), 1_600)
    assert not export.needs_picture(str(tmp_path), 800)
    assert export.needs_picture(str(tmp_path), 2_400)


def test_ranges_are_cut_and_what_is_missing_is_told(made: Made) -> None:
    (log,) = read_logs(LocalRunner(), [str(made.directory)], partition_bytes=1 << 14)
    first = log.ranges[0]
    cut = cut_ranges(log, first.to_offset, log.end_offset)
    assert cut == list(log.ranges[1:])
    check_whole(log, 0, log.end_offset, "marks")
    with pytest.raises(errors.CorruptLog, match="hourwheel audit"):
        check_whole(replace(log, ranges=log.ranges[1:]), 0, log.end_offset, "marks")
    with pytest.raises(errors.CorruptLog, match="hourwheel audit"):
        check_whole(replace(log, damaged_at=(8,)), 0, log.end_offset, "marks")
    check_whole(replace(log, damaged_at=(8,)), first.to_offset, log.end_offset, "marks")
    with pytest.raises(errors.CorruptLog, match=r"remove next\.json from marks"):
        check_whole(replace(log, start_offset=800), 0, log.end_offset, "marks")
