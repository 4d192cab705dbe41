"""Findings are counted all and kept in part; every check that is given has a meaning."""

import re
from pathlib import Path

from spark_jobs.audit.facts import findings
from spark_jobs.audit.facts.findings import (
    ALL_CHECKS,
    CHECKS,
    FINDING_COLUMNS,
    FINDINGS_KEPT,
    Finding,
    FindingSet,
    columns_of,
    of_problem,
)
from spark_jobs.logs.replica import ERROR, INFO, PROBLEMS, Problem

ROOM = Path(findings.__file__).parents[1]


def finding(check: str = "queue-missing", offset: int = 0, severity: str = ERROR) -> Finding:
    return Finding(severity, check, 0, "node-1", offset=offset)


def test_checks_are_all_given_somewhere_and_kebab_case() -> None:
    code = "".join(path.read_text() for path in ROOM.rglob("*.py"))
    assert [name for name in CHECKS if f'"{name}"' not in code] == []
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", name) for name in ALL_CHECKS)


def test_findings_when_there_are_many_are_counted_all() -> None:
    found = FindingSet()
    found.add(finding(offset=at) for at in range(FINDINGS_KEPT + 5))
    found.add([finding("log-hole")])
    assert len(found.kept) == FINDINGS_KEPT + 1
    assert found.counts[ERROR, "queue-missing", 0] == FINDINGS_KEPT + 5
    assert found.count(ERROR) == FINDINGS_KEPT + 6
    both = FindingSet()
    both.add([finding()])
    both.merge(found)
    assert both.counts[ERROR, "queue-missing", 0] == FINDINGS_KEPT + 6
    assert len(both.kept) == FINDINGS_KEPT + 1


def test_findings_when_sorted_have_errors_first() -> None:
    found = FindingSet()
    found.add([finding(severity=INFO), finding(offset=9), finding(offset=3)])
    assert [(one.severity, one.offset) for one in found.sorted()] == [
        (ERROR, 3),
        (ERROR, 9),
        (INFO, 0),
    ]


def test_columns_are_those_of_a_finding() -> None:
    assert [name for name, _ in FINDING_COLUMNS] == list(Finding._fields)
    assert columns_of([finding(offset=7)])["offset"] == [7]
    assert columns_of([finding(offset=(1 << 64) - 1)])["offset"] == [(1 << 63) - 1]


def test_problem_becomes_a_finding_with_its_place() -> None:
    name = next(iter(PROBLEMS))
    found = of_problem(Problem(name, ERROR, "n", 2, "a/b", 5, "why"))
    assert found[:6] == (ERROR, name, 2, "n", "a/b", 5)
    assert found.detail == "why"


def test_findings_when_taken_back_are_not_counted() -> None:
    found = FindingSet()
    found.add([finding(offset=1), finding(offset=1), finding(offset=2), finding(severity=INFO)])
    found.remove([finding(offset=1), finding(offset=2)])
    assert found.kept == [finding(offset=1), finding(severity=INFO)]
    assert found.count(ERROR) == 1
    found.remove([finding(offset=1)])
    assert (ERROR, "queue-missing", 0) not in found.counts


def test_findings_when_dropped_are_counted_kept_or_not() -> None:
    found = FindingSet()
    found.add(finding(offset=one) for one in range(FINDINGS_KEPT + 5))
    found.add([finding(severity=INFO), finding()._replace(check="log-corrupt")])
    assert found.drop(ERROR, but=["log-corrupt"]) == FINDINGS_KEPT + 5
    assert [one.check for one in found.kept] == ["queue-missing", "log-corrupt"]
    assert found.count(ERROR) == 1
