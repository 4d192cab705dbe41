"""Sparse counters add up; hash sums tell sets apart."""

from typing import Any

import numpy as np
import pytest

from spark_jobs.audit.facts.sums import (
    HOUR_MS,
    HourSums,
    Sparse,
    hash_units,
    sparse_counts,
    times_ms,
)


@pytest.mark.parametrize("spread", [5, 1 << 40], ids=["dense", "sparse"])
def test_counts_are_those_of_each_column(spread: int) -> None:
    rng = np.random.default_rng(3)
    first, second = rng.integers(-spread, spread, 500), rng.integers(0, 7, 20)
    found = sparse_counts(first, second)
    assert (np.diff(found.keys) > 0).all()
    for column, values in enumerate((first, second)):
        names, counts = np.unique(values, return_counts=True)
        seen = {
            k: v
            for k, v in zip(found.keys.tolist(), found.counts[:, column].tolist(), strict=True)
            if v
        }
        assert seen == dict(zip(names.tolist(), counts.tolist(), strict=True))


def test_sum_of_counters_is_the_counter_of_all() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 50, 1_000)
    both = sparse_counts(values[:400]).plus(sparse_counts(values[400:])).plus(Sparse())
    whole = sparse_counts(values)
    assert both.keys.tolist() == whole.keys.tolist()
    assert both.counts.tolist() == whole.counts.tolist()
    tens = whole.coarser(10)
    assert tens.keys.tolist() == [0, 1, 2, 3, 4]
    assert int(tens.counts.sum()) == 1_000


def sums(rows: Any) -> HourSums:
    return HourSums.of(
        rows[:, 0],
        rows[:, 1].astype(np.uint64),
        rows[:, 2],
        rows[:, 3].astype(np.uint32),
        rows[:, 4].astype(np.uint32),
    )


def rows_of(count: int) -> Any:
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 1 << 20, (count, 5))
    rows[:, 0] = rng.integers(0, 5 * HOUR_MS, count)
    return rows


def test_hour_sums_do_not_depend_on_order_or_parts() -> None:
    rows = rows_of(300)
    whole = sums(rows)
    mixed = sums(rows[::-1][:100]).plus(sums(rows[::-1][100:]))
    assert whole.differing(mixed) == []
    assert int(whole.counts.sum()) == 300


@pytest.mark.parametrize("column", range(1, 5))
def test_hour_sums_differ_when_any_field_does(column: int) -> None:
    rows = rows_of(300)
    changed = rows.copy()
    changed[7, column] += 1
    hour = int(rows[7, 0] // HOUR_MS)
    assert [one[0] for one in sums(rows).differing(sums(changed))] == [hour]


def test_hour_sums_differ_when_one_is_lost_and_another_doubled() -> None:
    rows = rows_of(300)
    rows[:, 0] = 5
    changed = rows.copy()
    changed[3] = changed[4]
    assert sums(rows).differing(sums(changed)) == [(0, 300, 300)]


def test_facts_differ_when_any_part_does() -> None:
    one = [np.array([value], np.uint64) for value in (1, 2, 3, 4)]
    base = hash_units(*one)[0]
    for at in range(4):
        other = [column.copy() for column in one]
        other[at] += np.uint64(1)
        assert hash_units(*other)[0] != base


def test_times_when_they_are_the_first_there_are_stay_in_order() -> None:
    due = np.array([-(1 << 63), -(1 << 62), 0, (1 << 63) - 1], np.int64)
    for unit_ms in (1_000, 3_600_000, 86_400_000):
        found = times_ms(due // unit_ms, unit_ms)
        assert (np.diff(found.astype(object)) > 0).all()
        assert found[2] == 0
