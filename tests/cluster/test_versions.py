"""Nodes of different versions in one cluster: those that can live together, and others."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chaos.cluster import Cluster
from chaos.network import Loopback
from chaos.node_process import NodeProcess
from chaos.stored import LogFiles
from hourwheel import AsyncAdmin, AsyncProducer, Message, errors
from hourwheel.formats.record_batch import Kind, RecordBatch
from hourwheel.internal.v1.state_pb2 import ConfigChange
from node.shard.views import FEATURE_LEVEL
from tests.support.eventually import until
from tests.support.other_version import FORMER_LEVEL, LEVEL

OTHER: Final = "tests.support.other_version"
NODES: Final = ("n1", "n2", "n3")


@asynccontextmanager
async def three_nodes(folder: Path) -> AsyncIterator[Cluster]:
    async with Loopback(NODES) as network, Cluster(folder, network) as cluster:
        async with AsyncAdmin(cluster.servers) as admin:
            await admin.create_topic("orders")
        await cluster.whole()
        yield cluster


async def restart(cluster: Cluster, name: str, *version: str) -> NodeProcess:
    """Replace a node's software, as in a rolling upgrade."""
    node = cluster.nodes[name]
    assert await node.stop() == 0
    node.launcher = (OTHER, *version) if version else ()
    await node.start()
    return node


async def publish(cluster: Cluster) -> None:
    async with AsyncProducer(cluster.servers) as producer:
        await producer.publish("orders", Message(b"one", delay_ms=600_000))


async def lead(cluster: Cluster, name: str) -> None:
    """Make a node the master, as soon as it is in sync."""
    async with AsyncAdmin(cluster.servers) as admin:
        while (await cluster.master()).node_id != name:
            try:
                await admin.transfer_master(name)
            except errors.FailedPrecondition:
                await cluster.whole()


def errors_of(node: NodeProcess) -> list[dict[str, Any]]:
    return [one for one in node.read_log() if one.get("level") in {"error", "critical"}]


def levels_of(cluster: Cluster) -> list[int]:
    """Feature levels that the log names, in its order; the nodes do not run."""
    log = LogFiles(cluster.nodes["n2"].data)
    found = [one for one in log.scan(0, 1 << 62) if one.header.kind == Kind.FEATURE_LEVEL]
    return [int(one.rows[0]["level"]) for one in found]


async def test_node_that_speaks_another_protocol_is_left_out_and_both_sides_say_why(
    tmp_path: Path,
) -> None:
    async with three_nodes(tmp_path) as cluster:
        master = await cluster.master()
        other = await restart(cluster, cluster.followers(master)[0].node_id, "protocol")
        await cluster.in_sync_without(other.node_id)
        await publish(cluster)
        await until(lambda: errors_of(other) and errors_of(master))
        (said,) = [one for one in errors_of(other) if one["event"] == "replication_refused"]
        assert said["error_type"] == "IncompatibleFormat"
        assert "speaks version" in said["error"]
        assert {one["reason"] for one in errors_of(master)} == {errors.IncompatibleFormat.reason}
        await restart(cluster, other.node_id)
        await cluster.whole()
        assert cluster.deaths == []


async def test_cluster_is_upgraded_node_by_node_to_the_next_feature_level(tmp_path: Path) -> None:
    """The log follows when all know it: until then nobody writes what an old node cannot read."""
    async with three_nodes(tmp_path) as cluster:
        for name in NODES[1:]:
            await restart(cluster, name, "level")
            await cluster.whole()
        await lead(cluster, "n2")
        await publish(cluster)
        await cluster.whole()
        await lead(cluster, "n3")
        await restart(cluster, "n1", "level")
        await cluster.knowing(LEVEL)
        assert (await cluster.master()).node_id == "n3"
        await lead(cluster, "n2")  # from its epoch on
        await publish(cluster)
        await cluster.whole()
        assert cluster.deaths == []
        assert {one.feature_level for one in (await cluster.statuses()).values()} == {LEVEL}
        old = cluster.nodes["n1"]
        assert await old.stop() == 0
        old.launcher = ()
        # It stops at its checkpoint or, where that is older than the level, when it reads on.
        with contextlib.suppress(errors.Unavailable):
            await old.start()
        await until(
            lambda: "IncompatibleFormat" in {one.get("error_type") for one in errors_of(old)}
        )
        await publish(cluster)
        await cluster.kill_all()
        assert levels_of(cluster) == [FEATURE_LEVEL, LEVEL]


def changes_of(cluster: Cluster) -> list[ConfigChange]:
    """Changes of topics and groups in the log, in its order; the nodes do not run."""
    log = LogFiles(cluster.nodes["n2"].data)
    found: list[RecordBatch] = [
        one for one in log.scan(0, 1 << 62) if one.header.kind == Kind.CONFIG
    ]
    return [ConfigChange.FromString(bytes(one.blobs)) for one in found]


async def test_topics_and_groups_of_an_upgraded_cluster_come_from_its_control_state(
    tmp_path: Path,
) -> None:
    """They keep their ids, and until all nodes know the level the log decides as before."""
    async with Loopback(NODES) as network:
        cluster = Cluster(tmp_path, network)
        for node in cluster.nodes.values():
            node.launcher = (OTHER, "former")
        async with cluster, AsyncAdmin(cluster.servers) as admin:
            await admin.create_topic("orders", queue_count=3)
            await admin.put_group("billing", attempts_max=7)
            await admin.create_topic("gone")
            await admin.delete_topic("gone")
            for name in NODES:
                await cluster.whole()
                await restart(cluster, name)
                await publish(cluster)
            await cluster.whole()
            await cluster.knowing(FEATURE_LEVEL)
            master = (await cluster.master()).node_id
            await lead(cluster, "n1" if master != "n1" else "n2")  # from this epoch on
            await publish(cluster)
            await admin.create_topic("bills")
            await admin.update_topic("orders", description="kept")
            assert [one.queue_count for one in await admin.topics()] == [1, 3]
            assert [one.attempts_max for one in await admin.groups()] == [7]
            assert cluster.deaths == []
            await cluster.whole()
        await cluster.kill_all()
        assert levels_of(cluster) == [FORMER_LEVEL, FEATURE_LEVEL]
        changes = changes_of(cluster)
        at = [one.adopt_control_state for one in changes].index(True)
        before, after = changes[:at], changes[at:]
        assert not any(one.control_revision for one in before)
        ids = {one.put_topic.name: one.put_topic.topic_id for one in before}
        again = {one.put_topic.name: one.put_topic.topic_id for one in after}
        assert again["orders"] == ids["orders"]
        assert again["bills"] > ids["gone"]
        own = [one for one in after if one.put_topic.internal or one.HasField("put_subscription")]
        assert all(one.control_revision for one in after if one not in own)
