"""The last checker: `hourwheel audit` over the directories that a cluster has left.

It is run as users run it, as a command; of its code nothing takes part here.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chaos.checker import Violation

_HANG_S: Final = 600.0
_CORES: Final = 2
_ACCEPTED: Final = (
    "checkpoint-missing",  # short lives of killed nodes have none
    "checkpoint-far-behind",
    "checkpoint-ahead",
    "log-trimmed",
    "log-unfinished",
    "replica-empty",
)
"""What a cluster that was killed again and again may leave that cannot be checked."""
_COMMAND: Final = (
    *(sys.executable, "-m", "hourwheel.cli", "audit", "--json", "--quiet"),
    *(f"--accept={one}" for one in _ACCEPTED),
)
_CAN_AUDIT: Final = {0, 1, 3}
"""Clean, faulty, and late: killed nodes deliver late, and how late is judged elsewhere."""
_SAID_MAX: Final = 1_000


async def audit(
    directories: Sequence[Path],
    out: Path,
    tree: Path,
    *,
    command: Sequence[str] = _COMMAND,
    hang_s: float = _HANG_S,
) -> list[Violation]:
    """Audit nodes that do not run; what is found, or why nothing could be.

    Args:
        directories: their data directories.
        out: for the report.
        tree: the checkout whose audit is run.
        command: that audits.
        hang_s: how long it may take.
    """
    process = await asyncio.create_subprocess_exec(
        *(*command, "--cores", str(_CORES), "--out", str(out), *map(str, directories)),
        cwd=tree,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, said = await asyncio.wait_for(process.communicate(), hang_s)
    except TimeoutError:
        return [Violation("audit", f"it takes more than {hang_s:.0f} s")]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return find_violations(process.returncode or 0, output, said)


def find_violations(code: int, output: bytes, said: bytes) -> list[Violation]:
    """What an audit's exit code, its JSON and its words come to."""
    try:
        summary = json.loads(output)
        errors = [_reported(one) for one in summary["errors"]]
        count = int(summary["findings"]["error"])
        partly = summary["left_out"]
    except (ValueError, KeyError, TypeError):
        text = (said or output).decode(errors="replace")[-_SAID_MAX:]
        return [Violation("audit", f"exit code {code}: {text.strip()}")]
    found = errors
    if count > len(errors):
        found = [*errors, Violation("audit", f"{count - len(errors)} more errors")]
    if code not in _CAN_AUDIT:
        reasons = [f"{one['area']} of {one['node'] or 'all'}: {one['reason']}" for one in partly]
        found = [*found, Violation("audit", f"not in full: {'; '.join(reasons)}")]
    return found


def _reported(one: dict[str, Any]) -> Violation:
    places = ("node", "file", "offset", "sequence", "position")
    where = [f"{name} {one[name]}" for name in places if one[name] not in {"", -1}]
    return Violation(f"audit: {one['check']}", f"{', '.join(where)}: {one['detail']}")
