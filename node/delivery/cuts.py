"""How much of what stands next in a queue goes into one answer."""

import numpy as np
from numpy.typing import NDArray

from storage.views.unit import FEW_UNITS, Units, rows_of


def blob_bytes(units: Units) -> NDArray[np.int64]:
    """int64[n]: bytes of each unit's meta and body."""
    sizes: NDArray[np.int64] = units["body_len"].astype(np.int64) + units["meta_len"]
    return sizes


def cut(units: Units, bytes_max: int) -> Units:
    """The first units whose blobs fit, and that were published to one topic; at least one."""
    if len(units) > FEW_UNITS:
        return _cut_to_origin(_cut_to_bytes(units, bytes_max))
    if len(units) <= 1:
        return units
    rows, total_bytes = rows_of(units), 0
    for ordinal, row in enumerate(rows):
        total_bytes += row.blob_bytes
        if ordinal and (total_bytes > bytes_max or row.origin_topic != rows[0].origin_topic):
            return units[:ordinal]
    return units


def _cut_to_bytes(units: Units, bytes_max: int) -> Units:
    """The first units whose blobs fit, and at least one."""
    sizes = units["body_len"].astype("i8") + units["meta_len"]
    total = sizes.cumsum()
    if int(total[-1]) <= bytes_max:
        return units
    return units[: max(1, int(total.searchsorted(bytes_max, "right")))]


def _cut_to_origin(units: Units) -> Units:
    """The first units that were published to one topic: dead letters are of several."""
    origins = units["origin_topic"]
    same = origins == origins[0]
    return units if same.all() else units[: int(same.argmin())]


def good_run(bad: list[int], count: int) -> tuple[int, int]:
    """[low, high) of the first run without a bad one."""
    low = 0
    for index in [*bad, count]:
        if index > low:
            return low, index
        low = index + 1
    return count, count
