"""When a message recurs: cron expressions in their time zone, and fixed intervals.

Only the master computes with it, and logs what it found: another version of the time zones on
another node makes no difference to what is in the log.

A cron expression names times of the clock on the wall of its zone, as Debian's cron does
(docs/guides/recurring.md): one of five fields whose minute and hour do not begin with "*" takes
place once a day that has it, at the end of the gap where the time is left out, and at the first of
two equal times. All others follow the clock: what the gap leaves out is left out, and what comes
twice takes place twice. A fixed interval knows no zone but for its excluded dates.
"""

from array import array
from bisect import bisect_left
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from hourwheel import errors, limits
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.outcomes import Missed

_FIELDS_WITH_SECONDS: Final = 6
_YEARS_MAX: Final = 9
"""An occurrence of an expression is looked for so far ahead: two leap days, over 2100."""
INSTANT_MS_MAX: Final = 253_370_764_800_000
"""The year 9999."""
_LAST_YEAR: Final = MAXYEAR - 1
"""There are no dates behind the year after it."""
_SECOND_MS: Final = 1_000
_MINUTE_S: Final = 60
_EPOCH_DAY: Final = date(1970, 1, 1)
_DAY_MAX: Final = (date(MAXYEAR, 1, 1) - _EPOCH_DAY).days
"""What is due is due before the end of this day, in any zone."""
_CACHED_SCHEDULES: Final = 4_096
_CACHED_TIMES: Final = 16_384


class Planned(NamedTuple):
    """What comes next of a recurrence."""

    due_ms: int | None
    """None: nothing any more."""
    has_missed: bool = False
    """Occurrences before it are left out."""


class _Key(NamedTuple):
    """What the times of a recurrence depend on."""

    cron: str
    zone: str
    every_ms: int
    start_ms: int
    end_ms: int
    excluded_days: bytes
    """An array of u32, ascending: the caches below keep thousands of keys, which may have a
    thousand days each."""


class _Cron(CronSim):
    """An expression that gives up after some years, and not after fifty."""

    def advance_month(self) -> None:
        if self.dt.year > self._year_max:
            raise StopIteration
        super().advance_month()

    def __init__(self, expression: str, after: datetime) -> None:
        self._year_max = min(after.year + _YEARS_MAX, _LAST_YEAR)
        super().__init__(expression, after)


