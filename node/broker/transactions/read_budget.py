"""Bounds how many bytes of PREPARE records are in memory at one time, for commits and check-backs.

A commit is a small request that makes the node read megabytes, and there may be a gibibyte of open
transactions: the bound on what clients have in flight does not cover what they make the node read.
So a commit or a check that finds no room waits for its turn, first come first served.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hourwheel.limits import BATCH_BYTES_MAX

READING_BYTES_MAX: Final = 4 * BATCH_BYTES_MAX
"""Of the records; reading one, and appending what is in it, takes some times as much."""


class ReadBudget:
    """See the top of this file. Belongs to one event loop.

    Invariant: what is held is at most `bytes_max`, or one record that is larger than that.
    """

    def __init__(self, bytes_max: int) -> None:
        """Nothing is held."""
        self._bytes_max, self._held_bytes = bytes_max, 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(size, done when it is its turn; it holds its bytes from then on)."""

    @asynccontextmanager
    async def holding(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait until there is room for so much, and hold it inside."""
        await self._enter(size_bytes)
        try:
            yield
        finally:
            self._leave(size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._held_bytes or self._held_bytes + size_bytes <= self._bytes_max

    async def _enter(self, size_bytes: int) -> None:
        if not self._line and self._has_room(size_bytes):
            self._held_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had come just then
                self._leave(size_bytes)
            else:
                self._line.remove((size_bytes, turn))
                self._let_in()  # it may have been too large for what was left
            raise

    def _leave(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        self._let_in()

    def _let_in(self) -> None:
        while self._line and self._has_room(self._line[0][0]):
            size_bytes, turn = self._line.popleft()
            self._held_bytes += size_bytes
            turn.set_result(None)
