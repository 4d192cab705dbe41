"""The cluster clock as a node reads it: its own clock, moved by what the master knows of others.

A follower's is its own clock. A master's offset is the lower median of all (replication's
`cluster_clock`). A new master begins with it, before it does anything in the cluster's name; from
then on it is followed by at most 5 % of the time that passes, so that time neither goes back nor
jumps. (Where a new master's clock is behind the cursor that it inherits, it waits.)
"""

from collections.abc import Callable
from typing import Final

from node.broker.slewed_clock import SlewedClock

_SLEW_RATIO: Final = 0.05


class ClusterTime:
    """See the top of this file. One thread.

    Invariant: `now_ms` never falls, but by `begin`.
    """

    def __init__(self, own: SlewedClock, monotonic_ms: Callable[[], float]) -> None:
        """Follow `own` alone, for now. `monotonic_ms`: the monotonic clock that it goes by."""
        self._own, self._monotonic_ms = own, monotonic_ms
        self._offset_ms = 0.0
        self._target_ms = 0.0
        self._moved_ms = monotonic_ms()
        self._now_ms = own.now_ms()

    def monotonic_ms(self) -> float:
        """The monotonic clock, in milliseconds."""
        return self._monotonic_ms()

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        self._now_ms = max(self._now_ms, int(self._exact()))
        return self._now_ms

    def until_ms(self, at_ms: int) -> float:
        """How long until `now_ms` says `at_ms`, with a fraction; negative if over."""
        return at_ms - max(float(self._now_ms), self._exact())

    def own_ms(self) -> float:
        """This node's clock alone, with a fraction."""
        return self._own.exact_ms()

    def begin(self, offset_ms: float) -> None:
        """A mastership begins, with the cluster clock so far ahead of this node's (or behind)."""
        self._offset_ms = self._target_ms = offset_ms
        self._now_ms = int(self._exact())

    def set_offset(self, offset_ms: float) -> None:
        """The cluster clock is so far ahead of this node's."""
        self._target_ms = offset_ms

    def _exact(self) -> float:
        monotonic_ms = self._monotonic_ms()
        error_ms = self._target_ms - self._offset_ms
        if error_ms:
            bound_ms = _SLEW_RATIO * (monotonic_ms - self._moved_ms)
            self._offset_ms += max(-bound_ms, min(error_ms, bound_ms))
        self._moved_ms = monotonic_ms
        return self._own.exact_at(monotonic_ms) + self._offset_ms
