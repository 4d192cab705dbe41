"""`hourwheel cluster up`, `status` and `transfer`, as a person types them."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hourwheel import AsyncConsumer, AsyncProducer, Message

HOURWHEEL = (sys.executable, "-m", "hourwheel.cli")


@asynccontextmanager
async def cluster_up(directory: Path) -> AsyncIterator[dict[str, Any]]:
    """What it says when it serves; stopped by Ctrl-C in the end."""
    process = await asyncio.create_subprocess_exec(
        *(*HOURWHEEL, "cluster", "up", "--json", "--base-port", "0"),
        *("--directory", str(directory)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = await process.communicate()
    assert (process.returncode, rest) == (0, b"")


async def run(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *(*HOURWHEEL, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"COLUMNS": "140", "NO_COLOR": "1"},
    )
    out, said = await process.communicate()
    return process.returncode, out.decode(), said.decode()


async def test_cluster_is_started_looked_at_handed_over_and_goes_on_later(tmp_path: Path) -> None:
    async with cluster_up(tmp_path) as told:
        servers = ",".join(told["servers"])
        async with AsyncProducer(servers) as producer:
            await producer.publish("reminders", Message(b"feed the cat", delay_ms=1))
        before = await check_status(told)
        others = [node["node_id"] for node in told["nodes"] if node["node_id"] != told["master"]]
        follower = next(n["address"] for n in told["nodes"] if n["node_id"] == others[0])
        code, out, said = await run("transfer", "--to", others[1], "--server", follower, "--json")
        assert code == 0, said
        assert json.loads(out)["master"] == others[1]
        assert json.loads(out)["epoch"] > before["shards"][0]["epoch"]
        code, out, said = await run("transfer", "--to", "node-9", "--server", servers)
        assert (code, out) == (65, "")
        assert "there is no node node-9" in said
    async with cluster_up(tmp_path) as again:
        assert again["servers"] == told["servers"]
        async with AsyncConsumer(servers, group="kitchen", topic="reminders") as consumer:
            (message,) = await consumer.receive(1, 10_000)
            assert message.body == b"feed the cat"
            await consumer.ack(message)


async def check_status(told: dict[str, Any]) -> dict[str, Any]:
    """Both forms of `hourwheel status`, asked of a node that is not the master."""
    master, node_ids = told["master"], [one["node_id"] for one in told["nodes"]]
    follower = next(one for one in told["nodes"] if one["node_id"] != master)
    code, out, said = await run("status", "--json", "--server", follower["address"])
    assert code == 0, said
    found: dict[str, Any] = json.loads(out)
    (shard,) = found["shards"]
    assert (found["answered_by"], shard["master"], shard["role"]) == (master, master, "master")
    assert [one["node_id"] for one in found["nodes"]] == node_ids
    assert {one["node_id"] for one in shard["followers"]} == {*node_ids} - {master}
    assert {*shard["in_sync"]} <= {*node_ids}
    code, out, said = await run("status", "--here", "--server", follower["address"])
    assert code == 0, said
    for text in (f"node {follower['node_id']}", master, "follower", "may act", "ready"):
        assert text in out
    return found
