"""Slot directories lead to every unit, and chains to every run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.audit.checks.directories import broken_chains, plan_chains
from spark_jobs.audit.checks.wheel import plan_wheel, sum_wheel
from tests.support.audit_runs import run_audit
from tests.support.audited import copied, only_copy
from tests.support.log_edits import rewrite_run
from tests.support.log_maker import Made


def faults(node: Path, change: Callable[[Any, Any], None]) -> list[str]:
    """What is told of a node whose runs have other slot directories, all checksums right."""
    for path in (node / "shard-0" / "wheel").glob("*.run"):
        rewrite_run(path, change)
    replica, copy = only_copy(node)
    assert copy.manifest is not None
    tasks = plan_wheel(replica, copy, copy.manifest)
    found = [why for task in tasks for _, why in sum_wheel(task).misled]
    return found + [why for _, why in broken_chains(plan_chains(replica, copy, copy.manifest))]


def nothing(sections: Any, directories: Any) -> None:
    del sections, directories


def shift(sections: Any, directories: Any) -> None:
    directories["first"] += directories["count"] > 0
    del sections


def move_one(sections: Any, directories: Any) -> None:
    """The first slot with units has one more, and the last with units one fewer."""
    del sections
    for each in directories:
        having = each["count"].nonzero()[0]
        each["count"][having[0]] += 1
        each["count"][having[-1]] -= 1
        each["first"][having[-1]] += 1


def count_more(sections: Any, directories: Any) -> None:
    """A slot without units has one."""
    del sections
    for each in directories:
        each["count"][(each["count"] == 0).nonzero()[0][0]] = 1


def end_chains(sections: Any, directories: Any) -> None:
    directories["previous_run"] = 0
    del sections


def lead_forward(sections: Any, directories: Any) -> None:
    directories["previous_run"] = 1 << 30
    del sections


def test_directories_of_a_right_log_lead_to_all(made: Made, tmp_path: Path) -> None:
    assert faults(copied(made.directory, tmp_path), nothing) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (shift, "leads past"),
        (move_one, "leads past"),
        (count_more, "units of the"),
        (end_chains, "leads to run 0, past run"),
        (lead_forward, "which is not an older one"),
    ],
)
def test_directory_that_leads_astray_is_told(
    made: Made, tmp_path: Path, change: Callable[[Any, Any], None], words: str
) -> None:
    node = copied(made.directory, tmp_path)
    assert any(words in one for one in faults(node, change))
    result = run_audit(node)
    assert {one.check for one in result.findings if one.severity == "error"} == {"wheel-directory"}


def test_directory_that_nobody_looks_into_any_more_is_not_judged(
    made: Made, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    assert faults(node, shift)
    replica, copy = only_copy(node)
    assert copy.manifest is not None
    (chains,) = [plan_chains(replica, copy, copy.manifest)]
    assert broken_chains(chains._replace(cursor_ms=1 << 60)) == []
    tasks = plan_wheel(replica, copy, copy.manifest)
    late = [sum_wheel(task._replace(cursor=(1 << 60, 0))) for task in tasks]
    assert [one.misled for one in late] == [[] for _ in tasks]
