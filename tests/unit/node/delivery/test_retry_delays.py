"""Retry delays: doubling, steps, and what spreads them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.limits import NACK_DELAY_MS_MAX
from hourwheel.types import GroupId, TopicId
from node.delivery.retry_delays import retry_delay_ms, spread_delay_ms
from storage.views.catalog_items import Group

WORKERS = Group(
    GroupId(1),
    "workers",
    attempts_max=9,
    invisible_ms=30_000,
    retry_delay_ms=1_000,
    retry_delay_ms_max=5_000,
    dead_letter_topic_id=TopicId(2),
)


@pytest.mark.parametrize(
    ("attempt", "delay_ms"),
    [(0, 1_000), (1, 1_000), (2, 2_000), (3, 4_000), (4, 5_000), (65_535, 5_000)],
)
def test_delay_doubles_up_to_the_cap(attempt: int, delay_ms: int) -> None:
    assert retry_delay_ms(WORKERS, attempt) == delay_ms


def test_delay_is_the_cap_when_the_first_one_is_longer() -> None:
    assert retry_delay_ms(replace(WORKERS, retry_delay_ms=9_000), 1) == 5_000


def test_delay_stays_none_when_the_group_has_none() -> None:
    assert retry_delay_ms(replace(WORKERS, retry_delay_ms=0), 40) == 0


@pytest.mark.parametrize(
    ("attempt", "delay_ms"), [(0, 7), (1, 7), (2, 90_000), (3, 1), (4, 1), (65_535, 1)]
)
def test_delay_goes_by_steps_and_stays_at_the_last(attempt: int, delay_ms: int) -> None:
    group = replace(WORKERS, retry_delays_ms=(7, 90_000, 1))
    assert retry_delay_ms(group, attempt) == delay_ms, "whatever the cap of the doubling"


@given(
    delay_ms=st.integers(0, NACK_DELAY_MS_MAX),
    percent=st.integers(0, 100),
    position=st.integers(0, 1 << 48),
    attempt=st.integers(1, 65_535),
)
def test_spread_delay_is_never_shorter_and_at_most_so_much_longer(
    delay_ms: int, percent: int, position: int, attempt: int
) -> None:
    group = replace(WORKERS, retry_jitter_percent=percent)
    spread_ms = spread_delay_ms(group, delay_ms, position, attempt)
    assert delay_ms <= spread_ms <= min(delay_ms + delay_ms * percent // 100, NACK_DELAY_MS_MAX)
    assert spread_ms == spread_delay_ms(group, delay_ms, position, attempt)


def test_neighbours_are_spread_over_the_whole_width() -> None:
    group = replace(WORKERS, retry_jitter_percent=50)
    spread = [spread_delay_ms(group, 10_000, position, 1) for position in range(1_000)]
    assert min(spread) < 10_100
    assert max(spread) > 14_900
    assert 12_300 < sum(spread) / len(spread) < 12_700
    again = [spread_delay_ms(group, 10_000, position, 2) for position in range(1_000)]
    assert sum(one == other for one, other in zip(spread, again, strict=True)) < 10
