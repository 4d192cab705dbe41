"""`hourwheel members promote`: a node alone becomes the first node of a cluster.

Beside the node: its directory and the configuration by which it will start. One that is stopped is
promoted here. One that runs is asked to do it at its next start (node/cluster/promotion.py), and
restarted, so an interruption leaves no node stopped. Each step finds what the ones before have
done, and goes on from there.
"""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hourwheel import errors
from hourwheel.types import FIRST_SHARD, NodeId
from node.cluster.control import find_cluster_id
from node.cluster.peer_trust import read_trust
from node.cluster.promotion import (
    forget_promotion,
    is_promotion_wanted,
    promote,
    want_promotion,
)
from node.config.checks import cluster_nodes
from node.config.model import NodeConfig
from node.config.sources import load
from node.shard.node_meta import NODE_META, is_promoted, read_node_meta
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.files.file_header import Identity

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The node is alone, as before, or until its next start."""
_WAIT_S: Final = 60.0
_STDERR: Final = 2
_LOOK_S: Final = 0.1
"""A directory says nothing by itself."""


def main(arguments: Sequence[str]) -> int:
    """Promote; the process's exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        facts = _promote(load(parsed.config), parsed.restart, parsed.wait, parsed.config)
    except errors.HourwheelError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_FAILED
    if parsed.json:
        sys.stdout.write(f"{json.dumps(facts)}\n")
    elif not parsed.quiet:
        kept = f", with {facts['users']} users and {facts['grants']} grants"
        start = "" if facts["runs"] else " Start it."
        sys.stdout.write(
            f"node {facts['node']} is the first node of cluster {facts['cluster_id']}"
            f"{' already' if facts['was_promoted'] else kept}.{start} Start two others with"
            f" cluster.join = true and cluster.id = '{facts['cluster_id']}'; then:"
            " hourwheel members grow B=HOST:PORT C=HOST:PORT\n"
        )
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel members promote",
        description="Make a node alone the first node of a cluster. Its configuration has the"
        " section [cluster] already; it is stopped, or restarted by --restart. Messages, topics,"
        " groups, users and grants stay. It cannot be undone. Interrupted anywhere, it goes on when"
        " it is run again.",
        epilog="Exit codes: 0 it is, or was already; 1 why not, and the node is alone, as before,"
        " or will be promoted by its next start; 2 wrong command line.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="of the node, as it will start"
    )
    parser.add_argument(
        "--restart",
        metavar="COMMAND",
        default="",
        help="restarts the node, and starts it where it is stopped: 'systemctl restart hourwheel'",
    )
    parser.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="wait for so long until the node that runs was restarted, by --restart or by hand",
    )
    parser.add_argument("--quiet", action="store_true", help="say only what is wrong")
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _promote(
    config: NodeConfig, restart: str, wait_s: float | None, file: Path
) -> dict[str, object]:
    """Raises HourwheelError: why not."""
    nodes, node_id = cluster_nodes(config.cluster.nodes), NodeId(config.node.id)
    if not nodes:
        raise errors.FailedPrecondition(
            f"the configuration has no cluster.nodes: write down where the others will reach this"
            f" node, as cluster.nodes = '{node_id}=HOST:PORT,HOST:PORT,HOST:PORT' (API, data,"
            " control)",
            key="cluster.nodes",
        )
    if config.cluster.join:
        raise errors.FailedPrecondition(
            "cluster.join = true is for the nodes that join this one", key="cluster.join"
        )
    if not (config.cluster.secret_file or config.cluster.tls_certificate_file):
        raise errors.FailedPrecondition(
            "other nodes could not join without a secret or TLS: write down cluster.secret_file, or"
            " cluster.tls_certificate_file and its fellows",
            key="cluster.secret_file",
        )
    directory = config.node.data_directory
    if not (directory / NODE_META).is_file():
        raise errors.NotFound(f"{directory} is no data directory")
    disk = RealDisk(directory, is_private=True)
    meta = read_node_meta(disk, node_id)
    if find_cluster_id(config, read_trust(config.cluster)) != meta.cluster_id:
        raise errors.FailedPrecondition(
            "the cluster keeps the id of this directory: write down on all nodes"
            f" cluster.id = '{meta.cluster_id.hex()}'",
            key="cluster.id",
        )
    first, runs = None, bool(restart)
    try:
        with DirectoryLock.acquire(directory):
            identity = Identity(meta.cluster_id, FIRST_SHARD)
            first = promote(disk, identity, node_id, nodes[node_id].control)
            forget_promotion(disk)
    except errors.DirectoryLocked:
        if not is_promoted(disk):
            if not restart and wait_s is None:
                raise
            asyncio.run(_ask(disk, restart, _WAIT_S if wait_s is None else wait_s, file))
        runs = True
    else:
        if restart or wait_s is not None:
            asyncio.run(_restart(restart, "start the node now"))
    return {
        "node": node_id,
        "cluster_id": meta.cluster_id.hex(),
        "was_promoted": first is None,
        "runs": runs,
        "users": 0 if first is None else len(first.access.users),
        "grants": 0 if first is None else len(first.access.grants),
        "quotas": 0 if first is None else len(first.access.quotas),
    }


async def _ask(disk: RealDisk, restart: str, wait_s: float, file: Path) -> None:
    """Have the node that runs do it. Raises Unavailable, FailedPrecondition, Timeout."""
    want_promotion(disk)
    await _restart(restart, "restart the node now")
    await _wait(disk, wait_s, file)


async def _restart(command: str, else_say: str) -> None:
    """Raises Unavailable: it did not work."""
    if not command:
        sys.stderr.write(f"{else_say}: it will be the first of its cluster\n")
        return
    try:
        words = shlex.split(command)
        process = await asyncio.create_subprocess_exec(*words, stdout=_STDERR)
        code = await process.wait()
    except (OSError, ValueError) as error:
        raise errors.Unavailable(f"{command}: {error}") from error
    if code:
        raise errors.Unavailable(f"{command}: exit code {code}")


async def _wait(disk: RealDisk, wait_s: float, file: Path) -> None:
    """Until the node has promoted itself. Raises FailedPrecondition, Timeout."""
    try:
        async with asyncio.timeout(wait_s):
            while not is_promoted(disk):
                if not is_promotion_wanted(disk) and not is_promoted(disk):
                    raise errors.FailedPrecondition(
                        f"the node has started alone: its configuration is not {file}, or was read"
                        " before it had the section [cluster]. Run this again"
                    )
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise errors.Timeout(
            "the node was not restarted yet; when it is, it will be the first of its cluster"
        ) from error
