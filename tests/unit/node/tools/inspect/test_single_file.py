"""Single files, inside a data directory and outside of one."""

import pytest

from node.shard.checkpoint import ShardPlace
from node.shard.snapshot_files import (
    LOST_END,
    MARKER,
    Marker,
    digest_of,
    write_lost_end,
    write_marker,
)
from storage.files.file_header import FileType
from tests.sim.disk import SimulatedDisk
from tests.support.inspected import (
    HOUR,
    SHARD,
    Image,
    flipped,
    look,
    made_image,
    numbers,
    paths,
    rows,
)
from tests.support.shard_world import IDENTITY

EXAMPLES = {
    FileType.LOG_SEGMENT: ("log/", ".log", "batches"),
    FileType.LOG_INDEX: ("log/", ".index", "index entries"),
    FileType.FLUSHED_MARK: ("flushed.mark", "", "flushed mark"),
    FileType.EPOCHS: ("epochs", "epochs", "epochs"),
    FileType.CONSUME_QUEUE: ("queues/", ".cq", "entries"),
    FileType.SEQUENCE_INDEX: ("sequences/", "", "entries"),
    FileType.TOMBSTONES: ("tombstones/", "", "pages"),
    FileType.RUN: ("wheel/", ".run", "buckets"),
    FileType.DELAY_LOG: ("wheel/", ".dlog", "delay log"),
    FileType.CHECKPOINT: ("checkpoint", "", "checkpoint"),
}


def alone(image: Image, path: str) -> tuple[Image, str]:
    """The file, moved out of the directory under another name."""
    return {"copied.bin": image[path]}, "copied.bin"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_file_is_shown_by_its_type(kind: FileType) -> None:
    part, end, title = EXAMPLES[kind]
    image = made_image()
    for path in paths(image, part, end):
        report = look(image, path, verify=True)
        assert report.is_good, report.damage
        assert rows(report, "file")[0]["type"] == kind.name
        assert rows(report, title)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_file_is_shown_when_it_lies_outside_of_a_data_directory(kind: FileType) -> None:
    part, end, title = EXAMPLES[kind]
    report = look(*alone(made_image(), paths(made_image(), part, end)[0]), verify=True)
    assert report.is_good, report.damage
    assert rows(report, "file")[0]["type"] == kind.name
    assert rows(report, title)


@pytest.mark.parametrize(
    ("part", "end", "position"),
    [
        ("log/", ".log", 300),
        ("log/", ".index", 90),
        ("queues/", ".cq", 300),
        ("sequences/", ".seq", 100),
        ("sequences/", "tail", 90),
        ("tombstones/", "", 300),
        ("wheel/", ".run", 100),
        ("checkpoint", "", 300),
        ("epochs", "", 90),
    ],
)
def test_damage_is_found_when_a_single_file_is_verified(part: str, end: str, position: int) -> None:
    image = made_image()
    path = paths(image, part, end)[0]
    report = look(flipped(image, path, position), path, verify=True, limit=1)
    assert {damage.file for damage in report.damage} == {path}


def test_bad_body_is_found_when_the_run_that_points_to_it_is_verified() -> None:
    image = made_image()
    run, delay_log = paths(image, "wheel/", ".run")[0], paths(image, "wheel/", ".dlog")[0]
    report = look(flipped(image, delay_log, 100), run, verify=True)
    assert {damage.file for damage in report.damage} == {delay_log}


def test_what_is_beside_a_snapshot_or_left_of_damage_is_shown() -> None:
    image = {**made_image()}
    place = ShardPlace(SimulatedDisk(), SHARD, IDENTITY)
    place.disk.make_dir(SHARD)
    write_marker(place, Marker(100, 50, 200, 25, 0, digest_of(())))
    write_lost_end(place, 4_711)
    for name in (MARKER, LOST_END):
        file = place.disk.open(place.under(name))
        image[place.under(name)] = file.pread(file.size(), 0)
    (marker,) = rows(look(image, place.under(MARKER)), "snapshot")
    assert (marker["applied_offset"], marker["log_end_offset"]) == (100, 200)
    assert marker["digest"] == digest_of(()).hex()
    assert rows(look(image, place.under(LOST_END)), "lost log") == [{"lost_to": 4_711}]


def test_node_file_lock_and_reserve_are_shown() -> None:
    image = {**made_image(), "reserve": bytes(4_096)}
    assert rows(look(image, "node.meta"), "node")[0]["node_id"] == "node-1"
    assert rows(look(image, "LOCK"), "file")[0]["bytes"] == 5
    assert "room" in str(rows(look(image, "reserve"), "file")[0]["type"])


def test_batches_of_a_segment_begin_where_it_is_asked() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[1]
    everything = numbers(rows(look(image, path, limit=100), "batches"), "offset")
    shown = rows(look(image, path, offset=everything[2], limit=2), "batches")
    assert numbers(shown, "offset") == everything[2:4]


def test_hour_and_position_choose_what_is_shown() -> None:
    image = made_image()
    run = paths(image, "wheel/", ".run")[0]
    assert rows(look(image, run, hour=HOUR), "units")
    chunk = paths(image, "queues/00000101", ".cq")[1]
    assert numbers(rows(look(image, chunk, position=40), "entries"), "position")[0] == 40


def test_damage_is_told_when_it_is_no_file_of_ours() -> None:
    for content in (b"", b"hello", bytes(64), b"HWHEEL" + bytes(58)):
        report = look({"x": content}, "x")
        assert [damage.file for damage in report.damage] == ["x"]
        assert not rows(report, "file") if report.tables else True


def test_last_segment_may_end_in_the_middle_of_a_batch_when_nobody_was_told_of_it() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[-1]
    report = look({**image, path: image[path] + b"HWRB"}, path, verify=True)
    assert report.is_good
    assert report.remarks
    earlier = paths(image, "log/", ".log")[0]
    assert not look({**image, earlier: image[earlier] + b"HWRB"}, earlier, verify=True).is_good


def test_how_much_is_valid_is_unknown_without_a_manifest() -> None:
    image = made_image()
    del image[f"{SHARD}/checkpoint"]
    report = look(image, paths(image, "tombstones/")[0], verify=True)
    assert report.is_good
    assert "without a manifest" in report.remarks[0]
