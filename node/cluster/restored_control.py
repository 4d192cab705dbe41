"""The control state of a backup, on its way from `hourwheel restore` into the first start.

    restore      control-restored: users, grants and quotas, as the backup has them
    first start  of a node alone:    control-alone, made of it in one step
                 of a cluster:       the first of its nodes, by id, begins generation 1 with it, in
                                     one step; the others wait for it, as new members do
                 then the file goes

A restore does not know of which of the two its directory will be. And only one node begins the
generation, with the members of its own configuration: two that were restored otherwise, or are
configured otherwise, would begin with two states and never notice.
"""

from typing import Final

from hourwheel import errors
from hourwheel.types import NodeId
from node.shard.node_meta import CONTROL, CONTROL_ALONE, CONTROL_RESTORED
from replication.control_state.founding import FIRST_GENERATION, founded, left_alone
from replication.control_state.membership import Members
from replication.control_state.state import ControlState, decode_state, encode_state
from replication.raft.generations import begin_generation, find_generation
from replication.standalone.control_journal import ControlJournal
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header

_TMP: Final = CONTROL_RESTORED + atomic_file.TMP_SUFFIX


def write_restored(disk: Disk, identity: Identity, state: ControlState) -> None:
    """Note what the first start begins with; durable when this returns.

    Raises:
        DiskFull: nothing is noted.
        FsyncFailed, DiskFailed: see storage.files.disk.
    """
    header = pack_file_header(FileType.CONTROL_STATE, identity)
    raw = encode_state(state, with_remembered=False)
    atomic_file.write(disk, CONTROL_RESTORED, header, raw)


def find_restored(disk: Disk, identity: Identity) -> ControlState | None:
    """What a restore has noted, until the first start; None: nothing.

    Raises:
        CorruptFile, ForeignDirectory, IncompatibleFormat: the file is not what a restore wrote.
    """
    if not disk.exists(CONTROL_RESTORED):
        return None
    found = atomic_file.read(disk, CONTROL_RESTORED, FileType.CONTROL_STATE, identity)
    try:
        return decode_state(found.payload)
    except errors.IncompatibleFormat as error:
        raise errors.IncompatibleFormat(
            f"{CONTROL_RESTORED}: {error.message}", file=CONTROL_RESTORED
        ) from error


def remove_restored(disk: Disk) -> None:
    """Remove the file, and what a kill has left of it. Nothing to do where there is none."""
    found = [name for name in (CONTROL_RESTORED, _TMP) if disk.exists(name)]
    for name in found:
        disk.remove(name)
    if found:
        disk.sync_dir("")


def begin_alone(disk: Disk, identity: Identity, node_id: NodeId) -> None:
    """Begin the control state of a node alone with what was restored, if anything was.

    After a crash the same happens again.

    Raises:
        CorruptFile, ForeignDirectory, IncompatibleFormat: the file is not what a restore wrote.
        DiskFull: nothing has changed.
        FsyncFailed, DiskFailed: see storage.files.disk.
    """
    state = find_restored(disk, identity)
    if state is not None:
        first = left_alone(state, identity.cluster_id, node_id)
        ControlJournal.create(disk, CONTROL_ALONE, identity, node_id, first)
        remove_restored(disk)


def begin_together(
    disk: Disk, identity: Identity, node_id: NodeId, members: Members, min_in_sync: int
) -> bool:
    """Begin the control state of a cluster with what was restored, if anything was.

    Args:
        disk: of the data directory.
        identity: of the cluster.
        node_id: of this node.
        members: as configured: node id -> where its control process is.
        min_in_sync: as configured.

    Returns:
        Whether this node is to wait until another one tells it of the cluster.

    Raises:
        As `begin_alone`.
    """
    state = find_restored(disk, identity)
    if state is None:
        return False
    if not (disk.exists(CONTROL) and find_generation(disk, CONTROL)):
        if node_id != min(members):
            return True
        first = founded(state, identity.cluster_id, members, min_in_sync)
        disk.make_dir(CONTROL)
        # What it voted in a former life, of the same restore, others may know.
        begin_generation(
            disk,
            identity,
            node_id,
            FIRST_GENERATION,
            encode_state(first),
            is_blank=True,
            directory=CONTROL,
        )
    remove_restored(disk)
    return False
