"""`make demo`: two years of orders as delayed messages, on three nodes of which one is killed.

    orders.csv (or generated) -> trace of timers -> producer -> nodes -> consumer group -> books

The nodes are processes of their own: inside this one, the demo's own work would be a part of the
lateness that it measures (p99 14 ms instead of 5, on two cores of which nothing else had any). Exit
code 0: each message was released once, and none too early; 1: something is missing, duplicated,
early or wrong, or a node failed; 2: wrong arguments.

What is counted as duplicated: a message that comes from two places of the queue, that is, was
released twice; or twice from one place in one epoch. What was handed out by the killed master, and
not yet acknowledged, is handed out again by the next one from the same place: it forgot nothing but
the leases. That is counted apart, as redelivered.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from node.process import memory
from node.tools.demo.ledger import Failover, Summary
from node.tools.demo.player import GROUP, Player
from node.tools.demo.progress import live_view, plain_line, progress_of
from node.tools.demo.report import NodeSays, as_json, disagreements, node_says, report
from node.tools.demo.stage import OneNode, SeveralNodes, Stage
from node.tools.demo.trace import Orders, Trace, build_trace, generate_orders, read_orders
from node.tools.local_cluster.nodes import NODES_MAX

ORDERS_VARIABLE: Final = "HOURWHEEL_DEMO_ORDERS"
_ORDERS_GENERATED: Final = 4_071
_NODES: Final = 3
_SECONDS: Final = 32.0
_SECONDS_MIN: Final = 1.0
_SEED: Final = 7
_LIVE_S: Final = 0.25
_PLAIN_S: Final = 2.0
_SCRAPE_S: Final = 10.0
_LOG_LINES: Final = 20
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_WIDTH_PLAIN: Final = 100
_NODE_VALUES: Final = {"disk": {"free_bytes_min": 16 * 1024 * 1024, "reserve_bytes": 0}}
"""A temporary directory may be small."""

EXIT_GOOD: Final = 0
EXIT_BAD: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the process's exit code."""
    parsed = make_parser().parse_args(arguments)
    is_terminal = (sys.stderr if parsed.json else sys.stdout).isatty()
    out = Console(stderr=parsed.json, highlight=False, width=None if is_terminal else _WIDTH_PLAIN)
    is_live = is_terminal and not parsed.plain and out.encoding.startswith("utf")
    try:
        if not parsed.seconds >= _SECONDS_MIN:
            raise errors.InvalidArgument(f"--seconds is at least {_SECONDS_MIN:g}")
        if parsed.nodes not in {1, *range(_NODES, NODES_MAX + 1)}:
            raise errors.InvalidArgument(f"--nodes is 1, or {_NODES} to {NODES_MAX}")
        _check_empty(parsed.keep)
        orders, where = find_orders(parsed.orders, parsed.count, parsed.seed)
    except errors.HourwheelError as error:
        sys.stderr.write(f"demo: {error.message}\n")
        return EXIT_USAGE
    out.print(f"{len(orders.ids):,} orders, {where}", soft_wrap=True)
    trace = build_trace(orders, parsed.seconds)
    memory.settle_garbage_collector()
    try:
        summary, node = asyncio.run(play_or_stop(trace, out, parsed, is_live=is_live))
    except errors.HourwheelError as error:
        sys.stderr.write(f"demo: {error.message}\n")
        return EXIT_BAD
    except asyncio.CancelledError:
        sys.stderr.write("demo: interrupted\n")
        return EXIT_INTERRUPTED
    out.print(report(summary, node))
    if parsed.keep is not None:
        data = parsed.keep if parsed.nodes == 1 else parsed.keep / "node-1"
        out.print(f"  To look into it: hourwheel inspect {data}", soft_wrap=True)
    if parsed.json:
        sys.stdout.write(json.dumps(as_json(summary, node), indent=2) + "\n")
    return EXIT_GOOD if summary.is_good else EXIT_BAD


def make_parser() -> argparse.ArgumentParser:
    """Of the command's line."""
    parser = argparse.ArgumentParser(
        "hourwheel demo",
        description="Start three nodes, play two years of orders on them, kill the master in the"
        " middle (kill -9), and show what arrives.",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=_NODES,
        metavar="N",
        help="1: a node alone, and none is killed (default: %(default)s)",
    )
    parser.add_argument(
        "--orders",
        type=Path,
        metavar="FILE",
        help=f"real orders as CSV (or ${ORDERS_VARIABLE}); else they are generated",
    )
    parser.add_argument("--count", type=int, metavar="N", help="play only the first N orders")
    parser.add_argument("--seed", type=int, default=_SEED, help="of generated orders")
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="how long it plays (default: %(default)g)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="store there, and leave it there")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live display")
    parser.add_argument("--json", action="store_true", help="end with JSON on standard output")
    return parser


def _check_empty(keep: Path | None) -> None:
    """Refuse a directory with something in it: an old node's counters would be compared, too."""
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise errors.InvalidArgument(f"--keep {keep}: it must be a new or empty directory")


