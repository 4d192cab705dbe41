"""How far groups are behind, for a scrape: counted in slices, told of a bounded number of them.

Nothing is kept up to date with each message for a scrape that comes four times a minute. A walk
looks at each subscription, a part in each turn of the loop, and rests nine times as long as it has
taken: what is asked for meanwhile gets what the last one found. Those most behind get a series
each; of the others the sums are told, and how many they are.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from node.contracts.broker import GroupLagInfo, LagPlace, LagsPart

_REST: Final = 9
_WAIT_S: Final = 2.0
"""So long a scrape waits for a walk; then it gets what the one before found."""


class LagSeries(NamedTuple):
    """One group and topic."""

    group: str
    topic: str
    unresolved_count: int
    leased_count: int


class LagReading(NamedTuple):
    """What one walk found."""

    series: tuple[LagSeries, ...] = ()
    """Those most behind, by group and topic."""
    omitted_count: int = 0
    """Groups and topics that have no series."""
    unresolved_count: int = 0
    """Of all together."""
    leased_count: int = 0


class ConsumerLag:
    """Walks when it is asked, once at a time. Belongs to one event loop."""

    def __init__(
        self,
        lags: Callable[[LagPlace | None], LagsPart],
        series_max: int,
        *,
        wait_s: float = _WAIT_S,
    ) -> None:
        """`lags`: of EnginePort."""
        self._lags, self._series_max, self._wait_s = lags, series_max, wait_s
        self._last = LagReading()
        self._walk: asyncio.Task[None] | None = None
        self._not_before_s = 0.0

    async def read(self) -> LagReading:
        """As of now, or of a short while ago where it takes long to count."""
        loop = asyncio.get_running_loop()
        if self._walk is None and loop.time() >= self._not_before_s:
            self._walk = loop.create_task(self._look_at_all())
            self._walk.add_done_callback(self._on_end)
        walk = self._walk
        if walk is not None:
            await asyncio.wait([walk], timeout=self._wait_s)
            if walk.done() and not walk.cancelled():
                walk.result()  # whoever scrapes is told of a failure
        return self._last

    def _on_end(self, walk: "asyncio.Task[None]") -> None:
        self._walk = None
        if not walk.cancelled():
            walk.exception()  # told above, or by the next walk

    async def _look_at_all(self) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        counter = _Counter(self._series_max)
        part = self._lags(None)
        counter.add(part.lags)
        while part.place is not None:
            await asyncio.sleep(0)
            part = self._lags(part.place)
            counter.add(part.lags)
        self._last = counter.reading()
        now_s = loop.time()
        self._not_before_s = now_s + _REST * (now_s - begun_s)

    async def close(self) -> None:
        """Leave a walk that is under way."""
        if self._walk is not None:
            self._walk.cancel()
            await asyncio.wait([self._walk])


class _Counter:
    """Adds up, and keeps those most behind: of two that are as far behind, the first by name."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._most: list[LagSeries] = []
        self._count = self._unresolved = self._leased = 0

    def add(self, lags: list[tuple[str, GroupLagInfo]]) -> None:
        found = [LagSeries(group, *_fields(lag)) for group, lag in lags]
        self._count += len(found)
        self._unresolved += sum(one.unresolved_count for one in found)
        self._leased += sum(one.leased_count for one in found)
        self._most += found
        if len(self._most) > 2 * self._series_max:
            self._cut()

    def _cut(self) -> None:
        self._most = heapq.nsmallest(self._series_max, self._most, key=_order)

    def reading(self) -> LagReading:
        self._cut()
        return LagReading(
            tuple(sorted(self._most)),
            self._count - len(self._most),
            self._unresolved,
            self._leased,
        )


def _fields(lag: GroupLagInfo) -> tuple[str, int, int]:
    return lag.topic, lag.unresolved_count, lag.leased_count


def _order(one: LagSeries) -> tuple[int, str, str]:
    return -one.unresolved_count, one.group, one.topic
