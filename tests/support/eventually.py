"""Waiting for what another task, thread or process is about to do."""

import asyncio
from collections.abc import Callable
from typing import Final

_HANG_S: Final = 60.0
"""A test that hangs says where; no test depends on how long anything takes."""


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition` holds."""
    async with asyncio.timeout(_HANG_S):
        while not condition():  # noqa: ASYNC110 - it is the subject of tests, and has no events
            await asyncio.sleep(0)
