"""PySyncObj as the rest of this package sees it: the one module that knows its private names.

PySyncObj calls its own methods by their mangled names (`_SyncObj__...`), so a subclass can stand in
for each of them. `PrivateSyncObj` does that once: state by methods with names of ours, and hooks
that `replication.raft.raft_node` overrides. `FIELDS`, `METHODS`, `TRANSPORT_METHODS` and
`PIPE_FIELDS` list every private name that is used; a test looks each of them up in the PySyncObj
that is installed. What is taken from it: docs/decisions/0028-what-pysyncobj-is-for.md.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.fast_queue import Queue
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.poller import POLL_EVENT_TYPE
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from hourwheel import errors

AUDITED_VERSION: Final = "0.3.17"

Callback = Callable[[bytes | None, int], None]
"""Result or None, and PySyncObj's FAIL_REASON."""

FIELDS: Final = (
    "_SyncObj__commandsQueue",
    "_SyncObj__commandsWaitingCommit",
    "_SyncObj__needLoadDumpFile",
    "_SyncObj__newAppendEntriesTime",
    "_SyncObj__noopIDx",
    "_SyncObj__pipeNotifier",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftLog",
    "_SyncObj__serializer",
    "_SyncObj__votedForNodeId",
    "_poller",
)
"""Attributes of a SyncObj that are read or set."""

METHODS: Final = {
    "_SyncObj__callErrCallback": ("err", "callback"),
    "_SyncObj__doApplyCommand": ("command",),
    "_SyncObj__generateRaftTimeout": (),
    "_SyncObj__loadDumpFile": ("clearJournal",),
    "_SyncObj__onBecomeLeader": (),
    "_SyncObj__onMessageReceived": ("node", "message"),
    "_SyncObj__onNodeConnected": ("node",),
    "_SyncObj__onNodeDisconnected": ("node",),
    "_SyncObj__sendNextNodeIdx": ("node", "reset", "nextNodeIdx", "success"),
    "_SyncObj__tryLogCompaction": (),
    "_applyCommand": ("command", "callback", "commandType"),
    "_checkCommandsToApply": (),
    "_getLeader": (),
    "_getTerm": (),
    "_isLeader": (),
}
"""Methods of a SyncObj that are called or replaced, with their parameters behind `self`."""

TRANSPORT_METHODS: Final = {
    "_onMessageReceived": ("node", "message"),
    "_onNodeConnected": ("node",),
    "_onNodeDisconnected": ("node",),
}
"""The same of a Transport: `replication.raft.transport` calls them."""

PIPE_FIELDS: Final = ("_PipeNotifier__pipeR", "_PipeNotifier__pipeW")
"""Attributes of the pipe by which a SyncObj wakes itself."""

CLOCK: Final = "monotonicTime"
"""The function of its module by which it counts time, in seconds."""


