import numpy as np
import pytest

from storage.views.sorting import sorted_unique


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], []), ([5], [5]), ([3, 3, 3], [3]), ([9, 1, 9, 0, 1], [0, 1, 9])],
)
def test_sorted_unique_when_any(values: list[int], expected: list[int]) -> None:
    found = sorted_unique(np.array(values, np.uint64))
    assert found.dtype == np.uint64
    assert found.tolist() == expected
