"""A voter's state as its files have it, read beside the process that writes them.

    vote --> journal --> snapshot       in this order: each is at least as new as the one before

So the entries that were read reach up to the snapshot, and what was committed when `vote` was read
is among them, or in it. A file may be about to be replaced: then it does not fit or is missing, and
reading is tried again.
"""

from typing import NamedTuple

from hourwheel import errors
from replication.control_state.commands import apply_command
from replication.control_state.state import ControlState, decode_state
from replication.raft.codec import REGULAR
from replication.raft.generations import find_generation, folder_of
from replication.raft.journal import JOURNAL, VOTE, RaftJournal
from replication.raft.journal_file import Entry, read_entries
from replication.raft.snapshot import SnapshotFile
from replication.raft.vote_file import VoteFile
from storage.files.disk import Disk, join
from storage.files.file_header import Identity


class CommittedState(NamedTuple):
    """What is known to be agreed upon."""

    state: ControlState
    is_all: bool
    """False: the journal has more, and the file `vote` does not say yet that it is committed. It
    says so a second later, where it is."""


def read_committed(disk: Disk, directory: str, identity: Identity) -> CommittedState | None:
    """The state of the generation that is in force in a control process's folder.

    Nothing is changed. None: this node has taken no part yet.

    Raises:
        CorruptFile, FileNotFoundError: something is damaged, or was being replaced.
        ForeignDirectory, IncompatibleFormat: see storage.files.file_header, `decode_state`.
    """
    if not disk.exists(directory):
        return None
    folder = join(directory, folder_of(find_generation(disk, directory)))
    path = join(folder, JOURNAL)
    if not disk.exists(path) or not disk.exists(join(folder, VOTE)):
        return None
    committed = VoteFile.read(disk, join(folder, VOTE), identity).commit_index
    entries = read_entries(disk, path, identity)
    snapshots = SnapshotFile(disk, folder, identity)
    state, applied = ControlState(), 0
    if snapshots.exists:
        snapshot = snapshots.load()
        state, applied = decode_state(snapshot.state), snapshot.last.index
    end = max(committed, applied)
    if not entries[0].index <= applied + 1 or entries[-1].index < committed:
        raise errors.CorruptFile(f"{path} does not fit {snapshots.path}", file=path)
    state = _folded(state, applied, entries, end)
    return CommittedState(state, is_all=entries[-1].index <= end)


def latest_state(journal: RaftJournal) -> ControlState:
    """What a journal that was just opened makes, with what may not be committed yet.

    How far it is, may not have been noted before the process was killed. Raises IncompatibleFormat.
    """
    state, applied = ControlState(), 0
    if journal.snapshot_file.exists:
        snapshot = journal.snapshot_file.load()
        state, applied = decode_state(snapshot.state), snapshot.last.index
    entries = journal[:]
    return _folded(state, applied, entries, entries[-1].index)


def _folded(state: ControlState, applied: int, entries: list[Entry], end: int) -> ControlState:
    for entry in entries:
        if applied < entry.index <= end and entry.command[:1] == REGULAR:
            state, _ = apply_command(state, entry.command[1:])
    return state
