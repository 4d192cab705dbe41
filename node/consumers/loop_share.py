"""Work that can wait takes at most half of the event loop where anybody else wants it.

A call takes many turns of the loop: were each of them to wait for a slice of somebody's long work,
it would be slow however short the slices are. So whoever works in slices rests between two of them,
for as long as the last one took, unless nobody else has anything to do.
"""

import asyncio
from collections.abc import Callable
from typing import Final

_QUIET_S: Final = 0.000_1
"""A turn of a loop with nothing else to do is shorter."""
_BUSY_S: Final = 0.05
"""For so long after something was done by others, they are thought to go on."""
REST_S_MAX: Final = 0.005


class LoopShare:
    """The share of one long piece of work, or of one kind. Belongs to the running loop."""

    def __init__(self, activity: Callable[[], int]) -> None:
        """`activity`: a number that moves when others get something done."""
        self._loop = asyncio.get_running_loop()
        self._activity = activity
        self._last_activity = activity()
        self._rest_s_max = REST_S_MAX
        self._rested = self._busy_until = self._loop.time()

    async def rest(self) -> None:
        """Let others go on; where there are any, for as long as was worked since the last rest."""
        begun = self._loop.time()
        await asyncio.sleep(0)
        pause_s = self._pause_s(begun)
        if pause_s:
            await asyncio.sleep(pause_s)
        self._rested = self._loop.time()

    def after_rest(self, step: Callable[[], None]) -> None:
        """`step` as a callback of the loop, after such a rest."""
        begun = self._loop.time()

        def work() -> None:
            self._rested = self._loop.time()
            step()

        def look_round() -> None:
            pause_s = self._pause_s(begun)
            if pause_s:
                self._loop.call_later(pause_s, work)
            else:
                work()

        self._loop.call_soon(look_round)

    def _pause_s(self, begun: float) -> float:
        """How long to rest, of which a turn of the loop has passed since `begun`."""
        activity = self._activity()
        if self._loop.time() - begun > _QUIET_S or activity != self._last_activity:
            self._busy_until, self._last_activity = begun + _BUSY_S, activity
        if begun >= self._busy_until:
            return 0.0
        return min(begun - self._rested, self._rest_s_max)
