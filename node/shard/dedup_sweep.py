"""Lets go of rows of dedup keys whose messages are not pending any more, a part at a time.

What is left over is in no answer and in no digest, so each replica gives it back when it suits it.
"""

from typing import Final

from hourwheel import limits
from node.shard.views import Views
from storage.views.dedup_keys import PARTS

GROWN_MIN: Final = limits.DEDUP_KEY_COUNT_MAX // 16
"""So many more rows than after the last round are worth another, before the next checkpoint."""
NEARLY_FULL_MIN: Final = limits.DEDUP_KEY_COUNT_MAX - GROWN_MIN
"""From so many rows on, what is left over may be all that keeps messages out (no call brings as
many keys as there are places above it): rounds follow each other, with rests,"""
REST_MS: Final = 10_000
"""of so long, for where all of these messages are pending a round is for nothing."""


class DedupSweep:
    """Goes over all parts after each checkpoint, and when there are many more rows, or too many."""

    def __init__(self, views: Views) -> None:
        """Nothing to do until `begin`."""
        self._views = views
        self._next = PARTS
        self._kept = 0
        """Rows after the last round. (Of what a checkpoint brought many may be left over.)"""
        self._not_before_ms = 0
        """When the next round may begin because there are nearly too many."""

    def begin(self) -> None:
        """Begin a round, unless the last one still goes on."""
        if self._next >= PARTS and self._views.dedup_keys.count:
            self._next = 0

    def step(self, now_ms: int) -> bool:
        """Look at one part. Returns whether there was one."""
        keys = self._views.dedup_keys
        if self._next >= PARTS:
            is_full = keys.count >= NEARLY_FULL_MIN and now_ms >= self._not_before_ms
            if not is_full and keys.count < self._kept + GROWN_MIN:
                return False
            self._next = 0
        keys.forget(self._next, self._views.are_pending)
        self._next += 1
        if self._next >= PARTS:
            self._kept, self._not_before_ms = keys.count, now_ms + REST_MS
        return True