def find_orders(path: Path | None, count: int | None, seed: int) -> tuple[Orders, str]:
    """(the orders to play, where they are from in words).

    Args:
        path: as asked for; None: as the environment says, or generated.
        count: the first so many; None: all.
        seed: of generated orders.

    Raises:
        InvalidArgument: the file cannot be used, or `count` is below 1.
    """
    if count is not None and count < 1:
        raise errors.InvalidArgument("--count is at least 1")
    if path is None and os.environ.get(ORDERS_VARIABLE):
        path = Path(os.environ[ORDERS_VARIABLE])
    if path is None:
        wanted = _ORDERS_GENERATED if count is None else count
        return generate_orders(wanted, seed), f"generated (seed {seed})"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            orders = read_orders(file)
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidArgument(f"{path}: {error}") from None
    except errors.InvalidArgument as error:
        raise errors.InvalidArgument(f"{path}: {error.message}") from None
    return orders.first(len(orders.ids) if count is None else count), f"from {path}"


async def play_or_stop(
    trace: Trace, out: Console, parsed: argparse.Namespace, *, is_live: bool
) -> tuple[Summary, NodeSays]:
    """As `play`; Ctrl-C, or the SIGTERM of a CI, stops the nodes and removes their files.

    Raises:
        CancelledError: it was stopped so.
        HourwheelError: as `play`.
    """
    loop = asyncio.get_running_loop()
    playing = loop.create_task(play(trace, out, parsed, is_live=is_live))
    for number in _SIGNALS:
        loop.add_signal_handler(number, playing.cancel)
    try:
        return await playing
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def play(
    trace: Trace, out: Console, parsed: argparse.Namespace, *, is_live: bool
) -> tuple[Summary, NodeSays]:
    """Run the nodes and the trace on them.

    Raises:
        HourwheelError: a node did not start, failed, or refused something.
    """
    with tempfile.TemporaryDirectory(prefix="hourwheel-demo-") as made:
        stage = make_stage(parsed.nodes, parsed.keep, Path(made))
        try:
            async with stage:
                out.print(stage.summary, soft_wrap=True)
                player = Player(trace, stage.servers)
                failover = await play_watched(stage, player, out, is_live=is_live)
                summary = player.ledger.close()
                said, problems = await _ask(stage)
        except errors.HourwheelError:
            for log_file in stage.log_files:
                sys.stderr.write(last_lines(log_file))
            raise
    if failover is not None and stage.killed_ms is not None:
        gap_ms = player.ledger.longest_gap_ms(stage.killed_ms)
        summary = replace(summary, failover=failover._replace(gap_ms=gap_ms))
    problems = [*summary.problems, *problems, *disagreements(summary, said)]
    return replace(summary, problems=problems), said


def make_stage(count: int, keep: Path | None, made: Path) -> Stage:
    """One node or several, in `keep`, or else in the temporary directory `made`.

    Raises:
        ConfigError: so many are not possible.
    """
    if count == 1:
        return OneNode(keep or made / "data", made, _NODE_VALUES)
    return SeveralNodes(keep or made / "cluster", count, _NODE_VALUES)


async def play_watched(
    stage: Stage, player: Player, out: Console, *, is_live: bool
) -> Failover | None:
    """Play, disturb, and end early where a node has ended that should run."""

    def say(text: str) -> None:
        out.print(f"  {text}", soft_wrap=True)

    playing = asyncio.create_task(play_shown(player, out, is_live=is_live))
    disturbing = asyncio.create_task(stage.disturb(player, player.ledger.trace.end_ms, say))
    watching = asyncio.create_task(stage.watch())
    tasks = (playing, disturbing, watching)
    try:
        left = {playing, disturbing}
        while left:
            done, _ = await asyncio.wait({*left, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching in done:
                watching.result()
            for task in done & left:
                await task  # raises what it has raised
            left -= done
        return await disturbing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def play_shown(player: Player, out: Console, *, is_live: bool) -> None:
    """Play while the display follows."""
    # Drawn by hand, between two messages: a thread that draws would get in their way.
    screen = Live(console=out, auto_refresh=False, transient=False) if is_live else nullcontext()
    with screen as live:
        playing = asyncio.create_task(player.play())
        try:
            while not playing.done():
                await asyncio.wait([playing], timeout=_LIVE_S if is_live else _PLAIN_S)
                now = progress_of(player.ledger, player.elapsed_ms)
                if live is not None:
                    live.update(live_view(now), refresh=True)
                else:
                    out.print(plain_line(now), soft_wrap=True)
        finally:
            playing.cancel()
            await asyncio.wait([playing])
    await playing


async def _ask(stage: Stage) -> tuple[NodeSays, list[str]]:
    """What the nodes say of themselves, and what is wrong with it."""
    status, problems = await stage.settle()
    async with AsyncAdmin(stage.servers) as admin:
        group = await admin.get_group(GROUP)
    addresses = stage.metrics_addresses
    metrics = [one for each in addresses for one in await asyncio.to_thread(_scrape, each)]
    return node_says(status, group, metrics, len(addresses)), problems


def _scrape(address: str) -> list[Metric]:
    # The environment's HTTP proxy is meant for other things.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=_SCRAPE_S) as answer:
        text = cast(bytes, answer.read()).decode()
    return list(text_string_to_metric_families(text))


def last_lines(path: Path) -> str:
    """The end of the node's log, for a person who wonders why."""
    if not path.is_file():
        return ""
    lines = path.read_text("utf-8", "replace").splitlines(keepends=True)
    return "".join(lines[-_LOG_LINES:])


if __name__ == "__main__":
    sys.exit(main())
