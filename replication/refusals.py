"""Refusals of other nodes, and of callers that claim to be one: counted by reason, logged at times.

A refused caller chooses how often, and part of what for: a length, a version, a name. So the
reasons that are counted are few, and so are the lines of the log: behind the first ones of a
window refusals are counted, and the next line says how many there were.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

REASONS_MAX: Final = 64
OTHER: Final = "other reasons"
"""What is counted where there are so many."""
LINES_MAX: Final = 10
WINDOW_S: Final = 10.0
_REASON_CHARS: Final = 200


class Refusals:
    """See the top of this file. On one event loop."""

    def __init__(
        self, monotonic_s: Callable[[], float], say: Callable[[str, str, int], None]
    ) -> None:
        """None was refused yet.

        Args:
            monotonic_s: now, in seconds of a clock that never jumps.
            say: writes a line: why, who (its address, where that is known), and how many refusals
                before it have none.
        """
        self.counts: Counter[str] = Counter()
        """Reason -> how often."""
        self._monotonic_s, self._say = monotonic_s, say
        self._window_ends_s = float("-inf")
        self._lines = self._unlogged = 0

    def note(self, reason: str, peer: str = "") -> None:
        """Somebody was refused."""
        shown = reason[:_REASON_CHARS]
        is_known = shown in self.counts or len(self.counts) < REASONS_MAX
        self.counts[shown if is_known else OTHER] += 1
        now_s = self._monotonic_s()
        if now_s >= self._window_ends_s:
            self._window_ends_s, self._lines = now_s + WINDOW_S, 0
        if self._lines == LINES_MAX:
            self._unlogged += 1
            return
        self._lines += 1
        unlogged, self._unlogged = self._unlogged, 0
        self._say(shown, peer, unlogged)
