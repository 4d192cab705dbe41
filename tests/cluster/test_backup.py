"""Backups of real nodes that run, and clusters that begin with what was restored."""

import asyncio
from pathlib import Path
from typing import Final

import grpc
import pytest
from typer.testing import CliRunner

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.cli.app import app
from hourwheel.clock import SystemClock
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import DISPATCH_TOPIC
from hourwheel.v1 import consumer_pb2, consumer_pb2_grpc
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.audit_runs import errors_of, run_audit
from tests.support.backup_commands import Commands
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until_told
from tests.support.kept_user import add_alice, check_alice

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
ANSWER_MS: Final = 30_000.0
"""On a busy machine, too."""
HOUR_MS: Final = 3_600_000
SOON_MS: Final = 5_000
RETENTION_MS: Final = 30 * 24 * HOUR_MS
"""A topic's own: comes with its log."""
NEW_CLUSTER: Final = "ab" * 16


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


async def consume(servers: str, count: int) -> list[bytes]:
    """Bodies of so many messages, acknowledged."""
    got: list[bytes] = []
    async with AsyncConsumer(servers, group="g", topic="orders") as consumer, asyncio.timeout(120):
        while len(got) < count:
            for one in await consumer.receive(10):
                got.append(one.body)
                await consumer.ack(one)
    return sorted(got)


async def test_a_node_that_runs_is_backed_up_and_others_begin_with_it(
    tmp_path: Path, commands: Commands
) -> None:
    data, folder = tmp_path / "data", tmp_path / "backups"
    async with EmbeddedNode(data, SMALL) as node:
        async with AsyncProducer(node.address) as producer:
            await producer.publish_many("orders", [Message(b"soon", delay_ms=SOON_MS)])
            await producer.publish_many("orders", [Message(b"later", delay_ms=HOUR_MS)] * 300)
            await producer.publish_many("orders", [Message(b"now")] * 2)
        async with grpc.aio.insecure_channel(node.address) as channel:
            stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
            asked = consumer_pb2.ReceiveRequest(group="g", topic="orders", max_messages=10)
            receipts = [one.receipt for one in (await stub.Receive(asked)).messages]
            assert len(receipts) == 2
            await add_alice(node.address)
            (taken,) = await commands.backup("create", data, "--to", folder)
            await stub.Ack(consumer_pb2.AckRequest(group="g", receipts=receipts))
        assert taken["new_bytes"] == taken["total_bytes"]
        assert await consume(node.address, 1) == [b"soon"]
        (again,) = await commands.backup("create", data, "--to", folder, "--rate", 0)
        assert 0 < again["new_bytes"] < again["total_bytes"]
    assert sorted(one["backup"] for one in await commands.backup("list", folder)) == sorted(
        (taken["backup"], again["backup"])
    )
    assert [one["damaged"] for one in await commands.backup("verify", folder)] == [[], []]
    assert {one["users"] for one in await commands.backup("list", folder)} == {1}
    assert {one.stat().st_mode & 0o077 for one in folder.rglob("*") if one.name != "LOCK"} == {0}

    for overdue, expected in (
        ("release", [b"now", b"now", b"soon"]),
        ("hold", [b"now", b"now", b"soon"]),
        ("discard", [b"now"] * 2),
    ):
        new = tmp_path / overdue
        found = await commands.restore(
            *("--from", folder, "--backup", taken["backup"], "--to", new, "--overdue", overdue)
        )
        assert found["cluster_id"] != taken["cluster_id"]
        assert found["discarded_count"] == 3 - len(expected)
        assert found["pending_count"] == 300 + len(expected) - 2
        async with EmbeddedNode(new, SMALL) as node:
            if overdue == "hold":
                assert await consume(node.address, 2) == expected[:2]
                async with AsyncAdmin(node.address) as admin:
                    assert (await admin.status()).shards[0].pending_count == 301
                    await admin.update_topic(DISPATCH_TOPIC, is_paused=False)
                assert await consume(node.address, 1) == expected[2:]
            else:
                assert await consume(node.address, len(expected)) == expected
            await check_alice(node.address)
            async with grpc.aio.insecure_channel(node.address) as channel:
                stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
                old = consumer_pb2.AckRequest(group="g", receipts=receipts)
                assert set((await stub.Ack(old)).outcomes) == {ReceiptOutcome.INVALID}
        assert errors_of(run_audit(new)) == []


