"""A poll that somebody waits for goes on, here or at another node, while that may help."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hourwheel import errors
from hourwheel.transport.channel import CALL_TIMEOUT_MS, Channel
from hourwheel.transport.endpoints import Move
from hourwheel.transport.retry import Pace

Result = TypeVar("Result")


class Patience:
    """How long polls have failed, one after the other, in ways that trying again may mend."""

    def __init__(self, unavailable_ms_max: float) -> None:
        """`unavailable_ms_max`: after so long the user gets the error."""
        self._unavailable_ms_max = unavailable_ms_max
        self._failing_since_ms: float | None = None

    def on_success(self) -> None:
        """A poll was answered."""
        self._failing_since_ms = None

    def is_over(self, now_ms: float) -> bool:
        """Whether the user should get a failure now; the next one not so soon again."""
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        return now_ms - self._failing_since_ms >= self._unavailable_ms_max

    def begin_anew(self, now_ms: float) -> None:
        """The user got it."""
        self._failing_since_ms = now_ms


async def follow(
    channel: Channel,
    wait_ms: float,
    patience: Patience,
    poll: Callable[[float, Pace], Awaitable[Result]],
) -> Result | None:
    """The result of `poll`, tried again while that may help; None if the wait is over before.

    Safe for polls only: what was leased by an answer that got lost comes again by itself.

    Args:
        channel: to the nodes.
        wait_ms: how long to wait for messages, all tries together; `CALL_TIMEOUT_MS` longer while
            another node may be the one to ask.
        patience: of the caller, through all its polls.
        poll: takes how long to wait, and the pace to tell how it ended.

    Raises:
        HourwheelError: as `poll`; of a failure that trying again may mend, when patience is over.
    """
    pace = channel.new_pace()
    until_ms = channel.clock.monotonic_ms() + wait_ms
    while True:
        left_ms = max(0.0, until_ms - channel.clock.monotonic_ms())
        try:
            result = await poll(left_ms, pace)
        except errors.HourwheelError as error:
            if not error.retriable:
                raise
            now_ms = channel.clock.monotonic_ms()
            is_over = patience.is_over(now_ms)
            if pace.move is Move.STAY:
                goes_on = not is_over and now_ms < until_ms
            else:
                goes_on = now_ms < until_ms + CALL_TIMEOUT_MS
            if goes_on:
                await asyncio.sleep(pace.wait_ms / 1_000)
            elif is_over:
                patience.begin_anew(now_ms)
                raise
            else:
                return None
        else:
            patience.on_success()
            return result
