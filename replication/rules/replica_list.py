"""The replica list, as its master follows the cluster's members by it: one node at a time. Pure.

    leaves   a node that is no member any more, and not in sync
    comes    a member that has all of the log

Lease and clock need majorities of the list. While a change is under way, and while its outcome is
unknown, both the old and the new list count. Two lists that differ by one node have no majorities
apart from each other, but those before and behind two changes may. So the next change waits until
the master has held a lease by the list as it is, for one lease time: whoever led by an older list
has lost the lease by then.
"""

from collections.abc import Collection
from dataclasses import dataclass

from hourwheel.types import Epoch, NodeId


@dataclass(frozen=True)
class ReplicasChange:
    """A proposal to the control plane."""

    epoch: Epoch
    version: int
    """The list is changed only if the shard still has this version."""
    members: tuple[NodeId, ...]


class ReplicaList:
    """One master's idea of the list.

    Invariant: `in_force` has every list that may be in force.
    """

    def __init__(
        self, epoch: Epoch, members: Collection[NodeId], version: int, monotonic_ms: float
    ) -> None:
        """As the control plane said when it named the master."""
        self._epoch = epoch
        self.members = frozenset(members)
        self.version = version
        self._requested: frozenset[NodeId] | None = None
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
        """The control plane's list, as it is in force now: settles what was asked for."""
        if version < self.version:
            return  # an older one, that came late
        if version > self.version:
            self._requested = None
        if frozenset(members) != self.members:
            self.members, self._since_ms = frozenset(members), monotonic_ms
        self.version = version

    def on_lease_lost(self, monotonic_ms: float) -> None:
        """There is no lease now: the time by this list begins anew."""
        self._since_ms = monotonic_ms

    def on_refused(self, change: ReplicasChange) -> None:
        """The control plane said for certain that the change did not happen, nor will."""
        if change.version == self.version:
            self._requested = None
