"""Members of a broadcast keep their places when the master of three real nodes is killed."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Broadcast, Message, errors
from node.tools.local_cluster.nodes import LocalCluster

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}


async def take(consumer: AsyncConsumer, count: int) -> set[bytes]:
    """Bodies of so many messages, acknowledged; no other ones are there."""
    found: list[bytes] = []
    while len(found) < count:
        messages = await consumer.receive(count, wait_ms=20_000)
        await consumer.ack(messages)
        found += [one.body for one in messages]
    assert len(found) == count
    return set(found)


async def test_members_keep_their_places_when_the_master_is_killed(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster, asyncio.timeout(240):
        master = await cluster.wait_for_master(in_sync=3)
        servers = cluster.servers
        async with AsyncAdmin(servers) as admin, AsyncProducer(servers) as producer:
            await producer.publish("orders", Message(b"before"))
            named = Broadcast(member="host-7")
            async with (
                AsyncConsumer(servers, group="prices", topic="orders", broadcast=True) as plain,
                AsyncConsumer(servers, group="prices", topic="orders", broadcast=named) as host,
            ):
                await producer.publish_many("orders", [Message(b"%d" % n) for n in range(3)])
                assert await take(plain, 3) == {b"0", b"1", b"2"}
                await cluster.kill_node(master)
                await producer.publish("orders", Message(b"3"))
                assert await take(plain, 1) == {b"3"}
                assert await take(host, 4) == {b"0", b"1", b"2", b"3"}
                async with AsyncConsumer(
                    servers, group="prices", topic="orders", broadcast=named
                ) as next_start:
                    await producer.publish("orders", Message(b"4"))
                    assert await take(next_start, 1) == {b"4"}
                    with pytest.raises(errors.MemberReplaced):
                        await host.receive(1, wait_ms=20_000)
                assert await take(plain, 1) == {b"4"}
            groups = [one.name for one in await admin.groups()]
            assert groups == ["%BROADCAST%prices|host-7"], "the one without a name has left"
