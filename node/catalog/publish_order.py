"""The order of batches where one of them has to wait before it is appended.

A producer's numbers run through its batches: what it sent behind one that waits for its topic must
not be appended before it. Nor is a message appended before one of its topic that came earlier. What
has neither producer nor topic in common with a batch that waits does not wait.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

Line: TypeAlias = int | str
"""A producer's id, or a topic's name."""


class PublishOrder:
    """See the top of this file. Belongs to one event loop."""

    def __init__(self) -> None:
        """No publish waits."""
        self._last: dict[Line, asyncio.Future[None]] = {}
        """Over when the last batch that stands in this line is appended, or refused."""

    def is_any_waiting(self, lines: Iterable[Line]) -> bool:
        """Whether a batch has to go behind another one."""
        return bool(self._last) and any(line in self._last for line in lines)

    @asynccontextmanager
    async def behind(self, lines: Iterable[Line], ready: Awaitable[None]) -> AsyncIterator[None]:
        """Append inside: behind what stands in the same lines, when `ready` has returned.

        Raises:
            HourwheelError: what `ready` raises.
        """
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lines = list(lines)
        before = [self._last[line] for line in lines if line in self._last]
        self._last.update(dict.fromkeys(lines, mine))
        try:
            await ready
            for one in before:
                await asyncio.shield(one)  # who gives up waiting ends no wait of others
            yield
        finally:
            mine.set_result(None)
            for line in lines:
                if self._last.get(line) is mine:
                    del self._last[line]
