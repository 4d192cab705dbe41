"""What an audit says, in the form in which `tests.support.tampering` says what it must say."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.audit.causes import name_of
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.result import AuditResult
from tests.support.audit_runs import errors_of
from tests.support.log_copies import Expected


def named(result: AuditResult, chosen: Sequence[Finding] | None = None) -> list[Expected]:
    """The errors of an audit, or some of them, sorted."""
    return sorted(
        Expected(one.check, one.node, one.file, one.offset, one.sequence, one.position)
        for one in (errors_of(result) if chosen is None else chosen)
    )


def roots(result: AuditResult) -> list[Expected]:
    """The same, of those that follow from nothing else.

    All others must follow from one of them, by its name.
    """
    every = errors_of(result)
    names = {name_of(one) for one in every if not one.cause}
    lost = [one for one in every if one.cause and one.cause not in names]
    assert not lost, f"they follow from what is not told: {lost[:3]}"
    return named(result, [one for one in every if not one.cause])


def told(result: AuditResult, expected: Sequence[Expected]) -> list[Expected]:
    """The errors of an audit, without those that were not expected and follow from another one.

    For many faults at once, of which one may be told as what follows from another.
    """
    left = Counter(expected)
    found: list[Finding] = []
    for one in errors_of(result):
        (place,) = named(result, [one])
        if left[place] or not one.cause:
            found.append(one)
        left[place] -= 1
    return named(result, found)


def copies(nodes: Sequence[Path], to: Path) -> list[Path]:
    """Copies of some nodes' directories, to be tampered with."""
    return [Path(shutil.copytree(node, to / node.name)) for node in nodes]
