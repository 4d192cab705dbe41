import numpy as np

from spark_jobs.audit.facts import lateness
from spark_jobs.audit.facts.lateness import KEPT_MAX, LATE, LateSums, late_rows


def some(sequences: range, late_ms: int, dispatch: int) -> np.ndarray:
    count = len(sequences)
    due = np.full(count, 5_000, np.int64) - np.arange(count)
    return late_rows(
        np.array(sequences, np.uint64),
        due,
        np.full(count, 0x100, np.uint32),
        np.full(count, dispatch, np.int64),
        due + late_ms,
        1_000,
    )


def test_only_what_is_later_than_the_tolerance_is_late() -> None:
    assert len(some(range(5), 1_000, 0)) == 0
    rows = some(range(5), 1_001, 3)
    assert rows["sequence"].tolist() == [0, 1, 2, 3, 4]
    assert set(rows["late_ms"].tolist()) == {1_001}
    assert rows["dispatch"].tolist() == [3] * 5
    assert rows["due_ms"].tolist() == [5_000, 4_999, 4_998, 4_997, 4_996]


def test_sums_are_those_of_all_parts_however_they_are_cut() -> None:
    every = np.concatenate([some(range(10), 2_000, 1), some(range(10, 15), 9_000, 0)])
    whole = LateSums.of(every)
    parts = LateSums().plus(LateSums.of(every[::2])).plus(LateSums.of(every[1::2])).plus(LateSums())
    assert parts.sums.tolist() == whole.sums.tolist()
    assert whole.sums.tolist() == [(0, 5, 4_996, 5_000, 9_000), (1, 10, 4_991, 5_000, 2_000)]
    assert (whole.count, LateSums().count) == (15, 0)
    assert sorted(parts.kept.tolist()) == sorted(whole.kept.tolist())


def test_the_latest_are_kept_when_there_are_many() -> None:
    many = np.concatenate([some(range(KEPT_MAX), 2_000, 0), some(range(5_000, 5_010), 3_000, 1)])
    late = LateSums.of(many).plus(LateSums.of(np.empty(0, LATE)))
    assert late.count == KEPT_MAX + 10
    assert len(late.kept) == KEPT_MAX
    assert set(range(5_000, 5_010)) <= set(late.kept["sequence"].tolist())


def test_tolerance_is_far_above_the_objective() -> None:
    assert lateness.LATE_MS_MAX == 1_000
