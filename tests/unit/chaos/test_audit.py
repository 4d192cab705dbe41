"""The audit as the last checker: what it says becomes violations."""

import json
import sys
from pathlib import Path
from typing import Any

from chaos.audit import audit, find_violations

FOUND = {
    "check": "queue-missing",
    "node": "n2",
    "file": "shard-0/queues/00000100/000000000000.cq",
    "offset": 96,
    "sequence": 7,
    "position": -1,
    "detail": "it has no entry",
}


def summary(*errors: dict[str, Any], count: int | None = None, made: str = "full") -> bytes:
    number = len(errors) if count is None else count
    checks = [{"area": "wheel", "node": "n1", "made": made, "reason": "a run is damaged"}]
    left_out = checks if made == "not-made" else []
    content = {"errors": errors, "findings": {"error": number}, "left_out": left_out}
    return json.dumps(content).encode()


def test_violations_when_nothing_is_wrong_are_none() -> None:
    assert find_violations(0, summary(), b"") == []
    assert find_violations(0, summary(made="bounded"), b"") == []
    assert find_violations(3, summary(), b"") == [], "late is no violation"


def test_violation_when_an_error_is_found_says_where() -> None:
    (found,) = find_violations(1, summary(FOUND), b"")
    assert found.name == "audit: queue-missing"
    assert found.text == (
        "node n2, file shard-0/queues/00000100/000000000000.cq, offset 96, sequence 7:"
        " it has no entry"
    )
    assert [one.text for one in find_violations(1, summary(FOUND, count=3), b"")][1:] == [
        "2 more errors"
    ]


def test_violation_when_it_was_not_made_in_full_says_why() -> None:
    (found,) = find_violations(2, summary(made="not-made"), b"")
    assert (found.name, found.text) == ("audit", "not in full: wheel of n1: a run is damaged")
    (found,) = find_violations(2, b"", b'{"error": "NO_JAVA"}\n')
    assert found.text == 'exit code 2: {"error": "NO_JAVA"}'


async def test_audit_is_run_over_all_directories(tmp_path: Path) -> None:
    say = f"import sys; print({summary(FOUND).decode()!r}); sys.exit(len(sys.argv) != 7)"
    command = (sys.executable, "-c", say)
    found = await audit([tmp_path, tmp_path], tmp_path / "out", tmp_path, command=command)
    assert [one.name for one in found] == ["audit: queue-missing"]


async def test_violation_when_it_hangs_is_that(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "input()")
    (found,) = await audit([tmp_path], tmp_path, tmp_path, command=command, hang_s=0.0)
    assert found.name == "audit"
