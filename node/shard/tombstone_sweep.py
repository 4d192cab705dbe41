"""Lets go of tombstones that nothing asks about any more, a page at a time.

A tombstone has two readers: the release of its message, which leaves it out, and a cancel or a
description of it. The first is over when the cursor has passed the message, and the second when the
message is below the sequence floor as well. No record says so for each: `Views.are_known` hides
what is left over, on every replica alike, and each gives its memory back when it suits it.

A page is dropped when its last tombstone goes. One of a message that is cancelled and due in two
years stays until then, with the 8 KiB of its page.
"""

from collections import deque
from typing import Final

from node.shard.views import Views

_PAGES_A_ROUND: Final = 64
"""Of 65,536 sequences each; between two checkpoints come fewer than that."""


class TombstoneSweep:
    """Goes over the pages below the floor, again and again, some after each checkpoint.

    What is forgotten is so as of the cursor and the floor of now, and the next checkpoint writes it
    with both: whoever starts from that one never asks.
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
