from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors, instants


@given(st.integers(0, 10**15))
def test_duration_when_it_is_no_whole_millisecond(microseconds: int) -> None:
    ms = instants.duration_to_ms(timedelta(microseconds=microseconds))
    assert ms == -(-microseconds // 1_000)


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - gets one below
    st.integers(-1_439, 1_439),
)
def test_instant_when_it_has_a_zone(naive: datetime, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    ms = instants.instant_to_ms(naive.replace(tzinfo=zone))
    since = naive - timedelta(minutes=offset_minutes) - datetime(1970, 1, 1)  # noqa: DTZ001
    assert timedelta(0) <= timedelta(milliseconds=ms) - since < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("instant", "why"),
    [
        (datetime(2027, 3, 1, 9), "time zone"),  # noqa: DTZ001
        (datetime(1969, 12, 31, tzinfo=UTC), "before 1970"),
        (date(2027, 3, 1), "is a datetime"),
        (1_800_000_000, "is a datetime"),
        (timedelta(1), "is a datetime"),
    ],
)
def test_instant_when_it_is_none(instant: object, why: str) -> None:
    with pytest.raises(errors.InvalidDueTime, match=why):
        instants.instant_to_ms(instant)  # type: ignore[arg-type]


@pytest.mark.parametrize("duration", [-timedelta(microseconds=1), 5, 5.0, "5s"])
def test_duration_when_it_is_none(duration: object) -> None:
    with pytest.raises(errors.InvalidDueTime):
        instants.duration_to_ms(duration)  # type: ignore[arg-type]


def test_count_when_given_either_way() -> None:
    assert instants.count_of_ms(1_500, "ms") == 1_500
    assert instants.count_of_ms(timedelta(seconds=1.5), "ms") == 1_500


@pytest.mark.parametrize("given", [-1, 1.5, "1", True, None, 1 << 32, timedelta(-1)])
def test_count_when_it_is_none(given: object) -> None:
    with pytest.raises(errors.InvalidArgument):
        instants.count_of_ms(given, "ms")  # type: ignore[arg-type]


def test_instants_when_they_are_seconds_by_mistake() -> None:
    with pytest.raises(errors.InvalidDueTime, match="1970-01-21, before 2001-01-01") as caught:
        instants.check_instant(1_790_000_000)
    assert caught.value.params == {"due_ms": "1790000000", "due_ms_min": "978307200000"}
    instants.check_instant(1_790_000_000_000)
    instants.check_instant(instants.INSTANT_MS_MIN)
    instants.check_instant(0, 0)


@pytest.mark.parametrize("given", [-1, -0.5, float("nan"), "1", True, None])
def test_wait_when_it_is_none(given: object) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"^wait_ms is a timedelta .* not {given!r}"):
        instants.wait_of_ms(given, "wait_ms")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidDueTime):
        instants.wait_of_ms(timedelta(-1), "wait_ms")


def test_wait_when_it_is_one() -> None:
    assert instants.wait_of_ms(0, "wait_ms") == 0
    assert instants.wait_of_ms(1.5, "wait_ms") == 1.5
    assert instants.wait_of_ms(timedelta(seconds=2), "wait_ms") == 2_000
    for endless in (float("inf"), 10**400):
        assert 10**15 < instants.wait_of_ms(endless, "wait_ms") < float("inf")


def test_earliest_when_some_or_none_are_known() -> None:
    assert instants.earliest() is instants.earliest(None, None) is None
    assert instants.earliest(None, 7, 0, None, 3) == 0