async def test_three_nodes_begin_with_the_backup_of_a_follower_and_become_one_by_that_of_a_master(
    tmp_path: Path, commands: Commands
) -> None:
    folder = tmp_path / "backups"
    async with LocalCluster(tmp_path / "old", values=SMALL) as old:
        master = await old.wait_for_master(in_sync=3)
        async with AsyncProducer(old.servers) as producer:
            await producer.publish_many("orders", [Message(b"soon", delay_ms=2_000)])
            await producer.publish_many("orders", [Message(b"later", delay_ms=HOUR_MS)] * 50)
        assert await consume(old.servers, 1) == [b"soon"]
        await add_alice(old.servers)
        follower = old.nodes[(master + 1) % 3].config.node.data_directory
        (taken,) = await commands.backup("create", follower, "--to", folder)
        last_epoch = (await old.status_of(master, ANSWER_MS)).shards[0].epoch

    values = {**SMALL, "cluster": {"id": NEW_CLUSTER}}
    cluster = LocalCluster(tmp_path / "new", values=values)
    now_ms = taken["made_ms"]
    for node in cluster.nodes:
        found = await commands.restore(
            *("--from", folder, "--to", node.config.node.data_directory, "--node", node.node_id),
            *("--cluster-id", NEW_CLUSTER, "--now", now_ms, "--overdue", "discard"),
        )
        assert found["epoch"] > last_epoch
    async with cluster:
        master = await cluster.wait_for_master(in_sync=3)
        status = await cluster.status_of(master, ANSWER_MS)
        for node in cluster.nodes:
            await check_alice(node.address)
        async with AsyncAdmin(cluster.servers) as admin:
            assert (await admin.members()).generation == 1
        assert status.shards[0].epoch > found["epoch"]
        async with AsyncProducer(cluster.servers) as producer:
            await producer.publish_many("orders", [Message(b"new")])
        # A follower hears a moment later what is committed: the acknowledgement may not be in it.
        got = await consume(cluster.servers, 1)
        while b"new" not in got:
            got += await consume(cluster.servers, 1)
        assert set(got) <= {b"new", b"soon"}
        async with AsyncAdmin(cluster.servers) as admin:
            await admin.update_topic("orders", retention_ms=RETENTION_MS)
            pending_count = (await admin.status()).shards[0].pending_count
        master = await cluster.wait_for_master(in_sync=3)
    result = run_audit(*(one.config.node.data_directory for one in cluster.nodes))
    assert errors_of(result) == []

    alone, folder = tmp_path / "alone", tmp_path / "last backup"
    last = cluster.nodes[master].config.node.data_directory
    await commands.backup("create", last, "--to", folder)
    await commands.restore("--from", folder, "--to", alone, "--overdue", "release")
    async with EmbeddedNode(alone, SMALL) as node:
        await check_alice(node.address)
        async with AsyncAdmin(node.address) as admin:
            assert (await admin.get_topic("orders")).retention_ms == RETENTION_MS
            assert (await admin.status()).shards[0].pending_count == pending_count >= 50
        async with AsyncProducer(node.address) as producer:
            await producer.publish_many("orders", [Message(b"alone")])
        assert b"alone" in await consume(node.address, 1)
    assert errors_of(run_audit(alone)) == []


async def test_what_is_held_stays_held_over_a_takeover_until_it_is_resumed(
    tmp_path: Path, commands: Commands
) -> None:
    data, folder = tmp_path / "data", tmp_path / "backups"
    overdue = [b"late %d" % number for number in range(20)]
    async with ChildNode(data, SMALL) as node:
        async with AsyncProducer(node.address) as producer:
            await producer.publish_many("orders", [Message(b"later", delay_ms=HOUR_MS)] * 5)
            due_ms = SystemClock().wall_ms() + 3_000
            sent = [Message(one, due_ms=int(due_ms)) for one in overdue]
            await producer.publish_many("orders", sent)
        await node.kill()
    await commands.backup("create", data, "--to", folder)

    async def is_past() -> bool:
        return SystemClock().wall_ms() > due_ms

    await until_told(is_past)
    cluster = LocalCluster(tmp_path / "new", values={**SMALL, "cluster": {"id": NEW_CLUSTER}})
    now_ms = int(SystemClock().wall_ms())
    for node_ in cluster.nodes:
        found = await commands.restore(
            *("--from", folder, "--to", node_.config.node.data_directory, "--node", node_.node_id),
            *("--cluster-id", NEW_CLUSTER, "--now", now_ms),
        )
        assert (found["pending_count"], found["overdue_count"]) == (25, 20)
    async with cluster:
        master, shard = await cluster.wait_for_shard(in_sync=3)
        assert await consume_new(cluster.servers, b"before the takeover") == []
        await cluster.kill_node(master)
        await cluster.wait_for_master(in_sync=2, epoch_above=shard.epoch)
        assert await consume_new(cluster.servers, b"behind it") == []
        async with AsyncAdmin(cluster.servers) as admin:
            assert (await admin.status()).shards[0].pending_count == 25
        words = ["--server", cluster.servers, "dispatch", "resume", "--yes"]
        said = await asyncio.to_thread(CliRunner().invoke, app, words)
        assert said.exit_code == 0, said.output
        assert await consume(cluster.servers, len(overdue)) == sorted(overdue)
        await cluster.start_node(master)
        await cluster.wait_for_master(in_sync=3)
        assert await consume_new(cluster.servers, b"at the end") == []
    result = run_audit(*(one.config.node.data_directory for one in cluster.nodes))
    assert errors_of(result) == []


async def consume_new(servers: str, body: bytes) -> list[bytes]:
    """What a consumer gets beside a message that is published now, and due at once.

    A master that releases what is overdue does so before it answers the publish.
    """
    async with AsyncProducer(servers) as producer:
        await producer.publish_many("orders", [Message(body)])
    got: list[bytes] = []
    async with AsyncConsumer(servers, group="g", topic="orders") as consumer, asyncio.timeout(120):
        while body not in got:
            for one in await consumer.receive(100):
                got.append(one.body)
                await consumer.ack(one)
    return [one for one in got if one != body]
