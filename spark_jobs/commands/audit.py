"""`hourwheel audit`: prove from the logs that every message was delivered, once and on time.

Exit codes: 0 clean, 1 faulty, 2 incomplete (or no audit at all), 3 nothing wrong but late.
"""

import argparse
import sys
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from hourwheel import errors
from hourwheel.clock import SystemClock
from spark_jobs.audit.facts.findings import ALL_CHECKS, LIMITS, Finding
from spark_jobs.audit.facts.lateness import LATE_MS_MAX
from spark_jobs.audit.facts.result import AuditResult, Verdict
from spark_jobs.audit.plots import instant_text
from spark_jobs.audit.words import sentences
from spark_jobs.commands.options import number, open_session, write_line
from spark_jobs.logs.replica import ERROR, INFO
from spark_jobs.runtime.progress import Progress

DESCRIPTION: Final = (
    "Read the logs, queues and delay indexes of all given replicas, and prove that every accepted"
    " message was released once and on time, cancelled, or is pending; or name what is not so."
    " Changes nothing, and may be used while nodes run. Exit codes: 0 clean; 1 faulty; 2"
    " incomplete, or no audit at all; 3 late: nothing is wrong, and not everything was on time."
)
OUT: Final = "hourwheel-audit"
_SHOWN: Final = 20
_STYLES: Final = {
    Verdict.CLEAN: "bold green",
    Verdict.FAULTY: "bold red",
    Verdict.INCOMPLETE: "bold yellow",
    Verdict.LATE: "bold yellow",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="DIR",
        help="data directory of a node or a copy of one, a folder above several, or a URI (s3://)",
    )
    parser.add_argument(
        "--out",
        default=OUT,
        metavar="DIR",
        help="where report.html, summary.json and Parquet files go (%(default)s)",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="CHECK",
        help="leave the findings of a check out; may be given several times",
    )
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="NODE",
        help="id of a node that must be there; may be given several times",
    )
    parser.add_argument(
        "--lead-ms",
        type=number,
        default=None,
        metavar="MS",
        help="the nodes' dispatch.lead_ms_max; default: the largest there is",
    )
    parser.add_argument(
        "--late-ms",
        type=number,
        default=LATE_MS_MAX,
        metavar="MS",
        help="what is released later after its due time was not on time (%(default)s)",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="LIMIT",
        help="take for granted that something cannot be checked, as log-trimmed; may be given"
        " several times",
    )
    parser.add_argument(
        "--checkpoint-lag-bytes",
        type=number,
        default=None,
        metavar="BYTES",
        help="a checkpoint that is further behind the log leaves too much unchecked; default: six"
        " times 64 MiB",
    )
    parser.add_argument(
        "--list-checks", action=_ListChecks, help="list all checks and limits, and end"
    )


