"""`hourwheel members grow`: one command, killed at each of its steps, and run again."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from hourwheel import AsyncProducer, Message
from node.config.checks import cluster_nodes
from node.shard.node_meta import CONTROL, is_promoted
from node.tools.local_cluster.nodes import LocalCluster, LocalNode
from storage.files.disk import RealDisk
from tests.support.audit_runs import errors_of, run_audit
from tests.support.cluster_load import TOPIC
from tests.support.eventually import until, until_told
from tests.support.kept_user import add_alice, check_alice
from tests.support.promotion import SMALL, begin, end, min_in_sync, receive_all, rewrite

KILLED: Final = -9
KILLS: Final = "sh -c 'kill -9 $PPID'"
"""A restart that comes to nothing: the command itself is killed at this step."""


async def says(process: asyncio.subprocess.Process, text: str) -> None:
    """Wait for a line, and kill who says it."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while text not in (line := (await process.stdout.readline()).decode()):
            assert line, "it ended"
    process.kill()
    await process.wait()


async def restart(node: LocalNode, other: LocalNode) -> None:
    """The same node by another configuration, as a supervisor does it."""
    await node.kill()
    await other.start()


async def end_all(nodes: list[LocalNode]) -> None:
    for one in nodes:
        if one.is_running:
            await one.kill()


async def become_first(alone: LocalNode, first: LocalNode, grow: list[object]) -> None:
    """The first node is the first of its cluster, and waits for the others."""
    data = first.config.node.data_directory
    assert (await end(await begin("grow", *grow, "--restart", KILLS)))[0] == KILLED
    await restart(alone, alone)  # by the configuration that it had: the wish is over
    code, said = await end(await begin("grow", *grow, "--restart", "true", "--wait", "1s"))
    assert (code, "was not restarted yet" in said) == (1, True), said
    assert not is_promoted(RealDisk(data))
    asked = await begin("grow", *grow, "--restart", f"touch {data.parent / 'restart'}")
    await until((data.parent / "restart").exists)
    await restart(alone, first)
    await says(asked, "no process listens")
    assert is_promoted(RealDisk(data))


async def grow_killed(first: LocalNode, others: list[LocalNode], grow: list[object]) -> None:
    """All are in sync, although the command and the node are killed at the stop-sign."""
    for one in others:
        await one.start()
    asked = await begin("grow", *grow)
    control = first.config.node.data_directory / CONTROL
    await until(lambda: any(control.glob("generation-0000000002*")))
    await first.kill()
    asked.kill()
    await asked.wait()
    await first.start()
    code, said = await end(await begin("grow", *grow))
    assert (code, "in sync" in said) == (0, True), said
    code, again = await end(await begin("grow", *grow, "--restart", KILLS))
    assert (code, again.splitlines()) == (0, said.splitlines()[-1:]), "it is done"


async def test_growth_that_is_killed_at_each_step_goes_on(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3, values=SMALL)
    files = [one.config_file for one in cluster.nodes]
    nodes = cluster_nodes(cluster.nodes[0].config.cluster.nodes)
    coming = [f"{one.node_id}={nodes[one.node_id].control}" for one in cluster.nodes[1:]]
    alone = rewrite(files[0])
    grow: list[object] = ["--server", alone.address, "--config", files[0], "--wait", "90s", *coming]
    async with AsyncExitStack() as undo:
        undo.push_async_callback(end_all, running := [alone])
        await alone.start()
        async with AsyncProducer(alone.address) as producer:
            await producer.publish_many(TOPIC, [Message(b"alone")])
        await add_alice(alone.address)
        code, said = await end(await begin("grow", "--server", alone.address, coming[0]))
        assert (code, "this node is alone" in said) == (65, True), said
        code, said = await end(await begin("grow", *grow))
        assert (code, "cluster.id = '" in said) == (1, True), said
        cluster_id = said.split("'")[1]
        first = rewrite(files[0], id=cluster_id)
        others = [rewrite(one, id=cluster_id, join=True) for one in files[1:]]
        running += [first, *others]

        await become_first(alone, first, grow)
        await check_alice(first.address)
        async with AsyncProducer(first.address) as producer:
            await producer.publish_many(TOPIC, [Message(b"one copy")])
        await grow_killed(first, others, grow)
        code, said = await end(await begin("add", "--server", first.address, *coming))
        assert (code, "already" in said) == (0, True), said

        async def is_raised() -> bool:
            return await min_in_sync(first) == 2

        await until_told(is_raised)
        await first.kill()
        rest = ",".join(one.address for one in others)
        await check_alice(rest)
        assert sorted(await receive_all(rest, 2)) == [b"alone", b"one copy"]
    assert errors_of(run_audit(*(one.config.node.data_directory for one in others))) == []
