"""How many messages are due within a minute, an hour, a day ...: for a scrape."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from node.broker.shared_reading import WAIT_S, SharedReading
from node.contracts.wheel_info import WheelInfo

HORIZONS_S: Final = (
    *(0, 1, 10, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 2 * 86_400),
    *(7 * 86_400, 30 * 86_400, 90 * 86_400, 365 * 86_400),
)
"""Seconds from now on that have a count each; 0: overdue."""
_SECOND_MS: Final = 1_000


class DueWithin(NamedTuple):
    """What is due within one horizon."""

    within_seconds: str
    """The label's value; "+Inf": whenever."""
    messages: int
    """Pending messages that are due by then, cancelled ones included."""


class DueReading:
    """Counts for each reader. Belongs to one event loop."""

    def __init__(
        self,
        describe_wheel: Callable[[Sequence[int]], Awaitable[WheelInfo]],
        now_ms: Callable[[], int],
        *,
        wait_s: float = WAIT_S,
    ) -> None:
        """Both of EnginePort."""
        self._describe_wheel, self._now_ms = describe_wheel, now_ms
        reading: SharedReading[tuple[DueWithin, ...]] = SharedReading(
            self._count, (), wait_s=wait_s
        )
        self.read, self.close = reading.read, reading.close

    async def _count(self) -> tuple[DueWithin, ...]:
        now_ms = self._now_ms()
        now_ms -= now_ms % _SECOND_MS  # whole seconds are counted exactly
        found = await self._describe_wheel([now_ms + one * _SECOND_MS for one in HORIZONS_S])
        sums = accumulate([found.earlier_count, *found.counts.tolist(), found.later_count])
        names = [*map(str, HORIZONS_S), "+Inf"]
        return tuple(map(DueWithin, names, sums))
