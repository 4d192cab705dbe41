"""The in-sync replicas, and the high watermark that follows from them.

The set is agreed upon in the control plane, by compare-and-set. While a change is under way, and
while its outcome is unknown, both the old and the new set count: the high watermark is the least
end over the *union* of all sets that may be in force. (A set that lost its answer can have been
installed: to count only the larger one has lost acknowledged records elsewhere.)

    shrink   counts when the control plane has confirmed it
    growth   counts from when it is asked for
    never    below `min_in_sync`: it would gain nothing and lose the last copy's election
    spare    who should not be waited for, its disk being low, is a member only where the set would
             be too small without it
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hourwheel.errors import invariant
from hourwheel.types import Epoch, NodeId


@dataclass(frozen=True)
class IsrChange:
    """A proposal to the control plane."""

    epoch: Epoch
    version: int
    """The set is changed only if it still has this version."""
    members: tuple[NodeId, ...]


class InSyncReplicas:
    """One master's idea of the set.

    Invariant: `union` contains every set that may be in force.
    """

    def __init__(
        self, epoch: Epoch, members: frozenset[NodeId], version: int, min_in_sync: int
    ) -> None:
        """As the control plane said when it named the master."""
        self._epoch = epoch
        self.members = members
        self.version = version
        self.min_in_sync = min_in_sync
        """Grows with the control plane's."""
        self._requested: frozenset[NodeId] | None = None

    @property
    def union(self) -> frozenset[NodeId]:
        """All nodes whose ends count."""
        return self.members if self._requested is None else self.members | self._requested

    def plan(
        self,
        lost: frozenset[NodeId],
        caught_up: frozenset[NodeId],
        spare: frozenset[NodeId] = frozenset(),
    ) -> IsrChange | None:
        """Ask for the next set, if it should be another one and none is asked for.

        Args:
            lost: nodes that no longer keep up.
            caught_up: nodes outside that do.
            spare: nodes, inside or outside, that do and are better left out.
        """
        if self._requested is not None:
            return None
        grown = self.members | caught_up
        wanted = grown - lost - spare
        if len(wanted) < self.min_in_sync:
            wanted = (grown | spare) - lost
        if len(wanted) < self.min_in_sync:
            wanted = grown  # growth may still help; who is lost stays
        if wanted == self.members:
            return None
        self._requested = wanted
        return IsrChange(self._epoch, self.version, tuple(sorted(wanted)))

    def on_state(self, members: frozenset[NodeId], version: int) -> None:
        """The control plane's set, as it is in force now: settles what was asked for."""
        if version < self.version:
            return  # an older one, that came late
        if version > self.version:
            self._requested = None
        self.members, self.version = members, version

    def on_refused(self, change: IsrChange | None = None) -> None:
        """The control plane said for certain that the change did not happen, nor will.

        Args:
            change: which one. An answer that comes late may be about one that is settled already,
                while the next is under way: that one stays asked for.
        """
        if change is None or change.version == self.version:
            self._requested = None

    def high_watermark(self, ends: Mapping[NodeId, int]) -> int:
        """The least end over the union; 0 while that is smaller than `min_in_sync`.

        (A member whose disk was lost leaves the set as it registers, also below `min_in_sync`: then
        nothing is committed until another one has joined.)

        Args:
            ends: durable end of each node's log, as acknowledged in this epoch; absent counts 0.
        """
        invariant(bool(self.members), "somebody is in sync")
        if len(self.union) < self.min_in_sync:
            return 0
        return min(ends.get(node, 0) for node in self.union)
