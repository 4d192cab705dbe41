"""`hourwheel node certificates`: what a cluster on one machine needs for TLS and access control.

Its files are those of `node.tools.local_cluster.security`, made once: a folder that has them stays
as it is. For trying out, as the authority's key lies beside what it signs.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hourwheel.clock import SystemClock
from node.config.checks import NODE_ID
from node.tools.local_cluster import security

_COMPLETE: Final = "complete"
_EXIT_USAGE: Final = 78
_PUBLIC_FOLDER: Final = 0o755
_PUBLIC_FILE: Final = 0o644


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit code."""
    parser = argparse.ArgumentParser(
        "hourwheel node certificates",
        description="Make an authority, a certificate for each node, an administrator and a user"
        " for health checks in a folder, once. For trying out.",
    )
    parser.add_argument("folder", type=Path, help="where to; only its owner reads what is in it")
    parser.add_argument("nodes", nargs="+", metavar="node", help="ids, which are names of hosts")
    parser.add_argument(
        "--public",
        type=Path,
        metavar="FOLDER",
        help="put the authority's certificate there as well, for everybody to read",
    )
    given = parser.parse_args(arguments)
    wrong = [node for node in given.nodes if not NODE_ID.fullmatch(node)]
    if wrong or len(set(given.nodes)) != len(given.nodes):
        sys.stderr.write(f"no ids of nodes: {' '.join(wrong) or 'one is there twice'}\n")
        return _EXIT_USAGE
    complete = given.folder / _COMPLETE
    if not complete.exists():
        now = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC)
        security.make_files(given.folder, given.nodes, now)
        complete.touch()
    if given.public is not None:
        given.public.mkdir(parents=True, exist_ok=True)
        given.public.chmod(_PUBLIC_FOLDER)
        copied = given.public / security.AUTHORITY
        shutil.copyfile(given.folder / security.AUTHORITY, copied)
        copied.chmod(_PUBLIC_FILE)
    return 0
