"""When messages recur: where clocks change, what is left out, what is refused."""

import random
import time
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors, limits
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.outcomes import Missed
from node.broker.recurring.occurrence_times import (
    INSTANT_MS_MAX,
    check_times,
    dates_of,
    excluded_days,
    plan_next,
    schedule_of,
)

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000


def local_times(cron: str, zone: str, day: str, *, until_hour: int = 4) -> list[str]:
    """Times of the wall at which it takes place on a day, up to an hour, in their order."""
    schedule = schedule_of(RecurrenceConfig(cron=cron, zone=zone))
    at_ms: int | None = ms(day, zone) - 1
    found = []
    while at_ms is not None:
        at_ms = schedule.after(at_ms)
        local = datetime.fromtimestamp((at_ms or 0) / 1_000, ZoneInfo(zone))
        if local.date().isoformat() != day or local.hour >= until_hour:
            return found
        found.append(local.strftime("%H:%M"))
    return found


# The table of docs/guides/recurring.md; of a half-hourly one what is not before 01:00.
@pytest.mark.parametrize(
    ("zone", "day", "daily", "often"),
    [
        ("Europe/Berlin", "2027-03-28", ["03:00"], ["01:00", "01:30", "03:00", "03:30"]),
        (
            *("Europe/Berlin", "2027-10-31", ["02:30"]),
            ["01:00", "01:30", "02:00", "02:30", "02:00", "02:30", "03:00", "03:30"],
        ),
        ("America/New_York", "2027-03-14", ["03:00"], ["01:00", "01:30", "03:00", "03:30"]),
        (
            *("America/New_York", "2027-11-07", ["02:30"]),
            ["01:00", "01:30", "01:00", "01:30", "02:00", "02:30", "03:00", "03:30"],
        ),
        (
            *("Australia/Lord_Howe", "2027-10-03", ["02:30"]),
            ["01:00", "01:30", "02:30", "03:00", "03:30"],
        ),
        (
            *("Asia/Tokyo", "2027-03-28", ["02:30"]),
            ["01:00", "01:30", "02:00", "02:30", "03:00", "03:30"],
        ),
    ],
)
def test_times_where_clocks_change(zone: str, day: str, daily: list[str], often: list[str]) -> None:
    assert local_times("30 2 * * *", zone, day) == daily
    assert local_times("*/30 * * * *", zone, day)[2:] == often
    assert local_times("0 */30 * * * *", zone, day)[2:] == often


def test_times_in_one_gap_are_one() -> None:
    found = local_times("0,15,30 2 * * *", "Europe/Berlin", "2027-03-28")
    assert found == ["03:00"]


def test_time_that_comes_twice_takes_place_at_the_first_of_them() -> None:
    zone = ZoneInfo("Europe/Berlin")
    schedule = schedule_of(RecurrenceConfig(cron="30 2 * * *", zone="Europe/Berlin"))
    first = datetime(2027, 10, 31, 2, 30, tzinfo=zone)
    first_ms = int(first.timestamp() * 1_000)
    assert schedule.after(first_ms - 1) == first_ms
    # From anywhere between and behind the two it is the next day's.
    for minutes in (0, 15, 30, 45, 60, 75):
        assert schedule.after(first_ms + minutes * 60_000) == first_ms + DAY_MS + 3_600_000


@given(
    cron=st.sampled_from(
        ["0 9 * * MON-FRI", "*/7 3 * * *", "15 2,3 * * *", "0 */5 * * *", "0 0 L * *", "5 1 1 * *"]
    ),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    start=st.integers(ms("2026-12-01"), ms("2028-01-01")),
    steps=st.lists(st.integers(0, 40 * DAY_MS), max_size=4),
)
def test_each_instant_leads_to_the_next_of_one_list(
    cron: str, zone: str, start: int, steps: list[int]
) -> None:
    """Wherever one begins, the times that follow are the same."""
    schedule = schedule_of(RecurrenceConfig(cron=cron, zone=zone))
    at_ms, every = start, []
    for _ in range(40):
        found = schedule.after(at_ms)
        assert found is not None
        assert found > at_ms
        every.append(found)
        at_ms = found
    for step in steps:
        asked_ms = start + step
        later = [one for one in every if one > asked_ms]
        if later:
            assert schedule.after(asked_ms) == later[0]


