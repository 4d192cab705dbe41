"""A slow reading for scrapes: taken once for all that wait for it, and not all the time.

A scrape waits a while for the walk that is under way, or begins one; then it gets what the one
before has found. After a walk there is a rest nine times as long, so that however often scrapes
come, walking takes a tenth of the loop at most.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

Reading = TypeVar("Reading")

_REST: Final = 9
WAIT_S: Final = 2.0
"""So long a scrape waits for a walk; then it gets what the one before found."""


class SharedReading(Generic[Reading]):
    """Walks when it is asked, once at a time. Belongs to one event loop."""

    def __init__(
        self, walk: Callable[[], Awaitable[Reading]], first: Reading, *, wait_s: float = WAIT_S
    ) -> None:
        """`walk` finds it; `first` is the reading until it has."""
        self._walk, self._last, self._wait_s = walk, first, wait_s
        self._walking: asyncio.Task[None] | None = None
        self._not_before_s = 0.0

    async def read(self) -> Reading:
        """As of now, or of a short while ago where it takes long to find."""
        loop = asyncio.get_running_loop()
        if self._walking is None and loop.time() >= self._not_before_s:
            self._walking = loop.create_task(self._find())
            self._walking.add_done_callback(self._on_end)
        walking = self._walking
        if walking is not None:
            await asyncio.wait([walking], timeout=self._wait_s)
            if walking.done() and not walking.cancelled():
                walking.result()  # a failure is raised in the scrape
        return self._last

    def _on_end(self, walking: "asyncio.Task[None]") -> None:
        self._walking = None
        if not walking.cancelled():
            walking.exception()  # raised above, or by the next walk

    async def _find(self) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        self._last = await self._walk()
        now_s = loop.time()
        self._not_before_s = now_s + _REST * (now_s - begun_s)

    async def close(self) -> None:
        """Leave a walk that is under way."""
        if self._walking is not None:
            self._walking.cancel()
            await asyncio.wait([self._walking])
