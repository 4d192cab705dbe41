"""Histograms fed one by one and in batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.telemetry.histogram import DURATION_BOUNDS, LATENESS_BOUNDS, SIZE_BOUNDS, Histogram


@pytest.mark.parametrize("bounds", [DURATION_BOUNDS, LATENESS_BOUNDS, SIZE_BOUNDS])
def test_bounds_ascend(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_bucket_includes_its_upper_bound() -> None:
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.read().counts == [2, 2, 1]
    assert histogram.read().total == 7.5
    assert histogram.count == 5


def test_observe_many_takes_none_and_scales() -> None:
    histogram = Histogram(LATENESS_BOUNDS)
    histogram.observe_many(np.array([], np.int64))
    histogram.observe_many(np.array([0, 1, 2, 5_000_000], np.int64), 0.001)
    value = histogram.read()
    assert value.counts[:3] == [1, 1, 1]
    assert value.counts[-1] == 1
    assert value.total == pytest.approx(5_000.003)


@given(st.lists(st.floats(-10, 1e6), max_size=50))
def test_batches_count_as_single_values_do(values: list[float]) -> None:
    one_by_one, together = Histogram(DURATION_BOUNDS), Histogram(DURATION_BOUNDS)
    for value in values:
        one_by_one.observe(value)
    together.observe_many(np.array(values, np.float64))
    assert together.read().counts == one_by_one.read().counts
    assert together.read().total == pytest.approx(one_by_one.read().total)


def test_read_is_a_copy() -> None:
    histogram = Histogram([1.0])
    before = histogram.read()
    histogram.observe(0.0)
    assert before.counts == [0, 0]
