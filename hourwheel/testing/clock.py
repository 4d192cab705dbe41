"""The clock of a broker, moved by a test."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from hourwheel.errors import InvalidArgument
from hourwheel.instants import instant_to_ms
from hourwheel.workers.lengths import Length, length_to_ms


class Clock:
    """Stands still until it is moved; what falls due on the way is delivered at its own time."""

    def __init__(
        self,
        read_ms: Callable[[], int],
        move: Callable[[int], Coroutine[Any, Any, None]],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`move` moves it, and returns when nothing is left to do by then; `run` waits for that."""
        self._read_ms, self._move, self._run = read_ms, move, run

    @property
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._read_ms()

    @property
    def now(self) -> datetime:
        """The same as an instant in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1_000, UTC)

    def advance(self, by: Length) -> None:
        """Move it on: by "3d", "90s" or a timedelta.

        All that falls due meanwhile is delivered, in its order, with the clock at its due time; and
        handlers that run (`Broker.run`) have handled it on return, and what they published for
        that time, too. Not for use in a coroutine.

        Raises:
            InvalidArgument: that is no duration.
            BaseException: what a handler has raised, see `Broker.run`. The clock stands where that
                was.
        """
        self._run(self._move(self._after_ms(by)))

    async def advance_async(self, by: Length) -> None:
        """As `advance`, for coroutines: handlers that are coroutines run in the caller's loop."""
        await self._move(self._after_ms(by))

    def advance_to(self, when: datetime) -> None:
        """As `advance`, to an instant with a time zone. Raises InvalidArgument: it is past."""
        self._run(self._move(self._checked_ms(when)))

    async def advance_to_async(self, when: datetime) -> None:
        """As `advance_to`, for coroutines."""
        await self._move(self._checked_ms(when))

    def _after_ms(self, by: Length) -> int:
        return self.now_ms + length_to_ms(by, "by")

    def _checked_ms(self, when: datetime) -> int:
        at_ms = instant_to_ms(when)
        if at_ms < self.now_ms:
            raise InvalidArgument(f"{when} is in the past of this clock", value=str(when))
        return at_ms
