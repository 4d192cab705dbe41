from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from timewheel.levels import (
    BUCKET_MS,
    DAY_LEVEL,
    DAY_MS,
    HOUR_LEVEL,
    HOUR_MS,
    SECOND_MS,
    SLOT_MS,
    SLOTS,
    day_of,
    hour_of,
    tick_of,
)

OF = [(tick_of, SECOND_MS), (hour_of, HOUR_MS), (day_of, DAY_MS)]


def instant(text: str) -> int:
    """An ISO time in UTC as epoch milliseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(("of", "length_ms"), OF)
@pytest.mark.parametrize("ordinal", [0, 1, 20_000, 1 << 30])
def test_number_when_at_the_borders_of_its_stretch(
    of: Callable[[int], int], length_ms: int, ordinal: int
) -> None:
    start = ordinal * length_ms
    assert [of(start - 1), of(start), of(start + length_ms - 1), of(start + length_ms)] == [
        ordinal - 1,
        ordinal,
        ordinal,
        ordinal + 1,
    ]


@pytest.mark.parametrize(("of", "length_ms"), OF)
def test_number_when_before_the_epoch_lies_below_zero(
    of: Callable[[int], int], length_ms: int
) -> None:
    # KEY_MIN is one millisecond before the epoch: truncation would put it into stretch 0.
    assert of(-1) == -1
    assert of(-length_ms) == -1
    assert of(-length_ms - 1) == -2


@pytest.mark.parametrize("level", [HOUR_LEVEL, DAY_LEVEL])
def test_slots_when_laid_end_to_end_fill_a_bucket(level: int) -> None:
    assert SLOTS[level] * SLOT_MS[level] == BUCKET_MS[level]


@pytest.mark.parametrize(
    ("due", "level", "bucket_start", "slot"),
    [
        ("2027-03-01T11:00:02.000", HOUR_LEVEL, "2027-03-01T11:00", 2),
        ("2027-03-02T23:59:59.999", HOUR_LEVEL, "2027-03-02T23:00", 3599),
        ("2027-03-03T00:00:00.000", DAY_LEVEL, "2027-03-03T00:00", 0),
        ("2029-02-28T12:00:00.000", DAY_LEVEL, "2029-02-28T00:00", 12),
    ],
)
def test_bucket_and_slot_when_in_the_worked_example(
    due: str, level: int, bucket_start: str, slot: int
) -> None:
    due_ms = instant(due)
    assert due_ms // BUCKET_MS[level] == instant(bucket_start) // BUCKET_MS[level]
    assert due_ms % BUCKET_MS[level] // SLOT_MS[level] == slot
