"""RESOLVE rows of one record that continue one another are one row; others are not."""

import numpy as np

from hourwheel.formats.record_batch import RESOLVE_ROW, TRIM_ROW, Kind
from spark_jobs.audit.facts.records import FIELDS, ROW_BUILDERS
from spark_jobs.logs.block_table import HEADER


def test_neighbouring_positions_of_one_record_are_one_row() -> None:
    rows = np.zeros(5, RESOLVE_ROW)
    rows["first_position"], rows["count"] = (0, 1, 3, 7, 8), (1, 2, 1, 1, 1)
    rows["outcome"] = (1, 1, 2, 1, 1)
    headers = np.zeros(5, HEADER)
    headers["offset"] = (80, 80, 80, 80, 160)
    found = ROW_BUILDERS[Kind.RESOLVE](headers, rows)
    assert list(zip(found["first"].tolist(), found["end"].tolist(), strict=True)) == [
        (0, 3),
        (3, 4),
        (7, 8),
        (8, 9),
    ]
    assert found["offset"].tolist() == [80, 80, 80, 160]


def test_every_kind_of_row_has_a_place() -> None:
    # Rows of RECURRENCE are cancels as others.
    assert {*FIELDS.values(), int(Kind.RECURRENCE)} == set(ROW_BUILDERS)
    rows = np.array([(5,)], TRIM_ROW)
    assert ROW_BUILDERS[Kind.TRIM](np.zeros(1, HEADER), rows).tolist() == [(0, 5, 0)]
