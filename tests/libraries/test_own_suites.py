"""The libraries' own tests, with Hourwheel as what they test, from the sources at PyPI.

`suite_plugin.py` and `left_out.toml` say what of them is not run, or fails, and why.
"""

import asyncio
import os
import shutil
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
    "dramatiq==2.2.1": "sha256:f9fbbd2feea27b3fa4085446242a24d86f78288b20c78a93f9f0bdbd7d908cd5",
}
"""Of the sources of versions in requirements/dev.txt."""
_HERE: Final = tree.ROOT / "tests/libraries"
_OF_BROKERS: Final = (
    *("test_actors.py", "test_broker.py", "test_callbacks.py", "test_composition.py"),
    *("test_encoders.py", "test_generic_actors.py", "test_messages.py", "test_results.py"),
    *("test_stub_broker.py", "test_worker.py", "test_redis.py", "test_rabbitmq.py"),
)
"""Modules of dramatiq's tests; the others use no broker, or start dramatiq's command line, which
tests/clients does with ours. `left_out.toml` says what became of those for its middleware."""


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


async def run_suite(name: str, folder: Path, *tests: str, **environ: str) -> None:
    """Run tests of a library with our plugin; all pass that are not listed."""
    code, output = await run(
        folder,
        *("pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore"),
        *("-p", "tests.libraries.suite_plugin", "--rootdir", str(folder), "-c", os.devnull),
        *("--timeout", "120", *tests),
        PYTHONPATH=os.pathsep.join(map(str, (tree.ROOT, folder))),
        SUITE=name,
        **environ,
    )
    assert code == 0, output


async def test_integration_tests_of_kombu(node: ChildNode, tmp_path: Path) -> None:
    sources = await get_sources("kombu", tmp_path)
    suite = str(_HERE / "kombu_suite.py")
    await run_suite("kombu", sources, "--noconftest", suite, SERVER=node.address)


async def test_tests_of_dramatiq(node: ChildNode, tmp_path: Path) -> None:
    """Its source package has no fixtures for them: ours are in `dramatiq_suite.py`."""
    sources = await get_sources("dramatiq", tmp_path)
    package = tmp_path / "dramatiq_own"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "common.py").write_text("from tests.libraries.dramatiq_suite import *\n")
    for name in _OF_BROKERS:
        shutil.copy(sources / "tests" / name, package)
    plugin = ("-p", "tests.libraries.dramatiq_suite")
    await run_suite("dramatiq", tmp_path, *plugin, str(package), SERVER=node.address)
