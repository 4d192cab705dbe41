"""`python -m chaos.upgrade --from REVISION`: a rolling restart to this version, under load.

    the revision's tree, from git; an environment of its own where it needs other packages
    three nodes of it; the load is what the first versions could do
    one node after the other, the master last: stopped, and started as this version
    a kill -9 of the master: what only this version knows may be in the log from then on
    rest, and the checker: nothing is lost, released twice, or early

It stands for what an operator does. Old nodes must be able to read what new ones send, and new ones
what old ones have written.
"""

import argparse
import asyncio
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster
from chaos.message_mix import PLAIN_MIX
from chaos.node_process import TREE, NodeProcess
from chaos.runner import NODES, Options, play, table
from chaos.scenarios import Scenario, kill_master
from chaos.stage import Stage

_REQUIREMENTS: Final = "requirements/node.txt"
_STOPPED: Final = 0


async def upgrade_next(stage: Stage) -> None:
    """The next node of the former version becomes one of this version; later on a kill."""
    master = await stage.master()
    former = [node for node in stage.cluster.nodes.values() if node.tree != TREE]
    former.sort(key=lambda node: node is master)
    if not former:
        await kill_master(stage)
        return
    node = former[0]
    await stage.a_moment()
    if node is master:
        fault = upgraded(stage.cluster, node)
        await stage.ends_mastership("upgrade of the master", [node], fault)
    else:
        await stage.bothers("upgrade of a follower", [node], upgraded(stage.cluster, node))


@asynccontextmanager
async def upgraded(cluster: Cluster, node: NodeProcess) -> AsyncIterator[None]:
    """Stop a node as an operator would; after it, it runs this version.

    Raises:
        AssertionError: it did not stop in order.
    """
    code = await node.stop()
    if code != _STOPPED:
        raise AssertionError(f"{node.node_id} was stopped, and ended with exit code {code}")
    try:
        yield
    finally:
        cluster.change_version(node, TREE, sys.executable)
        await node.start()


UPGRADE: Final = Scenario(
    "upgrade", "each node in turn is restarted as this version", upgrade_next, len(NODES) + 1
)


def check_out(revision: str, folder: Path) -> None:
    """Write the tree of a revision into a folder. Raises CalledProcessError: there is none."""
    archive = subprocess.run(
        ["git", "-C", str(TREE), "archive", revision], check=True, stdout=subprocess.PIPE
    )
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], check=True, input=archive.stdout)


def find_python(tree: Path, folder: Path) -> str:
    """An interpreter with the packages that a tree's nodes need: this one, or one made below.

    Raises CalledProcessError: they cannot be installed any more.
    """
    if (tree / _REQUIREMENTS).read_bytes() == (TREE / _REQUIREMENTS).read_bytes():
        return sys.executable
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    locked = ["--require-hashes", "--no-deps", "-r", str(tree / _REQUIREMENTS)]
    subprocess.run([*install, *locked], check=True)
    return str(python)


def main(arguments: list[str] | None = None) -> int:
    """1 if a promise was broken, or it could not be played to its end."""
    parser = argparse.ArgumentParser("python -m chaos.upgrade", description=__doc__)
    parser.add_argument("--from", dest="revision", required=True, help="of git: which version")
    parser.add_argument("--seed", type=int, help="of all choices; printed if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep histories, logs, data there")
    parsed = parser.parse_args(arguments)
    seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
    with tempfile.TemporaryDirectory(prefix="hourwheel-upgrade-") as made:
        tree = Path(made) / "tree"
        check_out(parsed.revision, tree)
        options = Options(
            folder=parsed.keep or Path(made) / "play",
            keeps_all=parsed.keep is not None,
            tree=tree,
            python=find_python(tree, Path(made) / "environment"),
            mix=PLAIN_MIX,
        )
        _say(f"from {parsed.revision}, seed {seed}")
        result = asyncio.run(play(UPGRADE, seed, options, _say))
    if not result.is_good:
        _say(result.report())
    for complaint in result.complaints:
        _say(f"complaint: {complaint[:500]}")
    _say(table([result]))
    return 0 if result.is_good else 1


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
