"""Polls that come to a node which takes over: they wait until it serves, instead of searching.

A client whose master has died asks one node after the other, and would hear from the next master
that it is none yet. What it waits for is there, so it may as well wait there.
"""

import asyncio
from contextlib import suppress
from typing import Final

WAIT_MS_MAX: Final = 1_000
"""A takeover that lasts longer may not succeed: the client is sent on."""
WAITING_MAX: Final = 1_000
"""More are sent on at once."""


class TakeoverWait:
    """See the top of this file. On the event loop's thread."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._over = asyncio.Event()
        self.waiting_count = 0

    def end(self) -> None:
        """The takeover is over, one way or the other: all that wait go on, in their order."""
        self._over.set()
        self._over = asyncio.Event()

    async def wait(self, wait_ms: int) -> None:
        """Return when the takeover is over, or after `wait_ms`, or after `WAIT_MS_MAX`."""
        if self.waiting_count >= WAITING_MAX:
            return
        self.waiting_count += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, min(wait_ms, WAIT_MS_MAX)) / 1_000):
                    await self._over.wait()
        finally:
            self.waiting_count -= 1
