"""How far groups are behind, for a scrape: counted in slices, with a bounded number of series.

A scrape comes four times a minute, so no message updates a counter for it. A walk looks at every
subscription, a part in each turn of the loop, with rests between them (shared_reading.py). The
groups that are most behind get a series each; the scrape has the sums and the number of the others.
Members of a broadcast are one group here: a thousand of them are no thousand series.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import NamedTuple

from hourwheel.formats.member_group import is_member_group, membership_of
from node.broker.shared_reading import WAIT_S, SharedReading
from node.contracts.lags import GroupLagInfo, LagPlace, LagsPart


class LagSeries(NamedTuple):
    """One group and topic."""

    group: str
    topic: str
    unresolved_count: int
    leased_count: int
    oldest_ms: int = 0
    """When the oldest of the unresolved could be received first; 0 where there is none."""
    blocked_count: int = 0
    """Of an ordered group: messages that block their keys."""

    def age_ms(self, now_ms: int) -> int:
        """How long ago that was."""
        return max(0, now_ms - self.oldest_ms) if self.oldest_ms else 0


class LagReading(NamedTuple):
    """What one walk found."""

    series: tuple[LagSeries, ...] = ()
    """Those most behind, by group and topic."""
    omitted_count: int = 0
    """Groups and topics that have no series."""
    unresolved_count: int = 0
    """Of all together."""
    leased_count: int = 0
    oldest_ms: int = 0
    """Of all together."""

    def age_ms(self, now_ms: int) -> int:
        """How long ago the oldest of all could be received first; 0 where there is none."""
        return max(0, now_ms - self.oldest_ms) if self.oldest_ms else 0


class ConsumerLag:
    """Walks when it is asked, once at a time. Belongs to one event loop."""

    def __init__(
        self,
        lags: Callable[[LagPlace | None], LagsPart],
        series_max: int,
        *,
        wait_s: float = WAIT_S,
    ) -> None:
        """`lags`: of EnginePort."""
        self._lags, self._series_max = lags, series_max
        self._reading = SharedReading(self._look_at_all, LagReading(), wait_s=wait_s)
        self.read, self.close = self._reading.read, self._reading.close

    async def _look_at_all(self) -> LagReading:
        counter = _Counter(self._series_max)
        part = self._lags(None)
        counter.add(part.lags)
        while part.place is not None:
            await asyncio.sleep(0)
            part = self._lags(part.place)
            counter.add(part.lags)
        return counter.reading()


class _Counter:
    """Adds up, and keeps those most behind: of two that are as far behind, the first by name."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._most: list[LagSeries] = []
        self._broadcasts: dict[tuple[str, str], LagSeries] = {}
        """Broadcast and topic -> all its members together: one series, however many they are."""
        self._count = self._unresolved = self._leased = 0
        self._oldest_ms = 0

    def add(self, lags: list[tuple[str, GroupLagInfo]]) -> None:
        found = [LagSeries(group, *_fields(lag)) for group, lag in lags]
        self._count_all(found)
        if any(map(is_member_group, [one.group for one in found])):
            found = self._without_members(found)
        self._count += len(found)
        self._most += found
        if len(self._most) > 2 * self._series_max:
            self._cut()

    def _without_members(self, found: list[LagSeries]) -> list[LagSeries]:
        others = []
        for one in found:
            if is_member_group(one.group):
                name = membership_of(one.group).group, one.topic
                self._broadcasts[name] = _together(self._broadcasts.get(name), one, name[0])
            else:
                others.append(one)
        return others

    def _count_all(self, found: list[LagSeries]) -> None:
        self._unresolved += sum(one.unresolved_count for one in found)
        self._leased += sum(one.leased_count for one in found)
        known_ms = [one.oldest_ms for one in found if one.oldest_ms]
        self._oldest_ms = min(known_ms + [self._oldest_ms] * (self._oldest_ms > 0), default=0)

    def _cut(self) -> None:
        self._most = heapq.nsmallest(self._series_max, self._most, key=_order)

    def reading(self) -> LagReading:
        self._most += self._broadcasts.values()
        self._count += len(self._broadcasts)
        self._broadcasts = {}
        self._cut()
        return LagReading(
            tuple(sorted(self._most)),
            self._count - len(self._most),
            self._unresolved,
            self._leased,
            self._oldest_ms,
        )


def _fields(lag: GroupLagInfo) -> tuple[str, int, int, int, int]:
    return lag.topic, lag.unresolved_count, lag.leased_count, lag.oldest_ms, lag.blocked_count


def _together(sum_: LagSeries | None, one: LagSeries, group: str) -> LagSeries:
    """One member more of a broadcast."""
    if sum_ is None:
        return one._replace(group=group)
    known_ms = [ms for ms in (sum_.oldest_ms, one.oldest_ms) if ms]
    return sum_._replace(
        unresolved_count=sum_.unresolved_count + one.unresolved_count,
        leased_count=sum_.leased_count + one.leased_count,
        oldest_ms=min(known_ms, default=0),
        blocked_count=sum_.blocked_count + one.blocked_count,
    )


def _order(one: LagSeries) -> tuple[int, str, str]:
    return -one.unresolved_count, one.group, one.topic
