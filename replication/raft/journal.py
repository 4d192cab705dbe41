"""The journal that PySyncObj writes to: durable, checked, and cut only where logs conflict.

Instead of the library's own, which is never synced, has no checksum, and can lose what was
acknowledged. What it heals, by the numbers of docs/decisions/0011-control-plane.md:

    B1, B2   compaction replaces the file in one step; `repair` mends what a crash left between a
             snapshot and the journal
    B4       a commit index is never beyond the journal; a journal that ends below what was
             committed has lost entries: the process does not start
    B8       PySyncObj tells a follower to drop everything behind the place that the leader
             names, and to add again what the leader sends. Inside `message` the entries are only
             hidden; adding the same one again shows it again, and only another one cuts the file.
             Nothing that was committed is ever cut.

On a full disk it goes on (docs/decisions/0020-the-control-plane-on-a-full-disk.md): files have
their room beforehand, and what finds none all the same raises DiskFull, and has changed nothing.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self, overload

from hourwheel import errors
from hourwheel.internal.v1 import raft_pb2 as pb
from hourwheel.types import NodeId
from replication.raft.journal_file import COMMAND_BYTES_MAX, Entry, JournalFile
from replication.raft.pysyncobj_surface import Journal
from replication.raft.snapshot import Snapshot, SnapshotFile
from replication.raft.vote_file import VoteFile
from storage.files import atomic_file
from storage.files.disk import Disk, join
from storage.files.file_header import FileType, Identity

NOOP: Final = b"\x01"
"""PySyncObj's command of a new leader's first entry, and of every log's first."""
FIRST: Final = Entry(NOOP, 1, 0)
"""Every log begins with it."""
JOURNAL: Final = "journal"
VOTE: Final = "vote"
META: Final = "meta"
"""What was before `vote`."""
COMMAND_ROOM_BYTES: Final = 4 * COMMAND_BYTES_MAX
"""What commands leave of the room: for the first entries of leaders, and for followers."""
JOURNAL_ID_BYTES: Final = 16
_FIRST_ENTRY_BYTES: Final = 128
"""More than a record of NOOP has."""


