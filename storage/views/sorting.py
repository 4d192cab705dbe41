"""Helpers for sorted arrays."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integer = TypeVar("Integer", bound=np.integer)


def sorted_unique(values: NDArray[Integer]) -> NDArray[Integer]:
    """The different values, ascending. `np.unique` hashes integers: ten times as long."""
    ascending = np.sort(values)
    is_first = np.ones(len(values), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    found: NDArray[Integer] = ascending[is_first]
    return found
