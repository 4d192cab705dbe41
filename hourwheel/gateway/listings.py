"""Listings of one caller take turns, so that a flood of them leaves the loop to others' calls.

A listing is the one call of which a few bytes ask for a thousand answers, each an object of Python.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hourwheel import errors

LISTINGS_A_CALLER: Final = 2
"""Under way at one time, and"""
LISTINGS_WAITING_A_CALLER: Final = 16
"""those that wait for them: the others' connections are for other callers."""
MESSAGES_A_TURN: Final = 100
"""Of one listing, between which the loop does what else there is to do."""


class ListingTurns:
    """Of one caller. Belongs to one event loop."""

    def __init__(self) -> None:
        """None is under way."""
        self._running = asyncio.Semaphore(LISTINGS_A_CALLER)
        self._waiting_count = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One listing. Raises Overloaded: too many of the caller's wait already."""
        if self._running.locked() and self._waiting_count >= LISTINGS_WAITING_A_CALLER:
            raise errors.Overloaded("too many listings at one time", limit="listings")
        self._waiting_count += 1
        try:
            await self._running.acquire()
        finally:
            self._waiting_count -= 1
        try:
            yield
        finally:
            self._running.release()
