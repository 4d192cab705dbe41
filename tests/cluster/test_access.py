"""Grants in a cluster of processes: given, taken away from open streams, kept by a takeover."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from hourwheel import errors
from hourwheel.cli.app import app
from hourwheel.client.access import Limits
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import CancelOutcome
from hourwheel.v1.broker_pb2 import CancelRequest
from hourwheel.v1.broker_pb2_grpc import ProducerServiceStub
from node.tools.local_cluster import security
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.api_world import refused
from tests.support.eventually import before_the_next_look, until_told

VALUES = {
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    "access": {"is_on": True, "administrators": security.ADMIN},
}
WITHIN_S = 60.0
"""Far more than the second that is promised: the machine may be busy."""
NOT_YET = (
    *(errors.PermissionDenied, errors.Unauthenticated, errors.FailedPrecondition),
    errors.QuotaReached,
)


async def soon(ask: Any) -> Any:
    """What `ask` answers, once it is allowed, and the cluster follows the rules that it needs."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await ask()
            except NOT_YET:
                await before_the_next_look()


async def denied(asked: Awaitable[Any]) -> errors.PermissionDenied:
    with pytest.raises(errors.PermissionDenied) as caught:
        async with asyncio.timeout(WITHIN_S):
            await asked
    return caught.value


async def publish_on(producer: AsyncProducer) -> None:
    """Until that fails."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            await producer.publish("orders", Message(b"one more"))


async def lists(admin: AsyncAdmin, limits: Limits) -> bool:
    """As its only quota. A node lists what it knows, and follows within a second."""
    return [one.limits for one in await admin.quotas()] == [limits]


async def user_names(server: str, **access: Any) -> list[str]:
    """As one node says, when it is registered."""
    async with AsyncAdmin(server, **access) as admin, asyncio.timeout(WITHIN_S):
        while True:
            try:
                return [user.name for user in await admin.users()]
            except errors.Unavailable:
                await before_the_next_look()


async def by_commands(cluster: LocalCluster, secret: Path) -> None:
    """The same from the command line."""
    options = ["--server", cluster.servers]
    options += security.options_for(cluster.security_directory).split()

    async def command(*words: str) -> Any:
        result = await asyncio.to_thread(
            CliRunner().invoke, app, [*options, "access", *words, "--json"]
        )
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.output.splitlines()]

    (listed,) = await command("grants")
    assert (listed["principal"], listed["resource"]) == ("alice", "ord*")
    await command("revoke", "alice", "--topic", "ord*")
    await command("delete-user", "alice")
    await asyncio.to_thread(secret.write_text, "of bob\n")
    (made,) = await command("put-user", "bob", "--secret-file", str(secret))
    assert made["name"] == "bob"
    await command("grant", "bob", "look,administer", "--cluster")
    async with AsyncAdmin(cluster.servers, tls=cluster.access.tls, user=("bob", "of bob")) as bob:
        assert [one.principal for one in await soon(bob.grants)] == ["bob"]


async def cancels_by_id_at_each_node(
    cluster: LocalCluster, producer: AsyncProducer, foreign: str
) -> None:
    """Of a message of hers, and not of `foreign`: at the master, and passed on to it."""
    authority = (cluster.security_directory / "authority.pem").read_bytes()
    login = b64encode(b"alice:of alice").decode()
    metadata = (("authorization", f"Basic {login}"),)
    for node in cluster.nodes:
        mine = await soon(lambda: producer.publish("orders", Message(b"x", delay_ms=3_600_000)))
        credentials = grpc.ssl_channel_credentials(authority)
        async with grpc.aio.secure_channel(node.address, credentials) as channel:
            cancel = ProducerServiceStub(channel).Cancel
            for ids in ([foreign], [str(mine), foreign]):
                refusal = await refused(cancel(CancelRequest(message_ids=ids), metadata=metadata))
                assert refusal.reason == "PERMISSION_DENIED"
                assert refusal.params["indexes"] == str(len(ids) - 1)
            request = CancelRequest(message_ids=[str(mine)])
            answer = await cancel(request, metadata=metadata, timeout=WITHIN_S)
            assert list(answer.outcomes) == [CancelOutcome.CANCELLED]


async def test_grants_hold_on_all_nodes_on_open_streams_and_after_a_takeover(
    tmp_path: Path,
) -> None:
    async with LocalCluster(tmp_path, 3, values=VALUES, is_secure=True) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        tls: Any = {"tls": cluster.access.tls}
        alice = {**tls, "user": ("alice", "of alice")}
        root = {**tls, "user": cluster.access.user}
        async with (
            AsyncAdmin(cluster.servers, **root) as admin,
            AsyncProducer(cluster.servers, **alice) as producer,
            AsyncConsumer(cluster.servers, group="g", topic="orders", **alice) as consumer,
        ):
            with pytest.raises(errors.Unauthenticated):
                await producer.publish("orders", Message(b"of nobody"))
            version = await soon(lambda: admin.put_user("alice", "of alice"))
            assert await admin.put_user("alice", "of alice") > version
            with pytest.raises(errors.FailedPrecondition):
                await admin.put_user("alice", "of mallory", expected_version=version)
            await admin.grant("alice", ["publish"], "topic", "ord*")
            await soon(lambda: producer.publish("orders", Message(b"one")))
            await denied(producer.publish("bills", Message(b"two")))
            await admin.grant("alice", ["publish", "cancel"], "topic", "ord*")
            async with AsyncProducer(cluster.servers, **root) as other:
                foreign = await other.publish("bills", Message(b"not hers", delay_ms=3_600_000))
            await cancels_by_id_at_each_node(cluster, producer, str(foreign))
            await admin.grant("alice", ["publish", "receive"], "topic", "ord*")
            await admin.grant("alice", ["receive"], "group", "g")
            (received,) = await soon(lambda: consumer.receive(wait_ms=20_000))
            await consumer.ack(received)

            waiting = asyncio.ensure_future(consumer.receive(wait_ms=60_000))
            for _ in range(10):  # so that the poll waits; what follows holds without it, too
                await before_the_next_look()
            await admin.revoke("alice", "group", "g")
            assert (await denied(waiting)).params["resource"] == "g"
            with pytest.raises(errors.NotFound):
                await admin.revoke("alice", "group", "g")

            await admin.put_quota("alice", Limits(messages_per_s=0))
            with pytest.raises(errors.QuotaReached):
                await publish_on(producer)
            await admin.put_quota("alice", Limits(messages_per_s=10))
            await until_told(lambda: lists(admin, Limits(messages_per_s=10)))
            assert await soon(lambda: producer.publish("orders", Message(b"again")))
            await admin.delete_quota("alice")

            await cluster.stop_node(master)
            await cluster.wait_for_master()
            await soon(lambda: producer.publish("orders", Message(b"three")))
            await denied(producer.publish("bills", Message(b"four")))
            await denied(consumer.receive(wait_ms=1_000))
            await cluster.start_node(master)

            for node in cluster.nodes:
                assert await user_names(node.address, **root) == ["alice"]
            async with AsyncAdmin(cluster.servers, **alice) as other:
                assert (await denied(other.users())).params["resource_kind"] == "cluster"
            (granted,) = await admin.grants()
            assert (granted.kind, granted.operations) == ("topic", {"publish", "receive"})
        await by_commands(cluster, tmp_path / "secret")
