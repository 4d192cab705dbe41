"""Where each generation of voters keeps its log, and how the next one's comes to be.

    journal, vote, snapshot, ...          generation 0
    generation-0000000003/journal, ...    generation 3, which is in force: the highest
                          first/snapshot  how it began, for those who do not know of it
    generation-0000000004.new/            one that was being made when the process died: removed

A generation's log begins with two entries that are applied, as after any compaction, and a snapshot
of the state that the stop-sign of the one before has left. The folder gets its name in one step, so
a generation is there as a whole or not at all; then what was before it is removed. Of generation 0
the vote stays: who finds it without its journal refuses to start, which keeps older software from
beginning a log anew.
"""

import re
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1 import raft_pb2 as pb
from hourwheel.types import NodeId
from replication.raft.journal import FIRST, JOURNAL, NOOP, VOTE, RaftJournal
from replication.raft.journal_file import Entry, JournalFile
from replication.raft.snapshot import SNAPSHOT, Snapshot, SnapshotFile
from replication.raft.vote_file import VoteFile
from storage.files.disk import Disk, join
from storage.files.file_header import Identity
from storage.files.spare_file import OLD_SUFFIX, SPARE_SUFFIX

_FOLDER: Final = re.compile(r"generation-(\d{10})")
_UNFINISHED: Final = ".new"
_FIRST: Final = "first"
_SECOND: Final = Entry(NOOP, 2, 0)
"""PySyncObj's log begins with two entries that are applied."""


def folder_of(generation: int) -> str:
    """Where its files lie, below the control process's folder."""
    return f"generation-{generation:010d}" if generation else ""


def find_generation(disk: Disk, directory: str = "") -> int:
    """The one that is in force in a control process's folder; 0 also where there is nothing yet."""
    found = [_FOLDER.fullmatch(name) for name in disk.list(directory)]
    return max((int(one[1]) for one in found if one is not None), default=0)


def has_begun(disk: Disk) -> bool:
    """Whether this node is or was a voter, of whichever generation."""
    return find_generation(disk) > 0 or any(disk.exists(name) for name in (JOURNAL, VOTE, SNAPSHOT))


def begin_generation(
    disk: Disk,
    identity: Identity,
    node_id: NodeId,
    generation: int,
    state: bytes,
    *,
    is_blank: bool = False,
    directory: str = "",
) -> None:
    """Make the log of a generation, durably. Nothing to do where it is there.

    Args:
        disk: that the control process's folder is on.
        identity: of the cluster.
        node_id: of this node.
        generation: later than the one that is in force.
        state: encoded ControlState that the generation begins with.
        is_blank: this node has taken no part in any generation before.
        directory: the control process's folder.

    Raises:
        DiskFull: nothing has changed.
        FsyncFailed, DiskFailed: stop the process.
    """
    folder = join(directory, folder_of(generation))
    errors.invariant(generation > 0, "generation 0 is not begun by another")
    if disk.exists(folder):
        return
    made = folder + _UNFINISHED
    _remove(disk, made)
    disk.make_dir(made)
    snapshot = Snapshot(state, _SECOND, FIRST, is_installed=False)
    disk.make_dir(join(made, _FIRST))
    for place in (made, join(made, _FIRST)):
        SnapshotFile(disk, place, identity).store(snapshot)
    JournalFile.create(disk, join(made, JOURNAL), identity, [FIRST, _SECOND]).close()
    meta = pb.RaftMeta(node_id=node_id, commit_index=_SECOND.index, began_blank=is_blank)
    VoteFile.create(disk, join(made, VOTE), identity, meta).close()
    disk.sync_dir(made)
    disk.rename(made, folder)
    disk.sync_dir(directory)


def drop_former(disk: Disk, generation: int) -> None:
    """Remove what was before the generation that is in force, and what was not finished."""
    current = folder_of(generation)
    for name in disk.list(""):
        if name.startswith("generation-") and name != current:
            _remove(disk, name)
    if generation:
        for name in (JOURNAL, SNAPSHOT):
            for path in (name, name + SPARE_SUFFIX, name + OLD_SUFFIX):
                if disk.exists(path):
                    disk.remove(path)
        disk.sync_dir("")


def _remove(disk: Disk, folder: str) -> None:
    if not disk.exists(folder):
        return
    first = join(folder, _FIRST)
    for place in (first, folder):
        if disk.exists(place):
            for name in disk.list(place):
                disk.remove(join(place, name))
            disk.remove(place)


def first_state(disk: Disk, identity: Identity, generation: int) -> bytes:
    """How a generation after generation 0 began: encoded ControlState.

    Raises:
        CorruptFile, FileNotFoundError: this node has lost it.
    """
    return SnapshotFile(disk, join(folder_of(generation), _FIRST), identity).load().state


def open_journal(disk: Disk, identity: Identity, node_id: NodeId, generation: int) -> RaftJournal:
    """The journal of a generation: see `RaftJournal.open`."""
    return RaftJournal.open(disk, folder_of(generation), identity, node_id)
