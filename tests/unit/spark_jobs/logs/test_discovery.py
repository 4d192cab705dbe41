"""What directories hold is found; what is wrong with them is told, and the rest is still there."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs.logs import discovery
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.replica import ERROR, INFO, PROBLEMS, WARNING, Problem
from spark_jobs.runtime import paths
from storage.files.disk import File, RealDisk
from storage.files.file_header import VERSIONS, FileType, Identity, pack_file_header
from tests.support.audited import copied, only_copy
from tests.support.log_maker import (
    CLUSTER_ID,
    Made,
    log_end,
    replicate,
    segments,
    set_high_watermark,
    set_node_id,
)


def found(*directories: Path, expected: Sequence[str] = ()) -> list[Problem]:
    """The problems; their names are documented ones."""
    inventory = discover([str(one) for one in directories], expected_nodes=expected)
    assert {one.check for one in inventory.problems} <= set(PROBLEMS)
    return list(inventory.problems)


@pytest.fixture
def directory(made: Made, tmp_path: Path) -> Path:
    return copied(made.directory, tmp_path)


def test_directory_when_all_is_well_is_described(made: Made) -> None:
    inventory = discover([str(made.directory)])
    assert inventory.problems == ()
    assert (inventory.cluster, inventory.shards) == (CLUSTER_ID.hex(), (0,))
    ((replica, copy),) = inventory.copies(0)
    assert (replica.node, replica.uri) == ("node-1", str(made.directory))
    assert [Path(one.path).name for one in copy.segments] == [
        one.name for one in segments(made.directory)
    ]
    assert (copy.start_offset, copy.end_offset) == (0, log_end(made.directory))
    assert copy.flushed_offset == copy.applied_offset == copy.end_offset
    assert copy.high_watermark is None
    assert copy.committed_offset == copy.end_offset
    assert [one.epoch for one in copy.epochs] == [1, 2]
    assert copy.manifest is not None
    assert {one.topic_queue for one in copy.manifest.queues} == set(copy.queues)
    assert inventory.copies(7) == ()


def test_nodes_when_below_a_folder_are_all_found_by_their_own_names(directory: Path) -> None:
    places = replicate(directory)
    shutil.move(places[2], directory.parent / "deep" / "er" / "data")
    inventory = discover([str(directory.parent), str(places[0])])
    assert [one.node for one in inventory.replicas] == ["node-1", "node-2", "node-3"]
    assert inventory.problems == ()
    assert [copy.high_watermark for _, copy in inventory.copies(0)] == [log_end(places[0])] * 3


def test_uri_when_read_by_pyarrow_shows_the_same(directory: Path) -> None:
    plain = discover([str(directory)]).replicas[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "open_disk", lambda uri: paths.arrow_disk(f"file://{uri}"))
        other = discover([str(directory)]).replicas[0]
    assert other == plain


def test_nothing_when_there_are_no_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.NoLogs, match="no logs in"):
        discover([str(tmp_path), str(tmp_path / "absent")])
    with pytest.raises(errors.NoLogs):
        discover([])


def test_clusters_when_mixed_are_an_error_that_names_them(directory: Path) -> None:
    places = replicate(directory, 2)
    set_node_id(places[1], "node-2", bytes(16))
    with pytest.raises(errors.MixedClusters) as caught:
        discover([str(directory.parent)])
    assert str(places[1]) in caught.value.message
    assert bytes(16).hex() in caught.value.params["clusters"]


def test_node_when_missing_is_told_and_the_others_are_there(directory: Path) -> None:
    gone = directory.parent / "gone"
    problems = found(directory, gone, expected=["node-1", "node-9"])
    assert [(one.check, one.severity, one.node) for one in problems] == [
        ("node-unreadable", ERROR, "gone"),
        ("node-missing", ERROR, "node-9"),
    ]


def test_node_when_it_is_there_twice_has_two_names(directory: Path) -> None:
    places = replicate(directory, 2)
    set_node_id(places[1], "node-1")
    inventory = discover([str(one) for one in places])
    assert [one.node for one in inventory.replicas] == ["node-1", "node-1@2"]
    assert [(one.check, one.severity) for one in inventory.problems] == [("node-twice", WARNING)]


def test_node_meta_when_missing_leaves_the_folders_name(directory: Path) -> None:
    (directory / "node.meta").unlink()
    assert [one.check for one in found(directory)] == ["node-meta"]
    replica, copy = only_copy(directory)
    assert (replica.node, replica.cluster_id) == ("node-1", CLUSTER_ID)
    assert copy.segments


def test_segment_when_lost_is_named_by_its_offsets(directory: Path) -> None:
    lost = segments(directory)[1]
    begin = int(lost.stem)
    end = begin + lost.stat().st_size - 64
    lost.unlink()
    (one,) = found(directory)
    assert (one.check, one.severity, one.offset) == ("segment-missing", ERROR, begin)
    assert f"[{begin}, {end})" in one.detail


def test_log_when_its_end_is_lost_is_too_short(directory: Path) -> None:
    last = segments(directory)[-1]
    last.unlink()
    (one,) = found(directory)
    assert (one.check, one.offset) == ("log-short", int(last.stem))
    assert str(int(last.stem)) in one.detail


def test_log_when_it_lacks_what_was_committed_is_behind(directory: Path) -> None:
    set_high_watermark(directory, log_end(directory) + 800)
    assert [(one.check, one.severity) for one in found(directory)] == [("log-behind", WARNING)]


def test_segment_when_it_is_longer_than_it_may_be_overlaps_the_next(directory: Path) -> None:
    first = segments(directory)[0]
    first.write_bytes(first.read_bytes() + bytes(16))
    assert [one.check for one in found(directory)] == ["segment-overlap"]


def test_segment_when_of_a_later_version_is_told_and_not_read(directory: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VERSIONS, FileType.LOG_SEGMENT, 9)
        header = pack_file_header(FileType.LOG_SEGMENT, Identity(CLUSTER_ID, 0))
    first = segments(directory)[0]
    first.write_bytes(header + first.read_bytes()[64:])
    (one,) = found(directory)
    assert (one.check, one.file) == ("file-unreadable", f"shard-0/log/{first.name}")
    assert "version 9" in one.detail
    _, copy = only_copy(directory)
    assert [bool(each.fault) for each in copy.segments] == [
        True,
        *[False] * (len(copy.segments) - 1),
    ]


def test_segment_when_of_another_cluster_is_told_and_not_read(directory: Path) -> None:
    first = segments(directory)[0]
    header = pack_file_header(FileType.LOG_SEGMENT, Identity(bytes(16), 0))
    first.write_bytes(header + first.read_bytes()[64:])
    assert [one.check for one in found(directory)] == ["foreign-file"]
    assert only_copy(directory)[1].segments[0].fault


def test_segment_when_its_header_is_damaged_is_read_all_the_same(directory: Path) -> None:
    first = segments(directory)[0]
    first.write_bytes(bytes(64) + first.read_bytes()[64:])
    assert [one.check for one in found(directory)] == ["file-unreadable"]
    assert only_copy(directory)[1].segments[0].fault == ""


def test_segment_when_it_is_just_being_made_is_no_error(directory: Path) -> None:
    end = log_end(directory)
    (directory / "shard-0" / "log" / f"{end:020d}.log").write_bytes(b"HWH")
    assert [(one.check, one.severity) for one in found(directory)] == [("file-unreadable", INFO)]


@pytest.mark.parametrize("name", ["checkpoint", "epochs"])
def test_small_file_when_damaged_is_told(directory: Path, name: str) -> None:
    path = directory / "shard-0" / name
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    (one,) = found(directory)
    assert (one.check, one.file) == ("file-unreadable", f"shard-0/{name}")
    _, copy = only_copy(directory)
    assert (copy.manifest is None) == (name == "checkpoint")
    assert (copy.epochs == ()) == (name == "epochs")


def test_shard_when_it_has_no_log_is_told(directory: Path) -> None:
    places = replicate(directory, 2)
    shutil.rmtree(places[1] / "shard-0" / "log")
    problems = found(*places)
    assert [(one.check, one.node) for one in problems] == [("no-log", "node-2")]


def test_folders_when_left_of_a_recovery_are_told(directory: Path) -> None:
    (directory / "shard-0.damaged-1").mkdir()
    (directory / "shard-0.incoming").mkdir()
    assert [(one.check, one.severity) for one in found(directory)] == [
        ("damaged-folder", WARNING),
        ("snapshot-incoming", INFO),
    ]


def test_epochs_when_they_are_missing_are_a_problem(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    (node / "shard-0" / "epochs").unlink()
    (one,) = found(node)
    assert (one.check, one.severity, one.file) == ("file-unreadable", ERROR, "shard-0/epochs")


@pytest.mark.parametrize("name", ["flushed.mark", "high_watermark"])
def test_mark_when_it_is_damaged_is_a_problem(made: Made, tmp_path: Path, name: str) -> None:
    (node,) = replicate(copied(made.directory, tmp_path), 1)
    assert found(node) == []
    path = node / "shard-0" / name
    path.write_bytes(path.read_bytes()[:64] + bytes([1]) * 64)
    (one,) = found(node)
    assert (one.check, one.severity) == ("file-unreadable", WARNING)
    assert one.file == f"shard-0/{name}"


def test_epoch_when_it_begins_while_a_directory_is_looked_at_is_known(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the sizes of the log's files take in must be in the epochs that were read."""
    node = copied(made.directory, tmp_path)
    order: list[str] = []

    class Watched(RealDisk):
        def open(self, path: str, *, create: bool = False) -> File:
            order.append(path)
            return super().open(path, create=create)

    monkeypatch.setattr(discovery, "open_disk", lambda uri: Watched(uri, read_only=True))
    discover([str(node)])
    logs = [at for at, path in enumerate(order) if path.endswith(".log")]
    assert order.index("shard-0/flushed.mark") < min(logs)
    assert order.index("shard-0/epochs") > max(logs)


@pytest.mark.parametrize(
    "name", ["shard-00", "shard-9999999999", "shard-\u0663", "shard-", "shard--1"]
)
def test_folder_when_no_node_names_a_shard_so_is_left_alone(
    made: Made, tmp_path: Path, name: str
) -> None:
    node = copied(made.directory, tmp_path)
    shutil.copytree(node / "shard-0", node / name)
    assert found(node) == []
    assert discover([str(node)]).shards == (0,)
