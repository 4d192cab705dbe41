"""How much each principal may use, and how much it uses: pure, time goes in.

    rates        messages and bytes published in a second: buckets that fill up. A batch goes while
                 anything is left, however large it is, and the debt delays what comes after it. A
                 bucket holds what fills up in `BURST_MS`.
    pending      messages that are accepted and not due yet, by ranges of due times; one that is
                 moved counts until its new instant, in place of the first that was to end before
    at one time  calls, and connections that have calls under way

A principal has the quota of its own name, or that of `*`, and none of them is shared: each counts
by itself. What is refused costs a principal nothing. A limit of 0 lets nothing through, and it is
said that waiting does not help; else it is said when to come back.

Memory is bounded: buckets of `PRINCIPALS_MAX` names, those used last. One that is forgotten is full
when its name comes again. Of pending messages `RANGES_MAX` ranges a name.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from node.contracts.access import WILDCARD

BURST_MS: Final = 1_000.0
PRINCIPALS_MAX: Final = 16_384
RANGES_MAX: Final = 4_096
COME_BACK_MS: Final = 100
"""Where it is unknown when a call of the caller's ends."""
COME_BACK_MS_MAX: Final = 60_000
"""Messages may be cancelled earlier, and the quota may be raised."""
_PARTS_BITS: Final = 6
"""A range is a 64th of the delay wide, or less."""
_RANGE_BITS_MIN: Final = 10
"""And a second at least."""
_SECOND_MS: Final = 1_000.0


class Work(Enum):
    """What is counted by itself: of each as many as `Limits.calls_in_flight` says.

    A poll may wait for a minute, streams and sessions are open for days: beside them there is room
    to acknowledge, by however small a quota.
    """

    CALL = "call"
    POLL = "poll"
    STREAM = "stream"
    """A publish stream; its batches are not counted once more."""
    SESSION = "session"
    """An open one; the calls and polls in it are counted as those outside."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a principal may use; None: as much as it likes."""

    messages_per_s: int | None = None
    bytes_per_s: int | None = None
    pending_messages: int | None = None
    topics: int | None = None
    groups: int | None = None
    connections: int | None = None
    calls_in_flight: int | None = None


NO_LIMITS: Final = Limits()


class Bucket:
    """A rate: fills up with time, and may be in debt."""

    __slots__ = ("_at_ms", "_level")

    def __init__(self, rate_per_s: int, now_ms: float) -> None:
        """Full."""
        self._level = rate_per_s * BURST_MS / _SECOND_MS
        self._at_ms = now_ms

    def wait_ms(self, rate_per_s: int, now_ms: float) -> float:
        """How long until something may be taken; 0: now. `rate_per_s`: more than 0."""
        filled = self._level + (now_ms - self._at_ms) * rate_per_s / _SECOND_MS
        self._level = min(filled, rate_per_s * BURST_MS / _SECOND_MS)
        self._at_ms = now_ms
        return 0.0 if self._level > 0 else max(1.0, -self._level * _SECOND_MS / rate_per_s)

    def take(self, count: int) -> None:
        """Take so much; also more than there is."""
        self._level -= count

    def give_back(self, count: int) -> None:
        """So much was taken for nothing; `wait_ms` keeps it from filling beyond its size."""
        self._level += count


Taken: TypeAlias = list[tuple[Bucket, int]]
"""What was taken off rates, and how much."""


class PendingCount:
    """How many messages are not due yet; each counts until the end of a range around its instant.

    Invariant: `count` is the sum of all ranges; each range in `_counts` is once in `_ends`.
    """

    __slots__ = ("_counts", "_ends", "count")

    def __init__(self) -> None:
        """None is."""
        self.count = 0
        self._counts: dict[int, int] = {}
        """End of a range, an instant in ms -> messages."""
        self._ends: list[int] = []
        """A heap."""

    def pass_to(self, now_ms: int) -> None:
        """Forget what is due by `now_ms`."""
        while self._ends and self._ends[0] <= now_ms:
            self.count -= self._counts.pop(heappop(self._ends))

    def next_ms(self) -> int | None:
        """When it is fewer; None: there is none."""
        return self._ends[0] if self._ends else None

    def add(self, ranges: Mapping[int, int]) -> None:
        """So many messages a range: see `ranges_of`."""
        for end_ms, count in ranges.items():
            if end_ms not in self._counts:
                if len(self._ends) >= RANGES_MAX:  # a later one than any: it counts no shorter
                    end_ms = max(self._counts)  # noqa: PLW2901
                else:
                    heappush(self._ends, end_ms)
            self._counts[end_ms] = self._counts.get(end_ms, 0) + count
            self.count += count

    def move(self, ranges: Mapping[int, int]) -> None:
        """So many messages have new instants. Which ranges they were in is not known.

        Each takes the place of the first one that ends no later than it does, if there is any: so
        at no instant fewer are counted than before, and a principal that moves what it has
        published has as many as before.
        """
        for end_ms, count in sorted(ranges.items()):
            left = count
            while left and self._ends and self._ends[0] <= end_ms:
                first_ms = self._ends[0]
                gone = min(self._counts[first_ms], left)
                self._counts[first_ms] -= gone
                self.count -= gone
                left -= gone
                if not self._counts[first_ms]:
                    del self._counts[heappop(self._ends)]
            self.add({end_ms: count})

    def take_back(self, ranges: Mapping[int, int]) -> None:
        """What was added was not accepted; what is due meanwhile is forgotten already."""
        for end_ms, count in ranges.items():
            known = self._counts.get(end_ms, 0)
            gone = min(known, count)
            if gone:
                self._counts[end_ms] = known - gone
                self.count -= gone


