"""Due times as people write them: "90s", "1h30m", "level 3", "2027-03-01T09:00:00+01:00".

A delay stays a delay: it is counted by the cluster's clock from when the message is accepted, so it
needs no right clock here. An instant must say its zone: what "09:00" means depends on who reads it.
"""

import re
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import pytimeparse2  # type: ignore[import-untyped]

from hourwheel.delay_levels import RetryPreset, level_to_ms
from hourwheel.errors import InvalidDueTime
from hourwheel.instants import duration_to_ms, instant_to_ms

_DELAY: Final = re.compile(
    r"(?:[\s,]*\d+(?:\.\d+)?\s*"
    r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?))+",
    re.IGNORECASE,
)
"""What pytimeparse2 may be asked: it also takes "90" and "1:30", which mean too many things."""
_LEVEL: Final = re.compile(r"level\s*(\d{1,9})", re.IGNORECASE)
_PERCENT: Final = re.compile(r"\d{1,3}")
_PERCENT_MAX: Final = 100
_LONG: Final = re.compile(r"[\s\d.]+(?:mo|months?|y|yrs?|years?)\b.*", re.IGNORECASE)
_HELP: Final = "write a delay such as 90s, 1h30m or 3d, or an instant such as 2027-03-01T09:00:00Z"


class When(NamedTuple):
    """A delay or an instant: exactly one of the two. The names are those of `Message`."""

    delay_ms: int | None = None
    due_ms: int | None = None


class Retries(NamedTuple):
    """A group's retry policy; None: as it was. The names are those of `AsyncAdmin.put_group`."""

    delays_ms: list[int] | RetryPreset | None = None
    jitter_percent: int | None = None


def parse_when(text: str) -> When:
    """The delay or instant that `text` says.

    Delays: numbers with units ms, s, m, h, d, w (or "minutes" and the like), one behind the other;
    months and years are refused, for their length is a matter of opinion. Instants: ISO 8601 with a
    zone. "now" is a delay of 0, "level 3" one of RocketMQ's levels. Fractions of milliseconds are
    rounded up: never early.

    Raises:
        InvalidDueTime: neither, or an instant without a zone; says what to write instead.
    """
    plain = text.strip()
    if plain.lower() == "now":
        return When(delay_ms=0)
    level = _LEVEL.fullmatch(plain)
    if level is not None:
        return When(delay_ms=level_to_ms(int(level[1])))
    if _DELAY.fullmatch(plain):
        return When(delay_ms=_delay_ms(plain))
    try:
        instant = datetime.fromisoformat(plain)
    except ValueError:
        raise InvalidDueTime(f"{text!r} is no due time: {_why(plain)}{_HELP}") from None
    if instant.tzinfo is None:
        raise InvalidDueTime(
            f"{text!r} has no time zone: end it with Z for UTC, or with an offset such as +01:00"
        )
    try:
        return When(due_ms=instant_to_ms(instant))
    except InvalidDueTime:
        raise InvalidDueTime(f"{text!r} lies before 1970") from None


def _why(text: str) -> str:
    """What people write who do not know, and why not."""
    if _LONG.match(text):
        return "months and years have no fixed length; "
    if text.startswith("-"):
        return "a delay is not negative; "
    return "a unit is missing; " if text.replace(".", "", 1).isdecimal() else ""


def parse_duration_ms(text: str) -> int:
    """A length of time in milliseconds, as in `parse_when`, where an instant makes no sense.

    Raises:
        InvalidDueTime: something else.
    """
    try:
        when = parse_when(text)
    except InvalidDueTime:
        plain = text.strip()
        if _DELAY.fullmatch(plain):
            raise
        why = _why(plain)
        raise InvalidDueTime(
            f"{text!r} is no length of time: {why}write one such as 90s, 1h30m or 3d"
        ) from None
    if when.delay_ms is None:
        raise InvalidDueTime(f"{text!r} is an instant: write a length of time such as 90s or 3d")
    return when.delay_ms


def parse_retries(text: str) -> Retries:
    """Delays of retries: a list, the name of one, or "doubling"; "+20%" behind them is the jitter.

    Raises:
        InvalidDueTime: one of the list is no length of time, or the jitter no number from 0 to 100.
    """
    plain, plus, percent = text.strip().lower().partition("+")
    jitter_percent: int | None = None
    if plus:
        number = percent.strip().removesuffix("%")
        if not _PERCENT.fullmatch(number) or int(number) > _PERCENT_MAX:
            raise InvalidDueTime(f"{text!r} has no jitter from 0 to {_PERCENT_MAX}% behind the +")
        jitter_percent = int(number)
    plain = plain.strip()
    if plain.upper() in RetryPreset.__members__:
        return Retries(RetryPreset[plain.upper()], jitter_percent)
    if plain == "doubling":
        return Retries([], jitter_percent)
    return Retries([parse_duration_ms(one) for one in plain.split(",")], jitter_percent)


def _delay_ms(text: str) -> int:
    try:
        seconds = pytimeparse2.parse(text)  # as a timedelta it would be another type with dateutil
    except OverflowError:
        raise InvalidDueTime(f"{text!r} is too long for any horizon") from None
    if not isinstance(seconds, int | float):
        raise InvalidDueTime(f"{text!r} is no delay (largest unit first, each once): {_HELP}")
    return duration_to_ms(timedelta(seconds=seconds))
