"""May I act as master now? A lease that a majority of the nodes grants, and its other side.

    master    beat, sent at s ------------------------------> node: "I follow nobody else until
              lease until s + lease - margin  <---- echo s ----     heard + lease"

The lease counts from when the beat was *sent*, the promise from when it was *heard*, later: so the
promise outlives the lease, whatever the network does to either message. A successor needs the
acknowledgements of a majority, one of whom promised; that one answers only when its promise is
over. Clocks are not compared: each side counts time by its own monotonic clock (one that runs
through a suspend), and `margin` allows for those to differ in speed.

(Raft's leader lease, with the send time carried along: acknowledgements that sat in a buffer renew
nothing.)
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class LeaseConfig:
    """How long, in milliseconds."""

    lease_ms: float = 600.0
    margin_ratio: float = 0.05
    """Part of a lease that is not used: clocks that differ in speed by 5 % do no harm."""


class HeldLease:
    """The master's side.

    Invariant: `until_ms` never exceeds what a majority, the master included, has promised.
    """

    def __init__(self, config: LeaseConfig, members: Collection[str], me: str) -> None:
        """`members` are all nodes; a node alone always holds its lease."""
        self._config = config
        self._others_needed = len(members) // 2
        self._sent_ms: dict[str, float] = {one: float("-inf") for one in members if one != me}
        self._is_released = False

    def on_echo(self, node: str, sent_ms: float) -> None:
        """`node` has promised, on a beat that was sent at `sent_ms` (monotonic)."""
        if node in self._sent_ms:
            self._sent_ms[node] = max(self._sent_ms[node], sent_ms)

    def until_ms(self) -> float:
        """When it ends, by the monotonic clock; minus infinity where there is none."""
        if self._is_released:
            return float("-inf")
        if not self._others_needed:
            return float("inf")
        newest = sorted(self._sent_ms.values(), reverse=True)
        granted = newest[self._others_needed - 1]
        return granted + self._config.lease_ms * (1 - self._config.margin_ratio)

    def is_valid(self, mono_ms: float) -> bool:
        """Whether to act as master at this instant."""
        return mono_ms < self.until_ms()

    def release(self) -> None:
        """Never act as master again in this epoch."""
        self._is_released = True


class Promise:
    """A node's side: whom it follows, and until when nobody else.

    A node that has just started does not know what it promised before: it counts as having promised
    a full lease to a master it cannot name.
    """

    def __init__(self, mono_ms: float, lease_ms: float) -> None:
        """`lease_ms`: the longest that it may have promised before it started; 0 for a new node."""
        self._epoch = 0
        self._master = ""
        self._until_ms = mono_ms + lease_ms

    def left_ms(self, epoch: int, master: str, mono_ms: float) -> float:
        """How long a promise still keeps this node from following `master` in `epoch`."""
        if epoch == self._epoch and master == self._master:
            return 0.0
        return max(0.0, self._until_ms - mono_ms)

    def give(self, epoch: int, master: str, until_ms: float) -> None:
        """Follow nobody else until then. Only where `left_ms` is 0."""
        if epoch != self._epoch:
            self._epoch, self._master, self._until_ms = epoch, master, until_ms
        else:
            self._until_ms = max(self._until_ms, until_ms)

    def forget(self, epoch: int) -> None:
        """The master of that epoch says it serves no more: the promise given to it is void."""
        if epoch == self._epoch:
            self._until_ms = float("-inf")
