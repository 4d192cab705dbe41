"""Coverage by package, and what counts as a fault of it."""

from typing import Any

from tests.tidy.coverage_floors import find_faults, percent_by_package, raised


def file(ran: int, statements: int, branches_ran: int = 0, branches: int = 0) -> dict[str, Any]:
    return {
        "summary": {
            "covered_lines": ran,
            "num_statements": statements,
            "covered_branches": branches_ran,
            "num_branches": branches,
        }
    }


def test_percent_counts_statements_and_branches_of_a_package() -> None:
    report = {
        "files": {
            "node/shard/apply.py": file(6, 10, 1, 10),
            "node/shard/deep/more.py": file(10, 10, 8, 10),
            "filters/gene.py": file(1, 2),
            "filters/__init__.py": file(0, 0),
            "node/__init__.py": file(0, 0),
        }
    }
    assert percent_by_package(report) == {"filters": 50.0, "node/shard": 62.5}


def test_package_is_a_fault_when_it_is_below_its_floor_or_one_of_both_is_missing() -> None:
    measured = {"a": 70.0, "b": 69.9, "c": 99.0}
    assert find_faults(measured, {"a": 70, "b": 69, "c": 99}) == []
    assert find_faults(measured, {"a": 71, "b": 69, "d": 1}) == [
        "a: 70.0 %, and was 71 % or more",
        "c: has no floor",
        "d: a floor, and no such package",
    ]


def test_floors_never_sink_when_raised() -> None:
    assert raised({"a": 71.9, "b": 51.0, "new": 13.3}, {"a": 60, "b": 55, "gone": 9}) == {
        "a": 70,
        "b": 55,
        "new": 12,
    }
