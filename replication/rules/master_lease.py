"""May I act as master now? A lease that a majority of the nodes grants, and its other side.

    master    heartbeat, sent at s --------------------> node: "I follow no other master until
              lease until s + lease - margin <-- echo s ---    heard + lease", a lease grant

The lease counts from when the heartbeat was *sent*, the grant from when it was *heard*, later: so
the grant outlives the lease, whatever the network does to either message. A successor needs the
acknowledgements of a majority, and a node of that majority has granted the lease; it answers the
successor only when its grant has ended. Clocks are not compared: each side counts time by its own
monotonic clock (one that runs through a suspend). The margin allows for clocks that differ in
speed.

A grant ends early where the master releases it, and where its *process has ended*: what has ended
serves nothing any more, in whichever epoch. A grant is of one incarnation, by its boot id, so that
this is a fact for ever. A lost connection is none (decision 0035).

(Raft's leader lease, with the send time carried along: acknowledgements that sat in a buffer renew
nothing.)
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

from hourwheel.types import Epoch, NodeId


@dataclass(frozen=True)
class LeaseConfig:
    """How long, in milliseconds."""

    lease_ms: float = 600.0
    """Of rules alone, as stories have them; a node's configuration says how long its own are."""
    margin_ratio: float = 0.05
    """Part of a lease that is not used: clocks that differ in speed by 5 % do no harm."""


class MastershipLease:
    """The master's side.

    Invariant: `until_ms` never exceeds what a majority, the master included, has granted.
    """

    def __init__(self, config: LeaseConfig, members: Collection[NodeId], me: NodeId) -> None:
        """`members` are the replica list; a node alone always holds its lease."""
        self._config, self._me = config, me
        self._lists: tuple[frozenset[NodeId], ...] = (frozenset(members),)
        self._sent_ms: dict[NodeId, float] = {}
        self._is_released = False
        self._until_ms = self._find_until_ms()

    def set_lists(self, lists: tuple[frozenset[NodeId], ...]) -> None:
        """A majority of each of these has to have granted it."""
        if lists != self._lists:
            self._lists = lists
            self._until_ms = self._find_until_ms()

    def on_echo(self, node: NodeId, sent_ms: float) -> None:
        """`node` has granted the lease, on a heartbeat that was sent at `sent_ms` (monotonic)."""
        if sent_ms > self._sent_ms.get(node, float("-inf")):
            self._sent_ms[node] = sent_ms
            self._until_ms = self._find_until_ms()

    def until_ms(self) -> float:
        """When it ends, by the monotonic clock; minus infinity where there is none."""
        return self._until_ms

    def _find_until_ms(self) -> float:
        if self._is_released:
            return float("-inf")
        return min(self._until_by(members) for members in self._lists)

    def _until_by(self, members: frozenset[NodeId]) -> float:
        """When it ends by one list."""
        others_needed = len(members) // 2
        if not others_needed:
            return float("inf")
        others = members - {self._me}
        newest = sorted((self._sent_ms.get(one, float("-inf")) for one in others), reverse=True)
        granted = newest[others_needed - 1]
        return granted + self._config.lease_ms * (1 - self._config.margin_ratio)

    def is_valid(self, monotonic_ms: float) -> bool:
        """Whether to act as master at this instant."""
        return monotonic_ms < self._until_ms

    def release(self) -> None:
        """Never act as master again in this epoch."""
        self._is_released = True
        self._until_ms = self._find_until_ms()


class LeaseGrant:
    """A node's side: which master it follows, and until when it follows no other one.

    A node that has just started does not know what it granted before: it counts as having granted a
    full lease to a master that it cannot name. So it grants none that is longer than what it would
    count then: a master with a longer one, by its configuration, has to do without this node.
    """

    def __init__(
        self, monotonic_ms: float, lease_ms: float, *, lease_ms_max: float = math.inf
    ) -> None:
        """Begin.

        Args:
            monotonic_ms: now.
            lease_ms: the longest that it may have granted before it started; 0 for a new node.
            lease_ms_max: the longest that it counts as having granted whenever it starts.
        """
        self._epoch = 0
        self._master = self._boot_id = ""
        self._until_ms = monotonic_ms + lease_ms
        self._lease_ms_max = lease_ms_max
        self.ended_boot_ids: frozenset[str] = frozenset()
        """Incarnations whose processes are known to have ended."""

    def left_ms(self, epoch: Epoch, master: NodeId, monotonic_ms: float) -> float:
        """How long the grant still keeps this node from following `master` in `epoch`."""
        is_same = epoch == self._epoch and master == self._master
        if is_same or (self._boot_id and self._boot_id in self.ended_boot_ids):
            return 0.0
        return max(0.0, self._until_ms - monotonic_ms)

    def may_grant(self, lease_ms: float) -> bool:
        """Whether it would keep a grant of that length if it started again meanwhile."""
        return lease_ms <= self._lease_ms_max

    def renew(self, epoch: Epoch, master: NodeId, boot_id: str, until_ms: float) -> None:
        """Follow no other master until then. Only where `left_ms` is 0.

        `boot_id`: the incarnation that leads this epoch.
        """
        if epoch != self._epoch:
            self._epoch, self._master, self._until_ms = epoch, master, until_ms
            self._boot_id = boot_id
        else:
            if boot_id != self._boot_id:
                self._boot_id = ""  # of two incarnations: no end of one ends it
            self._until_ms = max(self._until_ms, until_ms)

    def release(self, epoch: Epoch) -> None:
        """The master of that epoch says that it has stopped serving: its grant ends."""
        if epoch == self._epoch:
            self._until_ms = float("-inf")
