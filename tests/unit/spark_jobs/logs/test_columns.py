"""Columns become Arrow with the types that they promise, bits kept and rows chosen."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.logs.columns import TABLES, arrow_type, make_array, named

BIG = (1 << 64) - 2


def test_names_when_looked_up_are_words_or_nothing() -> None:
    ids = np.array([3, 1, 2, 9, 1 << 24], np.uint32)
    assert named(ids, {1: "a", 3: "c"}).to_pylist() == ["c", "a", None, None, None]
    assert named(ids, {}).to_pylist() == [None] * 5
    assert named(ids, {1: "a", 1 << 24: "z"}).to_pylist() == [None, "a", None, None, "z"]


@pytest.mark.parametrize(
    ("ddl", "found", "expected"),
    [
        ("bigint", np.array([1, 2, BIG], np.uint64), [1, 2, -2]),
        ("bigint", np.array([5, 6, 1 << 31], np.uint32), [5, 6, 1 << 31]),
        ("int", np.array([1, 2, 255], np.uint8), [1, 2, 255]),
        ("boolean", np.array([True, False, True]), [True, False, True]),
        ("string", "n1", ["n1"] * 3),
        ("int", 7, [7] * 3),
        ("binary", [b"a", b"", b"c"], [b"a", b"", b"c"]),
        ("array<string>", [["a"], [], ["b", "c"]], [["a"], [], ["b", "c"]]),
        ("map<string,string>", [(("k", "v"),), (), ()], [[("k", "v")], [], []]),
    ],
)
def test_column_when_made_has_its_type_and_rows(ddl: str, found: Any, expected: list[Any]) -> None:
    array = make_array(ddl, found, 3)
    assert array.type == arrow_type(ddl)
    assert array.to_pylist() == expected
    kept = make_array(ddl, found, 3, np.array([2, 0]))
    assert kept.to_pylist() == [expected[2], expected[0]]


def test_fields_when_they_lie_apart_in_memory_are_taken_all_the_same() -> None:
    rows = np.array([(1, BIG), (2, 5)], [("a", "<u4"), ("b", "<u8")])
    assert make_array("bigint", rows["b"], 2).to_pylist() == [-2, 5]
    assert make_array("bigint", rows["a"], 2).to_pylist() == [1, 2]


def test_tables_when_looked_at_have_known_types_only() -> None:
    for table in TABLES.values():
        for column in table.values():
            assert isinstance(arrow_type(column.ddl), pa.DataType)
