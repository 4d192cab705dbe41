"""Waiting for what another task, thread or process is about to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_HANG_S: Final = 120.0
"""A test that hangs says where; no test depends on how long anything takes."""
_TURNS: Final = 200
"""In so many turns of the loop another task is done with what it does."""
_PAUSE_S: Final = 0.002
"""For threads and processes, which need the processor meanwhile."""
_ASK_S: Final = 0.02
"""Of a process, which takes time to answer."""


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition` holds."""
    turns = 0
    async with asyncio.timeout(_HANG_S):
        while not condition():
            await asyncio.sleep(0 if turns < _TURNS else _PAUSE_S)
            turns += 1


async def until_told(ask: Callable[[], Awaitable[object]]) -> None:
    """As `until`, of a condition that others have to be asked about."""
    async with asyncio.timeout(_HANG_S):
        while not await ask():
            await before_the_next_look()


async def before_the_next_look() -> None:
    """Leave the processor to the process that was just asked, or looked at."""
    await asyncio.sleep(_ASK_S)
