"""The libraries' own tests, with Hourwheel as what they test, from the sources at PyPI."""

import asyncio
import os
import sys
import tarfile
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from node.process.subprocess_node import ChildNode
from tests.tidy import tree

_HASHES: Final = {
    "kombu==5.7.0": "sha256:31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9",
}
"""Of the sources of versions in requirements/dev.txt."""
_LEFT_OUT: Final = {
    "TestTimeToLive": "messages do not expire: Celery's workers see to `expires`",
    "TestPriority": "priorities are ignored: a queue for each",
    "TestEventLoop": "workers drain the connection, and kombu's event loop is not needed",
    "test_failover_switches_to_alternate_url": "a connection knows all nodes of its URL and goes "
    "on with whichever answers, so that kombu itself switches nothing",
}
"""Of kombu's tests, and why."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ChildNode]:
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as found:
        yield found


async def run(folder: Path, *command: str, **environ: str) -> tuple[int | None, str]:
    """Exit code and output of a Python with these arguments."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command),
        cwd=folder,
        env={**os.environ, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def get_sources(name: str, folder: Path) -> Path:
    """The unpacked sources of the version that is installed, whose hash is known."""
    wanted = f"{name}=={version(name)}"
    (folder / "wanted.txt").write_text(f"{wanted} --hash={_HASHES[wanted]}")
    code, output = await run(
        folder,
        *("pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", "."),
        *("--no-build-isolation", "--require-hashes", "-r", "wanted.txt"),
    )
    assert code == 0, output
    unpacked = f"{name}-{version(name)}"
    with tarfile.open(folder / f"{unpacked}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / unpacked


async def test_integration_tests_of_kombu(node: ChildNode, tmp_path: Path) -> None:
    sources = await get_sources("kombu", tmp_path)
    suite = tree.ROOT / "tests/libraries/kombu_suite.py"
    path = os.pathsep.join([str(tree.ROOT), str(sources)])
    code, output = await run(
        tmp_path,
        *("pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-W", "ignore"),
        *("-k", " and ".join(f"not {name}" for name in _LEFT_OUT)),
        *("--noconftest", "--rootdir", str(tmp_path), "-c", os.devnull, str(suite)),
        PYTHONPATH=path,
        SERVER=node.address,
    )
    assert code == 0, output
