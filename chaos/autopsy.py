"""Reads what a cluster has left, and holds it against the history."""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.checker import Bounds, Violation, check
from chaos.cluster import Cluster, NotWell, ShardStatus
from chaos.copies import Copy, check_copies, check_counts, check_masterships
from chaos.history import History
from chaos.node_process import NodeProcess
from chaos.stored import LogFiles, read_stored
from hourwheel import errors

_COUNTS: Final = ("pending_count", "cancelled_count")
_AT_ONCE: Final = 2


@dataclass
class Findings:
    """What was found."""

    violations: list[Violation]
    complaints: list[str] = field(default_factory=list)
    """What nodes say only when something is wrong; no promise is broken by it."""


async def examine(cluster: Cluster, history: History, bounds: Bounds) -> Findings:
    """End a cluster that runs and has no more load, and check everything.

    Where the nodes do not come to rest, they are not compared; what clients were promised is held
    against what the newest master has applied.
    """
    rest = await end(cluster)
    violations, statuses, is_quiet = list(rest.violations), rest.statuses, not rest.violations
    newest, until = rest.newest, rest.statuses[rest.newest].applied_offset
    masterships = cluster.masterships()
    logs = {name: LogFiles(node.data) for name, node in cluster.nodes.items()}
    copies = []
    for name, digest in (await _digests(list(cluster.nodes.values()), until)).items():
        counts = {one: int(getattr(statuses[name], one)) for one in _COUNTS if name in statuses}
        own = tuple(mastership.epoch for mastership in masterships if mastership.node == name)
        log, start = logs[name].raw(0, until), logs[name].start_offset
        copies.append(Copy(name, log, start, **digest, counts=counts, epochs=own))
    gone = [
        Copy(name, b"", epochs=tuple(one.epoch for one in masterships if one.node == name))
        for name in cluster.others
    ]
    violations += [*_broken(cluster), *check_masterships([*copies, *gone], history, bounds)]
    if is_quiet:
        violations += check_copies(copies, until)
    try:
        longest = min(logs.values(), key=lambda log: log.start_offset)
        model, stored = read_stored(longest if is_quiet else logs[newest], until)
    except (AssertionError, errors.HourwheelError) as error:
        violations.append(Violation("senseless log", f"{error!r}"))
    else:
        expected = {"pending_count": len(model.waiting), "cancelled_count": len(model.cancelled)}
        violations += check_counts(copies, expected) if is_quiet else []
        violations += check(history, stored, bounds)
    return Findings(violations, [*cluster.deaths, *_complaints(cluster)])


@dataclass(frozen=True)
class Rest:
    """How a cluster stood when its processes were ended."""

    statuses: dict[str, ShardStatus]
    """Of all members; where they did not come to rest, of those that answered."""
    newest: str
    """Whose log is the longest, as far as anyone knows."""
    violations: tuple[Violation, ...] = ()
    """Empty: all were of one state, and that is the state of `statuses`."""


async def end(cluster: Cluster) -> Rest:
    """Wait until all nodes are of one state, and end them.

    What they said when they were is what counts: where the load was cut off, messages go on to fall
    due, and nodes that are asked one after the other, later, say different things.

    Raises:
        NotWell: none of them answers.
    """
    violations: tuple[Violation, ...] = ()
    try:
        statuses = await cluster.quiet()
    except NotWell as error:
        violations = (Violation("not quiet", str(error)),)
        statuses = await cluster.statuses()
    await cluster.kill_all()
    if not statuses:
        raise NotWell(f"no node answers: {violations}")
    newest = max(statuses, key=lambda name: (statuses[name].epoch, statuses[name].applied_offset))
    return Rest(statuses, newest, violations)


async def _digests(nodes: list[NodeProcess], until: int) -> dict[str, dict[str, Any]]:
    """Restored, rebuilt and fault of each node's views."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(node: NodeProcess) -> dict[str, Any]:
        async with room:
            return await _digest(node.tree, node.data, until)

    found = await asyncio.gather(*(one(node) for node in nodes))
    return {node.node_id: status for node, status in zip(nodes, found, strict=True)}


async def _digest(tree: Path, data: Path, until: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "node", "inspect", "--digest", "--json"),
        *("--until", str(until), str(data)),
        cwd=tree,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, said = await process.communicate()
    try:
        (status,) = json.loads(output)
    except ValueError:
        return {"fault": f"inspect failed: {said.decode(errors='replace')[-500:]}"}
    if "error" in status:
        return {"fault": status["error"]}
    if status["applied_offset"] != until:
        return {"fault": f"its views end at {status['applied_offset']}, not at {until}"}
    return {"restored": status["restored"], "rebuilt": status["rebuilt"]}


def _broken(cluster: Cluster) -> list[Violation]:
    """Nodes that gave themselves up because something was not as it must be."""
    return [
        Violation("broken invariant", f"{name}: {event.get('error', '')}")
        for name, node in cluster.everybody.items()
        for event in node.read_log()
        if event.get("error_type") == "InvariantViolated" and event.get("level") == "critical"
    ]


def _complaints(cluster: Cluster) -> list[str]:
    found = []
    for name, node in cluster.everybody.items():
        for event in node.read_log():
            raw = event.get("raw", "")
            is_bad = event.get("level") in {"error", "critical"} or raw.startswith("Traceback")
            if is_bad or " ERROR " in raw or " CRITICAL " in raw:
                found.append(f"{name}: {raw or json.dumps(event)}")
    return found
