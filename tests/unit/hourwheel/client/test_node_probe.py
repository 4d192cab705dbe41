"""Asking one node, and only that one."""

import pytest

from hourwheel import errors
from hourwheel.client.node_probe import NodeProbe
from tests.support.fake_cluster import FakeCluster


async def test_probe_stays_with_its_node_when_others_are_known_or_it_is_gone() -> None:
    async with FakeCluster(3) as cluster:
        probe = NodeProbe(cluster.nodes[1].address)
        for _ in range(3):
            status = await probe.status(5_000.0)
        assert status.shards[0].master == "n1"
        assert cluster.count("GetStatus") == [0, 3, 0]
        await cluster.nodes[1].stop()
        with pytest.raises(errors.Unavailable):
            await probe.status(5_000.0)
        assert cluster.count("GetStatus") == [0, 3, 0]
        await probe.close()


async def test_probe_tells_the_error_of_the_node() -> None:
    async with FakeCluster(1) as cluster:
        cluster.nodes[0].fail_next("GetStatus", errors.ShuttingDown())
        probe = NodeProbe(cluster.nodes[0].address)
        with pytest.raises(errors.ShuttingDown):
            await probe.status(5_000.0)
        await probe.close()


async def test_probe_has_its_own_node_hand_over_and_no_other() -> None:
    async with FakeCluster(2) as cluster:
        for node in cluster.nodes:
            probe = NodeProbe(node.address)
            if node is cluster.master:
                assert (await probe.transfer_master(5_000.0)).master
            else:
                with pytest.raises(errors.NotMaster):
                    await probe.transfer_master(5_000.0)
            await probe.close()
        assert cluster.count("TransferMaster") == [1, 1]
