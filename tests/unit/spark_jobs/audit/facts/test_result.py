"""Histograms of lateness, and what the verdict says."""

import json
from dataclasses import replace

import numpy as np
import pytest

from spark_jobs.audit.facts.findings import LATE_CHECKS, LIMITS, CheckOutcome
from spark_jobs.audit.facts.result import (
    BIN_COUNT,
    EXACT_MS,
    Lateness,
    Verdict,
    bin_upper_ms,
    lateness_bins,
    percentiles_of,
)
from tests.support.audit_results import bad_result, clean_result


@pytest.mark.parametrize("late_ms", [0, 1, 9_999, 10_000, 10_001, 11_892, 20_000, 3_600_000])
def test_bin_holds_its_lateness(late_ms: int) -> None:
    bins = lateness_bins(np.array([late_ms]))
    upper = int(bin_upper_ms(bins)[0])
    assert late_ms <= upper + 1 <= max(late_ms * 1.2, late_ms + 1) + 1
    if late_ms <= EXACT_MS:
        assert upper == late_ms


def test_bins_never_fall_and_end() -> None:
    late = np.sort(np.random.default_rng(1).integers(0, 1 << 45, 10_000))
    bins = lateness_bins(late)
    assert (np.diff(bins) >= 0).all()
    assert int(bins.max()) < BIN_COUNT


def test_percentiles_are_nearest_ranks() -> None:
    bins, counts = np.array([4, 0, 100]), np.array([89, 1, 10])
    assert percentiles_of(bins, counts, (0.5, 0.9, 0.99, 1.0)) == [4, 4, 100, 100]
    assert percentiles_of(bins[:0], counts[:0], (0.5,)) == []


def test_lateness_by_topic_and_hour_adds_up() -> None:
    one = np.array([1, 1, 2])
    late = Lateness(one, np.array([0, 0, 3_600_000]), np.array([1, 3, 5]), np.array([2, 2, 1]))
    assert late.by_topic_and_hour() == [(1, 0, 4, [1, 3, 3, 3]), (2, 3_600_000, 1, [5, 5, 5, 5])]
    assert late.select(topic_id=2).percentiles() == [5, 5, 5, 5]
    assert [column.tolist() for column in late.histogram()] == [[1, 3, 5], [2, 2, 1]]


def test_verdict_is_clean_only_when_all_could_be_checked() -> None:
    clean = clean_result()
    assert clean.verdict is Verdict.CLEAN
    assert clean.verdict.exit_code == 0
    behind = CheckOutcome("wheel", 0, "n", "checkpoint-behind", "why")
    assert replace(clean, checks=(behind,)).verdict is Verdict.CLEAN, "a bound, and nothing more"
    missing = CheckOutcome("wheel", 0, "n", "file-unread", "why")
    unsure = replace(clean, checks=(*clean.checks, missing))
    assert (unsure.verdict, unsure.verdict.exit_code) == (Verdict.INCOMPLETE, 2)
    assert (bad_result().verdict, bad_result().verdict.exit_code) == (Verdict.FAULTY, 1)
    assert replace(clean, shards=()).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_what_was_left_out_is_never_clean(limit: str) -> None:
    one = CheckOutcome("queues", 0, "node-1", limit, "why")
    result = replace(clean_result(), checks=(one,))
    is_left_out = LIMITS[limit].made.leaves_out
    assert (result.verdict, result.verdict.exit_code) == (
        (Verdict.INCOMPLETE, 2) if is_left_out else (Verdict.CLEAN, 0)
    )
    assert [each["limit"] for each in result.summary()["left_out"]] == [limit] * is_left_out
    accepted = replace(result, accepted=(limit,))
    assert accepted.verdict is Verdict.CLEAN
    assert accepted.summary()["left_out"] == []


@pytest.mark.parametrize("check", sorted(LATE_CHECKS))
def test_what_was_late_is_never_clean(check: str) -> None:
    late = replace(clean_result(), finding_counts={("warning", check, 0): 1})
    assert (late.verdict, late.verdict.exit_code) == (Verdict.LATE, 3)
    missing = CheckOutcome("wheel", 0, "n", "file-unread", "why")
    assert replace(late, checks=(missing,)).verdict is Verdict.INCOMPLETE
    counts = {**late.finding_counts, ("error", "log-corrupt", 0): 1}
    assert replace(late, finding_counts=counts).verdict is Verdict.FAULTY


def test_summary_is_plain_json() -> None:
    summary = json.loads(json.dumps(bad_result().summary()))
    assert summary["verdict"] == "faulty"
    assert summary["findings"]["error"] == 2
    assert summary["shards"][0]["totals"]["published"] == 1_000_000


def test_findings_are_an_arrow_table() -> None:
    table = bad_result().findings_table()
    assert table.num_rows == 3
    assert table.column("check").to_pylist()[0] == "queue-missing"
