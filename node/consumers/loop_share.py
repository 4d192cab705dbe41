"""Long work takes at most half of the event loop while other calls need it.

A call takes many turns of the loop. If each of them waited for a slice of some long work, the call
would be slow however short the slices are. So long work rests after each slice for as long as the
slice took, unless the loop has nothing else to do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from hourwheel import errors

_QUIET_S: Final = 0.000_1
"""A turn of a loop with nothing else to do is shorter."""
_BUSY_S: Final = 0.05
"""Other work counts as going on for so long after its last sign."""
REST_S_MAX: Final = 0.005


class LoopShare:
    """The share of one long piece of work, or of one kind. Belongs to the running loop."""

    def __init__(self, activity: Callable[[], int]) -> None:
        """`activity`: a number that changes with other work."""
        self._loop = asyncio.get_running_loop()
        self._activity = activity
        self._last_activity = activity()
        self._rest_s_max = REST_S_MAX
        self._rested = self._busy_until = self._loop.time()

    async def rest(self) -> None:
        """Let other work go on; where there is any, for as long as the last slice took."""
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


class Turns:
    """One piece of long work of a kind at a time; so many others wait. Belongs to one loop."""

    def __init__(self, what: str, waiting_max: int) -> None:
        """`what` is refused, in words, beyond `waiting_max`, the one under way among them."""
        self._what, self._waiting_max = what, waiting_max
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Have a turn. Raises Overloaded."""
        if self._waiting >= self._waiting_max:
            raise errors.Overloaded(f"too many {self._what} at one time")
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1
