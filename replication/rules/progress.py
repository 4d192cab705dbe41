"""What a master knows of one follower: how to send to it, how far it is, whether it keeps up.

    ABSENT ----connected----> GREETED ----its hello----> BEGUN ----its ack----> REPLICATING
       ^                         |                          |                       |
       +-------lost, refused-----+--------------------------+-----------------------+

(The shape is that of etcd's raft `tracker.Progress`.)
"""

from dataclasses import dataclass
from enum import Enum

from hourwheel.types import FIRST_OFFSET, NodeId, Offset


class Phase(Enum):
    """What the master may send."""

    ABSENT = "absent"
    """Nothing: there is no stream."""
    GREETED = "greeted"
    """Nothing more: it has not said where its log stands."""
    BEGUN = "begun"
    """The log from where the two part; its ends do not count yet."""
    REPLICATING = "replicating"
    """It follows in this epoch: its acknowledgements count."""
    SNAPSHOT = "snapshot"
    """Nothing: it fetches a snapshot, and comes back with another stream."""

    @property
    def may_send(self) -> bool:
        """Whether the log is sent."""
        return self in {Phase.BEGUN, Phase.REPLICATING}


@dataclass(slots=True)
class Progress:
    """One follower.

    Invariants: `acked_end <= sent_end`, and both count only in the current stream; `acked_end` is 0
    unless REPLICATING.
    """

    node: NodeId
    phase: Phase = Phase.ABSENT
    boot_id: str = ""
    sent_end: Offset = FIRST_OFFSET
    """Behind the last batch that was handed to the stream."""
    acked_end: Offset = FIRST_OFFSET
    """Its log is durable up to here."""
    applied_offset: Offset = FIRST_OFFSET
    is_full: bool = False
    """Its disk is low or full: it should not have to take messages."""
    absent_since_ms: float = 0.0
    """Since when there is no stream by which it follows; only while there is none. A stream whose
    hello is not answered yet does not count."""
    heard_ms: float = float("-inf")
    """When its last acknowledgement came."""
    caught_up_ms: float = 0.0
    """The latest instant of which it is known that it had then all that the master had."""
    _mark_ms: float = 0.0
    _mark_end: Offset = FIRST_OFFSET

    def connect(self) -> None:
        """A stream was opened; the master's hello is on its way."""
        self.phase = Phase.GREETED
        self.sent_end = self.acked_end = FIRST_OFFSET

    def begin(self, offset: Offset, boot_id: str) -> None:
        """Its log is the master's below `offset`."""
        self.phase = Phase.BEGUN
        self.sent_end, self.boot_id = offset, boot_id

    def lose(self, monotonic_ms: float, phase: Phase = Phase.ABSENT) -> None:
        """The stream is over. One that never got beyond its hello was none: it ends no absence.

        (Else a node that refuses each hello at once would always have been away for a moment only,
        and the in-sync set would wait for it as long as it goes on.)
        """
        if self.phase.may_send:
            self.absent_since_ms = monotonic_ms
        self.phase = phase
        self.sent_end = self.acked_end = FIRST_OFFSET

    def acknowledge(self, flushed_end: Offset, log_end: Offset, monotonic_ms: float) -> None:
        """It says how far it is. What it says counts no further than what it was sent.

        Args:
            flushed_end: its durable end.
            log_end: of the master's log, now.
            monotonic_ms: now.
        """
        if self.phase is Phase.BEGUN:
            self.phase = Phase.REPLICATING
            self._mark_ms, self._mark_end = monotonic_ms, log_end
        self.acked_end = max(self.acked_end, min(flushed_end, self.sent_end))
        self.heard_ms = monotonic_ms
        if self.acked_end >= log_end:
            self.caught_up_ms = monotonic_ms
        elif self.acked_end >= self._mark_end:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        else:
            return
        self._mark_ms, self._mark_end = monotonic_ms, log_end
