"""What a node counts of its part in a cluster: plain numbers that it writes and metrics read. Pure.

A takeover lasts from when the control plane's word is heard until the node serves. What it
*fast-forwards* is what became due before it served and was not released yet: counted until nothing
of that is left, in the first releases of the reign.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from node.shard.views import Views


class _Behind(NamedTuple):
    """A reign that has begun with the cursor behind the clock."""

    released_count: int
    began_ms: int


@dataclass(slots=True)
class ReignStats:
    """Counters since the process started. One thread writes."""

    beats_sent: int = 0
    """Syncs, to all followers together."""
    beats_received: int = 0
    takeovers: int = 0
    """How often this node has become master and served."""
    resignations: int = 0
    """How often it has asked for another master."""
    takeover_ms: float = 0.0
    """How long the last takeover took; 0 before the first."""
    fast_forwarded: int = 0
    """Messages that were overdue when this node began to serve."""
    snapshots_given: int = 0
    snapshots_taken: int = 0
    _named_ms: float | None = None
    _behind: _Behind | None = field(default=None, repr=False)

    def on_named(self, mono_ms: float) -> None:
        """This node shall be master; said again, it is no news."""
        if self._named_ms is None:
            self._named_ms = mono_ms

    def on_serving(self, mono_ms: float, now_ms: int, views: Views) -> None:
        """It serves. `now_ms` is the cluster clock."""
        self.takeovers += 1
        if self._named_ms is not None:
            self.takeover_ms = mono_ms - self._named_ms
        self._named_ms = None
        self._behind = _Behind(views.cursor.released_count, now_ms)
        self.on_applied(views)

    def on_applied(self, views: Views) -> None:
        """Records were applied."""
        behind, cursor = self._behind, views.cursor
        if behind is None:
            return
        released = cursor.released_count - behind.released_count
        if released:
            self.fast_forwarded += released
            self._behind = behind = behind._replace(released_count=cursor.released_count)
        next_ms = views.wheel.next_pending_ms(cursor.key)
        if next_ms is None or next_ms > behind.began_ms:
            self._behind = None

    def on_retired(self) -> None:
        """Its reign is over, or will not begin."""
        self._named_ms = self._behind = None

    @property
    def is_behind(self) -> bool:
        """Whether something is left of what was overdue when the reign began."""
        return self._behind is not None
