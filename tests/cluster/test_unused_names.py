"""Real nodes, whose own timers find topics and groups that nobody uses."""

from pathlib import Path

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.outcomes import CancelOutcome
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.engine_world import within
from tests.support.eventually import until, until_told


async def test_topic_that_publishing_made_goes_when_empty_and_comes_again(tmp_path: Path) -> None:
    limits = {"limits": {"topic_idle_ms": 1}}
    async with (
        ChildNode(tmp_path / "data", limits, log_file=tmp_path / "log") as node,
        AsyncAdmin(node.address) as admin,
        AsyncProducer(node.address) as producer,
    ):
        await admin.create_topic("made")
        kept = await producer.publish("kept", Message(b"later", delay_ms=3_600_000))
        gone = await producer.publish("orders", Message(b"never", delay_ms=3_600_000))
        assert await admin.cancel(gone) is CancelOutcome.CANCELLED

        log = tmp_path / "log"
        await until(lambda: "topic_expired" in log.read_text())
        assert [topic.name for topic in await admin.topics()] == ["kept", "made"]
        await producer.publish("orders", Message(b"again"))
        async with AsyncConsumer(node.address, group="g", topic="orders") as consumer:
            (message,) = await within(consumer.receive())
            assert message.body == b"again"
            await consumer.ack(message)
        assert await admin.cancel(kept) is CancelOutcome.CANCELLED


async def expired(admin: AsyncAdmin) -> None:
    """Only the topic is left of which something is pending, and no group."""

    async def is_alone() -> bool:
        topics, groups = await admin.topics(include_internal=True), await admin.groups()
        return [one.name for one in (*topics, *groups)] == ["kept"]

    await until_told(is_alone)


async def use_and_leave(cluster: LocalCluster, admin: AsyncAdmin) -> None:
    """Publish to a topic, take it back; receive from another one, in vain."""
    async with AsyncProducer(cluster.servers) as producer:
        gone = await producer.publish("orders", Message(b"never", delay_ms=3_600_000))
        assert await admin.cancel(gone) is CancelOutcome.CANCELLED
    async with AsyncConsumer(cluster.servers, group="g", topic="kept") as consumer:
        assert await consumer.receive(wait_ms=50) == []


async def test_names_go_and_come_again_at_each_master_of_three_nodes(tmp_path: Path) -> None:
    values = {
        "limits": {"topic_idle_ms": 1, "group_idle_ms": 1},
        "node": {"metrics_listen": ""},
        "disk": {"free_bytes_min": 0},
    }
    async with LocalCluster(tmp_path, values=values) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        async with AsyncAdmin(cluster.servers) as admin:
            async with AsyncProducer(cluster.servers) as producer:
                await producer.publish("kept", Message(b"later", delay_ms=3_600_000))
            await use_and_leave(cluster, admin)
            await expired(admin)

            epoch = (await cluster.wait_for_shard())[1].epoch
            await cluster.kill_node(master)
            await cluster.wait_for_master(epoch_above=epoch)
            await use_and_leave(cluster, admin)
            await expired(admin)

            # The node that was away agrees, and what comes back gets what is there.
            await cluster.start_node(master)
            await cluster.wait_for_master(in_sync=3)
            await admin.transfer_master(to=cluster.nodes[master].node_id)
            await expired(admin)
            async with AsyncProducer(cluster.servers) as producer:
                await producer.publish("kept", Message(b"now"))
            async with AsyncConsumer(cluster.servers, group="g", topic="kept") as consumer:
                (message,) = await within(consumer.receive())
                assert message.body == b"now"
                await consumer.ack(message)
