"""Clients of a cluster: who is asked, and that nothing is lost, repeated or refused on the way.

The nodes are fakes that keep the same messages; what the rules say alone: test_endpoints.py.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.transport.channel import CONNECT_MS, RECONNECT_MS
from hourwheel.transport.connection import Connection
from hourwheel.transport.endpoints import Trouble
from hourwheel.transport.methods import DELETE_TOPIC, LIST_TOPICS
from hourwheel.v1 import admin_pb2
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock
from tests.support.fake_cluster import FakeCluster, channel_to
from tests.support.fake_node import FakeNode

LIST = admin_pb2.ListTopicsRequest()
DELETE = admin_pb2.DeleteTopicRequest(name="t")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3) as started:
        yield started


# --- unary calls ----------------------------------------------------------------------------------


async def test_call_when_redirected(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[2])
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
        assert cluster.count("ListTopics") == [1, 0, 1]
        assert channel.endpoints.epoch == cluster.epoch
        await channel.call(LIST_TOPICS, LIST)
        assert cluster.count("ListTopics") == [1, 0, 2]


async def test_call_when_redirected_to_a_node_that_was_not_named(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[1])
    async with channel_to(cluster.nodes[0].address) as channel:
        await channel.call(LIST_TOPICS, LIST)
    assert cluster.count("ListTopics") == [1, 1, 0]


async def test_call_when_redirected_and_it_must_not_be_repeated(cluster: FakeCluster) -> None:
    cluster.nodes[0].topics["t"] = 1
    cluster.promote(cluster.nodes[1])
    async with channel_to(cluster.servers) as channel:
        await channel.call(DELETE_TOPIC, DELETE)
    assert cluster.count("DeleteTopic") == [1, 1, 0]


async def test_call_when_nobody_names_the_master(cluster: FakeCluster) -> None:
    cluster.are_hints_given = False
    cluster.promote(cluster.nodes[2])
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
    assert cluster.count("ListTopics")[2] == 1


async def test_call_when_nodes_point_in_a_circle(cluster: FakeCluster) -> None:
    first, second = cluster.nodes[:2]
    to_first = errors.NotMaster(master_address=first.address, epoch=90)
    to_second = errors.NotMaster(master_address=second.address, epoch=90)
    first.fail_next("ListTopics", *[to_second] * 1_000)
    second.fail_next("ListTopics", *[to_first] * 1_000)
    async with channel_to([first.address, second.address]) as channel:
        with pytest.raises((errors.NotMaster, errors.Timeout)):  # the last try may have no time
            await channel.call(LIST_TOPICS, LIST, timeout_ms=200.0)
    assert sum(cluster.count("ListTopics")) < 1_000


async def test_call_when_the_node_of_choice_is_gone(cluster: FakeCluster) -> None:
    cluster.promote(cluster.nodes[1])
    await cluster.nodes[0].stop()
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
        now_ms = channel.clock.monotonic_ms()
        assert channel.endpoints.choose(now_ms, 0.0) == cluster.nodes[1].address


async def test_connection_is_waited_for_less_when_the_node_was_gone(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it is stopped: its kernel takes connections, and nobody greets."""
    clock = FakeClock()
    waited: dict[str, list[float | None]] = {node.address: [] for node in cluster.nodes}

    async def wait_until_ready(
        one: Connection,
        timeout_ms: float | None,
        *,
        is_patient: bool,
        ends_without_tls: bool,
    ) -> bool:
        assert not is_patient
        assert ends_without_tls
        waited[one.address].append(timeout_ms)
        clock.pass_ms(timeout_ms or 0.0)
        return False

    monkeypatch.setattr(Connection, "wait_until_ready", wait_until_ready)
    monkeypatch.setattr(Connection, "is_ready", property(lambda _: False))
    async with channel_to(cluster.servers, clock=clock) as channel:
        connecting = asyncio.create_task(channel.connect())
        await until(lambda: all(len(times) > 1 for times in waited.values()))
        connecting.cancel()
    assert [times[:2] for times in waited.values()] == [[CONNECT_MS, RECONNECT_MS]] * 3


