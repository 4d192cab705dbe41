"""Delays that have names: RocketMQ's 18 delay levels, and what its consumers wait before a retry.

Level 1 is 1 s, level 18 is 2 h. Users of RocketMQ may go on to say levels; the cluster
itself knows milliseconds only.
"""

from enum import Enum
from typing import Final

from hourwheel.errors import InvalidDueTime

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
DELAY_LEVELS_MS: Final = (
    *(seconds * _SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
"""Delay of level n at n - 1."""
LEVEL_MAX: Final = len(DELAY_LEVELS_MS)


class RetryPreset(Enum):
    """Lists of retry delays that have a name; the values are milliseconds."""

    ROCKETMQ = DELAY_LEVELS_MS[2:]
    """What RocketMQ's consumers wait: levels 3 to 18, one further with each attempt."""


def level_to_ms(level: int) -> int:
    """The delay of a level, in milliseconds.

    Raises:
        InvalidDueTime: it is no whole number from 1 to 18.
    """
    if type(level) is not int or not 1 <= level <= LEVEL_MAX:
        raise InvalidDueTime(
            f"a delay level is a whole number from 1 to {LEVEL_MAX}, not {level!r}"
        )
    return DELAY_LEVELS_MS[level - 1]
