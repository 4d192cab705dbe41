"""Counters of a node's part in a cluster: plain numbers that it writes and metrics read. Pure.

A takeover lasts from when the control plane names this node until the node serves. What it
*catches up* is what became due before it served and was not released yet: counted until nothing of
that is left, in the first releases of the epoch.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from node.shard.views import Views


class _Behind(NamedTuple):
    """An epoch that started with the cursor behind the clock."""

    released_count: int
    began_ms: int


@dataclass(slots=True)
class EpochStats:
    """Counters since the process started. One thread writes."""

    heartbeats_sent: int = 0
    """To all followers together."""
    heartbeats_received: int = 0
    takeovers: int = 0
    """How often this node has become master and served."""
    step_down_requests: int = 0
    """How often it has asked for another master."""
    takeover_ms: float = 0.0
    """How long the last takeover took; 0 before the first."""
    begun_ms: float = 0.0
    """Of that, until its epoch began: the former master's lease was over."""
    committed_ms: float = 0.0
    """And until its EPOCH_START was committed."""
    catch_up_released: int = 0
    """Messages that were overdue when this node began to serve."""
    snapshots_sent: int = 0
    snapshots_received: int = 0
    _elected_ms: float | None = None
    _is_committed: bool = False
    _behind: _Behind | None = field(default=None, repr=False)

    def on_elected(self, monotonic_ms: float) -> None:
        """The control plane names this node master. Only the first time counts."""
        if self._elected_ms is None:
            self._elected_ms = monotonic_ms
            self.begun_ms = self.committed_ms = 0.0
            self._is_committed = False

    def on_begun(self, monotonic_ms: float) -> None:
        """Its epoch begins."""
        if self._elected_ms is not None:
            self.begun_ms = monotonic_ms - self._elected_ms

    def on_committed(self, monotonic_ms: float) -> None:
        """What it inherited is committed. Only the first time counts."""
        if self._elected_ms is not None and not self._is_committed:
            self.committed_ms, self._is_committed = monotonic_ms - self._elected_ms, True

    def on_serving(self, monotonic_ms: float, now_ms: int, views: Views) -> None:
        """It serves. `now_ms` is the cluster clock."""
        self.takeovers += 1
        if self._elected_ms is not None:
            self.takeover_ms = monotonic_ms - self._elected_ms
        self._elected_ms = None
        self._behind = _Behind(views.cursor.released_count, now_ms)
        self.on_applied(views)

    def on_applied(self, views: Views) -> None:
        """Records were applied."""
        behind, cursor = self._behind, views.cursor
        if behind is None:
            return
        released = cursor.released_count - behind.released_count
        if released:
            self.catch_up_released += released
            self._behind = behind = behind._replace(released_count=cursor.released_count)
        next_ms = views.wheel.next_pending_ms(cursor.key)
        if next_ms is None or next_ms > behind.began_ms:
            self._behind = None

    def on_stepped_down(self) -> None:
        """Its mastership is over, or will not begin."""
        self._elected_ms = self._behind = None