async def test_call_when_the_connection_breaks_under_it(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        with first.hold("ListTopics"):
            call = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
            await first.seen("ListTopics")
            cluster.promote(second)
            await first.stop()
            await call
    assert cluster.count("ListTopics")[:2] == [1, 1]


async def test_call_when_it_breaks_and_must_not_be_repeated(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        with first.hold("DeleteTopic"):
            call = asyncio.create_task(channel.call(DELETE_TOPIC, DELETE))
            await first.seen("DeleteTopic")
            cluster.promote(second)
            await first.stop()
            with pytest.raises(errors.Timeout, match="outcome is unknown"):
                await call
        assert cluster.count("DeleteTopic") == [1, 0, 0]
        second.topics["t"] = 1
        await channel.call(DELETE_TOPIC, DELETE)  # the next one goes where there is a master
    assert cluster.count("DeleteTopic") == [1, 1, 0]


async def test_call_when_a_node_does_not_answer(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.transport.retry.TRY_MS", 2_000.0)
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers) as channel:
        await channel.connect()
        with first.hold("ListTopics"):
            cluster.promote(second)
            await channel.call(LIST_TOPICS, LIST)
            assert channel.endpoints.trouble_at(first.address, channel.clock.monotonic_ms())
    assert cluster.count("ListTopics")[:2] == [1, 1]


async def test_call_when_a_node_is_slow(cluster: FakeCluster) -> None:
    clock = FakeClock()
    first, second, _ = cluster.nodes
    async with channel_to(cluster.servers, clock=clock) as channel:
        with first.hold("ListTopics"):
            call = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
            await first.seen("ListTopics")
            clock.pass_ms(700.0)
        await call
        assert channel.endpoints.trouble_at(first.address, clock.monotonic_ms()) is Trouble.SLOW
        cluster.promote(second)
        await channel.call(LIST_TOPICS, LIST)
        assert cluster.count("ListTopics")[:2] == [1, 1]


async def test_call_when_the_slow_node_is_still_the_master(cluster: FakeCluster) -> None:
    clock = FakeClock()
    first = cluster.nodes[0]
    async with channel_to(cluster.servers, clock=clock) as channel:
        for calls in (1, 2, 3):
            with first.hold("ListTopics"):
                call = asyncio.create_task(channel.call(LIST_TOPICS, LIST))
                await first.seen("ListTopics", calls)
                clock.pass_ms(700.0)
            await call
    assert sum(cluster.count("ListTopics")[1:]) == 1  # doubted once, named all the same


async def test_long_poll_when_it_takes_long(cluster: FakeCluster) -> None:
    clock = FakeClock()
    first = cluster.nodes[0]
    async with channel_to(cluster.servers, clock=clock) as channel:
        consumer = AsyncConsumer(channel, group="g", topic="t", prefetch_messages=0)
        poll = asyncio.create_task(consumer.receive())
        await first.seen("Receive")
        clock.pass_ms(15_000.0)
        first.add_topic("t", b"one")
        assert [message.body for message in await poll] == [b"one"]
        assert not channel.endpoints.trouble_at(first.address, clock.monotonic_ms())
        await consumer.close()


async def test_call_when_all_are_down_and_one_comes_back(cluster: FakeCluster) -> None:
    async with channel_to(cluster.servers) as channel:
        await channel.call(LIST_TOPICS, LIST)
        for node in cluster.nodes:
            await node.stop()
        with pytest.raises(errors.Unavailable, match="no connection to 127"):
            await channel.call(LIST_TOPICS, LIST, timeout_ms=50.0)
        call = asyncio.create_task(channel.call(LIST_TOPICS, LIST, timeout_ms=30_000.0))
        cluster.promote(cluster.nodes[2])
        await cluster.nodes[2].start()
        await call
    assert cluster.count("ListTopics")[2] == 1


# --- learning -------------------------------------------------------------------------------------


async def test_nodes_when_only_one_was_named(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    async with channel_to(first.address) as channel:
        await channel.connect()
        await until(lambda: len(channel.endpoints.addresses) == 3)
        await first.stop()
        cluster.promote(second)
        await channel.call(LIST_TOPICS, LIST)
    assert cluster.count("ListTopics")[:2] == [0, 1]


async def test_nodes_when_one_has_left_the_cluster(cluster: FakeCluster) -> None:
    gone = cluster.nodes[2]
    async with channel_to(cluster.nodes[0].address) as channel:
        admin = AsyncAdmin(channel)
        await admin.status()
        assert set(channel.endpoints.addresses) == {node.address for node in cluster.nodes}
        cluster.promote(gone)
        await admin.topics()
        cluster.promote(cluster.nodes[1])
        cluster.nodes.remove(gone)
        await admin.topics()
        await admin.status()
        assert gone.address not in channel.endpoints.addresses
        assert gone.address not in channel._connections
    await gone.stop()


async def test_nodes_when_a_single_node_is_known_by_another_name() -> None:
    async with FakeNode() as node, channel_to(node.address) as channel:
        await channel.call(LIST_TOPICS, LIST)
        await node.seen("GetStatus")
        await channel.call(LIST_TOPICS, LIST)
        assert channel.endpoints.addresses == (node.address,)
