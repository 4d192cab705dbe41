"""Plays scenarios: cluster, load, rounds of faults, rest, autopsy; keeps what a replay needs."""

import asyncio
import json
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from chaos.audit import audit
from chaos.autopsy import examine
from chaos.certificates import can_certify
from chaos.checker import Bounds, Violation, describe
from chaos.cluster import HANG_S, Cluster, NotWell
from chaos.faults import clock_plan
from chaos.history import History
from chaos.machine import PowerDisk, Tmpfs, can_lose_power, can_mount, power_disk, tmpfs
from chaos.message_mix import Mix
from chaos.namespaces import Namespaces, can_make_namespaces
from chaos.network import Loopback, Network
from chaos.node_process import TREE, NodeProcess
from chaos.proxies import Proxies
from chaos.scenarios import ROOM_MIB, ROOMLESS, Scenario
from chaos.stage import Stage
from chaos.workload import Workload

MIX: Final = Mix(open_max=400, delay_ms_max=1_200)
NODES: Final = ("n1", "n2", "n3")
_POWER_MIB: Final = 512
_FAILURE_LINES: Final = 12
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
    handed_out_ms: list[float] = field(default_factory=list)
    obstacle: str = ""
    """Why it was not played here."""
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
        return sum(map(len, (history.sent, history.cancels, history.deliveries, history.finishes)))

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
            "handed_out_ms": self.handed_out_ms,
            "failure": self.failure,
        }

    def report(self) -> str:
        """For people, when something is wrong."""
        lines = [f"{self.scenario}, seed {self.seed}: round {self.rounds}"]
        lines += self.failure.splitlines()[-_FAILURE_LINES:]
        lines += [describe(self.violations)] * bool(self.violations)
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
    pending: int = 0
    """Messages of the far future that are there before the first fault."""
    tree: Path = TREE
    python: str = sys.executable
    """The interpreter that runs the tree."""
    mix: Mix = MIX
    nodes: tuple[str, ...] = NODES
    launcher: tuple[str, ...] = ()
    """Another module than `node` to run: for tests of the checker."""
    hang_s: float = 120.0
    """How long a client may wait for anything; nodes half of that, if it is more than a minute."""
    network: str = "auto"
    """auto, loopback, proxies or namespaces."""
    audits: bool = False
    """In the end let `hourwheel audit` check what the nodes have left; needs Java."""
    is_guarded: bool = False
    """With TLS and access control, also where the scenario does not ask for it."""
    revoked_ms: float = Bounds().revoked_ms
    """How long a grant that was taken away may still let calls through."""


async def play(scenario: Scenario, seed: int, options: Options, say: Say) -> Result:
    """Play one scenario. Whatever happens is in the result."""
    is_guarded = scenario.is_guarded or options.is_guarded
    result = Result(scenario.name, seed, obstacle=find_obstacle(scenario, is_guarded=is_guarded))
    if result.obstacle:
        return result
    folder = options.folder / f"{scenario.name}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        async with choose_network(scenario, options) as network:
            cluster = Cluster(
                folder,
                network,
                options.nodes,
                values=scenario.values,
                tree=options.tree,
                hang_s=max(min(HANG_S, options.hang_s), options.hang_s / 2),
                is_guarded=is_guarded,
            )
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


def choose_network(scenario: Scenario, options: Options) -> Network:
    """What is wished; else one that can do what the scenario needs: the kernel's own if may be."""
    wish, nodes = options.network, options.nodes
    if scenario.needs == "newcomers":
        wish = "loopback"
    if wish == "auto":
        wish = "loopback"
        if scenario.needs == "cuts":
            wish = "namespaces" if can_make_namespaces() and can_certify() else "proxies"
    if wish == "namespaces":
        return Namespaces(nodes)
    return Proxies(nodes) if wish == "proxies" else Loopback(nodes)


def find_obstacle(scenario: Scenario, *, is_guarded: bool = False) -> str:
    """Why a scenario cannot be played on this machine; empty: it can."""
    if is_guarded and not can_certify():
        return "there is no openssl to make certificates"
    if scenario.needs == "power" and not can_lose_power():
        return "no file system can be mounted and shut down here"
    return (
        "no file system can be mounted here"
        if scenario.needs in {"room", "rooms"} and not can_mount()
        else ""
    )


