"""Delay levels: RocketMQ's, by the words of its documentation."""

from typing import Any

import pytest

from hourwheel.delay_levels import DELAY_LEVELS_MS, RetryPreset, level_to_ms
from hourwheel.errors import InvalidDueTime

ROCKETMQ = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def test_levels_are_those_of_rocketmq() -> None:
    unit_ms = {"s": 1_000, "m": 60_000, "h": 3_600_000}
    told = [int(each[:-1]) * unit_ms[each[-1]] for each in ROCKETMQ.split()]
    assert list(DELAY_LEVELS_MS) == told
    assert [level_to_ms(level) for level in range(1, 19)] == told


def test_retries_of_rocketmq_begin_with_level_3() -> None:
    assert RetryPreset.ROCKETMQ.value[:3] == (10_000, 30_000, 60_000)
    assert len(RetryPreset.ROCKETMQ.value) == 16


@pytest.mark.parametrize("level", [0, -1, 19, 1.0, "3", True, None])
def test_level_is_refused_when_there_is_none(level: Any) -> None:
    with pytest.raises(InvalidDueTime, match="from 1 to 18"):
        level_to_ms(level)