@given(
    every_ms=st.integers(1_000, 10**10),
    start=st.integers(0, 2 * NOW_MS),
    after=st.integers(0, 2 * NOW_MS),
)
def test_interval_is_counted_from_its_start(every_ms: int, start: int, after: int) -> None:
    found = schedule_of(RecurrenceConfig(every_ms=every_ms, start_ms=start)).after(after)
    assert found is not None
    assert found > after
    assert (found - start) % every_ms == 0
    assert found - every_ms <= after or found == start


def test_start_end_and_excluded_dates_bound_an_expression() -> None:
    days = excluded_days(["2027-12-24", "2027-12-27", "2027-12-24"])
    assert dates_of(days) == ["2027-12-24", "2027-12-27"]
    config = RecurrenceConfig(
        cron="0 9 * * MON-FRI",
        zone="Europe/Berlin",
        start_ms=ms("2027-12-23"),
        end_ms=ms("2027-12-29T09:00", "Europe/Berlin"),
        excluded_days=days,
    )
    schedule, at_ms, found = schedule_of(config), ms("2027-01-01"), list[str]()
    while (next_ms := schedule.after(at_ms)) is not None:
        at_ms = next_ms
        found.append(datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%d %H:%M"))
    assert found == ["23 08:00", "28 08:00", "29 08:00"]


def test_years_of_excluded_dates_are_left_out_up_to_a_gap_in_them() -> None:
    first = (date(2027, 3, 1) - date(1970, 1, 1)).days
    gap = (date(2028, 3, 26) - date(1970, 1, 1)).days  # clocks are put forward
    days = [one for one in range(first, first + 900) if one != gap]
    config = RecurrenceConfig(cron="30 9 * * *", zone="Europe/Berlin", excluded_days=days)
    schedule = schedule_of(config)
    found = [schedule.after(int(datetime(2027, 3, 1, tzinfo=UTC).timestamp()) * 1_000)]
    found.append(schedule.after(found[0] or 0))
    assert [datetime.fromtimestamp((one or 0) / 1_000, UTC) for one in found] == [
        datetime(2028, 3, 26, 7, 30, tzinfo=UTC),
        datetime(2029, 8, 17, 7, 30, tzinfo=UTC),
    ]


def test_excluded_dates_hold_for_intervals_in_their_zone() -> None:
    config = RecurrenceConfig(every_ms=6 * 3_600_000, start_ms=ms("2027-06-01"), zone="Asia/Tokyo")
    config.excluded_days.append((date(2027, 6, 2) - date(1970, 1, 1)).days)
    # In Tokyo that day is from 15:00 to 15:00 UTC.
    assert schedule_of(config).after(ms("2027-06-01T12:00")) == ms("2027-06-02T18:00")


LAST_DAYS = [(date(9999, 12, 31) - date(1970, 1, 1)).days - at for at in range(366)]
"""No date follows the last of them."""


@pytest.mark.parametrize("times", [{"every_ms": DAY_MS}, {"cron": "0 9 * * *"}])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_excluded_dates_up_to_the_last_one_leave_nothing_behind_them(
    zone: str, times: dict[str, Any]
) -> None:
    start_ms = ms("9998-12-31T09:00", zone)
    config = RecurrenceConfig(zone=zone, start_ms=start_ms, excluded_days=LAST_DAYS, **times)
    assert schedule_of(config).after(NOW_MS) is None
    with pytest.raises(errors.InvalidRecurrence):
        check_times(config, NOW_MS)


def test_last_one_that_was_missed_is_found_without_years_of_excluded_dates() -> None:
    first = date(2027, 3, 1)  # a Monday; all that follow it are excluded, for nineteen years
    number = (first - date(1970, 1, 1)).days
    days = [number + 7 * week for week in range(1, limits.EXCLUDED_DATE_COUNT_MAX + 1)]
    schedule = schedule_of(RecurrenceConfig(cron="0 9 * * MON", excluded_days=days))
    due_ms = ms("2027-03-01T09:00")
    begun_s = time.process_time()
    assert schedule.find_after(due_ms) == due_ms + 7 * 1_001 * DAY_MS
    one_s = time.process_time() - begun_s
    begun_s = time.process_time()
    planned = plan_next(schedule, Missed.LAST, due_ms - 1_234_567, due_ms + 3 * DAY_MS)
    assert planned == (due_ms, False)
    assert time.process_time() - begun_s < 3 * one_s, "the search asks some forty times"


def test_schedules_with_many_excluded_dates_are_kept_in_little_memory() -> None:
    chooser, count = random.Random(5), 200
    tracemalloc.start()
    for _ in range(count):
        days = chooser.sample(range(21_000, 60_000), limits.EXCLUDED_DATE_COUNT_MAX)
        config = RecurrenceConfig(cron="0 9 * * *", excluded_days=sorted(days))
        assert schedule_of(config).after(NOW_MS)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes < count * 8 * limits.EXCLUDED_DATE_COUNT_MAX


@pytest.mark.parametrize("missed", [Missed.ALL, Missed.LAST, Missed.NONE])
@given(
    behind=st.integers(0, 50_000_000), every_ms=st.integers(1_000, 5_000_000), late=st.booleans()
)
def test_plan_is_that_of_the_policy(missed: int, behind: int, every_ms: int, late: bool) -> None:
    schedule = schedule_of(RecurrenceConfig(every_ms=every_ms, start_ms=NOW_MS))
    now_ms = NOW_MS + behind
    planned = plan_next(schedule, missed, NOW_MS, now_ms)
    all_ms = range(NOW_MS + every_ms, now_ms + 2 * every_ms + 1, every_ms)
    in_time = [one for one in all_ms if one >= now_ms - limits.RECURRENCE_MISSED_MS]
    expected = all_ms[0]
    if missed == Missed.NONE:
        expected = in_time[0]
    elif missed == Missed.LAST and all_ms[0] not in in_time:
        expected = [one for one in all_ms if one <= now_ms][-1]
    assert planned == (expected, expected != all_ms[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"cron": "0 9 * * *", "every_ms": 60_000},
        {"cron": "0 9 * *"},
        {"cron": "0 9 * * * * *"},
        {"cron": "60 9 * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "* * */20 * 1L"},
        {"cron": "0 9 * * ß"},
        {"cron": "1," * 200 + "1 * * * *"},
        {"cron": "* * * * * *"},
        {"cron": "0,58 * * * * *"},
        {"every_ms": 999, "count_max": 1},
        {"every_ms": 4_999},
        {"every_ms": 1 << 60},
        {"every_ms": 60_000, "start_ms": 1 << 62},
        {"every_ms": 60_000, "end_ms": NOW_MS - 1},
        {"cron": "0 9 * * *", "zone": "Mars/Phobos"},
        {"cron": "0 9 * * *", "zone": "../../etc/passwd"},
        {"cron": "0 9 * * *", "zone": "Europe"},
        {"cron": "0 9 * * *", "zone": "x" * 100},
    ],
)
def test_times_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidRecurrence):
        check_times(RecurrenceConfig(**wrong), NOW_MS)