def ranges_of(due_ms: NDArray[np.int64], now_ms: int) -> dict[int, int]:
    """Ends of ranges -> how many of these instants are in each; none of what is due by `now_ms`."""
    later = due_ms[due_ms > now_ms]
    if not len(later):
        return {}
    bits = np.log2((later - now_ms).astype(np.float64)).astype(np.int64) - _PARTS_BITS
    bits = np.maximum(bits, _RANGE_BITS_MIN)
    ends, counts = np.unique(((later >> bits) + 1) << bits, return_counts=True)
    return dict(zip(ends.tolist(), counts.tolist(), strict=True))


class Quotas:
    """See the top of this file. Belongs to one event loop.

    Invariant: a name is in `_calls` and `_connections` exactly while something of it is under way.
    """

    def __init__(self) -> None:
        """No caller is limited."""
        self.is_on = False
        """Whether anybody is."""
        self._limits: Mapping[str, Limits] = {}
        self._exempt: frozenset[str] = frozenset()
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()
        self._pending: OrderedDict[str, PendingCount] = OrderedDict()
        self._calls: Counter[tuple[str, Work]] = Counter()
        self._connections: dict[str, Counter[str]] = {}

    def replace(self, limits: Mapping[str, Limits], exempt: frozenset[str] = frozenset()) -> None:
        """Limit by these from now on; what is counted stays.

        Args:
            limits: by name; `*`: of each that has no own.
            exempt: names that are not limited, whatever is said of them.
        """
        self._limits, self._exempt = limits, exempt
        self.is_on = any(one != NO_LIMITS for one in limits.values())

    def limits_of(self, name: str) -> Limits:
        """Those that hold for a principal."""
        if name in self._exempt:
            return NO_LIMITS
        found = self._limits.get(name)
        return self._limits.get(WILDCARD, NO_LIMITS) if found is None else found

    # -- rates ------------------------------------------------------------------------------------

    def publish(self, name: str, count: int, size_bytes: int, now_ms: float) -> Taken:
        """Take so many messages off a principal's rates; `now_ms`: of a clock that only grows.

        What it returns is for `give_rates_back`, where they are not accepted.

        Raises:
            QuotaExceeded, QuotaReached: nothing was taken.
        """
        amounts = {"messages_per_s": count, "bytes_per_s": size_bytes}
        taken = [
            (bucket, amounts[quota]) for quota, bucket in self.check_rates(name, now_ms).items()
        ]
        for bucket, amount in taken:
            bucket.take(amount)
        return taken

    def check_rates(self, name: str, now_ms: float) -> dict[str, Bucket]:
        """Whether a principal may publish anything now: how much, its rates do not ask before.

        Returns what is to be taken off, by quota. Raises as `publish`.
        """
        limits = self.limits_of(name)
        rates = {"messages_per_s": limits.messages_per_s, "bytes_per_s": limits.bytes_per_s}
        found: dict[str, Bucket] = {}
        for quota, rate_per_s in rates.items():
            if rate_per_s is None:
                continue
            if rate_per_s == 0:
                raise _reached(quota, 0)
            found[quota] = self._bucket(name, quota, rate_per_s, now_ms)
            wait_ms = found[quota].wait_ms(rate_per_s, now_ms)
            if wait_ms:
                raise _exceeded(quota, rate_per_s, wait_ms)
        return found

    def give_rates_back(self, taken: Taken) -> None:
        """They were not accepted, and cost nothing."""
        for bucket, amount in taken:
            bucket.give_back(amount)

    def _bucket(self, name: str, quota: str, rate_per_s: int, now_ms: float) -> Bucket:
        key = (name, quota)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(rate_per_s, now_ms)
            if len(self._buckets) > 2 * PRINCIPALS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket

    # -- pending ----------------------------------------------------------------------------------

    def hold_pending(self, name: str, ranges: Mapping[int, int], now_ms: int) -> None:
        """Count messages, by `ranges_of`; `give_pending_back` where they are not accepted.

        Raises:
            QuotaExceeded, QuotaReached: nothing was counted.
        """
        most, wanted = self.limits_of(name).pending_messages, sum(ranges.values())
        if most is None or not wanted:
            return
        if wanted > most:
            raise _reached("pending_messages", most)
        known = self._known_pending(name, now_ms)
        _check_pending(known, most - wanted, most, now_ms)
        known.add(ranges)

    def check_moving(self, name: str, now_ms: int) -> None:
        """Whether a principal may move messages: not while it has more than its quota.

        How many a call moves is not known before. So it goes, and `note_moved` follows.

        Raises:
            QuotaExceeded, QuotaReached: it may not.
        """
        most = self.limits_of(name).pending_messages
        if most is not None:
            if not most:
                raise _reached("pending_messages", 0)
            _check_pending(self._known_pending(name, now_ms), most, most, now_ms)

    def note_moved(self, name: str, ranges: Mapping[int, int], now_ms: int) -> None:
        """So many messages are moved, by `ranges_of` their new instants; whosesoever they were."""
        if self.limits_of(name).pending_messages is not None:
            self._known_pending(name, now_ms).move(ranges)

    def _known_pending(self, name: str, now_ms: int) -> PendingCount:
        known = self._pending.get(name)
        if known is None:
            known = self._pending[name] = PendingCount()
            if len(self._pending) > PRINCIPALS_MAX:
                self._pending.popitem(last=False)
        self._pending.move_to_end(name)
        known.pass_to(now_ms)
        return known

    def give_pending_back(self, name: str, ranges: Mapping[int, int]) -> None:
        """They were not accepted."""
        known = self._pending.get(name)
        if known is not None:
            known.take_back(ranges)

    # -- at one time ------------------------------------------------------------------------------

    def begin_call(self, name: str, work: Work = Work.CALL) -> None:
        """A call begins; `end_call` must follow.

        Raises:
            QuotaExceeded, QuotaReached: it does not; `end_call` must not follow.
        """
        most, under_way = self.limits_of(name).calls_in_flight, self._calls[name, work]
        if most is not None and under_way >= most:
            raise _full("calls_in_flight", most)
        self._calls[name, work] = under_way + 1

    def end_call(self, name: str, work: Work = Work.CALL) -> None:
        """It is over."""
        self._calls[name, work] -= 1
        if not self._calls[name, work]:
            del self._calls[name, work]

    def begin_on(self, name: str, connection: str) -> None:
        """A call begins on a connection; `end_on` must follow.

        Raises:
            QuotaExceeded, QuotaReached: it does not; `end_on` must not follow.
        """
        most, known = self.limits_of(name).connections, self._connections.get(name, Counter())
        if most is not None and connection not in known and len(known) >= most:
            raise _full("connections", most)
        known[connection] += 1
        self._connections[name] = known

    def end_on(self, name: str, connection: str) -> None:
        """It is over."""
        known = self._connections[name]
        known[connection] -= 1
        if not known[connection]:
            del known[connection]
            if not known:
                del self._connections[name]


def check_count(quota: str, most: int, count: int) -> None:
    """One more is to be made, of topics or groups. Raises QuotaReached: there are enough."""
    if count >= most:
        raise _reached(quota, most)


def _check_pending(known: PendingCount, count_max: int, most: int, now_ms: int) -> None:
    next_ms = known.next_ms()
    if known.count > count_max and next_ms is not None:
        wait_ms = min(next_ms - now_ms, COME_BACK_MS_MAX)
        raise _exceeded("pending_messages", most, wait_ms)


def _full(quota: str, most: int) -> errors.ResourceExhausted:
    return _exceeded(quota, most, COME_BACK_MS) if most else _reached(quota, 0)


def _exceeded(quota: str, limit: int, wait_ms: float) -> errors.QuotaExceeded:
    return errors.QuotaExceeded(
        f"the caller's quota of {quota} is {limit}, and used up for now",
        quota=quota,
        quota_value=limit,
        retry_after_ms=int(wait_ms) + 1,
    )


def _reached(quota: str, limit: int) -> errors.QuotaReached:
    return errors.QuotaReached(
        f"the caller's quota of {quota} is {limit}: waiting does not help",
        quota=quota,
        quota_value=limit,
    )
