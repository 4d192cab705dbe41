"""Hourwheel beside others on the same work: python -m tests.bench.peers [PEER ...] [--quick].

Each peer is a server of its own on the loopback interface, on an empty folder, with this process as
its only client. All are told to have a message on the disk before they accept it. Peers that are
not installed are left out, and named. docs/BENCHMARKS.md says what each of them does not do.
"""

import argparse
import importlib
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench import machine, subject
from tests.bench.peers.peer import Peer
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.results import number
from tests.bench.sizes import Size

MODULES: Final = ("hourwheel", "redis", "postgresql", "rocksdb", "rocketmq")
"""Each has `PEERS`; what it needs is imported only when it runs."""
REPETITIONS: Final = 3


@dataclass(slots=True)
class Results:
    """What was found: by figure, then by peer, one value for each repetition."""

    peers: dict[str, str] = field(default_factory=dict)
    """What each peer promises, by its name."""
    missing: dict[str, str] = field(default_factory=dict)
    """Peers that are not installed, and what is missing."""
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    """Runs before which others used the machine."""

    def add(self, peer: str, figures: Mapping[str, float]) -> None:
        """Figures of one repetition."""
        for name, value in figures.items():
            self.values.setdefault(name, {}).setdefault(peer, []).append(value)

    def cell(self, figure: str, peer: str) -> str:
        """The median, and the lowest and the highest of several."""
        found = self.values[figure].get(peer)
        if not found:
            return ""
        middle = number(statistics.median(found))
        return (
            middle if len(found) == 1 else f"{middle} ({number(min(found))}-{number(max(found))})"
        )


def run(
    names: Sequence[str],
    workloads: Sequence[str],
    size: Size,
    folder: Path,
    keep: Callable[[Results], None],
) -> Results:
    """Run each workload for each peer, on a server and a folder of its own.

    `keep` has what was found so far after each run: half an hour's work outlives what ends it.
    """
    results = Results()
    for name in names:
        try:
            module = importlib.import_module(f"tests.bench.peers.{name}_peer")
            version = module.version()
        except (ImportError, OSError) as error:
            results.missing[name] = str(error)
            continue
        kinds: Sequence[type[Peer]] = module.PEERS
        for kind in kinds:
            results.peers[kind.name] = f"{version}; {kind.durability}"
            for workload in workloads:
                for repetition in range(size.pick(1, 1, REPETITIONS)):
                    label = f"{kind.name}, {workload}, {repetition}"
                    _run_one(
                        kind, workload, size, folder / label.replace(", ", "-"), label, results
                    )
                    keep(results)
    return results


def _run_one(
    kind: type[Peer], workload: str, size: Size, folder: Path, label: str, results: Results
) -> None:
    folder.mkdir()
    folder.chmod(0o755)  # a server with an account of its own goes through it
    if (idle := machine.idle_percent()) < machine.IDLE_PERCENT_MIN:
        results.busy.append(f"{label}: {idle:.0f} % idle")
    peer = kind()
    try:
        peer.start(folder)
        with subject.frozen_garbage():
            results.add(kind.name, WORKLOADS[workload](peer, size))
    except (RuntimeError, OSError) as error:
        results.failed.append(f"{label}: {error}")
    finally:
        peer.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; gives the exit code: 1 where a run failed or a message was lost or early."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"all of {', '.join(MODULES)}")
    parser.add_argument("--work", action="append", choices=list(WORKLOADS), help="only this one")
    parser.add_argument("--quick", action="store_true", help="smaller and once: a look, no result")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results there, too")
    parsed = parser.parse_args(arguments)
    if unknown := sorted(set(parsed.peers) - set(MODULES)):
        parser.error(f"there is no peer {', '.join(unknown)}")
    size = Size.QUICK if parsed.quick else Size.FULL
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="hourwheel-peers-") as root:
        folder = Path(root)
        folder.chmod(0o755)
        facts = machine.read_facts(folder)

        def keep(results: Results) -> None:
            if parsed.json is not None:
                parsed.json.parent.mkdir(parents=True, exist_ok=True)
                parsed.json.write_text(json.dumps(_as_json(results, facts), indent=2) + "\n")

        results = run(parsed.peers or MODULES, parsed.work or list(WORKLOADS), size, folder, keep)
    _print(Console(width=None if sys.stdout.isatty() else 200), results, facts)
    return 1 if results.failed else 0


def _leave(number: int, _: object) -> None:
    """End as by an exception: servers are stopped and their folders removed."""
    sys.exit(128 + number)


def _print(console: Console, results: Results, facts: machine.Facts) -> None:
    table = Table(title="Median (lowest-highest)", title_justify="left")
    table.add_column("")
    for peer in results.peers:
        table.add_column(peer, justify="right")
    for figure in results.values:
        table.add_row(figure, *(results.cell(figure, peer) for peer in results.peers))
    console.print(table)
    console.print(
        f"{facts.started}, commit {facts.commit}, {facts.cores} cores of {facts.cpu}, "
        f"{facts.file_system}, Python {facts.python}",
        highlight=False,
    )
    for peer, promise in results.peers.items():
        console.print(f"  - {peer}: {promise}", highlight=False)
    for name, reason in results.missing.items():
        console.print(f"  - left out: {name}: {reason}", highlight=False)
    for line in results.busy:
        console.print(f"  [yellow]- others used the machine before {line}[/]", highlight=False)
    for line in results.failed:
        console.print(f"  [red]- failed: {line}[/]", highlight=False)


def _as_json(results: Results, facts: machine.Facts) -> dict[str, Any]:
    return {
        "machine": facts.as_json(),
        "peers": results.peers,
        "missing": results.missing,
        "values": results.values,
        "busy": results.busy,
        "failed": results.failed,
    }


if __name__ == "__main__":
    sys.exit(main())
