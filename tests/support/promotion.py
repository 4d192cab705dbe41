"""A node alone that becomes the first of three: its configurations, and the commands for it."""

import asyncio
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any, Final

from hourwheel import AsyncConsumer
from node.tools.local_cluster.nodes import LocalNode, toml_of
from tests.support.cluster_load import TOPIC

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
_NEEDED: Final = 'hourwheel_min_in_sync_replicas{shard="0"} '


def rewrite(file: Path, **cluster: Any) -> LocalNode:
    """The node of a configuration with other keys in [cluster]; without any it is alone."""
    sections = tomllib.loads(file.read_text())
    section = {**sections.pop("cluster"), **cluster} if cluster else {}
    to = file if cluster else file.with_name("alone.toml")
    to.write_text(toml_of({**sections, "cluster": section} if section else _without(sections)))
    return LocalNode(to)


def _without(sections: dict[str, Any]) -> dict[str, Any]:
    return {name: keys for name, keys in sections.items() if name != "cluster"}


async def begin(verb: str, *arguments: object) -> asyncio.subprocess.Process:
    """`hourwheel members`, as a person types it."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hourwheel.cli", "members", verb, *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def end(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Exit code and what was said."""
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def promote(file: Path) -> tuple[int, str]:
    """Of the node with this configuration, which is stopped."""
    return await end(await begin("promote", "--config", file))


async def min_in_sync(node: LocalNode) -> int:
    """As a node's metrics have it."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{node.metrics_address}/metrics") as answer:
            return str(answer.read().decode())

    lines = (await asyncio.to_thread(read)).splitlines()
    (found,) = (one for one in lines if one.startswith(_NEEDED))
    return int(float(found.removeprefix(_NEEDED)))


async def receive_all(servers: str, count: int) -> list[bytes]:
    """Bodies of so many messages, and of whatever else is there by then."""
    got: list[bytes] = []
    async with (
        AsyncConsumer(servers, group="late", topic=TOPIC) as consumer,
        asyncio.timeout(120),
    ):
        while len(got) < count:
            for one in await consumer.receive(100):
                got.append(one.body)
                await consumer.ack(one)
    return got
