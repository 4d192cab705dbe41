"""A cluster on the event loop that nodes do not take by themselves. All other tests, among them the
same kill of a master in `test_cluster.py`, are on uvloop."""

import json
from pathlib import Path

import pytest

from node.tools.local_cluster.nodes import LocalCluster, LocalNode
from tests.support.cluster_load import ClusterLoad


def loop_of(node: LocalNode) -> str:
    """The package of the event loop that a node's log names."""
    events = [json.loads(line) for line in node.log_file.read_text().splitlines()]
    kinds = {event["kind"] for event in events if event["event"] == "event_loop_chosen"}
    (kind,) = kinds
    return str(kind).split(".", maxsplit=1)[0]


async def test_messages_survive_a_kill_of_the_master_on_asyncios_event_loop(tmp_path: Path) -> None:
    values = {
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "node": {"metrics_listen": "", "event_loop": "asyncio"},
        "telemetry": {"log_level": "debug"},
    }
    async with LocalCluster(tmp_path, values=values) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        async with ClusterLoad(cluster.servers) as load:
            await load.some(200)
            epoch = (await cluster.wait_for_shard())[1].epoch
            await cluster.kill_node(master)
            await load.some(200)
            await cluster.start_node(master)
            await cluster.wait_for_master(epoch_above=epoch, in_sync=3)
            await load.finish()
            assert load.early() == []
            assert load.failures == []
            assert await load.released_count() == len(load.arrived) >= 400
        assert {loop_of(node) for node in cluster.nodes} == {"asyncio"}


@pytest.mark.parametrize("given", [{}, {"event_loop": "uvloop"}], ids=["by itself", "as told"])
async def test_uvloop_is_what_a_node_takes(tmp_path: Path, given: dict[str, str]) -> None:
    values = {"node": {"metrics_listen": "", **given}, "telemetry": {"log_level": "debug"}}
    async with LocalCluster(tmp_path, 1, values=values) as cluster:
        assert loop_of(cluster.nodes[0]) == "uvloop"
