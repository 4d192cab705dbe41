"""Bytes of the producer's buffer: who publishes waits here while it is full."""

import asyncio
import copy
from collections import deque

from hourwheel import errors


class BufferPool:
    """Bytes of the buffer. Waiting for room is first come, first served."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: size of the buffer."""
        self._bytes_max = bytes_max
        self._used = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        """As `take`, without waiting: whether there was room, and no one waits before."""
        if self._waiters or not self._fits(size):
            return False
        self._used += size
        return True

    async def take(self, size: int) -> None:
        """Wait for `size` bytes; more than all there are count as all there are."""
        if self.try_take(size):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Free `size` bytes and let in waiters for which there is room now."""
        self._used -= size
        while self._waiters and (self._waiters[0][1].done() or self._fits(self._waiters[0][0])):
            waiting, waiter = self._waiters.popleft()
            if not waiter.done():
                self._used += waiting
                waiter.set_result(None)

    def refuse_all(self, error: errors.HourwheelError) -> None:
        """End all waiting with an error."""
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(copy.copy(error))

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._bytes_max
