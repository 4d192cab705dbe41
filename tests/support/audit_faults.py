"""What an audit says, in the form in which `tests.support.tampering` says what it must say."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.audit_result import AuditResult
from tests.support.audit_runs import errors_of
from tests.support.log_copies import Expected


def named(result: AuditResult) -> list[Expected]:
    """The errors of an audit, sorted."""
    return sorted(
        Expected(one.check, one.node, one.file, one.offset, one.sequence, one.position)
        for one in errors_of(result)
    )


def roots(found: Sequence[Expected]) -> list[Expected]:
    """Without what follows for checkpoints from another error: they are of the log as it was."""
    is_only = all(one.check == "checkpoint" for one in found)
    return [one for one in found if is_only or one.check != "checkpoint"]


def copies(nodes: Sequence[Path], to: Path) -> list[Path]:
    """Copies of some nodes' directories, to be tampered with."""
    return [Path(shutil.copytree(node, to / node.name)) for node in nodes]
