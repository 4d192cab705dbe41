"""What an orchestrator asks three real nodes, and what it does before it stops one."""

import asyncio
import http.client
import sys
from pathlib import Path
from typing import Final

from node.metrics.http import LIVE, READY, STARTUP
from node.tools.local_cluster.nodes import LocalCluster, LocalNode
from tests.support.eventually import until_told

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
HOURWHEEL: Final = str(Path(sys.executable).parent / "hourwheel")


def _get(node: LocalNode, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(node.metrics_address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


async def ask(node: LocalNode, path: str) -> tuple[int, str]:
    """Status and text of one probe."""
    return await asyncio.to_thread(_get, node, path)


async def until_ready(node: LocalNode, *, is_ready: bool) -> str:
    """Wait until `/ready` says so; gives what it says."""
    wanted = 200 if is_ready else 503
    found = (0, "")

    async def says_so() -> bool:
        nonlocal found
        found = await ask(node, READY)
        return found[0] == wanted

    await until_told(says_so)
    return found[1]


async def drain(node: LocalNode) -> tuple[int, str]:
    """Run `hourwheel drain`: exit code, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(HOURWHEEL, "drain", "--server", node.address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode().strip()


async def test_nodes_are_ready_while_they_are_in_sync_and_alive_in_any_case(
    tmp_path: Path,
) -> None:
    async with LocalCluster(tmp_path / "cluster", values=SMALL) as cluster:
        await cluster.wait_for_master(in_sync=3)
        for node in cluster.nodes:
            assert await until_ready(node, is_ready=True) == "yes"
            assert await ask(node, STARTUP) == (200, "yes")
        master = (await cluster.wait_for_shard())[0]
        follower, last = (one for one in range(3) if one != master)

        code, said = await drain(cluster.nodes[follower])
        assert (code, said) == (0, f"the master is node {cluster.nodes[master].node_id}")
        assert (await cluster.wait_for_shard())[0] == master

        code, said = await drain(cluster.nodes[master])
        assert (code, said[:18]) == (0, "the master is node")
        assert (await cluster.wait_for_shard())[0] != master

        await cluster.kill_node(master)
        for one in (follower, last):
            await until_ready(cluster.nodes[one], is_ready=True)
        await cluster.start_node(master)
        await until_ready(cluster.nodes[master], is_ready=True)

        for one in (master, follower):
            await cluster.kill_node(one)
        said = await until_ready(cluster.nodes[last], is_ready=False)
        assert said != "yes"
        assert await ask(cluster.nodes[last], LIVE) == (200, "yes")
        assert (await ask(cluster.nodes[last], STARTUP))[0] == 200
