"""Three real nodes, each with its control process: killed, started again, and mistaken."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import errors
from node.process.lifecycle import EXIT_CONFIG, EXIT_LOCKED
from node.tools.local_cluster.nodes import LocalCluster, LocalNode, toml_of
from tests.support.cluster_load import ClusterLoad
from tests.support.eventually import until, until_told
from tests.support.reaper import say

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
ANSWER_MS: Final = 30_000.0
"""On a busy machine, too."""


async def check(load: ClusterLoad) -> None:
    """Nothing acknowledged is lost, nothing came early, and each message was released once."""
    await load.finish()
    assert load.early() == []
    assert load.failures == []
    # What was published without an acknowledgement may have been released, too: it has arrived.
    assert await load.released_count() == len(load.arrived)
    assert len(load.acknowledged) > 0


async def test_messages_survive_kills_of_the_master_and_of_all(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        async with ClusterLoad(cluster.servers) as load:
            await load.some(200)
            epoch = (await cluster.wait_for_shard())[1].epoch
            killed_ms = load.clock.wall_ms()
            await cluster.kill_node(master)
            await load.some(400)
            say(f"master killed: silence of {load.gap_ms(killed_ms):.0f} ms at the consumer")
            await cluster.start_node(master)
            await cluster.wait_for_master(epoch_above=epoch, in_sync=3)

            killed_ms = load.clock.wall_ms()
            for node in cluster.nodes:
                os.kill(node.pid, signal.SIGKILL)
            for index in range(3):
                await cluster.kill_node(index)
            started_ms = load.clock.wall_ms()
            await asyncio.gather(*map(cluster.start_node, range(3)))
            await load.some(400)
            since_ms = next(one for one in load.arrivals if one > killed_ms) - started_ms
            say(f"all killed: the first message {since_ms:.0f} ms after they were started again")
            await check(load)
            say(f"{len(load.acknowledged)} acknowledged, {load.repeated()} delivered again")
        await until_all_have_the_same(cluster)


async def until_all_have_the_same(cluster: LocalCluster) -> None:
    """Wait until all have what the master has."""

    async def is_one_end() -> bool:
        told = [await cluster.status_of(index, ANSWER_MS) for index in range(3)]
        return len({one.shards[0].applied_offset for one in told}) == 1

    await until_told(is_one_end)


# -- mistakes ----------------------------------------------------------------------------------


async def refuses(node: LocalNode) -> tuple[int, str]:
    """Exit code of a node that must not start, and what its log says."""
    with pytest.raises(errors.Unavailable) as ended:
        await node.start()
    return int(ended.value.params["exit_code"]), node.log_file.read_text()


def changed(node: LocalNode, name: str, **cluster: Any) -> LocalNode:
    """A node that differs from `node` in its `[cluster]` section."""
    sections = node.config.model_dump(exclude_unset=True)
    sections["node"]["data_directory"] = str(sections["node"]["data_directory"])
    sections["cluster"].update(cluster)
    path = node.config_file.with_name(f"{name}.toml")
    path.write_text(toml_of(sections))
    return LocalNode(path)


async def test_mistaken_nodes_are_refused_and_the_others_serve(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster:
        await cluster.wait_for_master(in_sync=3)
        first, third = cluster.nodes[0], cluster.nodes[2]

        code, said = await refuses(changed(first, "same-id"))
        assert code == EXIT_LOCKED
        assert "DirectoryLocked" in said

        await cluster.stop_node(2)
        code, said = await refuses(changed(third, "other-cluster", id="f" * 32))
        assert code == EXIT_CONFIG
        assert "ForeignDirectory" in said

        own_id = (await cluster.status_of(0, ANSWER_MS)).cluster_id.replace("-", "")
        (tmp_path / "wrong").write_text("a secret that nobody else has\n")
        stranger = changed(third, "stranger", id=own_id, secret_file=str(tmp_path / "wrong"))
        await stranger.start()
        master, shard = await cluster.wait_for_shard()
        await until(lambda: "secret" in cluster.nodes[master].log_file.read_text())
        assert set(shard.in_sync) == {"node-1", "node-2"}
        await stranger.stop()

        copy = tmp_path / "copy"
        shutil.copytree(third.config.node.data_directory, copy)
        await cluster.start_node(2)
        await cluster.wait_for_master(in_sync=3)
        twin = changed(third, "same-addresses")
        twin.config_file.write_text(
            twin.config_file.read_text().replace(str(third.config.node.data_directory), str(copy))
        )
        code, said = await refuses(LocalNode(twin.config_file))
        assert code != 0
        assert "cannot listen" in said
