"""Sweeps: drop rows of views that no call can ask about any more, a piece at a time.

What is left over is in no answer and in no digest: no record says that it may go, and each replica
gives it back when it suits it. A sweep begins after each checkpoint, and runs in the background.
"""

from collections import deque
from typing import Final

from hourwheel import limits
from node.shard.views import Views
from storage.views.dedup_keys import PARTS

_PAGES_A_ROUND: Final = 64
"""Of 65,536 sequences each; between two checkpoints come fewer than that."""

DEDUP_GROWN_MIN: Final = limits.DEDUP_KEY_COUNT_MAX // 16
"""So many more rows than after the last round are worth another, before the next checkpoint."""
DEDUP_NEARLY_FULL_MIN: Final = limits.DEDUP_KEY_COUNT_MAX - DEDUP_GROWN_MIN
"""From so many rows on, what is left over may be all that keeps messages out (no call brings as
many keys as there are places above it): rounds follow each other, with rests,"""
DEDUP_REST_MS: Final = 10_000
"""of so long, for where all of these messages are pending a round is for nothing."""


class TombstoneSweep:
    """Tombstones: goes over the pages below the floor, some after each checkpoint.

    A tombstone has two readers: the release of its message, which leaves it out, and a cancel or a
    description of it. The first is over when the cursor has passed the message, and the second when
    the message is below the sequence floor as well. `Views.are_known` hides what is left over, on
    every replica alike. A page is dropped when its last tombstone goes. One of a message that is
    cancelled and due in two years stays until then, with the 8 KiB of its page.

    What is forgotten is so as of the cursor and the floor of now, and the next checkpoint writes it
    with both: a node that starts from that one never asks.
    """

    def __init__(self, views: Views, pages_a_round: int = _PAGES_A_ROUND) -> None:
        """Nothing to do until `begin`."""
        self._views, self._pages_a_round = views, pages_a_round
        self._waiting: deque[int] = deque()
        """Pages still to look at in this round."""
        self._next = 0
        """Where the next round begins."""

    def begin(self) -> None:
        """Begin a round: `step` has something to do, if there are pages below the floor."""
        pages = self._views.tombstones.pages_below(self._views.sequence_floor).tolist()
        chosen = [*(one for one in pages if one >= self._next), *pages][: self._pages_a_round]
        self._waiting = deque(dict.fromkeys(chosen))
        self._next = chosen[-1] + 1 if chosen else 0

    def step(self) -> bool:
        """Look at one page. Returns whether there was one."""
        if not self._waiting:
            return False
        page, views = self._waiting.popleft(), self._views
        members = views.tombstones.members_of(page)
        past = members[~views.are_known(members)]
        if len(past):
            views.tombstones.forget(page, past)
        return True


class MovedSweep:
    """Rows of moved messages: goes over all pages after each checkpoint.

    A row is needed until the cursor has passed all due times that its message ever had: see
    storage/views/moved.py, and TombstoneSweep for why that is safe.
    """

    def __init__(self, views: Views) -> None:
        """Nothing to do until `begin`."""
        self._views = views
        self._waiting: deque[int] = deque()
        """Pages still to look at in this round."""

    def begin(self) -> None:
        """Begin a round, unless the last one still goes on."""
        if not self._waiting:
            self._waiting = deque(self._views.moved.numbers())

    def step(self) -> bool:
        """Look at one page. Returns whether there was one."""
        if not self._waiting:
            return False
        self._views.moved.forget_past(self._waiting.popleft(), self._views.cursor.key)
        return True


class DedupSweep:
    """Rows of dedup keys whose messages are not pending any more.

    Goes over all parts after each checkpoint, and when there are many more rows, or too many.
    """

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
            is_full = keys.count >= DEDUP_NEARLY_FULL_MIN and now_ms >= self._not_before_ms
            if not is_full and keys.count < self._kept + DEDUP_GROWN_MIN:
                return False
            self._next = 0
        keys.forget(self._next, self._views.are_pending)
        self._next += 1
        if self._next >= PARTS:
            self._kept, self._not_before_ms = keys.count, now_ms + DEDUP_REST_MS
        return True