class Schedule:
    """The times of one recurrence."""

    def __init__(self, key: _Key) -> None:
        """Raises InvalidRecurrence."""
        self._key, self._zone = key, _zone(key.zone)
        self._excluded = memoryview(key.excluded_days).cast("I")
        if key.cron:
            _parse(key.cron, datetime(2027, 1, 1, tzinfo=self._zone))

    def after(self, after_ms: int, until_ms: int | None = None) -> int | None:
        """The first occurrence later than an instant; None: there is none, or none up to another.

        Of an expression that may be because it is years away.
        """
        return _after(self._key, after_ms, until_ms)

    def find_after(self, after_ms: int, until_ms: int | None = None) -> int | None:
        """The same, computed."""
        step = self._cron_after if self._key.cron else self._interval_after
        if self._key.cron:
            after_ms = max(after_ms, self._key.start_ms - 1)
        due_ms = step(after_ms)
        while due_ms is not None and self._excluded:
            if until_ms is not None and due_ms > until_ms:
                return None  # not to go through years of dates for nothing
            day = self._day_of(due_ms)
            if not self._is_excluded(day):
                break
            while self._is_excluded(day + 1):  # years of them in one step
                day += 1
            if day >= _DAY_MAX:
                return None
            due_ms = step(max(due_ms, self._end_of(day) - 1))
        last_ms = min(self._key.end_ms or INSTANT_MS_MAX, until_ms or INSTANT_MS_MAX)
        return None if due_ms is None or due_ms > last_ms else due_ms

    def _interval_after(self, after_ms: int) -> int | None:
        start_ms, every_ms = self._key.start_ms, self._key.every_ms
        if after_ms < start_ms:
            return start_ms
        due_ms = start_ms + ((after_ms - start_ms) // every_ms + 1) * every_ms
        return due_ms if due_ms < INSTANT_MS_MAX else None

    def _cron_after(self, after_ms: int) -> int | None:
        after = datetime.fromtimestamp(after_ms // _SECOND_MS, self._zone)
        for found in _Cron(self._key.cron, after):
            # Where clocks are put forward or back, times of the wall come twice, or together.
            due_ms = int(found.timestamp()) * _SECOND_MS
            if due_ms > after_ms:
                return due_ms
        return None

    def _day_of(self, at_ms: int) -> int:
        local = datetime.fromtimestamp(at_ms // _SECOND_MS, self._zone)
        return (local.date() - _EPOCH_DAY).days

    def _is_excluded(self, day: int) -> bool:
        at = bisect_left(self._excluded, day)
        return at < len(self._excluded) and self._excluded[at] == day

    def _end_of(self, day: int) -> int:
        """The instant at which a day of the zone has ended."""
        midnight = datetime.combine(_EPOCH_DAY + timedelta(days=day + 1), datetime.min.time())
        return int(midnight.replace(tzinfo=self._zone).timestamp()) * _SECOND_MS


@lru_cache(_CACHED_SCHEDULES)
def _schedule(key: _Key) -> Schedule:
    return Schedule(key)


@lru_cache(_CACHED_TIMES)
def _after(key: _Key, after_ms: int, until_ms: int | None) -> int | None:
    """Many recurrences have the same times: they are computed once."""
    return _schedule(key).find_after(after_ms, until_ms)


def schedule_of(config: RecurrenceConfig) -> Schedule:
    """The times of a recurrence.

    Raises:
        InvalidRecurrence: it has none. Of one that was taken in, the time zones have changed.
    """
    return _schedule(
        _Key(
            config.cron,
            config.zone,
            config.every_ms,
            config.start_ms,
            config.end_ms,
            array("I", sorted(config.excluded_days)).tobytes(),
        )
    )


def plan_next(schedule: Schedule, missed: int, after_ms: int, now_ms: int) -> Planned:
    """The next occurrence that is to be published, behind `after_ms`, by the policy `missed`."""
    due_ms = schedule.after(after_ms)
    missed_ms = now_ms - limits.RECURRENCE_MISSED_MS
    if due_ms is None or due_ms >= missed_ms or missed == Missed.ALL:
        return Planned(due_ms)
    if missed == Missed.NONE:
        return Planned(schedule.after(missed_ms - 1), has_missed=True)
    low, high = after_ms, now_ms - 1
    # The last one up to now: the latest instant from which the next one is not in the future.
    while low < high:
        middle = (low + high + 1) // 2
        if schedule.after(middle, now_ms) is not None:
            low = middle
        else:
            high = middle - 1
    last_ms = schedule.after(low, now_ms)
    return Planned(last_ms, has_missed=last_ms != due_ms)


def check_times(config: RecurrenceConfig, now_ms: int) -> int:
    """The first occurrence of a recurrence that is to be.

    Raises:
        InvalidRecurrence: its times are wrong, never come, or come too often.
    """
    if bool(config.cron) == bool(config.every_ms):
        raise _invalid("a cron expression or an interval above 0 is needed, one of them", "times")
    is_endless = not config.count_max and not config.end_ms
    least_ms = limits.RECURRENCE_INTERVAL_MS_MIN
    if is_endless:
        least_ms = limits.RECURRENCE_ENDLESS_INTERVAL_MS_MIN
    for name in ("start_ms", "end_ms"):
        if not 0 <= getattr(config, name) <= INSTANT_MS_MAX:
            raise _invalid(f"{name} is no instant", name)
    if config.every_ms > INSTANT_MS_MAX:
        raise _invalid("the interval is too long", "every_ms")
    schedule = schedule_of(config)
    interval_ms = _least_interval_ms(config)
    if interval_ms < least_ms:
        raise _invalid(
            f"occurrences are {interval_ms} ms apart; at least {least_ms} are needed"
            + (" where a recurrence has neither count nor end" if is_endless else ""),
            "times",
        )
    first_ms = schedule.after(now_ms)
    if first_ms is None:
        raise _invalid("no occurrence comes, or none within nine years", "times")
    return first_ms


def _least_interval_ms(config: RecurrenceConfig) -> int:
    """How far apart two occurrences are at least, so far as the seconds tell."""
    if not config.cron:
        return config.every_ms
    seconds = sorted(_parse(config.cron, datetime(2027, 1, 1, tzinfo=UTC)).seconds)
    if len(seconds) == 1:
        return _MINUTE_S * _SECOND_MS
    around = [*seconds[1:], seconds[0] + _MINUTE_S]
    return min(b - a for a, b in zip(seconds, around, strict=True)) * _SECOND_MS


def _parse(expression: str, after: datetime) -> _Cron:
    # One more field would be taken for seconds: say which is which.
    if not expression.isascii() or len(expression) > limits.CRON_CHARS_MAX:
        raise _invalid(
            f"a cron expression has at most {limits.CRON_CHARS_MAX} characters of ASCII", "cron"
        )
    try:
        return _Cron(expression, after)
    except (CronSimError, ValueError, AssertionError, RecursionError) as error:
        raise _invalid(
            f"{expression[:80]!r} is no cron expression: {str(error)[:80] or 'it cannot be read'}",
            "cron",
        ) from None


@lru_cache(1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _zone(name: str) -> ZoneInfo:
    """Raises InvalidRecurrence."""
    name = name or "UTC"
    if len(name) > limits.TIME_ZONE_CHARS_MAX or name not in _zones():
        raise _invalid(
            f"{name[:80]!r} is no time zone of the IANA, as Europe/Berlin is", "time_zone"
        )
    return ZoneInfo(name)


def excluded_days(dates: list[str]) -> list[int]:
    """Dates as they are written, as days since 1970-01-01, ascending. Raises InvalidRecurrence."""
    if len(dates) > limits.EXCLUDED_DATE_COUNT_MAX:
        raise _invalid(f"more than {limits.EXCLUDED_DATE_COUNT_MAX} dates", "excluded_dates")
    found = set()
    for text in dates:
        try:
            day = (date.fromisoformat(text) - _EPOCH_DAY).days
        except ValueError:
            day = -1
        if day < 0:
            raise _invalid(f"{text[:40]!r} is no date, as 2027-12-25 is", "excluded_dates")
        found.add(day)
    return sorted(found)


def dates_of(days: list[int]) -> list[str]:
    """The reverse of `excluded_days`."""
    return [(_EPOCH_DAY + timedelta(days=day)).isoformat() for day in days]


def _invalid(message: str, field: str) -> errors.InvalidRecurrence:
    return errors.InvalidRecurrence(message, field=field)
