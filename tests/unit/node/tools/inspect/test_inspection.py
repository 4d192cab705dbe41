"""Looking into a data directory: everything is shown, all damage is named, nothing is changed."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.tools.inspect.inspection import inspect
from node.tools.inspect.single_file import InspectOptions
from storage.files.disk import RealDisk
from tests.support.inspected import (
    HOUR,
    SHARD,
    Image,
    disk_of,
    flipped,
    image_of,
    look,
    made_image,
    numbers,
    paths,
    rows,
)

OVERVIEW = (
    *("node", "segments", "flushed mark", "epochs", "checkpoint", "runs", "delay logs", "queues"),
    *("sequence index", "tombstones"),
)
MANIFEST = f"{SHARD}/checkpoint"


def damaged_files(image: Image) -> set[str]:
    return {damage.file for damage in look(image, verify=True).damage}


def test_directory_is_shown_whole_and_found_good_when_it_is() -> None:
    report = look(made_image(), verify=True)
    assert (report.damage, report.remarks) == ([], [])
    assert [title for title in OVERVIEW if not rows(report, title)] == []
    told = {str(row["field"]): row["value"] for row in rows(report, "checkpoint")}
    assert sum(numbers(rows(report, "segments"), "messages")) == told["next_sequence"]
    assert sum(numbers(rows(report, "queues"), "end_position")) == told["cursor_released_count"]


@pytest.mark.parametrize(
    ("part", "titles"),
    [
        ("log", {"segments", "flushed mark"}),
        ("wheel", {"runs", "delay logs"}),
        ("queues", {"queues"}),
        ("queues/00000100", {"queues"}),
        ("sequences", {"sequence index"}),
        ("tombstones", {"tombstones"}),
    ],
)
def test_part_is_shown_alone_when_it_is_asked_for(part: str, titles: set[str]) -> None:
    report = look(made_image(), f"{SHARD}/{part}", verify=True)
    assert report.is_good
    assert {table.title for table in report.tables} == titles


def test_batches_are_shown_from_the_one_that_holds_an_offset() -> None:
    image = made_image()
    (first, *_) = rows(look(image, offset=20_000, limit=1), "batches")
    begin, size = first["offset"], first["bytes"]
    assert isinstance(begin, int)
    assert isinstance(size, int)
    assert begin <= 20_000 < begin + size


def test_all_is_told_of_a_message_when_its_sequence_is_asked_for() -> None:
    report = look(made_image(), sequence=21)
    ((batch,), (message,), (entry,)) = (
        rows(report, title) for title in ("batch", "message", "sequence index")
    )
    assert (batch["base_sequence"], batch["count"]) == (20, 12)
    assert (message["sequence"], message["crc"]) == (21, "good")
    assert message["due"] == entry["due"]
    assert (entry["stored_as"], entry["cancelled_at_checkpoint"]) == ("WHEEL", "yes")


def test_message_is_unknown_when_no_sequence_reached_it() -> None:
    report = look(made_image(), sequence=1_000_000)
    assert report.is_good
    assert rows(report, "message") == []
    assert rows(report, "sequence index")[0]["indexed_at_checkpoint"] == "no"


def test_seconds_of_an_hour_are_shown_with_their_chains() -> None:
    report = look(made_image(), hour=HOUR)
    (slots,) = [table for table in report.tables if table.title.startswith("slots")]
    assert {row["count"] for row in slots.rows} == {1, 3}
    (chains,) = [table for table in report.tables if table.title.startswith("chains")]
    assert chains.rows[0] == {"second": 0, "chain": "13 -> 11 -> 9 -> 5"}


def test_nothing_is_changed_when_everything_is_inspected() -> None:
    image = made_image()
    disk = disk_of(image)
    for options in (
        InspectOptions(verify=True),
        InspectOptions(sequence=5),
        InspectOptions(offset=0),
        InspectOptions(hour=HOUR),
        *(InspectOptions(path, is_folder=False, verify=True) for path in image),
    ):
        inspect(disk, options)
    assert image_of(disk) == image


def test_real_disk_is_inspected_when_it_may_only_be_read(tmp_path: Path) -> None:
    for path, content in made_image().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    report = inspect(RealDisk(tmp_path, read_only=True), InspectOptions(verify=True))
    assert (report.damage, report.remarks) == ([], [])
    assert len(report.tables) >= len(OVERVIEW)


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "end", "position"),
    [
        ("log/", ".log", 300),
        ("log/", ".log", 20),
        ("log/", ".index", 90),
        ("epochs", "", 90),
        ("flushed.mark", "", 30),
        ("checkpoint", "", 200),
        ("wheel/", ".run", 100),
        ("wheel/", ".run", -10),
        ("wheel/", ".run", 64 * 70),
        ("wheel/", ".dlog", 80),
        ("wheel/", ".dlog", 10),
        ("queues/", ".cq", 300),
        ("queues/", ".cq", 9),
        ("sequences/", ".seq", 100),
        ("sequences/", "tail", 100),
        ("tombstones/", ".tomb", 500),
    ],
)
def test_flipped_bit_is_named_by_its_file_when_all_is_verified(
    part: str, end: str, position: int
) -> None:
    image = made_image()
    path = paths(image, part, end)[0]
    assert damaged_files(flipped(image, path, position)) == {path}


def test_flipped_bit_of_a_batch_is_named_by_the_byte_that_it_begins_at() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[1]
    victim = rows(look(image, path), "batches")[2]
    byte = victim["byte"]
    assert isinstance(byte, int)
    report = look(flipped(image, path, byte + 100), verify=True)
    (damage,) = report.damage
    assert (damage.file, damage.offset) == (path, byte)


def test_rest_is_shown_when_something_is_damaged() -> None:
    image = made_image()
    for path in ("node.meta", MANIFEST, paths(image, "log/", ".log")[0]):
        report = look(flipped(image, path, 65))
        assert not report.is_good
        assert rows(report, "runs")
        assert len(rows(report, "segments")) == len(paths(image, "log/", ".log"))


@pytest.mark.parametrize(
    ("part", "end"),
    [
        ("log/", ".log"),
        ("wheel/", ".run"),
        ("wheel/", ".dlog"),
        ("queues/", ".cq"),
        ("sequences/", ".seq"),
        ("sequences/", "tail"),
        ("tombstones/", ".tomb"),
        ("epochs", ""),
    ],
)
def test_missing_file_is_damage_when_a_checkpoint_needs_it(part: str, end: str) -> None:
    image = made_image()
    for path in paths(image, part, end):
        if path.endswith(".spare"):
            continue  # room that is kept; nothing is in it
        assert damaged_files({other: raw for other, raw in image.items() if other != path}), path


def test_missing_checkpoint_is_only_remarked_while_the_log_is_whole() -> None:
    image = made_image()
    del image[MANIFEST]
    report = look(image, verify=True)
    assert report.is_good
    assert any("no checkpoint" in remark for remark in report.remarks)
    del image[paths(image, "log/", ".log")[0]]
    assert not look(image, verify=True).is_good


def test_file_that_no_checkpoint_needs_is_only_remarked_when_it_is_bad() -> None:
    image = made_image()
    image[f"{SHARD}/wheel/0000000099-0000000099.run"] = b"half of it"
    image[f"{SHARD}/wheel/0000000099.dlog"] = b""
    report = look(image, verify=True)
    assert report.is_good
    assert len(report.remarks) == 2


def test_other_directories_and_files_are_told_from_ours() -> None:
    for path in ("", "notes.txt", "folder"):
        assert not look({"notes.txt": b"hello", "folder/x": b""}, path).is_good


def mutated(image: Image, seed: int) -> Image:
    """The image with one random piece of damage."""
    rng = random.Random(seed)
    path = rng.choice(sorted(image))
    raw = bytearray(image[path])
    at = rng.randrange(len(raw)) if rng.random() < 0.6 else rng.randrange(min(len(raw), 160))
    how = rng.randrange(5)
    if how == 0:
        raw[at] ^= 1 << rng.randrange(8)
    elif how == 1:
        del raw[at:]
    elif how == 2:
        raw[at : at + 600] = bytes(len(raw[at : at + 600]))
    elif how == 3:
        raw[at : at + 50] = rng.randbytes(len(raw[at : at + 50]))
    else:
        del image[path]
        return image
    return {**image, path: bytes(raw)}


@given(st.integers(0, 1 << 32))
def test_inspecting_never_fails_when_anything_is_damaged(seed: int) -> None:
    image = mutated(made_image(), seed)
    disk = disk_of(image)
    for options in (
        InspectOptions(verify=True),
        InspectOptions(sequence=seed % 300),
        InspectOptions(offset=seed % 31_536),
        InspectOptions(hour=HOUR),
        *(
            InspectOptions(path, is_folder=False, verify=True, hour=HOUR if seed % 2 else None)
            for path in image
        ),
    ):
        inspect(disk, options)
