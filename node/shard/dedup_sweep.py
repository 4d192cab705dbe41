"""Lets go of rows of dedup keys whose messages are not pending any more, a part at a time.

What is left over is in no answer and in no digest, so each replica gives it back when it suits it.
"""

from typing import Final

from hourwheel import limits
from node.shard.views import Views
from storage.views.dedup_keys import PARTS

GROWN_MIN: Final = limits.DEDUP_KEY_COUNT_MAX // 16
"""So many more rows than after the last round are worth another, before the next checkpoint."""


class DedupSweep:
    """Goes over all parts after each checkpoint, and when there are many more rows."""

    def __init__(self, views: Views) -> None:
        """Nothing to do until `begin`."""
        self._views = views
        self._next = PARTS
        self._kept = views.dedup_keys.count
        """Rows after the last round."""

    def begin(self) -> None:
        """Begin a round, unless the last one still goes on."""
        if self._next >= PARTS and self._views.dedup_keys.count:
            self._next = 0

    def step(self) -> bool:
        """Look at one part. Returns whether there was one."""
        keys = self._views.dedup_keys
        if self._next >= PARTS:
            if keys.count < self._kept + GROWN_MIN:
                return False
            self._next = 0
        keys.forget(self._next, self._views.are_pending)
        self._next += 1
        if self._next >= PARTS:
            self._kept = keys.count
        return True
