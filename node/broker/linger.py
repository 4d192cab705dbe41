"""How long single publishes wait for others to share a write with them.

Callers that were just answered send their next calls within some milliseconds. A write costs the
CPU of several calls, whether one or sixty wait for it; so it pays to wait as long as calls keep
coming, and not a millisecond longer.
"""

import asyncio
from collections.abc import Callable
from typing import Final

_WAIT_S: Final = 0.006
"""At most so long ..."""
_LOOK_S: Final = 0.002
"""... and only while in each such span ..."""
_KEEP_COMING: Final = 2
"""... at least so many calls come."""
_LATE_S: Final = 0.001
"""A look that is later than this proves no silence: the loop was busy, calls may wait to be read.
"""


class Linger:
    """One wait at a time, in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody waits."""
        self._loop = loop
        self._over: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether `wait` is under way."""
        return self._over is not None

    def end(self) -> None:
        """Do not wait any longer; nothing where nobody waits."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def wait(self, count_calls: Callable[[], int]) -> None:
        """Return when calls have stopped coming, or by `end`.

        `count_calls` tells how many have come.
        """
        loop = self._loop
        self._over = over = loop.create_future()
        until_s = loop.time() + _WAIT_S
        look: asyncio.TimerHandle

        def look_after(seen: int) -> None:
            nonlocal look
            at_s = loop.time() + _LOOK_S
            look = loop.call_at(at_s, on_look, seen, at_s)

        def on_look(seen: int, at_s: float) -> None:
            now_s, count = loop.time(), count_calls()
            is_silent = count - seen < _KEEP_COMING and now_s < at_s + _LATE_S
            if is_silent or now_s >= until_s:
                self.end()
            else:
                look_after(count)

        look_after(count_calls())
        try:
            await over
        finally:
            look.cancel()
            self._over = None
