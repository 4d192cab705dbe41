"""`node.meta`: whose data directory this is. Made once, checked at each start.

    byte  size  field
       0    80  frame of an atomic file (storage/files/atomic_file.py); with the cluster's id
      80     n  the node's id, UTF-8

A directory with data and without this file is refused, never taken for a new one: starting afresh
on top of somebody's messages would be to lose them. So is a cluster's for a node that knows no
other nodes: what it wrote there alone, in epochs of its own, would belong to no common log.
"""

import uuid
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.types import FIRST_SHARD, NodeId
from replication.raft.generations import find_generation
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header

NODE_META: Final = "node.meta"
CONTROL: Final = "control"
"""Folder of the control process. Only nodes of a cluster have one."""
CONTROL_ALONE: Final = "control-alone"
"""Folder of the control state of a node alone, once it was changed."""
CONTROL_RESTORED: Final = "control-restored"
"""The control state of a backup, until the first start after a restore has taken it over."""
_SHARDS: Final = "shard-"


class NodeMeta(NamedTuple):
    """Who this is."""

    cluster_id: bytes
    """16 bytes of a UUID."""
    node_id: NodeId
    is_new: bool = False
    """The directory was empty; the file was made now."""


def open_node_meta(disk: Disk, node_id: NodeId, cluster_id: bytes | None = None) -> NodeMeta:
    """Read the file, or make it in an empty directory.

    Args:
        disk: of the data directory.
        node_id: of this node.
        cluster_id: of the cluster that it is to be part of; None: of a node alone, any, and a new
            one for a new directory.

    Raises:
        ForeignDirectory: the directory belongs to another node or cluster, or to a node of one
            while this node is alone, or the other way round.
        IncompatibleFormat: it was written by a version that we do not know.
        CorruptFile: the file is damaged, or is missing beside data.
        DiskFull, FsyncFailed, DiskFailed: see storage.files.disk.
    """
    if disk.exists(NODE_META):
        meta = read_node_meta(disk, node_id)
        if cluster_id not in {None, meta.cluster_id}:
            raise errors.ForeignDirectory(
                f"the directory belongs to cluster {meta.cluster_id.hex()}",
                file=NODE_META,
                cluster_id=meta.cluster_id.hex(),
            )
        if cluster_id is None and is_of_cluster(disk):
            raise errors.ForeignDirectory(
                "the directory belongs to a node of a cluster, and cluster.nodes is empty: start "
                "it with its cluster's configuration",
                file=NODE_META,
                cluster_id=meta.cluster_id.hex(),
            )
        if cluster_id is not None and disk.exists(CONTROL_ALONE) and not is_promoted(disk):
            raise errors.ForeignDirectory(
                f"the directory belongs to a node alone, whose users and grants are in"
                f" {CONTROL_ALONE}: a cluster would not know them. `hourwheel members grow`"
                " makes it the first node of a cluster, with all it has",
                file=CONTROL_ALONE,
                cluster_id=meta.cluster_id.hex(),
            )
        return meta
    found = [name for name in disk.list("") if name.startswith((_SHARDS, CONTROL_RESTORED))]
    if found:
        raise errors.CorruptFile(
            f"{NODE_META} is missing, but there is data in {found[0]}", file=NODE_META
        )
    cluster_id = cluster_id or uuid.uuid4().bytes
    header = pack_file_header(FileType.NODE, Identity(cluster_id, FIRST_SHARD))
    atomic_file.write(disk, NODE_META, header, node_id.encode())
    return NodeMeta(cluster_id, node_id, is_new=True)


def is_of_cluster(disk: Disk) -> bool:
    """Whether the directory is a cluster node's, also of one that does not know its cluster yet.

    An empty folder beside the control state of a node alone is what a cluster's start left behind
    that was refused just for that.
    """
    return disk.exists(CONTROL) and bool(disk.list(CONTROL) or not disk.exists(CONTROL_ALONE))


def is_promoted(disk: Disk) -> bool:
    """Whether the control state is a cluster's, in a generation after the one that began empty."""
    return disk.exists(CONTROL) and find_generation(disk, CONTROL) > 0


def read_node_meta(disk: Disk, node_id: NodeId) -> NodeMeta:
    """Read the file of a directory that is there. Raises as `open_node_meta`; FileNotFoundError."""
    found = atomic_file.read_any(disk, NODE_META)
    if found.header.file_type is not FileType.NODE:
        raise errors.CorruptFile(f"{NODE_META} is a {found.header.file_type.name}", file=NODE_META)
    owner = found.payload.decode("utf-8", "replace")
    if owner != node_id:
        raise errors.ForeignDirectory(
            f"the directory belongs to node {owner!r}, and this is node {node_id!r}",
            file=NODE_META,
            owner=owner,
            node_id=node_id,
        )
    return NodeMeta(found.header.identity.cluster_id, node_id)