class RaftJournal(Journal):  # type: ignore[misc]
    """See the top of this file. The tick thread only, but for `meet`.

    Attributes:
        snapshot_file: where snapshots are kept.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        identity: Identity,
        file: JournalFile,
        vote_file: VoteFile,
        meta: pb.RaftMeta,
    ) -> None:
        """Use `open`."""
        self.snapshot_file = SnapshotFile(disk, directory, identity)
        self._file = file
        self._vote_file = vote_file
        self._meta = meta
        self._vote_lock = threading.Lock()
        """Of `_meta` and its file."""
        self._is_vote_dirty = False
        self._commit_index = meta.commit_index
        self._hidden = 0  # entries at the end that PySyncObj has dropped in this message
        self._is_in_message = False

    # --- opening

    @classmethod
    def open(cls, disk: Disk, directory: str, identity: Identity, node_id: NodeId) -> Self:
        """Open what lies in a folder, or begin there if it is empty.

        Raises:
            CorruptFile: something durable is damaged or missing: this node must not vote.
            ForeignDirectory: it belongs to another node or cluster.
            IncompatibleFormat: see storage.files.file_header.
            DiskFull: there is no room to begin.
        """
        disk.make_dir(directory)
        path, vote_path = join(directory, JOURNAL), join(directory, VOTE)
        snapshots = SnapshotFile(disk, directory, identity)
        if not disk.exists(path):
            has_voted = disk.exists(vote_path) or disk.exists(join(directory, META))
            if has_voted or snapshots.exists:
                raise errors.CorruptFile(
                    f"{path} is missing beside {vote_path}: what this node has acknowledged is"
                    f" lost, so it must not vote",
                    file=path,
                )
            file = JournalFile.create(disk, path, identity, [FIRST])
        else:
            file = JournalFile.open(disk, path, identity)
        vote_file, meta = cls._open_vote(disk, directory, identity, node_id, file)
        opened = cls(disk, directory, identity, file, vote_file, meta)
        opened._repair(opened.snapshot_file.load() if snapshots.exists else None)
        opened.snapshot_file.keep_room()
        return opened

    @classmethod
    def _open_vote(
        cls, disk: Disk, directory: str, identity: Identity, node_id: NodeId, file: JournalFile
    ) -> tuple[VoteFile, pb.RaftMeta]:
        path, former_path = join(directory, VOTE), join(directory, META)
        if disk.exists(path):
            vote_file, meta = VoteFile.open(disk, path, identity)
            _check_owner(path, meta, node_id)
        else:
            meta = cls._former_meta(disk, former_path, identity, node_id, file)
            vote_file = VoteFile.create(disk, path, identity, meta)
        if not meta.journal_id:
            meta.journal_id = new_journal_id()
            vote_file.store(meta)
        if disk.exists(former_path):  # an older version must not find an old vote
            disk.remove(former_path)
            disk.sync_dir(directory)
        return vote_file, meta

    @staticmethod
    def _former_meta(
        disk: Disk, path: str, identity: Identity, node_id: NodeId, file: JournalFile
    ) -> pb.RaftMeta:
        """Term and vote where there is no file for them yet: as an older version kept them."""
        if disk.exists(path):
            raw = atomic_file.read(disk, path, FileType.RAFT_META, identity).payload
            meta = pb.RaftMeta.FromString(raw)
            _check_owner(path, meta, node_id)
            return meta
        if file.entries != [FIRST]:
            raise errors.CorruptFile(
                f"{path} is missing beside a journal: the vote of this node is lost",
                file=path,
            )
        return pb.RaftMeta(node_id=node_id, commit_index=1, began_blank=True)

    def _repair(self, snapshot: Snapshot | None) -> None:
        """Make the journal begin with the two entries that the snapshot ends with (B1).

        Four places where a crash may have left it: the trim was not done; an installed snapshot is
        ahead of the log; or contradicts it; or all is well.
        """
        entries = self._file.entries
        if snapshot is not None:
            pair = [snapshot.previous, snapshot.last]
            at = snapshot.previous.index - entries[0].index
            if at >= 0 and entries[at : at + 2] == pair:
                if at > 0:
                    self._file = self._file.replaced(entries[at:])
            elif snapshot.is_installed and at >= 0 and self._commit_index < snapshot.last.index:
                self._file = self._file.replaced(pair)
            else:
                raise errors.CorruptFile(
                    f"{self._file.path} does not hold the entries up to which"
                    f" {self.snapshot_file.path} goes: acknowledged entries are lost",
                    file=self._file.path,
                )
            self._commit_index = max(self._commit_index, snapshot.last.index)
        elif entries[0] != FIRST:
            raise errors.CorruptFile(
                f"{self.snapshot_file.path} is missing, and {self._file.path} begins behind it",
                file=self.snapshot_file.path,
            )
        if self._commit_index > self._file.entries[-1].index:
            raise errors.CorruptFile(
                f"{self._file.path} ends at {self._file.entries[-1].index}, and"
                f" {self._commit_index} was committed: entries are lost",
                file=self._file.path,
            )

    @property
    def cut_bytes(self) -> int:
        """How long the torn tail was that opening has cut."""
        return self._file.cut_bytes

    @property
    def is_blank(self) -> bool:
        """It began with nothing, and has taken no part.

        No message of Raft ever left: each is of a term above 0, which is kept before.
        """
        return self._meta.began_blank and self._meta.term == 0

    @property
    def journal_id(self) -> bytes:
        """Tells it from any other that its node may have had."""
        return self._meta.journal_id

    def meet(self, peer_id: NodeId, journal_id: bytes) -> bool:
        """Note durably which journal a peer has. False: it had another one before.

        Raises:
            DiskFull: it is not noted, and the peer must not hear that it is unknown.
            FsyncFailed, DiskFailed: stop the process.
        """
        with self._vote_lock:
            known = self._meta.met.get(peer_id)
            if known is None:
                meta = pb.RaftMeta()
                meta.CopyFrom(self._meta)
                meta.met[peer_id] = journal_id
                self._vote_file.store(meta)
                self._meta.met[peer_id] = journal_id
            return known in {None, journal_id}

    # --- entries, as PySyncObj asks for them

    def __len__(self) -> int:
        """How many there are."""
        return len(self._file.entries) - self._hidden

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """By ordinal, not by index."""
        if self._hidden:
            return self._file.entries[: -self._hidden][item]
        return self._file.entries[item]

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append; durable after `sync`. Raises DiskFull: nothing has changed."""
        entry = Entry(bytes(command), idx, term)
        if self._hidden:
            if self._file.entries[len(self)] == entry:
                self._hidden -= 1
                return
            self._cut(len(self))
            self._hidden = 0
        self._file.append(entry)

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - PySyncObj's name
        """Drop the entries from this ordinal on; inside a message, hide them."""
        if self._is_in_message:
            self._hidden = len(self._file.entries) - entryFrom
        else:
            self._cut(entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803 - PySyncObj's name
        """Drop the entries before this ordinal."""
        errors.invariant(not self._hidden, "compaction inside a message")
        if entryTo > 0:
            self._file = self._file.replaced(self._file.entries[entryTo:])

    def clear(self) -> None:
        """PySyncObj's way to take a snapshot; ours is `install`."""
        errors.violated("the journal is never cleared")

    def install(self, snapshot: Snapshot) -> None:
        """Take a snapshot of the leader, which is durable in `snapshot_file` already.

        What follows it here stays where this log agrees with it: the leader may have counted it.
        """
        self._hidden = 0
        self._repair(snapshot)

    def _cut(self, count: int) -> None:
        first = self._file.entries[count].index
        errors.invariant(
            first > self._commit_index,
            "a committed entry of the control plane would be overwritten",
            index=first,
            commit_index=self._commit_index,
        )
        self._file = self._file.replaced(self._file.entries[:count])

    @contextmanager
    def message(self) -> Iterator[None]:
        """While PySyncObj handles one message of a peer; see B8 above."""
        self._is_in_message = True
        try:
            yield
        finally:
            self._is_in_message = False
            self._hidden = 0

    def sync(self) -> None:
        """Make durable what was added, and term and vote. Called before any message leaves.

        Raises:
            DiskFull: it is not durable yet, and no message may leave.
            FsyncFailed, DiskFailed: stop the process.
        """
        if self._is_vote_dirty:
            self._store_vote()
        if self._file.is_dirty:
            self._file.sync()

    @property
    def has_command_room(self) -> bool:
        """Whether the log should take another command, as far as room goes."""
        try:
            self._file.reserve(COMMAND_ROOM_BYTES)
        except errors.DiskFull:
            return False
        return True

    def reserve_first_entry(self) -> None:
        """See that a new leader's first entry finds room. Raises DiskFull."""
        self._file.reserve(_FIRST_ENTRY_BYTES)

    @property
    def is_half_full(self) -> bool:
        """It is time for a snapshot."""
        return self._file.is_half_full

    # --- term, vote, commit index

    def setCurrentTerm(self, term: int, votedForNodeId: NodeId | None) -> None:  # noqa: N802, N803
        """Durable before the vote leaves: `sync` sees to that where there is no room now."""
        with self._vote_lock:
            self._meta.term = term
            self._meta.voted_for = votedForNodeId or ""
        self._is_vote_dirty = True
        with suppress(errors.DiskFull):
            self._store_vote()

    def getCurrentTerm(self) -> int:  # noqa: N802 - PySyncObj's name
        """As kept."""
        return self._meta.term

    def getVotedForNodeId(self) -> NodeId | None:  # noqa: N802 - PySyncObj's name
        """As kept."""
        return NodeId(self._meta.voted_for) if self._meta.voted_for else None

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """What was committed is durable here before any caller hears (also without peers)."""
        if raftCommitIndex > self._commit_index:
            self.sync()
            self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:  # noqa: N802 - PySyncObj's name
        """The highest that was ever reached, never beyond the journal (B4)."""
        return min(self._commit_index, self._file.entries[-1].index)

    def onOneSecondTimer(self) -> None:  # noqa: N802 - PySyncObj's name
        """Keep the commit index: after a full restart the state is there before the leader is."""
        if self._meta.commit_index != self._commit_index:
            with suppress(errors.DiskFull):
                self._store_vote()

    def _store_vote(self) -> None:
        # The kept commit index never speaks of entries that are not durable: it grows after a sync.
        with self._vote_lock:
            self._meta.commit_index = self._commit_index
            self._vote_file.store(self._meta)
        self._is_vote_dirty = False

    def _destroy(self) -> None:
        """The end, for PySyncObj."""
        with suppress(errors.DiskFull):
            self.sync()
        self.onOneSecondTimer()
        self._file.close()
        self._vote_file.close()


def new_journal_id() -> bytes:
    """For a journal that begins."""
    return os.urandom(JOURNAL_ID_BYTES)


def _check_owner(path: str, meta: pb.RaftMeta, node_id: NodeId) -> None:
    if meta.node_id != node_id:
        raise errors.ForeignDirectory(
            f"{path} belongs to node {meta.node_id!r}, and this is {node_id!r}", file=path
        )
