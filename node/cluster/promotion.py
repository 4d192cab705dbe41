"""The directory of a node alone becomes that of the first node of a cluster.

    control-alone --> control.new/generation-1 --> control       from here on it is a cluster's
                                                   control-alone goes

The shard's folder stays as it is: log, topics, groups and ids. Only the control state changes its
place, and that in one step, the renaming: before it the node is alone, and behind it the first
generation of voters has all users, grants and quotas. What a crash leaves beside that is removed by
the next attempt, or by the first start of the cluster.

A node that runs is asked by a file, `promotion-wanted`, and does it at its next start: if that has
`cluster.nodes`. Else it starts alone, and the file goes. So an administrator sees what has become
of it.
"""

from typing import Final

from hourwheel import errors
from hourwheel.types import FIRST_SHARD, NodeId
from node.cluster.restored_control import begin_alone
from node.shard.node_meta import (
    CONTROL,
    CONTROL_ALONE,
    NODE_META,
    is_of_cluster,
    is_promoted,
    read_node_meta,
)
from node.shard.snapshot_files import remove_tree
from node.telemetry import logs
from replication.control_state.founding import FIRST_GENERATION, founded
from replication.control_state.state import ControlState, encode_state
from replication.raft.generations import begin_generation
from replication.standalone.control_journal import ControlJournal
from storage.files.disk import Disk
from storage.files.file_header import Identity

_MADE: Final = f"{CONTROL}.new"
_WANTED: Final = "promotion-wanted"
_ONE: Final = 1
_log = logs.get(__name__)


def promote(
    disk: Disk, identity: Identity, node_id: NodeId, control_address: str
) -> ControlState | None:
    """Do it; durable when this returns.

    Args:
        disk: of the data directory; what is made there no other user can read.
        identity: of the directory's cluster: its id stays.
        node_id: of this node, the only member.
        control_address: where others will reach its control process, host:port. It never changes.

    Returns:
        What the cluster begins with; None: it had begun already.

    Raises:
        FailedPrecondition: the directory belongs to a cluster.
        CorruptFile, ForeignDirectory, IncompatibleFormat: see ControlJournal.
        DiskFull: the node is alone, as before.
        FsyncFailed, DiskFailed: see storage.files.disk.
    """
    if is_promoted(disk):
        finish_promotion(disk)
        return None
    if is_of_cluster(disk):
        raise errors.FailedPrecondition("the directory belongs to a node of a cluster already")
    begin_alone(disk, identity, node_id)
    journal = ControlJournal.open(disk, CONTROL_ALONE, identity, node_id)
    journal.close()
    first = founded(journal.state, identity.cluster_id, {node_id: control_address}, _ONE)
    remove_tree(disk, _MADE)
    disk.make_dir(_MADE)
    begin_generation(
        disk, identity, node_id, FIRST_GENERATION, encode_state(first), directory=_MADE
    )
    remove_tree(disk, CONTROL)  # an empty one
    disk.rename(_MADE, CONTROL)
    disk.sync_dir("")
    finish_promotion(disk)
    return first


def finish_promotion(disk: Disk) -> None:
    """Remove what the node has kept while it was alone. Nothing to do where it was not."""
    if is_promoted(disk) and disk.exists(CONTROL_ALONE):
        remove_tree(disk, CONTROL_ALONE)
        disk.sync_dir("")


def want_promotion(disk: Disk) -> None:
    """Have the node promote itself at its next start; durable when this returns.

    Raises DiskFull; FsyncFailed, DiskFailed: see storage.files.disk.
    """
    disk.open(_WANTED, create=True).close()
    disk.sync_dir("")


def is_promotion_wanted(disk: Disk) -> bool:
    """Whether the next start was asked to."""
    return disk.exists(_WANTED)


def forget_promotion(disk: Disk) -> None:
    """It is not asked for any more."""
    if disk.exists(_WANTED):
        disk.remove(_WANTED)
        disk.sync_dir("")


def promote_if_wanted(
    disk: Disk, node_id: NodeId, cluster_id: bytes, control_address: str
) -> ControlState | None:
    """What the start of a node with `cluster.nodes` does first, where it was asked to.

    Not where the configuration names another cluster: then the start is refused as always.

    Args:
        disk: as of `promote`, like the other arguments and what is raised.
        node_id: of this node.
        cluster_id: as configured.
        control_address: see `promote`.

    Returns:
        What the cluster begins with; None: nothing was to be done.
    """
    if not is_promotion_wanted(disk):
        return None
    first = None
    if not is_of_cluster(disk):
        if not disk.exists(NODE_META) or read_node_meta(disk, node_id).cluster_id != cluster_id:
            return None
        first = promote(disk, Identity(cluster_id, FIRST_SHARD), node_id, control_address)
        _log.warning("node_promoted", cluster_id=cluster_id.hex())
    forget_promotion(disk)
    return first
