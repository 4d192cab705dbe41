"""The files of a shard, and checks that compare them with a manifest which may be replaced."""

from unittest import mock

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.tools.inspect.files import ShardFiles, cluster_id_of, header_of, steadily
from node.tools.inspect.report import Report
from storage.files.file_header import FileType
from tests.support.inspected import SHARD, disk_of, files_of, flipped, made_image, paths


def test_manifest_is_read_when_it_is_whole() -> None:
    image = made_image()
    manifest = files_of(image).manifest()
    assert manifest is not None
    assert manifest.next_sequence == 288
    path = f"{SHARD}/checkpoint"
    assert files_of(flipped(image, path, 200)).find_manifest() is None
    with pytest.raises(errors.CorruptFile):
        files_of(flipped(image, path, 200)).manifest()
    del image[path]
    assert files_of(image).manifest() is None


def test_files_of_others_are_refused() -> None:
    image = made_image()
    disk = disk_of(image)
    (path, *_) = paths(image, "log/", ".log")
    for files in (ShardFiles(disk, "shard-1"), ShardFiles(disk, SHARD, bytes(16))):
        with pytest.raises(errors.ForeignDirectory):
            files.check_header(header_of(disk, path), path, FileType.LOG_SEGMENT)
    with pytest.raises(errors.CorruptFile, match="LOG_SEGMENT lies where RUN"):
        ShardFiles(disk, SHARD).open_checked(path, FileType.RUN)


def test_cluster_is_unknown_when_its_file_is_damaged() -> None:
    image = made_image()
    assert cluster_id_of(disk_of(image)) == bytes(range(16))
    assert cluster_id_of(disk_of(flipped(image, "node.meta", 30))) is None


def test_folders_that_are_missing_are_empty() -> None:
    assert files_of({"node.meta": b""}).list("wheel") == []


# --- steadily -----------------------------------------------------------------------------------


def run_steadily(manifests: list[int], bad: set[int], why: str = "bad {}") -> Report:
    """Check while the node goes on to the next manifest at each look, and those in `bad` fail."""
    files = files_of(made_image())
    found = [Checkpoint(applied_offset=number) for number in manifests]

    def check(manifest: Checkpoint, report: Report) -> None:
        if manifest.applied_offset in bad:
            report.damaged("file", None, why.format(manifest.applied_offset))

    with mock.patch.object(ShardFiles, "find_manifest", side_effect=found):
        return steadily(files, check)


def test_check_runs_once_when_all_is_well() -> None:
    assert run_steadily([1], set()).is_good


def test_check_runs_again_when_the_node_was_changing_the_files() -> None:
    assert run_steadily([1, 2, 2], {1}).is_good


def test_damage_counts_when_no_new_manifest_explains_it() -> None:
    assert not run_steadily([1, 1], {1}).is_good


def test_damage_counts_when_it_is_found_twice_while_the_node_goes_on() -> None:
    assert not run_steadily([1, 2, 3], {1, 2}, "still bad").is_good


def test_nothing_is_claimed_when_the_node_is_always_faster() -> None:
    report = run_steadily(list(range(1, 20)), set(range(20)))
    assert report.is_good
    assert "faster" in report.remarks[0]


def test_nothing_is_checked_without_a_manifest() -> None:
    image = made_image()
    del image[f"{SHARD}/checkpoint"]
    assert steadily(files_of(image), lambda manifest, report: report.damaged("x", 0, "")).is_good
