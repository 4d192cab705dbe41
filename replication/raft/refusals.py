"""Why connections between control processes were cut off: counted by reason, and told in the log.

Whoever is refused chooses how often, and part of what for: a length, a version, a name. So the
reasons that are told apart are few, and so are the lines: behind the first ones of a window they
are counted, and the next line says how many there were.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

REASONS_MAX: Final = 64
OTHER: Final = "other reasons"
"""What is counted where there are so many."""
LINES_MAX: Final = 10
WINDOW_S: Final = 10.0
_REASON_CHARS: Final = 200
_log = logging.getLogger(__name__)


class Refusals:
    """See the top of this file. On one event loop."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Nobody was refused yet. `monotonic_s`: now, in seconds of a clock that never jumps."""
        self.counts: Counter[str] = Counter()
        """Reason -> how many connections were cut off for it."""
        self._monotonic_s = monotonic_s
        self._window_ends_s = float("-inf")
        self._lines = self._unlogged = 0

    def note(self, reason: str) -> None:
        """A connection was cut off."""
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
        _log.warning("raft_connection_cut", extra={"error": shown, "unlogged": unlogged})
