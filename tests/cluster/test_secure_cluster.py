"""A cluster with TLS and users, as `hourwheel cluster up --secure` makes it."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hourwheel import errors
from hourwheel.cli.app import app
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.channel import Channel
from node.tools.local_cluster import security
from node.tools.local_cluster.nodes import LocalCluster

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}


async def test_secure_cluster_from_publish_to_takeover(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3, values=VALUES, is_secure=True) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        access = {"tls": cluster.access.tls, "user": cluster.access.user}
        async with (
            AsyncProducer(Channel(cluster.servers, **access)) as producer,  # type: ignore[arg-type]
            AsyncConsumer(cluster.servers, group="g", topic="orders", **access) as consumer,  # type: ignore[arg-type]
        ):
            await producer.publish("orders", Message(b"one"))
            (received,) = await consumer.receive(wait_ms=60_000)
            await consumer.ack(received)
            await cluster.stop_node(master)
            await cluster.wait_for_master()
            await producer.publish("orders", Message(b"two"))
            (received,) = await consumer.receive(wait_ms=60_000)
            assert received.body == b"two"
        options = security.options_for(cluster.security_directory).split()
        for given in (["--server", cluster.servers, *options], ["--server", cluster.servers]):
            result = await asyncio.to_thread(CliRunner().invoke, app, [*given, "status"])
            assert (result.exit_code == 0) == (given[-1] == options[-1]), result.output
        known = ["--server", cluster.servers, *options]
        for words in (["publish", "orders", "four"], ["consume", "orders", "--group=h", "--max=1"]):
            result = await asyncio.to_thread(CliRunner().invoke, app, [*known, *words])
            assert result.exit_code == 0, result.output
        async with AsyncProducer(cluster.servers, tls=cluster.access.tls) as producer:
            with pytest.raises(errors.PermissionDenied):  # of nobody
                await producer.publish("orders", Message(b"three"))
        wrong = ("admin", "wrong")
        async with AsyncProducer(cluster.servers, tls=cluster.access.tls, user=wrong) as producer:
            with pytest.raises(errors.Unauthenticated):
                await producer.publish("orders", Message(b"three"))
