"""Lengths of time and instants as Python has them, as the milliseconds that Hourwheel counts in.

All is rounded up: never early. An instant without a zone is refused, for what "09:00" means depends
on who reads it. So is one before 2001, where a program gives milliseconds: the seconds of any day
since, taken for milliseconds, lie in 1970, and the message would be delivered at once.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from hourwheel.errors import InvalidArgument, InvalidDueTime

INSTANT_MS_MIN: Final = 978_307_200_000
"""2001-01-01. What lies before it is seconds by mistake, unless somebody says that it is not."""
_WAIT_MS_MAX: Final = 1 << 53
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def duration_to_ms(duration: timedelta) -> int:
    """A length of time, which is not negative.

    Raises:
        InvalidDueTime: it is negative, or something else.
    """
    if not isinstance(duration, timedelta):
        raise InvalidDueTime(
            f"a length of time is a timedelta, such as timedelta(minutes=30), not {duration!r}"
        )
    if duration < timedelta(0):
        raise InvalidDueTime(f"a length of time of {duration!r} is negative")
    return -(-duration // _MILLISECOND)


def count_of_ms(given: int | timedelta, name: str) -> int:
    """A length of time that may be given either way.

    Raises:
        InvalidDueTime: it is a negative or wrong timedelta.
        InvalidArgument: it is no whole number of milliseconds that fits into 32 bits.
    """
    ms = duration_to_ms(given) if isinstance(given, timedelta) else given
    if type(ms) is not int or not 0 <= ms < 1 << 32:
        raise InvalidArgument(
            f"{name} is a timedelta or a whole number of milliseconds, not {given!r}"
        )
    return ms


def check_count(given: int, name: str, *, at_least: int = 0, at_most: int = (1 << 32) - 1) -> None:
    """Refuse what is no whole number, or out of range: at most what fits into 32 bits.

    Raises:
        InvalidArgument: with the name and what was given.
    """
    if type(given) is not int or not at_least <= given <= at_most:
        raise InvalidArgument(
            f"{name} is a whole number from {at_least} to {at_most}, not {given!r}"
        )


def wait_of_ms(given: float | timedelta, name: str) -> float:
    """How long to wait at most, in milliseconds; infinite: for ever.

    Raises:
        InvalidDueTime: it is a negative timedelta.
        InvalidArgument: it is negative, not a number, or something else.
    """
    ms = duration_to_ms(given) if isinstance(given, timedelta) else given
    if type(ms) not in (int, float) or not ms >= 0:
        raise InvalidArgument(
            f"{name} is a timedelta or a number of milliseconds from 0 on, not {given!r}"
        )
    return float(min(ms, _WAIT_MS_MAX))


def instant_to_ms(instant: datetime) -> int:
    """An instant since the Unix epoch.

    Raises:
        InvalidDueTime: it has no zone, lies before 1970, or is something else.
    """
    if not isinstance(instant, datetime):
        raise InvalidDueTime(
            f"an instant is a datetime, such as datetime(2027, 3, 1, 9, tzinfo=UTC), "
            f"not {instant!r}"
        )
    if instant.utcoffset() is None:
        raise InvalidDueTime(
            f"{instant!r} has no time zone, so it may be any of several instants: give it one "
            f"(tzinfo=UTC, or .astimezone() for the zone of this machine)"
        )
    due_ms = -((_EPOCH - instant) // _MILLISECOND)
    if due_ms < 0:
        raise InvalidDueTime(f"{instant!r} lies before 1970")
    return due_ms


def check_instant(instant_ms: int, instant_ms_min: int = INSTANT_MS_MIN) -> None:
    """Refuse seconds where milliseconds are meant.

    Raises:
        InvalidDueTime: the instant lies before `instant_ms_min`.
    """
    if instant_ms < instant_ms_min:
        raise InvalidDueTime(
            f"{instant_ms} ms since 1970 is {_shown(instant_ms)}, before "
            f"{_shown(instant_ms_min)}: are these seconds? Give milliseconds, or a datetime",
            due_ms=instant_ms,
            due_ms_min=instant_ms_min,
        )


def earliest(*instants_ms: int | None) -> int | None:
    """The first of those that are known; None: none is."""
    first_ms = None
    for at_ms in instants_ms:
        if at_ms is not None and (first_ms is None or at_ms < first_ms):
            first_ms = at_ms
    return first_ms


def _shown(instant_ms: int) -> str:
    return f"{_EPOCH + timedelta(milliseconds=instant_ms):%Y-%m-%d}"
