"""Units for tests."""

import numpy as np

from storage.views.unit import UNIT, Units


def make_units(first_sequence: int, count: int, *, due_ms: int = 1_000, **columns: int) -> Units:
    """`count` units with sequences from `first_sequence` on, all other columns alike."""
    units = np.zeros(count, UNIT)
    units["sequence"] = np.arange(first_sequence, first_sequence + count)
    units["due_ms"] = due_ms
    units["dlog_id"] = 1
    units["attempt"] = 1
    for name, value in columns.items():
        units[name] = value
    return units
