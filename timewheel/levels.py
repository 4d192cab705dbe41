"""Which level, bucket and slot an instant falls into: pure arithmetic.

    near   milliseconds   near.py: in memory, the next seconds in key order
    hours  `level` 0      hour sections of runs, for the days below `hour_level_end_day`; their
                          directories have 3,600 slots, one a second
    days   `level` 1      day sections of runs, for the days from there to the horizon; their
                          directories have 24 slots, one an hour

A worked example. It is 2027-03-01 10:59:58.250 UTC, `hour_level_end_day` is 2027-03-03:

    due 2027-03-01 10:59:59.100   850 ms ahead: in the memtable and, in the near level
    due 2027-03-01 11:00:02.000   bucket "hour 11 of 03-01", slot 2; loaded into the near level soon
    due 2027-03-02 23:59:59.999   bucket "hour 23 of 03-02", slot 3599
    due 2027-03-03 00:00:00.000   bucket "day 03-03", slot 0
    due 2029-02-28 12:00:00.000   bucket "day 2029-02-28", slot 12

At some moment of 03-01 the end of the hour level moves to 03-04: new units of 03-03 go into hour
sections from then on, and a cascade rewrites the day sections of 03-03 as hour sections.
"""

from typing import Final

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

SLOTS_PER_HOUR: Final = 3_600
SLOTS_PER_DAY: Final = 24

HOUR_LEVEL: Final = 0
"""`level` of a run whose sections are hours, with a slot a second."""
DAY_LEVEL: Final = 1
"""`level` of a run whose sections are days, with a slot an hour."""

BUCKET_MS: Final = (HOUR_MS, DAY_MS)
"""By level: length of a bucket."""
SLOT_MS: Final = (SECOND_MS, HOUR_MS)
"""By level: length of a slot."""
SLOTS: Final = (SLOTS_PER_HOUR, SLOTS_PER_DAY)
"""By level: slots of a bucket's directory."""


def hour_of(due_ms: int) -> int:
    """Hours since the Unix epoch: the number of the hour bucket."""
    return due_ms // HOUR_MS


def day_of(due_ms: int) -> int:
    """Days since the Unix epoch: the number of the day bucket."""
    return due_ms // DAY_MS


def tick_of(due_ms: int) -> int:
    """Seconds since the Unix epoch: the tick that releases this instant."""
    return due_ms // SECOND_MS
