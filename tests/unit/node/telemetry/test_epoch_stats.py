"""Takeovers, and what they find overdue."""

from types import SimpleNamespace
from typing import Any

from hourwheel.types import Key
from node.telemetry.epoch_stats import EpochStats


def views(released: int, next_ms: int | None) -> Any:
    """Views that have released so many, and whose next unit is due then."""
    cursor = SimpleNamespace(released_count=released, key=Key(0, 0))
    return SimpleNamespace(cursor=cursor, wheel=SimpleNamespace(next_pending_ms=lambda _: next_ms))


def test_takeover_lasts_from_the_first_word_until_it_serves() -> None:
    stats = EpochStats()
    stats.on_elected(1_000.0)
    stats.on_elected(1_300.0)
    stats.on_serving(1_650.0, 50_000, views(10, None))
    assert (stats.takeovers, stats.takeover_ms) == (1, 650.0)
    stats.on_elected(9_000.0)
    stats.on_stepped_down()
    stats.on_elected(20_000.0)
    stats.on_serving(20_040.0, 70_000, views(10, None))
    assert (stats.takeovers, stats.takeover_ms) == (2, 40.0)


def test_overdue_messages_are_counted_until_none_is_left() -> None:
    stats = EpochStats()
    stats.on_serving(0.0, 50_000, views(10, 42_000))
    stats.on_applied(views(110, 49_000))
    stats.on_applied(views(110, 49_000))
    assert stats.catch_up_released == 100
    stats.on_applied(views(150, 50_001))
    assert stats.catch_up_released == 140
    stats.on_applied(views(900, None))
    assert stats.catch_up_released == 140


def test_nothing_is_counted_when_nothing_is_overdue() -> None:
    stats = EpochStats()
    stats.on_serving(0.0, 50_000, views(10, 50_001))
    stats.on_applied(views(60, None))
    assert stats.catch_up_released == 0


def test_counting_ends_with_the_reign() -> None:
    stats = EpochStats()
    stats.on_serving(0.0, 50_000, views(10, 42_000))
    stats.on_stepped_down()
    stats.on_applied(views(110, None))
    assert stats.catch_up_released == 0
