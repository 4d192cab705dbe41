"""Measure Hourwheel: python -m tests.bench [NAME ...] [--quick] [--tasks N] [--json PATH].

Each benchmark starts nodes of its own as child processes, on data directories that are removed
afterwards, and prints what it found beside what the project promises. A missed promise is told, not
failed; a benchmark that raises makes the exit code 1.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench import (
    audit,
    backup,
    cancel,
    cluster,
    cluster_lateness,
    failover,
    filtered_receive,
    filters,
    hot_second,
    idle,
    keys,
    lateness,
    later_tasks,
    log_source,
    machine,
    many_topics,
    noisy_principal,
    one_call,
    ordered,
    pending,
    publish,
    races,
    recurring,
    reschedule,
    revocation,
    scale,
    scraping,
    short_delays,
    small_flows,
    task_queues,
    tls_cost,
    unary,
    workers,
)
from tests.bench.results import Report, number
from tests.bench.sizes import Size

BENCHMARKS: Final[dict[str, ModuleType]] = {
    "publish": publish,
    "hot_second": hot_second,
    "filtered_receive": filtered_receive,
    "lateness": lateness,
    "short_delays": short_delays,
    "small_flows": small_flows,
    "many_topics": many_topics,
    "idle": idle,
    "cancel": cancel,
    "keys": keys,
    "recurring": recurring,
    "workers": workers,
    "task_queues": task_queues,
    "later_tasks": later_tasks,
    "ordered": ordered,
    "reschedule": reschedule,
    "races": races,
    "unary": unary,
    "one_call": one_call,
    "noisy_principal": noisy_principal,
    "revocation": revocation,
    "scale": scale,
    "cluster": cluster,
    "cluster_lateness": cluster_lateness,
    "failover": failover,
    "filters": filters,
    "pending": pending,
    "scraping": scraping,
    "tls_cost": tls_cost,
    "log_source": log_source,
    "audit": audit,
    "backup": backup,
}


@dataclass(slots=True)
class Outcome:
    """One benchmark's run."""

    name: str
    measures: str
    idle_percent: float
    """How idle the machine was just before."""
    seconds: float
    report: Report | None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """The outcome for programs."""
        report = self.report
        return {
            "name": self.name,
            "measures": self.measures,
            "machine_idle_percent_before": self.idle_percent,
            "seconds": self.seconds,
            "conditions": report.conditions if report else [],
            "rows": [row.as_json() for row in report.rows] if report else [],
            "error": self.error,
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which; all of {', '.join(BENCHMARKS)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller: a look, not a result")
    parser.add_argument("--tasks", type=int, metavar="N", help="of later_tasks: how many")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results there, too")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the data directories go (12 GB free)"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; gives the exit code."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    unknown = sorted(set(parsed.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}")
    size = Size.QUICK if parsed.quick else Size.FULL
    signal.signal(signal.SIGTERM, _leave)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-", dir=parsed.directory) as folder:
        facts = machine.read_facts(Path(folder))
        console.print(_facts_line(facts, size))
        outcomes = []
        for name in parsed.names or BENCHMARKS:
            options = {"count": parsed.tasks} if name == "later_tasks" and parsed.tasks else {}
            outcomes.append(run_one(name, size, Path(folder) / name, **options))
            _print(console, outcomes[-1])
            if parsed.json is not None:
                _write(parsed.json, facts, size, outcomes)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def _leave(number: int, _: object) -> None:
    """End as by an exception: nodes are stopped and their directories removed."""
    sys.exit(128 + number)


def run_one(name: str, size: Size, folder: Path, **options: int) -> Outcome:
    """Run one benchmark, with options of its own; what it raises is in the outcome."""
    module = BENCHMARKS[name]
    run: Callable[..., Coroutine[Any, Any, Report]] = module.run
    outcome = Outcome(name, (module.__doc__ or "").strip(), machine.idle_percent(), 0.0, None)
    begun = time.perf_counter()
    folder.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as inner:
            outcome.report = asyncio.run(run(size, Path(inner), **options))
        outcome.error = "\n".join(outcome.report.failures)
    except Exception:  # noqa: BLE001 - one failed benchmark does not keep the others from running
        outcome.error = traceback.format_exc()
    outcome.seconds = time.perf_counter() - begun
    return outcome


def _facts_line(facts: machine.Facts, size: Size) -> str:
    one, five, fifteen = facts.load_average
    return (
        f"{facts.started}  commit {facts.commit}  size {size.name.lower()}\n"
        f"{facts.cores} cores of {facts.cpu}, {facts.memory_bytes / 2**30:.1f} GiB, Linux "
        f"{facts.kernel}, {facts.file_system}\n"
        f"Python {facts.python}, numpy {facts.numpy}, grpc {facts.grpc}; load average before "
        f"{one:.2f} {five:.2f} {fifteen:.2f}"
    )


def _print(console: Console, outcome: Outcome) -> None:
    table = Table(title=f"\n{outcome.name}: {outcome.measures}", title_justify="left")
    table.add_column("what")
    table.add_column("found", justify="right")
    table.add_column("unit")
    table.add_column("promised", justify="right")
    table.add_column("")
    table.add_column("lowest, highest")
    table.add_column("note", overflow="fold")
    for row in outcome.report.rows if outcome.report else ():
        spread = f"{number(min(row.values))}, {number(max(row.values))}" if row.values else ""
        sign = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}[row.is_reached]
        promised = "" if row.target is None else str(row.target)
        table.add_row(row.name, number(row.value), row.unit, promised, sign, spread, row.note)
    console.print(table)
    for line in outcome.report.conditions if outcome.report else ():
        console.print(f"  - {line}", highlight=False)
    if outcome.idle_percent < machine.IDLE_PERCENT_MIN:
        console.print(
            f"  [yellow]the machine was only {outcome.idle_percent:.0f} % idle before: others use "
            "it, and these numbers are worse than they would be[/]"
        )
    if outcome.error:
        console.print("[red]failed[/]")
        console.print(outcome.error, markup=False, highlight=False)


def _write(path: Path, facts: machine.Facts, size: Size, outcomes: list[Outcome]) -> None:
    path.write_text(
        json.dumps(
            {
                "machine": facts.as_json(),
                "size": size.name.lower(),
                "benchmarks": [outcome.as_json() for outcome in outcomes],
            },
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
