"""A poll that somebody waits for goes on at another node when its own is the wrong one, or gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hourwheel import errors
from hourwheel.channel import CALL_TIMEOUT_MS, Channel
from hourwheel.endpoints import Move
from hourwheel.session import Pace

Result = TypeVar("Result")


async def follow(
    channel: Channel, wait_ms: float, poll: Callable[[float, Pace], Awaitable[Result]]
) -> Result:
    """The result of `poll`, tried again while another place may help.

    Safe for polls only: what was leased by an answer that got lost comes again by itself.

    Args:
        channel: to the nodes.
        wait_ms: how long to wait for messages, all tries together.
        poll: takes how long to wait, and the pace to tell how it ended.

    Raises:
        HourwheelError: as `poll`; of a failure that another place would mend, when no node could
            serve for `CALL_TIMEOUT_MS` beyond `wait_ms`.
    """
    pace = channel.new_pace()
    until_ms = channel.clock.monotonic_ms() + wait_ms
    while True:
        left_ms = max(0.0, until_ms - channel.clock.monotonic_ms())
        try:
            return await poll(left_ms, pace)
        except errors.HourwheelError as error:
            late_ms = channel.clock.monotonic_ms() - until_ms
            if not error.retriable or pace.move is Move.STAY or late_ms >= CALL_TIMEOUT_MS:
                raise
            await asyncio.sleep(pace.wait_ms / 1_000)