@pytest.mark.parametrize(
    "right",
    [
        {"cron": "* * * * * *", "count_max": 1},
        {"cron": "*/5 * * * * *"},
        {"every_ms": 1_000, "end_ms": NOW_MS + 5_000},
        {"cron": "0 0 29 2 *"},
    ],
)
def test_times_at_the_bounds_are_taken(right: dict[str, Any]) -> None:
    assert check_times(RecurrenceConfig(**right), NOW_MS) > NOW_MS


@pytest.mark.parametrize("wrong", [["2027-02-30"], ["tomorrow"], ["1969-12-31"], [""]])
def test_dates_that_are_none_are_refused(wrong: list[str]) -> None:
    with pytest.raises(errors.InvalidRecurrence):
        excluded_days(wrong)
    with pytest.raises(errors.InvalidRecurrence):
        excluded_days(["2027-01-01"] * (limits.EXCLUDED_DATE_COUNT_MAX + 1))


def test_expression_costs_little_whatever_it_is() -> None:
    """Nobody looks further ahead than some years."""
    schedule = schedule_of(RecurrenceConfig(cron="0 0 29 2 MON", zone="UTC"))
    found = schedule.after(ms("2027-01-01"))
    assert found is None or found < ms("2027-01-01") + timedelta(days=3_700).total_seconds() * 1_000


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "59 59 23 31 12 *", "0 0 1 6 *"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati"])
def test_times_behind_the_last_date_that_there_is_never_come(cron: str, zone: str) -> None:
    with pytest.raises(errors.InvalidRecurrence, match="no occurrence comes"):
        check_times(RecurrenceConfig(cron=cron, zone=zone, start_ms=INSTANT_MS_MAX), NOW_MS)
