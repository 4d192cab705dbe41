"""The control state of a node alone: the commands of a cluster, in a journal of its own.

    commands --> journal --> sync --> apply_command --> state, results
                   |
                   half of its room is used: snapshot of the state; the journal begins behind it

What Raft is for several nodes, a file is for one. The folder has Raft's files (replication.raft:
journal_file, snapshot). A command of an entry is an encoded ControlCommand; the first of all is
BOOTSTRAP; the term is always the same. The first change makes the folder: a node whose control
state was never changed has none.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, Self

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.commands import COMMAND_BYTES_MAX, apply_command, make_command
from replication.control_state.state import (
    CODEC_VERSION,
    ControlState,
    decode_state,
    encode_state,
)
from replication.raft.journal_file import Entry, JournalFile, read_entries
from replication.raft.snapshot import Snapshot, SnapshotFile
from storage.files.disk import Disk, join, parent_of
from storage.files.file_header import Identity

JOURNAL: Final = "journal"
_UNFINISHED: Final = ".new"
TERM: Final = 1
"""Of each entry: no other is ever leader."""
_REQUEST_ID_BYTES: Final = 16
_RECORD_BYTES_MAX: Final = 64
"""More than an entry takes beside its command."""


class ControlJournal:
    """See the top of this file. One thread at a time; its calls block for a sync or two.

    Invariant: `state` is what the journal's entries make of what its snapshot has, up to the last
    entry that is durable.
    """

    def __init__(self, disk: Disk, directory: str, identity: Identity, node_id: NodeId) -> None:
        """Use `open`."""
        self._disk, self._directory, self._identity = disk, directory, identity
        self._snapshots = SnapshotFile(disk, directory, identity)
        self._file: JournalFile | None = None
        self._applied_index = 0
        self._first = _first_commands(identity.cluster_id, node_id)
        self.state = ControlState()
        """As of the last command that was answered."""

    @classmethod
    def open(cls, disk: Disk, directory: str, identity: Identity, node_id: NodeId) -> Self:
        """What lies in a folder; a new state where there is none.

        Raises:
            CorruptFile: something durable is damaged or missing; names the file.
            ForeignDirectory: it belongs to another cluster.
            IncompatibleFormat: see storage.files.file_header; or newer rules hold.
        """
        opened = cls(disk, directory, identity, node_id)
        path = join(directory, JOURNAL)
        if disk.exists(path):
            opened._file = JournalFile.open(disk, path, identity)
            try:
                opened._load(opened._file)
            except BaseException:
                opened._file.close()
                raise
        elif opened._snapshots.exists:
            raise errors.CorruptFile(
                f"{path} is missing beside {opened._snapshots.path}", file=path
            )
        else:
            for command in opened._first:
                opened.state, _ = apply_command(opened.state, command)
        return opened

    @classmethod
    def create(
        cls, disk: Disk, directory: str, identity: Identity, node_id: NodeId, state: ControlState
    ) -> None:
        """Make a folder that begins with a state, in one step; nothing to do where there is one.

        Raises:
            DiskFull: there is none.
            FsyncFailed, DiskFailed: end the process.
        """
        if disk.exists(directory):
            return
        made = directory + _UNFINISHED
        if disk.exists(made):
            for name in disk.list(made):
                disk.remove(join(made, name))
        disk.make_dir(made)
        commands = _first_commands(identity.cluster_id, node_id)
        previous, last = (Entry(command, at, TERM) for at, command in enumerate(commands, 1))
        snapshot = Snapshot(encode_state(state), last, previous, is_installed=False)
        SnapshotFile(disk, made, identity).store(snapshot)
        JournalFile.create(disk, join(made, JOURNAL), identity, [previous, last]).close()
        disk.sync_dir(made)
        disk.rename(made, directory)
        disk.sync_dir(parent_of(directory))

    @staticmethod
    def read(disk: Disk, directory: str, identity: Identity) -> ControlState | None:
        """The state in a folder whose owner may be writing to it. None: there is no folder.

        The journal is read first, so it reaches up to the snapshot. Nothing is changed.

        Raises:
            CorruptFile, FileNotFoundError: something is damaged, or was being replaced.
            ForeignDirectory, IncompatibleFormat: see `open`.
        """
        path = join(directory, JOURNAL)
        if not disk.exists(path):
            return None
        entries = read_entries(disk, path, identity)
        snapshots = SnapshotFile(disk, directory, identity)
        state, applied = ControlState(), 0
        if snapshots.exists:
            snapshot = snapshots.load()
            state, applied = decode_state(snapshot.state), snapshot.last.index
        if entries[0].index > applied + 1:
            raise errors.CorruptFile(f"{snapshots.path} is missing", file=snapshots.path)
        for entry in entries:
            if entry.index > applied:
                state, _ = apply_command(state, entry.command)
        return state

    def _load(self, file: JournalFile) -> None:
        entries = file.entries
        if self._snapshots.exists:
            snapshot = self._snapshots.load()
            at = snapshot.last.index - entries[0].index
            if not 0 <= at < len(entries) or entries[at] != snapshot.last:
                raise errors.CorruptFile(
                    f"{file.path} does not hold the entry up to which {self._snapshots.path} goes",
                    file=file.path,
                )
            self.state, self._applied_index = decode_state(snapshot.state), snapshot.last.index
        elif entries[0].index != 1:
            raise errors.CorruptFile(
                f"{self._snapshots.path} is missing, and {file.path} begins behind it",
                file=self._snapshots.path,
            )
        self._settle(file)
        if self.state.cluster_id != self._identity.cluster_id:
            raise errors.CorruptFile(
                f"{file.path} does not begin with this node's cluster", file=file.path
            )
        if self.state.codec_version < CODEC_VERSION:
            with suppress(errors.DiskFull):  # commands that need them are refused until later
                self.apply([_set_rules()])

    def apply(self, commands: Sequence[bytes]) -> list[bytes]:
        """Apply commands in their order, all with one sync; an encoded ControlResult for each.

        Raises:
            InvalidArgument: one is too long; none was applied.
            DiskFull: there is no room for them; none was applied.
            Timeout: they are written and not durable, for want of room: the outcome is unknown yet.
            FsyncFailed, DiskFailed: end the process.
        """
        if any(len(command) > COMMAND_BYTES_MAX for command in commands):
            raise errors.InvalidArgument(f"a command has {COMMAND_BYTES_MAX} bytes at most")
        file = self._file
        if file is None:
            file = self._file = self._begin()
        self._settle(file)
        file.reserve(sum(len(command) + _RECORD_BYTES_MAX for command in commands))
        for command in commands:
            file.append(Entry(command, file.entries[-1].index + 1, TERM))
        try:
            results = self._settle(file)
        except errors.DiskFull as error:
            raise errors.Timeout("the disk is full: the change may come true later") from error
        if file.is_half_full:
            with suppress(errors.DiskFull):  # tried again with the next command
                self._compact(file)
        return results

    def _begin(self) -> JournalFile:
        """Make the folder, with the first commands in it."""
        entries = [Entry(command, at, TERM) for at, command in enumerate(self._first, 1)]
        self._disk.make_dir(self._directory)
        path = join(self._directory, JOURNAL)
        self._applied_index = entries[-1].index
        return JournalFile.create(self._disk, path, self._identity, entries)

    def _settle(self, file: JournalFile) -> list[bytes]:
        """Make durable what the journal has, and apply what is not applied yet."""
        file.sync()
        waiting = file.entries[self._applied_index - file.entries[0].index + 1 :]
        results = []
        for entry in waiting:
            self.state, result = apply_command(self.state, entry.command)
            self._applied_index = int(entry.index)
            results.append(result)
        return results

    def _compact(self, file: JournalFile) -> None:
        """A crash in between leaves a journal that goes further back than it need."""
        previous, last = file.entries[-2:]
        snapshot = Snapshot(encode_state(self.state), last, previous, is_installed=False)
        self._snapshots.store(snapshot)
        self._file = file.replaced([previous, last])

    def check(self) -> None:
        """Assert the invariants."""
        self.state.check()
        if self._file is not None:
            entries = self._file.entries
            errors.invariant(
                all(after.index == before.index + 1 for before, after in pairwise(entries)),
                "entries follow each other",
            )
            errors.invariant(
                entries[0].index <= self._applied_index <= entries[-1].index,
                "what is applied is in the journal, or in the snapshot",
            )

    def close(self) -> None:
        """Let go of the files."""
        if self._file is not None:
            self._file.close()


def _first_commands(cluster_id: bytes, node_id: NodeId) -> list[bytes]:
    """What every journal begins with: a cluster of one, by the newest rules."""
    bootstrap = pb.BootstrapCommand(
        cluster_id=cluster_id, min_in_sync=1, shard_count=1, node_ids=[node_id]
    )
    command = make_command(_own_request_id(0), bootstrap=bootstrap)
    return [command.SerializeToString(deterministic=True), _set_rules()]


def _set_rules() -> bytes:
    """The newest rules, from here on."""
    command = make_command(
        _own_request_id(CODEC_VERSION), set_rules=pb.SetRulesCommand(rules=CODEC_VERSION)
    )
    return command.SerializeToString(deterministic=True)


def _own_request_id(number: int) -> bytes:
    """Of a command that no client asks for: others are random."""
    return number.to_bytes(_REQUEST_ID_BYTES, "big")
