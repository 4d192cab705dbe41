"""The lines of docs/guides/http.md, typed as they stand there, at a real node and a gateway."""

import asyncio
import json
import os
import re
import signal
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import AsyncAdmin
from hourwheel.gateway.routes import ROUTES
from hourwheel.gateway.settings import LISTEN, HttpSection, Settings
from node.process.subprocess_node import ChildNode
from tests.support import toolchains
from tests.support.eventually import until_told
from tests.support.guide_commands import fenced
from tests.tidy import tree

PAGE: Final = "docs/guides/http.md"


async def typed(line: str) -> Any:
    """What a line of the shell prints, which has to end well."""
    shell = await asyncio.create_subprocess_shell(line, stdout=asyncio.subprocess.PIPE)
    out, _ = await shell.communicate()
    assert shell.returncode == 0, (line, out)
    return json.loads(out)


@asynccontextmanager
async def running_gateway(server: str) -> AsyncIterator[str]:
    """`hourwheel http` at these nodes: where it listens. It ends as it should."""
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hourwheel.cli", "http", "--listen", "127.0.0.1:0"),
        env={**os.environ, "HOURWHEEL_SERVER": server},
        stderr=asyncio.subprocess.PIPE,
    )
    assert gateway.stderr is not None
    try:
        yield (await gateway.stderr.readline()).decode().split("HTTP on ")[1].split(",")[0]
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.wait() == 0
    finally:
        if gateway.returncode is None:
            gateway.kill()
            await gateway.wait()
    said = (await gateway.stderr.read()).decode()
    assert "stopping" in said
    assert "Traceback" not in said


async def test_lines_of_the_page(tmp_path: Path) -> None:
    async with (
        ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node,
        running_gateway(node.address) as url,
    ):
        publish, receive, ack = (
            line.replace(f"http://{LISTEN}", url) for line in fenced(PAGE, "sh")
        )
        published, again = await typed(publish), await typed(publish)
        assert published == again
        received = await typed(receive)
        (message,) = received["messages"]
        assert message["id"] == published["messages"][0]["id"]
        assert json.loads(message["text"]) == {"order": 17}
        assert await typed(ack.replace("...", message["receipt"])) == {"count": 1}


async def test_program_for_node_does_what_that_of_bullmq_did(tmp_path: Path) -> None:
    """Order 17 is closed when it is due, and order 18 is paid before."""
    if "node" in toolchains.missing():
        assert "node" not in toolchains.required()
        return
    before, after = fenced("docs/guides/from-others.md", "js")
    exported = re.compile(r"^export (?:const|async function) (\w+)", re.MULTILINE)
    assert exported.findall(before) == exported.findall(after) == ["ordered", "paid", "work"]
    (tmp_path / "shop.mjs").write_text(after.replace('"30m"', '"1s"'))
    run = """
        import { ordered, paid, work } from "./shop.mjs";
        await ordered(18); await paid(18); await ordered(17); await work();
    """
    async with (
        ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node,
        running_gateway(node.address) as url,
    ):
        program = await asyncio.create_subprocess_exec(
            *("node", "--input-type=module", "--eval", run),
            cwd=tmp_path,
            env={**os.environ, "HOURWHEEL_HTTP": url},
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        try:
            assert await program.stdout.readline() == b"closing order 17\n"
            async with AsyncAdmin(node.address) as admin:

                async def is_done() -> bool:
                    lags = (await admin.get_group("shop")).lags
                    return [one.unresolved_count for one in lags] == [0]

                await until_told(is_done)
        finally:
            program.kill()
            await program.wait()


def test_the_page_has_each_call_and_each_key() -> None:
    text = tree.text(PAGE)
    for route in ROUTES:
        assert f"`{route.method} {route.path}" in text
    for key in HttpSection.model_fields:
        assert f"`{key}`" in text
    (example,) = fenced(PAGE, "toml")
    assert Settings.model_validate(tomllib.loads(example)).http.client_ca
    with pytest.raises(ValueError, match="beyond loopback"):
        Settings.model_validate({"http": {"listen": "10.0.0.5:7480"}})
