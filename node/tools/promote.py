"""`hourwheel members promote`: a node alone becomes the first node of a cluster.

Beside the node, which is stopped: its directory and the configuration by which it will start.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hourwheel import errors
from hourwheel.types import FIRST_SHARD, NodeId
from node.cluster.control import find_cluster_id
from node.cluster.peer_trust import read_trust
from node.cluster.promotion import promote
from node.config.checks import cluster_nodes
from node.config.model import NodeConfig
from node.config.sources import load
from node.shard.node_meta import NODE_META, read_node_meta
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.files.file_header import Identity

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The node is alone, as before."""


def main(arguments: Sequence[str]) -> int:
    """Promote; the process's exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        config = load(parsed.config)
        facts = _promote(config)
    except errors.HourwheelError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_FAILED
    if parsed.json:
        sys.stdout.write(f"{json.dumps(facts)}\n")
    else:
        kept = f", with {facts['users']} users and {facts['grants']} grants"
        sys.stdout.write(
            f"node {facts['node']} is the first node of cluster {facts['cluster_id']}"
            f"{' already' if facts['was_promoted'] else kept}. Start it; start two others with"
            f" cluster.join = true and cluster.id = '{facts['cluster_id']}'; then:"
            " hourwheel members add B=HOST:PORT C=HOST:PORT\n"
        )
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel members promote",
        description="Make a node alone the first node of a cluster. It is stopped meanwhile, and"
        " its configuration has the section [cluster] already. Messages, topics, groups, users and"
        " grants stay. It cannot be undone.",
        epilog="Exit codes: 0 it is, or was already; 1 the node is alone, as before; 2 wrong"
        " command line.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="of the node, as it will start"
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _promote(config: NodeConfig) -> dict[str, object]:
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
    with DirectoryLock.acquire(directory):
        meta = read_node_meta(disk, node_id)
        if find_cluster_id(config, read_trust(config.cluster)) != meta.cluster_id:
            raise errors.FailedPrecondition(
                "the cluster keeps the id of this directory: write down on all nodes"
                f" cluster.id = '{meta.cluster_id.hex()}'",
                key="cluster.id",
            )
        first = promote(
            disk, Identity(meta.cluster_id, FIRST_SHARD), node_id, nodes[node_id].control
        )
    return {
        "node": node_id,
        "cluster_id": meta.cluster_id.hex(),
        "was_promoted": first is None,
        "users": 0 if first is None else len(first.access.users),
        "grants": 0 if first is None else len(first.access.grants),
        "quotas": 0 if first is None else len(first.access.quotas),
    }
