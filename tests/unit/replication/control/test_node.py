"""One node alone, in this process; three of them are in tests/cluster/test_control_plane.py."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from replication.control.client import ControlClient, Hello
from replication.control.node import ControlNode
from tests.sim.disk import SimulatedDisk
from tests.support.control_cluster import ControlCluster
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock

BOOT = b"b" * 16


@asynccontextmanager
async def lone_node(
    tmp_path: Path, disk: SimulatedDisk | None = None, *, node_id: str = "n1"
) -> AsyncIterator[tuple[ControlNode, ControlClient]]:
    logging.getLogger("replication").setLevel(logging.CRITICAL)
    config = replace(
        ControlCluster(tmp_path)["n1"].process.config,
        peers={},
        min_in_sync=1,
        raft_s_min=0.01,
        raft_s_max=0.02,
        report_interval_ms=20.0,
    )
    node = ControlNode(config, disk or SimulatedDisk(), SystemClock())
    client = ControlClient(config.socket_path)
    try:
        await node.start()
        await client.start(Hello(node_id, BOOT))
        yield node, client
    finally:
        await client.close()
        await node.close()


async def test_node_founds_its_cluster_registers_and_elects(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as (node, client):
        await until(lambda: client.state.is_bootstrapped)
        command = pb.RegisterNodeCommand(node_id="n1", boot_id=BOOT, isr_is_sound=True)
        result = await client.propose(register_node=command)
        assert result.outcome == pb.CONTROL_OUTCOME_OK
        assert client.state.shards[0].master is None
        client.report([link.ShardReport(shard=0, is_ready=True)])
        await until(lambda: client.state.shards[0].master is not None)
        assert client.state.shards[0].epoch == 1
        assert client.leader_node_id == "n1"
        client.report([link.ShardReport(shard=0, is_ready=True, epoch=1, is_resigning=True)])
        await until(lambda: node.decide().next_wakeup_ms is None)
        assert client.state.shards[0].epoch == 1, "there is nobody else"


async def test_state_is_there_again_when_the_node_has_restarted(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (_, client):
        await until(lambda: client.state.is_bootstrapped)
        await client.propose(put_topic=pb.PutObjectCommand(name="kept"))
    async with lone_node(tmp_path, disk) as (_, client):
        await until(lambda: "kept" in client.state.topics)


async def test_broker_of_another_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable, match="refuses"):
        async with lone_node(tmp_path, node_id="n2"):
            pass


async def test_broker_is_told_of_a_peer_that_has_nothing_new_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    config = replace(ControlCluster(tmp_path)["n1"].process.config, peers={})
    node = ControlNode(config, SimulatedDisk(), clock)
    told: list[link.ControlFrame] = []
    monkeypatch.setattr(node.link, "send", told.append)
    report = link.NodeReport(node_id="n2", broker_alive=True)
    counts = []
    for _ in range(10):
        node.on_report("n2", report)
        counts.append(len(told))
        clock.pass_ms(config.report_interval_ms)
    assert counts == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], "well within the time that ends in silence"
    node.on_report("n2", link.NodeReport(node_id="n2"))
    assert len(told) == 6
    await node.close()


async def test_failed_disk_ends_the_node(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (node, client):
        await until(lambda: client.state.is_bootstrapped)
        disk.fail_sync("journal")
        with pytest.raises((errors.Timeout, errors.Unavailable)):
            await client.propose(put_topic=pb.PutObjectCommand(name="lost"), timeout_s=0.2)
        await until(node.died.done)
        assert isinstance(node.died.result(), errors.FsyncFailed)
        assert "lost" not in client.state.topics
