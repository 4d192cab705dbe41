"""Batches one by one, and single messages."""

import pytest

from node.shard.views import FEATURE_LEVEL
from node.tools.inspect.batches import batches, find_message, find_segment
from node.tools.inspect.report import Report
from tests.support.inspected import files_of, flipped, made_image, numbers, paths, rows


def test_batches_are_described_by_their_kind() -> None:
    image = made_image()
    report = Report()
    found = list(batches(files_of(image), paths(image, "log/", ".log")[0], report))
    assert report.is_good
    told = {str(row["kind"]): str(row["what"]) for row in found}
    assert told["FEATURE_LEVEL"] == f"first: level {FEATURE_LEVEL}"
    assert 'node_id: "node-1"' in told["EPOCH_START"]
    assert "put_subscription" in told["CONFIG"]
    assert told["PUBLISH"].startswith("due 2027-")
    assert told["DISPATCH"].startswith("to 2027-01-15T08:00:00.2")
    assert told["CANCEL"].startswith("first: due_ms 18000")
    assert "outcome" in told["RESOLVE"]


def test_batches_begin_where_it_is_asked() -> None:
    image = made_image()
    files, path = files_of(image), paths(image, "log/", ".log")[1]
    everything = numbers(list(batches(files, path, Report())), "offset")
    assert (
        numbers(list(batches(files, path, Report(), offset=everything[3] + 1)), "offset")
        == (everything[3:])
    )
    first = next(batches(files, path, Report(), sequence=100))
    assert (
        int(str(first["base_sequence"]))
        <= 100
        < int(str(first["base_sequence"])) + int(str(first["count"]))
    )


def test_next_batches_are_shown_when_the_contents_of_one_are_damaged() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[0]
    report = Report()
    good = list(batches(files_of(image), path, report))
    byte = numbers(good, "byte")[8]
    found = list(batches(files_of(flipped(image, path, byte + 130)), path, report))
    assert len(found) == len(good)
    assert [str(row["what"]).startswith("DAMAGED") for row in found].count(True) == 1
    assert [(damage.file, damage.offset) for damage in report.damage] == [(path, byte)]


def test_damage_is_told_when_a_header_ends_the_walk() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[0]
    report = Report()
    list(batches(files_of(flipped(image, path, 64)), path, report))
    assert [(damage.file, damage.offset) for damage in report.damage] == [(path, 64)]


@pytest.mark.parametrize(
    ("offset", "sequence", "index"),
    [
        (0, None, 0),
        (7_855, None, 0),
        (7_856, None, 1),
        (10**9, None, 4),
        (None, 0, 0),
        (None, 70, 1),
        (None, 10**9, 4),
        (None, None, 0),
    ],
)
def test_segment_is_found_that_holds_an_offset_or_a_sequence(
    offset: int | None, sequence: int | None, index: int
) -> None:
    image = made_image()
    found = find_segment(files_of(image), offset, sequence)
    assert found == paths(image, "log/", ".log")[index]


def test_no_segment_is_found_when_there_is_no_log() -> None:
    assert find_segment(files_of({"node.meta": b""}), 0, None) is None


def test_message_is_found_by_its_sequence_and_its_bytes_are_checked() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[0]
    message = find_message(files_of(image), path, 1)
    assert message is not None
    assert (message["sequence"], message["crc"]) == (1, "good")
    at = int(str(message["log_offset"])) + 64
    assert message["body_bytes"]
    bad = find_message(files_of(flipped(image, path, at)), path, 1)
    assert bad is not None
    assert bad["crc"] == "BAD"
    assert find_message(files_of(image), path, 10_000) is None
    assert find_message(files_of(image), paths(image, "log/", ".log")[1], 3) is None


def test_rows_say_where_batches_lie() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[1]
    report = Report()
    report.add("batches", path, batches(files_of(image), path, report))
    found = rows(report, "batches")
    assert numbers(found, "byte") == [offset - 7_856 + 64 for offset in numbers(found, "offset")]
