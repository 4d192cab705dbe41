"""Lets go of rows of moved messages that nothing asks about any more, a page at a time.

A row is needed until the cursor has passed all due times that its message ever had: see
storage/views/moved.py. What is left over is in no answer and in no digest, so each replica gives it
back when it suits it.
"""

from collections import deque

from node.shard.views import Views


class MovedSweep:
    """Goes over all pages after each checkpoint. See TombstoneSweep for why that is safe."""

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