class _Disks(NamedTuple):
    """Of the harness's own, where the scenario needs some."""

    power: PowerDisk | None
    rooms: dict[str, Tmpfs]


@contextmanager
def _disks(cluster: Cluster, scenario: Scenario) -> Iterator[_Disks]:
    """Make what the scenario needs; what was on it is kept."""
    mounted: dict[str, NodeProcess] = {}
    with ExitStack() as stack:
        disks = _Disks(None, {})
        if scenario.needs == "power":
            power = stack.enter_context(power_disk(cluster.folder, _POWER_MIB))
            disks, mounted = _Disks(power, {}), cluster.nodes
            for name, node in mounted.items():
                node.disk = power.path / name
        elif scenario.needs in {"room", "rooms"}:
            names = list(cluster.nodes) if scenario.needs == "rooms" else [ROOMLESS]
            for name in names:
                node = mounted[name] = cluster.nodes[name]
                node.folder.mkdir()
                room = stack.enter_context(tmpfs(node.folder / "small", ROOM_MIB))
                node.disk, disks.rooms[name] = room.path / "data", room
        try:
            yield disks
        finally:
            for node in mounted.values():
                with suppress(OSError):  # shutil.Error is one: a disk without power is not read
                    shutil.copytree(node.data, node.folder / "data")


async def _play(
    cluster: Cluster, scenario: Scenario, result: Result, options: Options, say: Say
) -> None:
    for node in cluster.nodes.values():
        node.launcher, node.python = options.launcher, options.python
        if scenario.needs == "clocks":
            node.plan = clock_plan(node)
    with _disks(cluster, scenario) as disks:
        await _play_on(cluster, disks, scenario, result, options, say)


async def _play_on(
    cluster: Cluster,
    disks: _Disks,
    scenario: Scenario,
    result: Result,
    options: Options,
    say: Say,
) -> None:
    async with cluster:
        if cluster.principals is not None:
            addresses = [node.api for node in cluster.nodes.values()]
            await cluster.principals.introduce(addresses, cluster.hang_s)
        load = Workload(
            cluster.servers,
            result.seed,
            options.mix,
            hang_s=options.hang_s,
            principals=cluster.principals,
        )
        result.history = load.history
        stage = Stage(cluster, load, random.Random(result.seed), *disks)
        result.failovers_ms = stage.failovers_ms
        result.handed_out_ms = stage.handed_out_ms
        try:
            async with load.running():
                await stage.prefill(options.pending)
                await _rounds(scenario, stage, result, options, say)
                await load.settle()
        except ExceptionGroup as group:
            hung, others = group.split((TimeoutError, NotWell))
            if others is not None or hung is None:
                raise
            load.history.is_cut_off = not load.is_stopping
            left = f"{load.open_count} messages are still waited for: {_where(hung)}"
            result.violations.append(Violation("not served", left))
        result.violations += [
            Violation("given up", f"a client that tries for {options.hang_s:.0f} s: {error!r}")
            for error in load.given_up
        ]
        bounds = Bounds(clock_ms=scenario.clock_ms, revoked_ms=options.revoked_ms)
        findings = await examine(cluster, load.history, bounds)
        result.violations += findings.violations
        result.complaints = findings.complaints
        if options.audits:
            directories = [node.data for node in cluster.nodes.values()]
            result.violations += await audit(directories, cluster.folder / "audit", options.tree)


def _where(hung: BaseException) -> str:
    """What was waited for, by the harness's own lines: what is below them says nothing."""
    while isinstance(hung, BaseExceptionGroup):
        hung = hung.exceptions[0]
    frames = traceback.extract_tb(hung.__traceback__)
    own = [one for one in frames if Path(one.filename).parent.name == "chaos"]
    return f"{hung!r}\n{''.join(traceback.format_list(own))}"


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
        times = zip(stage.failovers_ms[before:], stage.handed_out_ms[before:], strict=True)
        took = ", ".join(f"{seen:.0f} ms (handed out {out:.0f} ms)" for seen, out in times)
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
    if one.obstacle:
        return (one.scenario, "-", "-", "-", "not here", "-", "-")
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
