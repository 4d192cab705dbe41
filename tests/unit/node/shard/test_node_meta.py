"""Whose directory it is."""

from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from node.shard.node_meta import CONTROL, CONTROL_ALONE, NODE_META, open_node_meta
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, Identity, pack_file_header


def test_meta_is_made_when_the_directory_is_new_and_found_again(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    made = open_node_meta(disk, "node-1")
    found = open_node_meta(disk, "node-1")
    assert (made.is_new, found.is_new) == (True, False)
    assert made.cluster_id == found.cluster_id
    assert len(made.cluster_id) == 16
    assert found.node_id == "node-1"


def test_two_directories_are_two_clusters(tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        ids.add(open_node_meta(RealDisk(tmp_path / name), "node-1").cluster_id)
    assert len(ids) == 2


def test_directory_is_foreign_when_it_is_another_nodes(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    open_node_meta(disk, "node-1")
    with pytest.raises(errors.ForeignDirectory, match=r"'node-1'.*'node-2'"):
        open_node_meta(disk, "node-2")


def test_directory_of_a_clusters_node_is_refused_when_the_node_is_alone(tmp_path: Path) -> None:
    disk, cluster_id = RealDisk(tmp_path), bytes(range(16))
    open_node_meta(disk, "node-1", cluster_id)
    disk.make_dir(CONTROL)
    with pytest.raises(errors.ForeignDirectory, match=r"cluster\.nodes is empty"):
        open_node_meta(disk, "node-1")
    assert not open_node_meta(disk, "node-1", cluster_id).is_new


def test_directory_of_a_node_alone_with_users_is_refused_to_a_cluster(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    cluster_id = open_node_meta(disk, "node-1").cluster_id
    disk.make_dir(CONTROL_ALONE)
    with pytest.raises(errors.ForeignDirectory, match=CONTROL_ALONE):
        open_node_meta(disk, "node-1", cluster_id)
    assert open_node_meta(disk, "node-1").cluster_id == cluster_id


def test_directory_is_refused_when_the_version_is_unknown(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    open_node_meta(disk, "node-1")
    path = tmp_path / NODE_META
    raw = bytearray(path.read_bytes())
    header = bytearray(pack_file_header(FileType.NODE, Identity(bytes(16), 0)))
    header[8:10] = (9).to_bytes(2, "little")
    header[60:64] = crc32c(bytes(header[:60])).to_bytes(4, "little")
    raw[:64] = header
    path.write_bytes(bytes(raw))
    with pytest.raises(errors.IncompatibleFormat, match="version 9"):
        open_node_meta(disk, "node-1")


def test_directory_is_refused_at_every_flipped_bit(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    open_node_meta(disk, "node-1")
    path = tmp_path / NODE_META
    good = path.read_bytes()
    for at in range(len(good)):
        if 76 <= at < 80:
            continue  # zeros that nothing reads
        flipped = bytearray(good)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(bytes(flipped))
        with pytest.raises((errors.CorruptFile, errors.IncompatibleFormat)):
            open_node_meta(disk, "node-1")


def test_directory_is_refused_when_the_file_is_missing_beside_data(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_dir("shard-0")
    with pytest.raises(errors.CorruptFile, match="missing"):
        open_node_meta(disk, "node-1")
    assert not disk.exists(NODE_META)


def test_directory_is_refused_when_another_kind_of_file_lies_there(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    header = pack_file_header(FileType.EPOCHS, Identity(bytes(16), 0))
    atomic_file.write(disk, NODE_META, header, b"node-1")
    with pytest.raises(errors.CorruptFile, match="EPOCHS"):
        open_node_meta(disk, "node-1")
