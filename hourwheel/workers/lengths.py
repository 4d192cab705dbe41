"""Lengths of time as programs write them: "30s", "2h30m", or a timedelta.

A bare number is refused, but 0, which needs no unit. Who comes from Celery means seconds by it, and
who comes from dramatiq milliseconds; taken for the other, a message is a thousand times too early.
Where a name says its unit (`delay_ms`), numbers are what is wanted.
"""

from datetime import timedelta
from importlib import import_module
from typing import TypeAlias

from hourwheel import errors
from hourwheel.instants import duration_to_ms

Length: TypeAlias = str | timedelta
"""A text with units, or a timedelta."""


def length_to_ms(given: object, name: str) -> int:
    """A `Length`, or what a program gives for one, in whole milliseconds, rounded up.

    Raises:
        InvalidDueTime: no length of time, a negative one, or one without a unit.
        InvalidArgument: to read a text, an extra is missing.
    """
    if isinstance(given, timedelta):
        return duration_to_ms(given)
    if given == 0 and type(given) is int:
        return 0
    if not isinstance(given, str):
        seconds = f"{name}='{given}s'" if isinstance(given, int | float) else f"{name}='30s'"
        raise errors.InvalidDueTime(
            f"{name} is a length of time with its unit, not {given!r}: write {seconds}, "
            f"or give a timedelta"
        )
    try:
        due_time = import_module("hourwheel.due_time")
    except ImportError:
        raise errors.InvalidArgument(
            f"to read {given!r} install 'hourwheel[workers]', or give a timedelta"
        ) from None
    parsed: int = due_time.parse_duration_ms(given)
    return parsed
