"""PySyncObj's Raft with the parts replaced that would lose data, stop the cluster or run code.

`replication.raft.pysyncobj_surface` knows PySyncObj's private names; here is what happens instead.
All of that ties us to one version, which pyproject.toml pins; `check_version` refuses any other,
and tests/unit/replication/raft shows each bug healed (numbers: decision 0011).
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hourwheel import errors
from hourwheel.types import NO_NODE, NodeId
from replication.raft.codec import REGULAR, Message
from replication.raft.journal import RaftJournal
from replication.raft.journal_file import COMMAND_BYTES_MAX, Entry
from replication.raft.pysyncobj_surface import (
    AUDITED_VERSION,
    FAIL_REASON,
    VERSION,
    Callback,
    Node,
    PrivateSyncObj,
    SyncObjConf,
)
from replication.raft.snapshot import Snapshot
from replication.raft.transport import DurableTransport

_BATCH_BYTES: Final = 256 * 1024
"""Of entries in one append_entries: fits a frame, and no single entry needs PySyncObj's splitting
of large ones, which would unpickle what a peer sent."""

_PATIENCE_ENTRIES: Final = 64
"""So many more before a snapshot that found no room is tried again."""

_ROUNDING_S: Final = 0.001
"""A poll waits for whole milliseconds."""

_log = logging.getLogger(__name__)


class Machine(Protocol):
    """The state that is replicated.

    Attributes:
        must_store: a snapshot is due, however short the journal is. Who stores it clears this.
    """

    must_store: bool

    def apply(self, command: bytes) -> bytes:
        """Apply a command and answer it."""
        ...

    def snapshot(self) -> bytes:
        """All of the state."""
        ...

    def restore(self, raw: bytes) -> None:
        """Become what a snapshot says."""
        ...


@dataclass(frozen=True)
class RaftTimings:
    """How patient Raft is, in seconds. The defaults survive stalls of 0.4 s."""

    raft_s_min: float = 0.5
    raft_s_max: float = 1.0
    cut_s: float = 0.15
    """How long to wait for a leader whose connection has ended; see `RaftNode.on_disconnected`."""
    append_s: float = 0.1
    leader_fallback_s: float = 1.0
    tick_s: float = 0.2
    """A tick waits no longer, whatever is to be done next."""
    compaction_entries: int = 4_000
    """A snapshot is made when the log has more entries than that."""


@dataclass(frozen=True)
class RaftStatus:
    """What a node knows of its Raft group. Never a permission to act as master."""

    leader_node_id: NodeId = NO_NODE
    term: int = 0
    is_leader: bool = False
    """And what it inherited is applied."""
    has_majority: bool = False
    """A leader is known, and a majority is connected."""


def check_version() -> None:
    """Refuse a PySyncObj that was not audited.

    Raises:
        IncompatibleFormat: it is another than the pinned one.
    """
    if VERSION != AUDITED_VERSION:
        raise errors.IncompatibleFormat(
            f"PySyncObj {VERSION} is installed; the control plane was audited with"
            f" {AUDITED_VERSION} only",
            version=VERSION,
        )


def _conf(timings: RaftTimings, on_state_changed: Callable[[int, int], None]) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        raftMinTimeout=timings.raft_s_min,
        raftMaxTimeout=timings.raft_s_max,
        appendEntriesPeriod=timings.append_s,
        appendEntriesUseBatch=False,
        appendEntriesBatchSizeBytes=_BATCH_BYTES,
        leaderFallbackTimeout=timings.leader_fallback_s,
        connectionTimeout=max(2.0, timings.raft_s_max),
        connectionRetryTime=0.3,
        dnsCacheTime=5.0,
        dnsFailCacheTime=1.0,
        commandsWaitLeader=False,
        commandsQueueSize=10_000,
        dynamicMembershipChange=False,
        useFork=False,
        onStateChanged=on_state_changed,
    )


class RaftNode(PrivateSyncObj):
    """One node of the group; see the top of this file. Everything but `submit` in one thread.

    Attributes:
        journal: its log.
        before_wait: called in each tick, when all that has come is applied and before it waits.
    """

    def __init__(
        self,
        node_id: NodeId,
        peer_ids: Iterable[NodeId],
        journal: RaftJournal,
        transport: DurableTransport,
        machine: Machine,
        timings: RaftTimings | None = None,
        on_state_changed: Callable[[int, int], None] | None = None,
    ) -> None:
        """Restore the machine from the snapshot. Applies and sends nothing before the first tick.

        Raises:
            IncompatibleFormat: see `check_version`; or the snapshot is of rules we do not know.
        """
        check_version()
        timings = timings or RaftTimings()
        self._has_no_room = False
        self.before_wait: Callable[[], None] | None = None
        self.journal = journal
        self._machine = machine
        self._observer = on_state_changed
        self._next_hint: int | None = None
        self._not_below = 0
        self._votes: set[tuple[int, NodeId]] = set()
        ids = sorted({node_id, *peer_ids})
        self._id, self._ids, self._cut_s = node_id, ids, timings.cut_s
        self._append_s = timings.append_s
        # Nodes compact one after the other, not all at once.
        stagger = ids.index(node_id) * (timings.compaction_entries // (2 * len(ids)))
        self._compaction_entries = timings.compaction_entries + stagger
        peers = [transport.peers[peer_id] for peer_id in sorted(peer_ids)]
        super().__init__(
            Node(node_id), peers, _conf(timings, self._state_changed), transport=transport
        )
        self._transport = transport
        self.addOnTickCallback(self._about_to_wait)
        # A vote counts for the term that it was given in.
        is_current = journal.getCurrentTerm() >= journal[-1].term
        voted_for = journal.getVotedForNodeId() if is_current else None
        self.adopt(journal, journal.snapshot_file, voted_for)
        if journal.snapshot_file.exists:
            snapshot = journal.snapshot_file.load()
            machine.restore(snapshot.state)
            self.set_last_applied(snapshot.last.index)

    # --- for the adapter

    @property
    def poller(self) -> Any:
        """Where file descriptors are waited for."""
        return self._poller

    def submit(self, command: bytes, callback: Callback) -> None:
        """Propose; from any thread. The callback comes in the tick thread, or never."""
        errors.invariant(len(command) < COMMAND_BYTES_MAX, "a command is bounded")

        def guarded(result: bytes | None, reason: int) -> None:
            try:
                callback(result, reason)
            except Exception:  # noqa: BLE001 - raised, it would apply the entry again, for ever
                _log.exception("raft_callback_failed")

        try:
            self._applyCommand(REGULAR + command, guarded)
        except BlockingIOError:
            return  # the pipe that wakes the tick thread is full: it is awake; the command is in

    def _about_to_wait(self) -> None:
        if self.before_wait is not None:
            self.before_wait()

    def find_wait_s(self, tick_s: float) -> float:
        """How long a tick may wait for messages: `tick_s`, or until there is something to do."""
        left_s = self.append_left_s() if self._isLeader() else self.election_left_s()
        # What is due is done by the tick itself, before it waits.
        return min(tick_s, left_s + _ROUNDING_S if left_s > 0 else self._append_s)

    def hand_over(self, ticks: int, tick_s: float) -> None:
        """Leave the lead to a follower that has everything, so that no election has to time out."""
        while self._isLeader() and ticks > 0:
            self.transferLeadership()
            self.doTick(tick_s)
            ticks -= 1

    def close_pipe(self) -> None:
        """Close what PySyncObj wakes itself by; it never does, and is not ticked any more."""
        for end in self.pipe_ends():
            os.close(end)

    def status(self) -> RaftStatus:
        """As of now; the tick thread only."""
        leader = self._getLeader()
        is_leader = self._isLeader()
        noop = self.noop_index()
        return RaftStatus(
            leader_node_id=NodeId(leader.id) if leader else NO_NODE,
            term=self._getTerm(),
            is_leader=is_leader and noop is not None and self.raftLastApplied >= noop,
            has_majority=leader is not None and self.hasQuorum,
        )

    # --- in place of PySyncObj's methods, called by it

    def _state_changed(self, old: int, new: int) -> None:
        """B7: an exception here would leave a leader half made."""
        if self._observer is not None:
            try:
                self._observer(old, new)
            except Exception:  # noqa: BLE001 - see above
                _log.exception("raft_observer_failed")

    def apply_command(self, command: bytes) -> bytes | None:
        """B6: an exception here would be met again at each tick, and after each restart.

        No pickle either: behind the type byte stands a command of ours, or nothing.

        Raises MemoryError: the process ends, and applies the entry when it has started again.
        """
        if command[:1] != REGULAR:
            return None
        try:
            return self._machine.apply(command[1:])
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - see above
            _log.exception("raft_command_skipped")
            return b""

    def on_connected(self, node: Any) -> None:
        """A leader that is back is waited for as ever."""
        super().on_connected(node)
        if self._is_followed(node):
            self.be_patient()

    def on_disconnected(self, node: Any) -> None:
        """Where the way to the leader has ended, its process has, most likely: stand soon.

        One after the other, so that two do not split the votes. A hiccup of the network is over
        before that: connections are made anew at once. A node that does not stand costs one
        election, and never a promise: those are of terms and majorities.
        """
        super().on_disconnected(node)
        if self._is_followed(node):
            others = [each for each in self._ids if each != node.id]
            self.stand_within(self._cut_s * (1 + others.index(self._id)))

    def _is_followed(self, node: Any) -> bool:
        return self._getLeader() == node and not self._isLeader()

    def on_message(self, node: Any, message: Message) -> None:
        """B8, B11: let PySyncObj handle a message, with the journal on guard."""
        self._next_hint = None
        if message["type"] == "next_node_idx" and message["term"] != self._getTerm():
            return
        if message["type"] == "response_vote":
            vote = (message["term"], node.id)
            if vote in self._votes:  # PySyncObj would count it again
                return
            self._votes = {each for each in self._votes if each[0] == vote[0]} | {vote}
        if "prevLogIdx" in message and message["prevLogIdx"] < self.journal[0].index:
            # The leader is far behind our snapshot. What was committed it must have.
            self._next_hint = self.commit_index() + 1
        try:
            with self.journal.message():
                super().on_message(node, message)
        except errors.DiskFull as error:
            self._note_no_room(error)  # as if it had never come: the leader sends it again
        # PySyncObj may have taken hidden entries for gone.
        self.raise_commit_index(self.journal.getRaftCommitIndex())

    def acknowledge(self, node: Any, next_index: int | None, *, reset: bool, success: bool) -> None:
        """As PySyncObj's, with the term; and never for more than was compared with the leader."""
        if next_index is None:
            next_index = self._next_hint or self.journal[-1].index + 1
        self._transport.send(
            node,
            {
                "type": "next_node_idx",
                "next_node_idx": next_index,
                "reset": reset,
                "success": success,
                "term": self._getTerm(),
            },
        )

    def compact(self) -> None:
        """B1, B2, B5: snapshot first and durably, then the journal, in one step each.

        Also where the journal's room is half used: so the log of a node whose disk is full stays
        within it.
        """
        if self._has_no_room and self.journal.has_command_room:
            self._has_no_room = False
            _log.warning("control_disk_recovered")
        count, at = len(self.journal), self.raftLastApplied - self.journal[0].index
        is_long = count > self._compaction_entries and at > self._compaction_entries // 2
        is_large = self.journal.is_half_full and at > count // 2 and count > self._not_below
        is_due = self._machine.must_store and at > 0 and not self._has_no_room
        if not (is_long or is_large or is_due):
            return
        previous, last = self.journal[at - 1], self.journal[at]
        try:
            self.journal.snapshot_file.store(
                Snapshot(self._machine.snapshot(), last, previous, is_installed=False)
            )
            self._machine.must_store = False
            self.journal.deleteEntriesTo(at - 1)
        except errors.DiskFull as error:
            self._note_no_room(error)
            self._not_below = count + _PATIENCE_ENTRIES
            return
        self._not_below = 0

    def _note_no_room(self, error: errors.DiskFull) -> None:
        if not self._has_no_room:
            self._has_no_room = True
            _log.error("control_disk_full", extra={"error": error.message})

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Take commands into the log; a leader whose log has no room refuses them."""
        if not self._isLeader() or self.journal.has_command_room:
            try:
                super()._checkCommandsToApply()
            except errors.DiskFull as error:  # several large ones; their callers try again
                self._note_no_room(error)
            return
        self.refuse_waiting_commands()

    def become_leader(self) -> None:
        """A leader begins with an entry. Where that finds no room, another node should lead."""
        try:
            self.journal.reserve_first_entry()
        except errors.DiskFull as error:
            self._note_no_room(error)
            return
        super().become_leader()

    def load_received_snapshot(self) -> None:
        """B12: take the snapshot that has come from a leader; one of the past changes nothing."""
        snapshot = errors.required(self.journal.snapshot_file.received, "a snapshot was received")
        self.journal.snapshot_file.received = None
        last = snapshot.last.index
        self._next_hint = last + 1
        if last <= self.raftLastApplied:
            return
        installed, former = snapshot._replace(is_installed=True), self._machine.snapshot()
        self._machine.restore(snapshot.state)
        try:
            self.journal.snapshot_file.store(installed)
            self.journal.install(installed)
        except errors.DiskFull:
            self._machine.restore(former)
            raise
        self.set_last_applied(last)
        self.raise_commit_index(last)
        for callback in self.take_callbacks(last):
            callback(None, FAIL_REASON.UNKNOWN_OUTCOME)


__all__ = ["Entry", "Machine", "RaftNode", "RaftStatus", "RaftTimings", "check_version"]
