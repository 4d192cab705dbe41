"""Group limits: how many messages a group's consumers may hold, and get in a second, together.

Both are kept by the master, over all topics, consumers and nodes that polls come through. A group
that may get nothing now has a *line*: its interests with polls that wait for it, first come first
served. An interest that was served goes behind the others, and so does a poll in its interest, so
each waits for those that came before it and for no others.

In flight is what leases hold, also while the record that ends them is on its way. The rate is a
bucket: it fills by `per_second_max` each second and holds a tenth of that, one message at least. In
any time t a group gets at most t times the rate and one bucket. A new master's bucket is empty, so
a change of masters lets nothing through twice. Polls are served from a fiftieth of the rate on,
one message at least: else a group of 10,000 a second would be woken for single messages.

No clock here: a turn of the engine brings its reading.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hourwheel.types import GroupId
from node.consumers.waiters import Interest
from node.delivery.leases import Leases
from storage.views.catalog_items import Group

_SECOND_MS: Final = 1_000
_BURST_PARTS: Final = 10
_SERVED_PARTS: Final = 50


class Rate:
    """A bucket of messages. Invariant: never below 0, nor above `burst`."""

    __slots__ = ("_at_ms", "_thousandths", "per_second_max")

    def __init__(self, per_second_max: int, now_ms: int) -> None:
        """Empty."""
        self.per_second_max = per_second_max
        self._thousandths, self._at_ms = 0, now_ms

    @property
    def burst(self) -> int:
        """Messages that it holds."""
        return max(1, self.per_second_max // _BURST_PARTS)

    @property
    def _served_from(self) -> int:
        return max(1, self.per_second_max // _SERVED_PARTS)

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._at_ms)
        filled = self._thousandths + passed_ms * self.per_second_max
        self._thousandths = min(filled, self.burst * _SECOND_MS)
        self._at_ms = max(self._at_ms, now_ms)

    def count(self, now_ms: int) -> int:
        """How many may be taken now; 0 also where it is not worth a poll's answer yet."""
        self._fill(now_ms)
        whole = self._thousandths // _SECOND_MS
        return whole if whole >= self._served_from else 0

    def take(self, count: int) -> None:
        """Take so many, of those that there are."""
        self._thousandths -= count * _SECOND_MS

    def ready_ms(self) -> int:
        """From when on some may be taken, if none are until then."""
        missing = self._served_from * _SECOND_MS - self._thousandths
        return self._at_ms - (-missing // self.per_second_max)


@dataclass(slots=True)
class _Line:
    """Interests of one group that wait for its limits."""

    interests: OrderedDict[Interest, None] = field(default_factory=OrderedDict)
    ready_ms: int | None = None
    """When its rate lets something through; None: it waits for messages in flight."""


class GroupLimits:
    """The limits of all groups in one mastership, and who waits for them.

    Invariant: each line has its `ready_ms` in `_alarms`, or its group is full and watched by the
    leases, or is among those that they freed.
    """

    def __init__(
        self,
        leases: Leases,
        find_group: Callable[[GroupId], Group | None],
        is_waiting: Callable[[Interest], bool],
    ) -> None:
        """`find_group`: by number. `is_waiting`: whether an interest has polls that wait."""
        self._leases, self._find_group, self._is_waiting = leases, find_group, is_waiting
        self._rates: dict[GroupId, Rate] = {}
        """Of groups with a rate that have polled."""
        self._lines: dict[GroupId, _Line] = {}
        """Invariant: none of them is empty."""
        self._alarms: list[tuple[int, GroupId]] = []
        """A heap of (ready_ms, group); stale ones as well."""
        self._granted: Interest | None = None
        """The interest whose turn it is."""

    # -- what a poll may get ----------------------------------------------------------------------

    def allowance(self, interest: Interest, group: Group, now_ms: int) -> int | None:
        """How many messages a poll may get now; None: any number. 0: it is to `join` the line."""
        group_id = interest.group_id
        if not group.per_second_max:
            self._rates.pop(group_id, None)
            if not group.in_flight_max:
                return None
        if interest != self._granted and self._has_line(group_id):
            return 0
        found = [self._room(group)] if group.in_flight_max else []
        if group.per_second_max:
            found.append(self._rate_of(group, now_ms).count(now_ms))
        return min(found)

    def _room(self, group: Group) -> int:
        return max(0, group.in_flight_max - self._leases.held_count(group.group_id))

    def _rate_of(self, group: Group, now_ms: int) -> Rate:
        rate = self._rates.get(group.group_id)
        if rate is None:
            rate = self._rates[group.group_id] = Rate(group.per_second_max, now_ms)
        elif rate.per_second_max != group.per_second_max:
            rate.count(now_ms)  # what has come by the former rate stays
            rate.per_second_max = group.per_second_max
        return rate

    def take(self, group_id: GroupId, count: int) -> None:
        """A poll gets so many, of its allowance."""
        rate = self._rates.get(group_id)
        if rate is not None:
            rate.take(count)

    # -- lines ------------------------------------------------------------------------------------

    def _has_line(self, group_id: GroupId) -> bool:
        """Whether others wait; those whose polls have given up are forgotten."""
        line = self._lines.get(group_id)
        if line is None:
            return False
        while line.interests and not self._is_waiting(next(iter(line.interests))):
            line.interests.popitem(last=False)
        if not line.interests:
            self.forget_line(group_id)
        return bool(line.interests)

    def join(self, interest: Interest, now_ms: int) -> None:
        """Polls of an interest that has no allowance wait for some, behind the others."""
        group = self._find_group(interest.group_id)
        if group is None:
            return
        line = self._lines.setdefault(group.group_id, _Line())
        line.interests[interest] = None
        if group.in_flight_max and not self._room(group):
            line.ready_ms = None
            self._leases.watched.add(group.group_id)
            return
        ready_ms = self._rate_of(group, now_ms).ready_ms() if group.per_second_max else now_ms
        if ready_ms != line.ready_ms:
            line.ready_ms = ready_ms
            heapq.heappush(self._alarms, (ready_ms, group.group_id))

    def forget_line(self, group_id: GroupId) -> None:
        """No poll waits any more."""
        self._lines.pop(group_id, None)
        self._leases.watched.discard(group_id)

    def take_ready(self, now_ms: int) -> list[GroupId]:
        """Groups with a line that may have an allowance again."""
        ready = [one for one in self._leases.freed if one in self._lines]
        self._leases.freed.clear()
        while (at_ms := self._next_alarm_ms()) is not None and at_ms <= now_ms:
            group_id = heapq.heappop(self._alarms)[1]
            self._lines[group_id].ready_ms = None
            ready.append(group_id)
        return ready

    def granted(self, group_id: GroupId) -> Iterator[Interest]:
        """The interests of a group's line, one after the other; ends with one that joins again.

        While an interest is looked at, it may take what there is.
        """
        line = self._lines.get(group_id)
        for _ in range(len(line.interests) if line is not None else 0):
            if line is None or not line.interests:
                break
            interest, _none = line.interests.popitem(last=False)
            self._granted = interest
            try:
                yield interest
            finally:
                self._granted = None
            if interest in line.interests:
                return
        if line is not None and not line.interests:
            self.forget_line(group_id)

    def _next_alarm_ms(self) -> int | None:
        while self._alarms:
            at_ms, group_id = self._alarms[0]
            line = self._lines.get(group_id)
            if line is not None and line.ready_ms == at_ms:
                return at_ms
            heapq.heappop(self._alarms)
        return None

    def next_wakeup_ms(self) -> int | None:
        """When `take_ready` has something, or None."""
        if self._leases.freed:
            return 0
        return self._next_alarm_ms()

    def next_allowance_ms(self, now_ms: int) -> int | None:
        """When a group may get something that may get nothing now, by its rate; None: none such.

        For who polls without waiting, and so is in no line.
        """
        held_back = [rate for rate in self._rates.values() if not rate.count(now_ms)]
        return min((rate.ready_ms() for rate in held_back), default=None)

    def clear(self) -> None:
        """No poll waits any more."""
        for group_id in list(self._lines):
            self.forget_line(group_id)
