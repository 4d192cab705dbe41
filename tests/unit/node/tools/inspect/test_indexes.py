"""Sequence index and tombstones, read and verified."""

import numpy as np
import pytest

from hourwheel import errors
from node.tools.inspect.indexes import (
    Cancelled,
    Entry,
    blocks_of,
    find_entry,
    read_tail,
    records_of,
    show_sequence_file,
    show_sequences,
    show_tombstone_file,
    show_tombstones,
    tail_path,
    tombstone_path,
)
from node.tools.inspect.report import Report
from tests.support.inspected import SHARD, files_of, flipped, made_image, numbers, paths, rows

SEQUENCES = f"{SHARD}/sequences/000000000000.seq"
BLOCK_BYTES = 1_032


def test_files_and_tail_are_shown() -> None:
    files = files_of(made_image())
    report = Report()
    show_sequences(files, files.manifest(), report)
    assert [row["sequences"] for row in rows(report, "sequence index")] == [
        "0 .. 256",
        "256 .. 288",
    ]


@pytest.mark.parametrize(("sequence", "first"), [(None, 0), (130, 130)])
def test_entries_of_a_file_are_shown(sequence: int | None, first: int) -> None:
    report = Report()
    show_sequence_file(files_of(made_image()), SEQUENCES, report, sequence=sequence, limit=3)
    found = rows(report, "entries")
    assert numbers(found, "sequence") == [first, first + 1, first + 2]
    assert {row["stored_as"] for row in found} <= {"WHEEL", "RELEASED_AT_APPLY"}


def test_entries_of_the_tail_are_shown() -> None:
    files = files_of(made_image())
    report = Report()
    show_sequence_file(files, tail_path(files), report, sequence=None, limit=100)
    assert numbers(rows(report, "entries"), "sequence") == list(range(256, 288))


def test_entry_is_found_in_files_and_tail() -> None:
    image = made_image()
    files = files_of(image)
    entries = [find_entry(files, sequence) for sequence in range(288)]
    assert all(entry is not None and entry.due_ms > 0 for entry in entries)
    assert find_entry(files, 288) is None
    assert find_entry(files, 1 << 40) is None
    with pytest.raises(errors.CorruptFile, match="block 1"):
        find_entry(files_of(flipped(image, SEQUENCES, 64 + BLOCK_BYTES + 9)), 200)


def test_bad_block_is_named_by_its_byte() -> None:
    image = flipped(made_image(), SEQUENCES, 64 + BLOCK_BYTES + 9)
    with pytest.raises(errors.CorruptFile) as found:
        list(blocks_of(files_of(image), SEQUENCES, 0, 2))
    assert found.value.params["offset"] == str(64 + BLOCK_BYTES)
    with pytest.raises(errors.CorruptFile, match="too early"):
        list(blocks_of(files_of(made_image()), SEQUENCES, 0, 3))
    with pytest.raises(errors.CorruptFile, match="number 0"):
        list(blocks_of(files_of(made_image()), SEQUENCES, 1, 1))


def test_tail_is_read_with_its_first_sequence() -> None:
    files = files_of(made_image())
    first, entries = read_tail(files, tail_path(files))
    assert (first, len(entries)) == (256, 32)


def test_states_that_nobody_knows_are_shown_as_such() -> None:
    assert Entry(0, 3).row(1)["stored_as"] == "unknown 3"


def test_cancelled_messages_are_those_of_the_manifest() -> None:
    files = files_of(made_image())
    manifest = files.manifest()
    assert manifest is not None
    cancelled = Cancelled(files, manifest)
    assert cancelled.count == manifest.cancelled_count
    assert cancelled.contains(np.array([20, 21, 1 << 40], np.uint64)).tolist() == [
        False,
        True,
        False,
    ]


def test_tombstone_file_is_shown_page_by_page() -> None:
    image = made_image()
    files = files_of(image)
    manifest = files.manifest()
    assert manifest is not None
    report = Report()
    show_tombstones(files, manifest, report)
    (row,) = rows(report, "tombstones")
    assert (row["in_manifest"], row["valid_bytes"]) == ("yes", row["bytes"])
    show_tombstone_file(files, tombstone_path(files, manifest.tombstone_file), report, limit=10)
    assert numbers(rows(report, "pages"), "cancelled")[-1] == manifest.cancelled_count


def test_bad_page_is_named_by_its_byte() -> None:
    image = made_image()
    (path,) = paths(image, "tombstones/", ".tomb")
    with pytest.raises(errors.CorruptFile) as found:
        list(records_of(files_of(flipped(image, path, 64 + 8_204 + 100)), path))
    assert found.value.params["offset"] == str(64 + 8_204)
    image[path] = image[path][:-1]
    with pytest.raises(errors.CorruptFile, match="cut off"):
        list(records_of(files_of(image), path))