class _ListChecks(argparse.Action):
    """Print what can be found."""

    def __init__(self, option_strings: list[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help=settings.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for name, says in sorted(ALL_CHECKS.items()):
            sys.stdout.write(f"{name:<22} {says}\n")
        sys.stdout.write("\nLimits (--accept):\n")
        for name, limit in sorted(LIMITS.items()):
            sys.stdout.write(f"{name:<22} {limit.made.value}: {limit.says}\n")
        parser.exit()


def run(parsed: argparse.Namespace) -> int:
    """Audit, write the report, show the verdict.

    Raises:
        ConfigError: a name that is no check's or no limit's.
        HourwheelError: see `delivery_audit.audit`.
    """
    unknown = sorted(set(parsed.ignore) - set(ALL_CHECKS))
    if unknown:
        raise errors.ConfigError(f"no such check: {', '.join(unknown)}; see --list-checks")
    unknown = sorted(set(parsed.accept) - set(LIMITS))
    if unknown:
        raise errors.ConfigError(f"no such limit: {', '.join(unknown)}; see --list-checks")
    with open_session(parsed, "audit") as spark:
        from spark_jobs.audit import report  # noqa: PLC0415 - needs pyarrow, help does not
        from spark_jobs.audit.delivery import audit  # noqa: PLC0415
        from spark_jobs.audit.shard import AuditOptions  # noqa: PLC0415 - after Java was found

        options = AuditOptions(expected_nodes=tuple(parsed.expect), late_ms_max=parsed.late_ms)
        if parsed.lead_ms is not None:
            options = replace(options, lead_ms_max=parsed.lead_ms)
        if parsed.checkpoint_lag_bytes is not None:
            options = replace(options, checkpoint_lag_bytes_max=parsed.checkpoint_lag_bytes)
        with Progress(
            spark.sparkContext, "auditing", is_quiet=parsed.quiet or parsed.json
        ) as shown:
            result = audit(spark, parsed.paths, options, progress=shown)
    accepted = tuple(sorted(set(parsed.accept)))
    result = replace(leave_out(result, parsed.ignore), accepted=accepted)
    try:
        written = report.write(result, parsed.out, made_ms=int(SystemClock().wall_ms()))
    except (OSError, errors.ConfigError):
        if not parsed.json:
            show(result, {})  # an audit of hours: what it found is not to be lost
        raise
    if parsed.json:
        found = [one._asdict() for one in result.findings if one.severity == ERROR]
        write_line({**result.summary(), "files": written, "errors": found[:_SHOWN]})
    else:
        show(result, written)
    return result.verdict.exit_code


def leave_out(result: AuditResult, checks: list[str]) -> AuditResult:
    """The result without the findings of some checks; `facts` say how many there were."""
    if not checks:
        return result
    left = {
        check: sum(n for (_, name, _), n in result.finding_counts.items() if name == check)
        for check in sorted(set(checks))
    }
    return replace(
        result,
        findings=tuple(one for one in result.findings if one.check not in left),
        finding_counts={
            key: count for key, count in result.finding_counts.items() if key[1] not in left
        },
        facts={**result.facts, "ignored": left},
    )


def show(result: AuditResult, written: dict[str, str]) -> None:
    """The verdict for a terminal; `written`: where its files are, as far as they are."""
    from spark_jobs.audit import report  # noqa: PLC0415 - needs pyarrow, help does not

    console = Console(highlight=False, soft_wrap=True, markup=False)  # names are no markup
    verdict = result.verdict
    replicas = sum(len(shard.replicas) for shard in result.shards)
    messages = sum(shard.totals.published - shard.totals.void for shard in result.shards)
    console.print(Text(verdict.value.upper(), style=_STYLES[verdict]), end="")
    console.print(f"  {messages:,} messages, replicas: {replicas}, {result.seconds:.1f} s")
    for sentence in sentences(result):
        console.print(Text(f"  {sentence}"))
    for shard in result.shards:
        totals = shard.totals
        console.print(
            f"shard {shard.shard}: {totals.released:,} released, {totals.cancelled:,} cancelled,"
            f" {totals.pending:,} pending, {totals.redelivered:,} redelivered,"
            f" {totals.dead_lettered:,} dead letters"
        )
        late = shard.lateness.percentiles()
        if late:
            p50, p90, p99, worst = late
            console.print(
                f"  lateness: p50 {p50:,} ms, p90 {p90:,} ms, p99 {p99:,} ms, max {worst:,} ms"
            )
        names = ", ".join(one.node for one in shard.replicas)
        if shard.last_store_ms >= 0:
            console.print(f"  replicas: {names}; log up to {instant_text(shard.last_store_ms)} UTC")
    _show_findings(result, console)
    for name in (report.REPORT, report.SUMMARY, report.FINDINGS):
        if name in written:
            console.print(f"  {written[name]}")


def _show_findings(result: AuditResult, console: Console) -> None:
    for (severity, check, _), count in sorted(result.finding_counts.items()):
        if severity == INFO:
            line = f"  {count:,} x {check}: {ALL_CHECKS.get(check, '')}"
            console.print(Text(line, style="dim"))
    shown = [one for one in result.findings if one.severity != INFO and not one.cause]
    follows = [one for one in result.findings if one.cause]
    if not shown:
        return
    for one in shown[:_SHOWN]:
        where = ", ".join(place_of(one))
        style = "red" if one.severity == ERROR else "yellow"
        console.print(Text(f"{one.severity} {one.check}", style=style), end="")
        console.print(Text(f"  {where}"))
        console.print(Text(f"    {one.detail or ALL_CHECKS.get(one.check, '')}"))
    total = sum(n for (severity, _, _), n in result.finding_counts.items() if severity != INFO)
    left = total - len(follows) - min(len(shown), _SHOWN)
    if left > 0:
        console.print(f"  ... and {left:,} more in the files")
    if follows:
        each = Counter(one.check for one in follows)
        named = ", ".join(f"{count:,} x {check}" for check, count in each.most_common())
        console.print(Text(f"  {len(follows):,} that follow from these: {named}", style="dim"))


def place_of(one: Finding) -> list[str]:
    """Its node, topic, file, and place in them, as far as it names these."""
    numbers = ("sequence", "offset", "position")
    found = [one.node, one.topic, one.file]
    found += [f"{name} {getattr(one, name)}" for name in numbers if getattr(one, name) >= 0]
    return [each for each in found if each]
