"""Tasks that are not over when their event loop is closed: the test that leaves one fails.

Python complains of such a task when it collects it, whenever that is: in the output of another
test's command.
"""

import asyncio
from typing import Final

_LEFT: Final[list[str]] = []


def watch() -> None:
    """From now on look at each of asyncio's loops in this process as it is closed."""
    close = asyncio.BaseEventLoop.close

    def close_watched(loop: asyncio.BaseEventLoop) -> None:
        if not loop.is_closed():
            _LEFT.extend(map(repr, asyncio.all_tasks(loop)))
        close(loop)

    asyncio.BaseEventLoop.close = close_watched  # type: ignore[assignment,method-assign]


def take() -> list[str]:
    """Those that were found since the last call."""
    found = [*_LEFT]
    _LEFT.clear()
    return found
