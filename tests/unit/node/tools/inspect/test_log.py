"""Segments by their headers, indexes, epochs, the flushed mark."""

import pytest

from hourwheel import errors
from node.tools.inspect.log import (
    HeaderWalk,
    find_mark,
    kind_name,
    mark_offset,
    read_epochs,
    segment_file,
    segment_starts,
    show_index,
    show_segments,
)
from node.tools.inspect.report import Report
from tests.support.inspected import (
    SHARD,
    Image,
    disk_of,
    files_of,
    flipped,
    made_image,
    numbers,
    paths,
    rows,
)

MARK = f"{SHARD}/flushed.mark"


def shown(image: Image) -> Report:
    report = Report()
    show_segments(files_of(image), report)
    return report


def last_segment(image: Image) -> str:
    return paths(image, "log/", ".log")[-1]


def test_segments_join_and_hold_all_messages() -> None:
    report = shown(made_image())
    found = rows(report, "segments")
    assert numbers(found, "start_offset")[1:] == numbers(found, "end_offset")[:-1]
    assert sum(numbers(found, "messages")) == 288
    assert {row["first_bad_byte"] for row in found} == {None}
    assert found[2]["epochs"] == "1 .. 2"
    assert "1 EPOCH_START" in str(found[0]["kinds"])
    assert found[0]["sequences"] == "0 .. 68"


def test_headers_are_walked_also_when_batches_are_large() -> None:
    image = made_image()
    (path, *_) = paths(image, "log/", ".log")
    file, end = disk_of(image).open(path), len(image[path]) - 64
    offsets = [header.offset for header in HeaderWalk(file, 0, 0, end)]
    assert len(offsets) == 16
    large = HeaderWalk(file, 0, 0, end, small_batch_bytes=0)
    assert [header.offset for header in large] == offsets


def test_first_bad_byte_is_told_when_a_header_is_damaged() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[0]
    report = shown(flipped(image, path, 64))
    assert rows(report, "segments")[0]["first_bad_byte"] == 64
    assert [(damage.file, damage.offset) for damage in report.damage] == [(path, 64)]


def test_tail_is_no_damage_above_the_known_durable_end() -> None:
    image = made_image()
    path = last_segment(image)
    image[path] += bytes(40)
    report = shown(image)
    assert report.is_good
    assert "above the known durable end" in report.remarks[0]


def test_end_of_the_log_is_damage_when_it_was_durable() -> None:
    image = made_image()
    path = last_segment(image)
    image[path] = image[path][:-8]
    assert [damage.file for damage in shown(image).damage] == [path]


@pytest.mark.parametrize("content", [b"", b"HWHEEL", bytes(64)])
def test_segment_that_is_being_made_is_no_damage(content: bytes) -> None:
    image = made_image()
    new = f"{SHARD}/log/{31_536:020d}.log"
    report = shown({**image, new: content})
    assert report.is_good
    assert "being made" in report.remarks[0]


def test_mark_survives_when_one_slot_is_torn() -> None:
    image = made_image()
    assert mark_offset(files_of(image), MARK) == 31_536
    for slot in (64, 80):
        assert mark_offset(files_of(flipped(image, MARK, slot)), MARK) <= 31_536
    report = Report()
    assert find_mark(files_of(flipped(flipped(image, MARK, 64), MARK, 80)), report) == 0
    assert report.damage[0].file == MARK
    del image[MARK]
    assert find_mark(files_of(image), Report()) == 0


def test_epochs_are_read() -> None:
    path = f"{SHARD}/epochs"
    assert [tuple(entry) for entry in read_epochs(files_of(made_image()), path)] == [
        (1, 0),
        (2, 16_136),
    ]
    assert read_epochs(files_of({"node.meta": b""}), path) == ()
    with pytest.raises(errors.CorruptFile):
        read_epochs(files_of(flipped(made_image(), path, 90)), path)


def test_index_is_shown_with_its_entries() -> None:
    image = made_image()
    report = Report()
    show_index(files_of(image), paths(image, "log/", ".index")[0], report, limit=1)
    assert rows(report, "index")[0]["covers_to"] == 7_856
    assert rows(report, "index entries")[0]["offset"] == 0


def test_names_of_kinds_and_files() -> None:
    assert (kind_name(1), kind_name(99)) == ("PUBLISH", "99")
    files = files_of(made_image())
    assert segment_file(files, segment_starts(files)[1]).endswith("00007856.log")
