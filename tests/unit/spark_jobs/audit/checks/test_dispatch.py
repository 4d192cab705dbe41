"""Which DISPATCH releases a key, what breaks the chain of them, and their lagged check."""

from typing import Any

import numpy as np
import pytest

from spark_jobs.audit.checks.dispatch import (
    SUM,
    DispatchTable,
    begin_at,
    build_table,
    check_sums,
    mixed,
    positions,
    sums_by_record,
)
from spark_jobs.audit.facts.records import DISPATCH
from timewheel.cursor import mix


def records(*keys: tuple[int, int]) -> Any:
    """A right chain of records at offsets 80, 160, ..."""
    rows = np.zeros(len(keys), DISPATCH)
    before = (-1, 0)
    for at, key in enumerate(keys):
        rows[at]["offset"], rows[at]["store_ms"] = 80 * (at + 1), key[0]
        rows[at]["prev_due_ms"], rows[at]["prev_sequence"] = before
        rows[at]["to_due_ms"], rows[at]["to_sequence"] = before = key
    return rows


def table_of(*keys: tuple[int, int]) -> DispatchTable:
    table, found = build_table(records(*keys), 0)
    assert found == []
    return table


def test_mixed_sums_to_what_the_cursor_counts() -> None:
    sequences = np.random.default_rng(2).integers(0, 1 << 62, 1_000).astype(np.uint64)
    assert int(mixed(sequences).sum(dtype=np.uint64)) == mix(sequences)


def test_reaching_is_the_first_record_of_a_key_at_least() -> None:
    rng = np.random.default_rng(7)
    keys = sorted({(int(a), int(b)) for a, b in rng.integers(0, 12, (40, 2))})
    table = table_of(*keys)
    wanted = rng.integers(-1, 14, (500, 2))
    found = table.reaching(wanted[:, 0], np.maximum(wanted[:, 1], 0).astype(np.uint64))
    for (due, sequence), at in zip(wanted.tolist(), found.tolist(), strict=True):
        key = (due, max(sequence, 0))
        assert at == next((n for n, one in enumerate(keys) if one >= key), len(keys))


@pytest.mark.parametrize("span", [40, 5_000, 1 << 40])
@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_positions_are_those_of_a_bisection(span: int, count: int) -> None:
    rng = np.random.default_rng(span + count)
    ascending = np.sort(rng.integers(-5, span + 5, 300))
    values = rng.integers(0, span, count)
    found = positions(ascending, values)
    assert found.tolist() == np.searchsorted(ascending, values, "left").tolist()


def test_cursor_is_that_of_the_records_before() -> None:
    table = table_of((5, 1), (9, 0))
    assert table.cursor_at(80) == (-1, 0)
    assert table.cursor_at(81) == (5, 1)
    assert table.before(np.array([80, 81, 500], np.uint64)).tolist() == [0, 1, 2]
    assert len(table_of()) == 0
    assert table_of().reaching(np.array([1]), np.array([1], np.uint64)).tolist() == [0]


def test_table_when_its_log_begins_late_has_a_cursor_before_it() -> None:
    table = begin_at(table_of((5, 1)), (3, 2), 64)
    assert table.cursor_at(64) == (3, 2)
    assert table.reaching(np.array([3, 3]), np.array([2, 3], np.uint64)).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda rows: np.delete(rows, 1), "dispatch-chain"),
        (lambda rows: np.insert(rows, 1, rows[1]), "dispatch-chain"),
        (lambda rows: rows[[0, 2, 1]], "dispatch-chain"),
    ],
    ids=["dropped", "doubled", "swapped"],
)
def test_chain_when_it_is_broken_is_found(change: Any, check: str) -> None:
    table, found = build_table(change(records((5, 1), (9, 0), (9, 7))), 0)
    assert {one.check for one in found} == {check}
    keys = list(zip(table.to_due_ms.tolist(), table.to_sequence.tolist(), strict=True))
    assert keys == sorted(keys)


def test_dispatch_when_it_reaches_too_far_ahead_is_early() -> None:
    rows = records((5_000, 1), (9_000, 0))
    rows["store_ms"] = (4_000, 7_999)
    _, found = build_table(rows, 0)
    assert [(one.check, one.offset) for one in found] == [("dispatch-early", 160)]


def test_sums_are_by_record() -> None:
    offsets = np.array([8, 8, 16], np.uint64)
    found = sums_by_record(offsets, np.array([1, 2, 3], np.uint64))
    assert found["count"].tolist() == [2, 1]
    assert int(found["mix"][0]) == mix(np.array([1, 2], np.uint64))
    assert len(sums_by_record(offsets[:0], offsets[:0])) == 0


def test_check_when_sums_differ_names_the_first_record_only() -> None:
    sums = np.zeros(3, SUM)
    sums["offset"], sums["count"], sums["mix"] = (8, 24, 40), (2, 3, 4), (20, 30, 40)
    rows = records((1, 0), (2, 0), (3, 0), (4, 0))
    rows["check_offset"], rows["check_count"] = (8, 16, 32, 48), (0, 2, 5, 9)
    rows["check_mix"] = (0, 20, 50, 90)
    assert check_sums(rows, sums[::-1], 0, is_whole=True) == []
    rows["check_count"][2:] -= np.uint64(1)
    (found,) = check_sums(rows, sums, 0, is_whole=True)
    assert (found.check, found.offset) == ("dispatch-check", 240)
    assert check_sums(rows, sums, 0, is_whole=False) == []
