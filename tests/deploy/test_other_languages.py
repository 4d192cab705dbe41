"""Clients in other languages, made with the very lines that docs/CLIENT.md gives, at a real node.

Where a toolchain is missing its language is not tried, and pytest says so at its end, in any mode
(tests/conftest.py). With CLIENTS_REQUIRED="go node" the tests fail where one of these is missing.
"""

import asyncio
import os
import re
import shutil
import stat
import textwrap
from pathlib import Path
from typing import Final

import pytest

from hourwheel import AsyncAdmin, MessageState
from node.process.subprocess_node import ChildNode
from tests.support import toolchains
from tests.tidy import tree

PROTOC_ENV: Final = tree.ROOT / "build" / "proto-venv" / "bin"
STAMP: Final = f"{PROTOC_ENV.relative_to(tree.ROOT)}/.stamp"
SAMPLE_ADDRESS: Final = "127.0.0.1:7400"
QUICKLY: Final = '-trimpath "-gcflags=all=-N -l" -ldflags=-s'
"""Where nothing is kept yet, all that gRPC needs is compiled: unoptimised, two thirds of it."""
LIMIT_S: Final = 400.0
"""So that a hanging registry ends: empty caches on a busy machine took half of it."""


def documented(language: str) -> str:
    """The lines for a shell that the page has for this language."""
    blocks = re.findall(r"(?:^ {4}.*\n)+", tree.text("docs/CLIENT.md"), re.MULTILINE)
    (found,) = (block for block in blocks if f"    cd clients/{language}\n" in block)
    return textwrap.dedent(found)


def checkout(folder: Path, language: str) -> None:
    """What git has of the schema and of this client, and nothing that was built before."""
    for path in tree.files():
        if path.startswith(("proto/", f"clients/{language}/")):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree.ROOT / path, target)


async def run(script: str, cwd: Path, environ: dict[str, str]) -> str:
    """What these lines write on standard output; they must succeed."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", script),
        cwd=cwd,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_S):
        said, complained = await process.communicate()
    assert process.returncode == 0, said.decode() + complained.decode()
    return said.decode()


async def with_protoc(folder: Path) -> dict[str, str]:
    """An environment in which `protoc` is the compiler that `make proto` uses."""
    # Tests in other processes want it as well, and pip does not share a folder with itself.
    make = f"mkdir -p build; flock build/proto-venv.lock make -s {STAMP}"
    await run(make, tree.ROOT, dict(os.environ))
    protoc = folder / "bin" / "protoc"
    protoc.parent.mkdir()
    protoc.write_text(f'#!/bin/sh\nexec {PROTOC_ENV}/python -m grpc_tools.protoc "$@"\n')
    protoc.chmod(protoc.stat().st_mode | stat.S_IXUSR)
    return {
        **os.environ,
        "PATH": f"{protoc.parent}{os.pathsep}{os.environ['PATH']}",
        # Both tools keep what they made or fetched; these let them find it again.
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} {QUICKLY}".strip(),
        "GOGC": "400",  # of the compiler
        "CGO_ENABLED": "0",
        "npm_config_prefer_offline": "true",
    }


def test_clients_that_this_machine_can_make() -> None:
    lacking = toolchains.missing()
    assert [lacking[language] for language in toolchains.required() if language in lacking] == []


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("language", sorted(set(toolchains.TOOLS) - set(toolchains.missing())))
async def test_documented_lines_work_when_they_are_run(tmp_path: Path, language: str) -> None:
    checkout(tmp_path, language)
    environ = await with_protoc(tmp_path)
    log = tmp_path / "node.log"
    async with ChildNode(tmp_path / "data", log_file=log) as node:
        script = documented(language)
        assert SAMPLE_ADDRESS in script
        said = await run(script.replace(SAMPLE_ADDRESS, node.address), tmp_path, environ)
        published = dict(re.findall(r"^published (\S+) due (\d+)$", said, re.MULTILINE))
        received, paid = published
        (came,) = re.findall(r"^received (\S+) at (\d+), attempt 1: order 17$", said, re.MULTILINE)
        assert came[0] == received
        assert int(came[1]) >= int(published[received])
        assert f"cancel {paid} CANCEL_OUTCOME_CANCELLED\n" in said
        assert f"ack {received} RECEIPT_OUTCOME_OK\n" in said
        assert said.endswith("refused UNKNOWN_TOPIC\n")
        async with AsyncAdmin(node.address) as admin:
            states = [(await admin.describe(one)).state for one in (received, paid)]
            group = await admin.get_group("billing")
        assert states == [MessageState.RELEASED, MessageState.CANCELLED]
        assert [lag.unresolved_count for lag in group.lags] == [0]
        assert await node.stop() == 0
