"""The directory of a node alone becomes that of the first node of a cluster.

    control-alone --> control.new/generation-1 --> control       from here on it is a cluster's
                                                   control-alone goes

The shard's folder stays as it is: log, topics, groups and ids. Only the control state changes its
place, and that in one step, the renaming: before it the node is alone, and behind it the first
generation of voters has all users, grants and quotas. What a crash leaves beside that is removed by
the next attempt, or by the first start of the cluster.
"""

from typing import Final

from hourwheel import errors
from hourwheel.types import NodeId
from node.cluster.restored_control import begin_alone
from node.shard.node_meta import CONTROL, CONTROL_ALONE, is_of_cluster, is_promoted
from node.shard.snapshot_files import remove_tree
from replication.control_state.founding import FIRST_GENERATION, founded
from replication.control_state.state import ControlState, encode_state
from replication.raft.generations import begin_generation
from replication.standalone.control_journal import ControlJournal
from storage.files.disk import Disk
from storage.files.file_header import Identity

_MADE: Final = f"{CONTROL}.new"
_ONE: Final = 1


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
