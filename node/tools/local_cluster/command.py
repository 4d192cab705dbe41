"""`hourwheel cluster up`: a local cluster in one command, and a view of it until Ctrl-C."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from hourwheel import errors
from hourwheel.client.cluster_status import ClusterStatus
from hourwheel.client.node_probe import NodeProbe
from hourwheel.clock import SystemClock
from node.tools.local_cluster import security
from node.tools.local_cluster.nodes import LocalCluster
from node.tools.local_cluster.screen import Seat, Seen, live_view, plain_line, rates_of

EXIT_GOOD: Final = 0
EXIT_BAD: Final = 1
EXIT_USAGE: Final = 2
_BASE_PORT: Final = 7_400
_MIB: Final = 1 << 20
_VALUES: Final = {"disk": {"free_bytes_min": 64 * _MIB, "reserve_bytes": 0}}
"""For trying out, on a disk that may be small."""
_LIVE_S: Final = 0.5
_PLAIN_S: Final = 10.0
_ASK_MS: Final = 1_000.0
_LOG_LINES: Final = 20
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WIDTH_PLAIN: Final = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        cluster = LocalCluster(
            parsed.directory,
            parsed.n,
            base_port=parsed.base_port,
            values=_VALUES,
            is_secure=parsed.secure,
        )
        if parsed.secure and not cluster.is_secure:
            raise errors.ConfigError(f"{parsed.directory} has a cluster without TLS")  # noqa: TRY301
        _check_free(cluster)
    except (errors.ConfigError, OSError) as error:
        sys.stderr.write(f"cluster: {error}\n")
        return EXIT_USAGE
    try:
        asyncio.run(up(cluster, parsed))
    except errors.Unavailable as error:
        sys.stderr.write(f"{_last_words(cluster)}cluster: {error.message}\n")
        return EXIT_BAD
    return EXIT_GOOD


def _check_free(cluster: LocalCluster) -> None:
    """Raises ConfigError where somebody listens already."""
    busy = cluster.busy_addresses()
    if busy:
        raise errors.ConfigError(
            f"somebody listens on {', '.join(busy)} already (does this cluster run?);"
            " with a new --directory, --base-port chooses other ports"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel cluster", description="A cluster on this machine, for trying things out."
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    up = commands.add_parser(
        "up",
        help="start it, show it, stop it at Ctrl-C",
        description="Start a cluster on this machine and show it; Ctrl-C stops it. Started again in"
        " the same directory, it goes on with what is there.",
    )
    up.add_argument("-n", type=int, default=3, metavar="N", help="nodes (default: %(default)s)")
    up.add_argument(
        "--directory",
        type=Path,
        default=Path("hourwheel-cluster"),
        metavar="DIR",
        help="configurations, logs and data; what is there goes on (default: %(default)s)",
    )
    up.add_argument(
        "--base-port",
        type=int,
        default=_BASE_PORT,
        metavar="P",
        help="node i is reached at P + 10 * (i - 1); 0: where it is free (default: %(default)s)",
    )
    up.add_argument(
        "--secure",
        action="store_true",
        help="with TLS, an authority of its own, and a user: it says how to connect",
    )
    up.add_argument("--plain", action="store_true", help="lines instead of a live display")
    up.add_argument("--json", action="store_true", help="one line of JSON when it serves")
    return parser


async def up(cluster: LocalCluster, parsed: argparse.Namespace) -> None:
    """Start, show, stop. Raises Unavailable where it does not start, or has no master."""
    loop = asyncio.get_running_loop()
    showing = loop.create_task(serve(cluster, parsed))
    for number in _SIGNALS:
        loop.add_signal_handler(number, showing.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await showing
    finally:
        # A second signal is no reason to leave nodes behind, but one not to wait for them.
        for number in _SIGNALS:
            loop.add_signal_handler(number, cut_short, cluster)
        await cluster.stop()
    if not parsed.json:
        sys.stdout.write(f"stopped; everything is in {cluster.directory}\n")


def cut_short(cluster: LocalCluster) -> None:
    """End all nodes at once."""
    for node in cluster.nodes:
        node.cut_short()


async def serve(cluster: LocalCluster, parsed: argparse.Namespace) -> None:
    """Start and show, until it is cancelled. Raises as `up`."""
    out = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_PLAIN)
    if not parsed.json:
        out.print(f"starting {parsed.n} nodes in {cluster.directory}", soft_wrap=True)
    await cluster.start()
    master = await cluster.wait_for_master()
    if parsed.json:
        sys.stdout.write(json.dumps(facts_of(cluster, master)) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
    options = f"--server {cluster.servers}"
    if cluster.is_secure:
        options += f" {security.options_for(cluster.security_directory)}"
    out.print(f"serving; clients use {options}", soft_wrap=True)
    is_live = sys.stdout.isatty() and not parsed.plain and out.encoding.startswith("utf")
    await _show(cluster, out, is_live=is_live)


async def _show(cluster: LocalCluster, out: Console, *, is_live: bool) -> None:
    probes = {node.node_id: NodeProbe(node.address, cluster.access) for node in cluster.nodes}
    clock = SystemClock()
    before: Seen | None = None
    try:
        with Live(console=out, auto_refresh=False) if is_live else nullcontext() as live:
            while True:
                answers = await asyncio.gather(*map(_ask, probes.values()))
                known = {
                    node: answer
                    for node, answer in zip(probes, answers, strict=True)
                    if answer is not None and answer.shards
                }
                now = Seen(clock.monotonic_ms(), known)
                rates = rates_of(before, now)
                if live is not None:
                    live.update(live_view(_seats(cluster), now, rates), refresh=True)
                else:
                    out.print(plain_line(now, rates), soft_wrap=True)
                before = now
                await asyncio.sleep(_LIVE_S if is_live else _PLAIN_S)
    finally:
        for probe in probes.values():
            await probe.close()


def _seats(cluster: LocalCluster) -> list[Seat]:
    return [
        Seat(one.node_id, one.address, str(one.config_file), one.pid if one.is_running else 0)
        for one in cluster.nodes
    ]


async def _ask(probe: NodeProbe) -> ClusterStatus | None:
    try:
        return await probe.status(_ASK_MS)
    except errors.HourwheelError:
        return None


def facts_of(cluster: LocalCluster, master: int) -> dict[str, Any]:
    """The cluster for a script: where it is, and each node's process and files."""
    return {
        "servers": [node.address for node in cluster.nodes],
        "master": cluster.nodes[master].node_id,
        "directory": str(cluster.directory.absolute()),
        "nodes": [
            {
                "node_id": node.node_id,
                "address": node.address,
                "metrics_address": node.metrics_address,
                "console_address": node.console_address,
                "pid": node.pid,
                "config_file": str(node.config_file),
                "log_file": str(node.log_file),
            }
            for node in cluster.nodes
        ],
    }


def _last_words(cluster: LocalCluster) -> str:
    """The ends of the nodes' logs, for a person who wonders why."""
    said = []
    for node in cluster.nodes:
        if node.log_file.is_file():
            lines = node.log_file.read_text("utf-8", "replace").splitlines(keepends=True)
            said += [f"--- {node.log_file}\n", *lines[-_LOG_LINES:]]
    return "".join(said)


if __name__ == "__main__":
    sys.exit(main())
