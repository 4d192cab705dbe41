"""How many bytes of large requests one turn of the event loop takes up: the rest waits its turns.

gRPC's asyncio server hands over one new call in a turn, however many have come. Where each turn
takes up a batch of megabytes from each of many streams, turns last for a tenth of a second and
more, and a caller who asks for the status waits behind all other new calls for as many turns.
"""

import asyncio
from collections import deque
from typing import Final

BYTES_MAX: Final = 2 << 20
"""Of a turn: some milliseconds of work. A larger request has a turn for itself."""
SMALL_BYTES: Final = 64 << 10
"""Smaller requests never wait: how many of them a turn may have is bounded for each stream."""


class TurnBudget:
    """Belongs to one event loop. Invariant: who waits is let in, in order, one turn at a time."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Nothing is taken up: see above for `bytes_max`."""
        self._bytes_max = self._left = bytes_max
        self._waiting = deque[tuple[asyncio.Future[None], int]]()

    async def take(self, size_bytes: int) -> None:
        """Return in a turn that has room for a request of that size."""
        if size_bytes < SMALL_BYTES:
            return
        if self._waiting or self._left <= 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((waiter, size_bytes))
            await waiter
        else:
            self._spend(size_bytes)

    def _spend(self, size_bytes: int) -> None:
        if self._left == self._bytes_max:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._left -= size_bytes

    def _begin_turn(self) -> None:
        self._left = self._bytes_max
        while self._waiting and self._left > 0:
            waiter, size_bytes = self._waiting.popleft()
            if not waiter.done():  # its reader was cancelled meanwhile
                waiter.set_result(None)
                self._spend(size_bytes)
