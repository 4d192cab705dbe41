"""A rolling restart: each node in turn is stopped and started, and clients notice nothing."""

from pathlib import Path

from node.tools.local_cluster.nodes import LocalCluster
from tests.support.light_load import LightLoad
from tests.support.reaper import complaints_of, say

SMALL = {
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    "telemetry": {"log_format": "json"},
}


async def test_nothing_fails_and_nothing_is_lost_when_nodes_restart_in_turn(
    tmp_path: Path,
) -> None:
    async with LocalCluster(tmp_path / "cluster", values=SMALL) as cluster:
        await cluster.wait_for_master(in_sync=3)
        load = LightLoad(cluster.servers)
        epochs = [(await cluster.wait_for_shard())[1].epoch]
        async with load.running():
            await load.some(100)
            for index, node in enumerate(cluster.nodes):
                master, shard = await cluster.wait_for_shard()
                begun_ms = load.now_ms()
                assert await cluster.stop_node(index) == 0
                await cluster.wait_for_master()
                await load.some(100)
                await cluster.start_node(index)
                await cluster.wait_for_master(in_sync=3)
                epochs.append((await cluster.wait_for_shard())[1].epoch)
                was = f"master of epoch {shard.epoch}" if index == master else "a follower"
                pause_ms = load.pause_ms(begun_ms, load.now_ms())
                say(f"{node.node_id}, {was}: longest time without a delivery {pause_ms:.0f} ms")
        say(f"{len(load.accepted)} accepted, {load.redelivered} handed out again")
        assert load.failures == []
        assert (load.missing, load.twice, load.early) == (set(), [], [])
        assert epochs == sorted(epochs)
        assert epochs[-1] > epochs[0], "a master was among them, and so mastership has moved"
    for node in cluster.nodes:
        assert [one for one in complaints_of(node.log_file) if "raw" not in one] == []
