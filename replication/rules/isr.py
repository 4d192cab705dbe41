"""The two sets that a master agrees upon with the control plane: in-sync replicas, and replicas.

Each is changed by compare-and-set, one change at a time. While a change is under way, and while its
outcome is unknown, both the old and the new set count (`AgreedSet`). Pure.

In-sync replicas: the high watermark is the least end over the *union* of all sets that may be in
force. (A set that lost its answer can have been installed: to count only the larger one has lost
acknowledged records elsewhere.)

    shrink   counts when the control plane has confirmed it
    growth   counts from when it is requested
    never    below `min_in_sync`: it would gain nothing and lose the last copy's election
    spare    a node whose disk is low, so that no publish should wait for it, is a member only where
             the set would be too small without it

The replica list, as its master follows the cluster's members by it, one node at a time:

    leaves   a node that is no member any more, and not in sync
    comes    a member that has all of the log

Lease and clock need majorities of the list. Two lists that differ by one node have no majorities
apart from each other, but those before and behind two changes may. So the next change waits until
the master has held a lease by the list as it is, for one lease time: a master by an older list has
lost its lease by then.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hourwheel.errors import invariant
from hourwheel.types import FIRST_OFFSET, Epoch, NodeId, Offset


@dataclass(frozen=True)
class _Change:
    """A proposal to the control plane."""

    epoch: Epoch
    version: int
    """The set is changed only if the shard still has this version."""
    members: tuple[NodeId, ...]


class IsrChange(_Change):
    """Of the in-sync replicas."""


class ReplicasChange(_Change):
    """Of the replica list."""


class AgreedSet:
    """One master's idea of a set of nodes.

    Invariant: `members`, and the set that is requested if one is, are all that may be in force.
    """

    def __init__(self, epoch: Epoch, members: Collection[NodeId], version: int) -> None:
        """As the control plane said when it named the master."""
        self._epoch = epoch
        self.members = frozenset(members)
        self.version = version
        self._requested: frozenset[NodeId] | None = None

    def _settle(self, members: Collection[NodeId], version: int) -> bool:
        """Take the control plane's set, as it is in force now. Whether that is another one."""
        if version < self.version:
            return False  # an older one, that came late
        if version > self.version:
            self._requested = None
        before, self.members, self.version = self.members, frozenset(members), version
        return self.members != before

    def on_refused(self, change: _Change) -> None:
        """The control plane said for certain that the change did not happen, nor will.

        An answer that comes late may be about one that is settled already, while the next is under
        way: that one stays requested.
        """
        if change.version == self.version:
            self._requested = None


class InSyncReplicas(AgreedSet):
    """The in-sync replicas. Invariant: `union` contains every set that may be in force."""

    def __init__(
        self, epoch: Epoch, members: frozenset[NodeId], version: int, min_in_sync: int
    ) -> None:
        """As the control plane said when it named the master."""
        super().__init__(epoch, members, version)
        self.min_in_sync = min_in_sync
        """Grows with the control plane's."""

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

    def on_state(self, members: Collection[NodeId], version: int) -> None:
        """The control plane's set, as it is in force now: settles what was requested."""
        self._settle(members, version)

    def high_watermark(self, ends: Mapping[NodeId, Offset]) -> Offset:
        """The least end over the union; 0 while that is smaller than `min_in_sync`.

        (A member whose disk was lost leaves the set as it registers, also below `min_in_sync`: then
        nothing is committed until another one has joined.)

        Args:
            ends: durable end of each node's log, as acknowledged in this epoch; absent counts 0.
        """
        invariant(bool(self.members), "somebody is in sync")
        if len(self.union) < self.min_in_sync:
            return FIRST_OFFSET
        return min(ends.get(node, FIRST_OFFSET) for node in self.union)


class ReplicaList(AgreedSet):
    """The replica list. Invariant: `in_force` has every list that may be in force."""

    def __init__(
        self, epoch: Epoch, members: Collection[NodeId], version: int, monotonic_ms: float
    ) -> None:
        """As the control plane said when it named the master."""
        super().__init__(epoch, members, version)
        self._since_ms = monotonic_ms

    @property
    def in_force(self) -> tuple[frozenset[NodeId], ...]:
        """All lists of which a majority is needed."""
        return (self.members,) if self._requested is None else (self.members, self._requested)

    def plan(
        self,
        targets: frozenset[NodeId],
        in_sync: frozenset[NodeId],
        caught_up: frozenset[NodeId],
        monotonic_ms: float,
        wait_ms: float,
    ) -> ReplicasChange | None:
        """The next list to ask for, where it should be another one and none is asked for.

        Args:
            targets: the cluster's members.
            in_sync: who may be in the in-sync set.
            caught_up: nodes outside the list that have all of the log.
            monotonic_ms: now; the master holds its lease.
            wait_ms: for how long at least it has to have held it by this list.
        """
        if self._requested is not None or monotonic_ms - self._since_ms < wait_ms:
            return None
        leaving = sorted(self.members - targets - in_sync)
        coming = sorted((targets - self.members) & caught_up)
        if leaving:
            wanted = self.members - {leaving[0]}
        elif coming:
            wanted = self.members | {coming[0]}
        else:
            return None
        self._requested = wanted
        return ReplicasChange(self._epoch, self.version, tuple(sorted(wanted)))

    def on_state(self, members: Collection[NodeId], version: int, monotonic_ms: float) -> None:
        """The control plane's list, as it is in force now: settles what was requested."""
        if self._settle(members, version):
            self._since_ms = monotonic_ms

    def on_lease_lost(self, monotonic_ms: float) -> None:
        """There is no lease now: the time by this list begins anew."""
        self._since_ms = monotonic_ms