class PrivateSyncObj(SyncObj):  # type: ignore[misc]
    """A SyncObj whose private parts have names. Everything in the tick thread.

    Methods, not properties, stand for its state: its constructor asks for each attribute that the
    class has, before there is a value.
    """

    # --- its state

    def adopt(self, journal: Any, serializer: Any, voted_for: str | None) -> None:
        """Go on from a journal that is open already: its log, term, vote and commit index.

        Args:
            journal: PySyncObj's Journal.
            serializer: what it sends and takes snapshots with.
            voted_for: the node that this one voted for in the journal's term.
        """
        self._SyncObj__raftLog = journal
        self._SyncObj__serializer = serializer
        self._SyncObj__needLoadDumpFile = False
        self._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal[-1].term)
        self._SyncObj__votedForNodeId = voted_for
        self._SyncObj__raftCommitIndex = journal.getRaftCommitIndex()

    def set_last_applied(self, index: int) -> None:
        """The state is as of that entry."""
        self._SyncObj__raftLastApplied = index

    def commit_index(self) -> int:
        """Of the last entry that is known to be committed."""
        return int(self._SyncObj__raftCommitIndex)

    def raise_commit_index(self, index: int) -> None:
        """Entries up to that one are committed."""
        self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, index)

    def noop_index(self) -> int | None:
        """Of the entry with which this leader began; None where it is none."""
        index: int | None = self._SyncObj__noopIDx
        return index

    def pipe_ends(self) -> tuple[int, int]:
        """File descriptors of the pipe by which it wakes itself; it never closes them."""
        ends = vars(self._SyncObj__pipeNotifier)
        reading, writing = (ends[name] for name in PIPE_FIELDS)
        return reading, writing

    def refuse_waiting_commands(self) -> None:
        """Answer each command that is not in the log yet with REQUEST_DENIED."""
        with suppress(Queue.Empty):
            while True:
                _, callback = self._SyncObj__commandsQueue.get_nowait()
                self._SyncObj__callErrCallback(FAIL_REASON.REQUEST_DENIED, callback)

    def take_callbacks(self, last: int) -> Iterator[Callback]:
        """Those that wait for entries up to `last`; they are forgotten."""
        waiting: dict[int, list[tuple[int, Callback]]] = self._SyncObj__commandsWaitingCommit
        for index in [index for index in waiting if index <= last]:
            for _, callback in waiting.pop(index):
                yield callback

    def append_left_s(self) -> float:
        """How long until this node, where it leads, tells the others that it does; maybe over."""
        return float(self._SyncObj__newAppendEntriesTime - _now_s())

    def election_left_s(self) -> float:
        """How long until this node stands for election, where it does not lead; maybe over."""
        return float(self._SyncObj__raftElectionDeadline - _now_s())

    def stand_within(self, left_s: float) -> None:
        """Stand for election after so long at the latest, if nothing is heard of a leader."""
        deadline_s: float = _now_s() + min(left_s, self.election_left_s())
        self._SyncObj__raftElectionDeadline = deadline_s

    def be_patient(self) -> None:
        """Wait for a leader as long as after a message of one."""
        deadline_s: float = _now_s() + self._SyncObj__generateRaftTimeout()
        self._SyncObj__raftElectionDeadline = deadline_s

    # --- what it calls; overridden where it is wrong

    def apply_command(self, command: bytes) -> bytes | None:
        """Apply an entry and answer it."""
        raise NotImplementedError

    def on_message(self, node: Any, message: dict[str, Any]) -> None:
        """A peer says something."""
        SyncObj._SyncObj__onMessageReceived(self, node, message)  # noqa: SLF001

    def on_connected(self, node: Any) -> None:
        """The way to a peer is open."""
        SyncObj._SyncObj__onNodeConnected(self, node)  # noqa: SLF001

    def on_disconnected(self, node: Any) -> None:
        """It is closed."""
        SyncObj._SyncObj__onNodeDisconnected(self, node)  # noqa: SLF001

    def acknowledge(self, node: Any, next_index: int | None, *, reset: bool, success: bool) -> None:
        """Tell the leader what is to be sent next; None: what comes behind the log."""
        raise NotImplementedError

    def compact(self) -> None:
        """Make a snapshot and trim the log, if it is time."""
        raise NotImplementedError

    def become_leader(self) -> None:
        """Elected: begin with an entry."""
        SyncObj._SyncObj__onBecomeLeader(self)  # noqa: SLF001

    def load_received_snapshot(self) -> None:
        """A snapshot has come from the leader."""
        raise NotImplementedError

    def _SyncObj__doApplyCommand(self, command: bytes) -> bytes | None:  # noqa: N802
        return self.apply_command(command)

    def _SyncObj__onMessageReceived(self, node: Any, message: dict[str, Any]) -> None:  # noqa: N802
        self.on_message(node, message)

    def _SyncObj__onNodeConnected(self, node: Any) -> None:  # noqa: N802
        self.on_connected(node)

    def _SyncObj__onNodeDisconnected(self, node: Any) -> None:  # noqa: N802
        self.on_disconnected(node)

    def _SyncObj__sendNextNodeIdx(  # noqa: N802
        self,
        node: Any,
        reset: bool = False,  # noqa: FBT001, FBT002 - PySyncObj's signature
        nextNodeIdx: int | None = None,  # noqa: N803
        success: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.acknowledge(node, nextNodeIdx, reset=reset, success=success)

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        self.compact()

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        self.become_leader()

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: FBT001, N802, N803
        # Without it PySyncObj would load the file of its start, which is ours to do.
        errors.invariant(clearJournal, "a snapshot is loaded when it was received, and only then")
        self.load_received_snapshot()


def _now_s() -> float:
    return float(getattr(pysyncobj.syncobj, CLOCK)())


__all__ = [
    "AUDITED_VERSION",
    "FAIL_REASON",
    "POLL_EVENT_TYPE",
    "VERSION",
    "Callback",
    "Journal",
    "Node",
    "PrivateSyncObj",
    "SyncObjConf",
    "Transport",
]
