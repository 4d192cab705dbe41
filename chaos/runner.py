"""Plays scenarios: cluster, load, rounds of faults, rest, autopsy; keeps what a replay needs."""

import asyncio
import json
import random
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from chaos.autopsy import examine
from chaos.checker import Bounds, Violation, told
from chaos.cluster import Cluster
from chaos.faults import clock_plan
from chaos.history import History
from chaos.message_mix import Mix
from chaos.network import Loopback, Network
from chaos.node_process import TREE
from chaos.scenarios import Scenario
from chaos.stage import Stage
from chaos.workload import Workload
from hourwheel import errors

MIX: Final = Mix(open_max=800, delay_ms_max=1_200)
NODES: Final = ("n1", "n2", "n3")
Say = Callable[[str], None]


@dataclass
class Result:
    """What came of a scenario."""

    scenario: str
    seed: int
    rounds: int = 0
    history: History = field(default_factory=History)
    violations: list[Violation] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    failovers_ms: list[float] = field(default_factory=list)
    failure: str = ""
    """Why it could not be played to its end; empty: it was."""

    @property
    def is_good(self) -> bool:
        """Played to the end, nothing promised was broken."""
        return not self.violations and not self.failure

    @property
    def operations(self) -> int:
        """Messages sent, cancelled, received, finished."""
        history = self.history
        return sum(
            map(len, (history.sent, history.cancels, history.deliveries, history.finishes))
        )

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        history = self.history
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "rounds": self.rounds,
            "operations": self.operations,
            "sent": len(history.sent),
            "accepted": len(history.accepted),
            "deliveries": len(history.deliveries),
            "faults": len(history.faults),
            "violations": [one._asdict() for one in self.violations],
            "complaints": self.complaints,
            "failovers_ms": self.failovers_ms,
            "failure": self.failure,
        }

    def report(self) -> str:
        """For people, when something is wrong."""
        lines = [f"{self.scenario}, seed {self.seed}: round {self.rounds}"]
        lines += [self.failure] * bool(self.failure)
        lines += [told(self.violations)] * bool(self.violations)
        return "\n".join(lines)


@dataclass(frozen=True)
class Options:
    """How to play."""

    folder: Path
    """For everything; a scenario that was good leaves nothing unless `keeps_all`."""
    rounds: int | None = None
    """None: as the scenario says."""
    minutes: float | None = None
    """Instead of rounds."""
    keeps_all: bool = False
    tree: Path = TREE
    mix: Mix = MIX


async def play(scenario: Scenario, seed: int, options: Options, say: Say) -> Result:
    """Play one scenario. Whatever happens is in the result."""
    result = Result(scenario.name, seed)
    folder = options.folder / f"{scenario.name}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        async with choose_network(scenario, folder) as network:
            cluster = Cluster(folder, network, NODES, values=scenario.values, tree=options.tree)
            await _play(cluster, scenario, result, options, say)
    except (Exception, asyncio.CancelledError) as error:
        result.failure = "".join(traceback.format_exception(error))
        if isinstance(error, asyncio.CancelledError):
            raise
    finally:
        result.history.save(folder / "history.jsonl")
        (folder / "result.json").write_text(json.dumps(result.as_json(), indent=1))
    if result.is_good and not options.keeps_all:
        shutil.rmtree(folder)
    return result


def choose_network(scenario: Scenario, folder: Path) -> Network:
    """One that can do what the scenario needs."""
    del folder
    if scenario.needs == "cuts":
        raise errors.FailedPrecondition("not yet")
    return Loopback(NODES)


async def _play(
    cluster: Cluster, scenario: Scenario, result: Result, options: Options, say: Say
) -> None:
    for node in cluster.nodes.values():
        if scenario.needs == "clocks":
            node.plan = clock_plan(node)
    async with cluster:
        load = Workload(cluster.servers, result.seed, options.mix)
        result.history = load.history
        stage = Stage(cluster, load, random.Random(result.seed))
        result.failovers_ms = stage.failovers_ms
        async with load.running():
            await _rounds(scenario, stage, result, options, say)
            await load.settle()
        result.violations += [
            Violation("given up", f"a client that tries for 2 minutes: {error!r}")
            for error in load.given_up
        ]
        findings = await examine(cluster, load.history, Bounds(clock_ms=scenario.clock_ms))
        result.violations += findings.violations
        result.complaints = findings.complaints


async def _rounds(
    scenario: Scenario, stage: Stage, result: Result, options: Options, say: Say
) -> None:
    count = scenario.rounds if options.rounds is None else options.rounds
    begun_ms = stage.clock.monotonic_ms()
    while True:
        spent = (stage.clock.monotonic_ms() - begun_ms) / 60_000
        if result.rounds >= count if options.minutes is None else spent >= options.minutes:
            return
        await stage.some_load()
        before = len(stage.failovers_ms)
        await scenario.play(stage)
        result.rounds += 1
        took = ", ".join(f"{one:.0f} ms" for one in stage.failovers_ms[before:])
        say(f"{scenario.name} round {result.rounds}: {took or 'served'}")


HEADINGS: Final = (
    "scenario",
    "rounds",
    "operations",
    "faults",
    "violations",
    "failover median",
    "max",
)


def table(results: list[Result]) -> str:
    """What came of all, for people."""
    rows = [HEADINGS, *(_row(one) for one in results)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _row(one: Result) -> tuple[str, ...]:
    times = one.failovers_ms
    return (
        one.scenario,
        str(one.rounds),
        str(one.operations),
        str(len(one.history.faults)),
        "FAILED" if one.failure else str(len(one.violations)),
        f"{median(times):.0f} ms" if times else "-",
        f"{max(times):.0f} ms" if times else "-",
    )
