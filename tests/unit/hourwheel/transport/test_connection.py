import asyncio
from typing import Any

import grpc.aio
import pytest

from hourwheel import errors
from hourwheel.transport.access import Access, Tls
from hourwheel.transport.connection import PING_MS, Connection, share
from hourwheel.transport.endpoints import Move
from hourwheel.transport.methods import GET_STATUS, PUBLISH_STREAM
from hourwheel.transport.session_lane import SessionLane
from hourwheel.transport.stream import StreamBroken
from hourwheel.v1 import admin_pb2, broker_pb2
from node.api.server import PING_INTERVAL_MS_MIN
from tests.support.fake_node import FakeNode


async def test_ready_when_there_is_a_node(node: FakeNode) -> None:
    connection = Connection(node.address)
    assert not connection.is_ready
    assert await connection.wait_until_ready(None, is_patient=False)
    assert connection.is_ready
    answer = await connection.unary(GET_STATUS)(admin_pb2.GetStatusRequest())
    assert answer.cluster_id == "c0ffee"
    assert connection.unary(GET_STATUS) is connection.unary(GET_STATUS)
    assert connection.stream(PUBLISH_STREAM) is connection.stream(PUBLISH_STREAM)
    await connection.close()


async def test_ready_when_there_is_none(node: FakeNode) -> None:
    await node.stop()
    connection = Connection(node.address)
    assert not await connection.wait_until_ready(None, is_patient=False)
    assert not await connection.wait_until_ready(20.0, is_patient=True)
    assert "connection refused" in connection.trouble
    waiting = asyncio.create_task(connection.wait_until_ready(None, is_patient=True))
    await node.start()
    assert await waiting
    assert connection.trouble == ""
    await connection.close()


async def test_trouble_when_there_is_none(node: FakeNode) -> None:
    connection = Connection(node.address)
    connection.trouble = "long ago"
    assert await connection.wait_until_ready(None, is_patient=True)
    assert await connection.find_trouble() == ""
    await connection.close()
    assert await connection.find_trouble() == ""


async def test_trouble_when_tls_meets_none(node: FakeNode) -> None:
    connection = Connection(node.address, Access(Tls()))
    assert not await connection.wait_until_ready(None, is_patient=False)
    assert "no TLS is spoken there" in await connection.find_trouble()
    await connection.close()


async def test_ready_when_closed_meanwhile(node: FakeNode) -> None:
    await node.stop()
    connection = Connection(node.address)
    waiting = asyncio.create_task(connection.wait_until_ready(None, is_patient=True))
    await asyncio.sleep(0)
    await connection.close(grace_ms=1.0)
    with pytest.raises(errors.Cancelled):
        await waiting
    with pytest.raises(errors.Cancelled):
        await connection.wait_until_ready(None, is_patient=True)


@pytest.mark.parametrize("is_watched", [False, True])
async def test_pings_when_watched(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
) -> None:
    given: dict[str, Any] = {}
    make = grpc.aio.insecure_channel

    def spy(address: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        given.update(options)
        return make(address, options=options)

    monkeypatch.setattr(grpc.aio, "insecure_channel", spy)
    connection = Connection(node.address, is_watched=is_watched)
    assert ("grpc.keepalive_time_ms" in given) == is_watched
    assert ("grpc.http2.ping_timeout_ms" in given) == is_watched
    assert await connection.wait_until_ready(None, is_patient=True)
    await connection.close()


def test_pings_are_rarer_than_what_a_node_throws_out_for() -> None:
    """By as much as clocks and timers may be apart."""
    assert PING_MS >= 1.1 * PING_INTERVAL_MS_MIN


async def test_producer_gets_a_lane_where_the_node_has_no_more_streams(node: FakeNode) -> None:
    def stay(_error: errors.HourwheelError, _waited_ms: float) -> Move:
        return Move.STAY

    connection = Connection(node.address)
    refusal = errors.Overloaded("too many streams", limit="limits.publish_streams")
    node.break_stream(after_batches=0, is_taken=False, error=refusal)
    stream = connection.publish_stream(stay, 60_000.0, is_bulk=False)
    assert not isinstance(stream, SessionLane)
    await stream.write(broker_pb2.PublishStreamRequest(topic="t"))
    with pytest.raises(StreamBroken) as broken:
        await stream.read()
    assert broken.value.failure.is_definite  # nothing was read: it may go again
    lane = connection.publish_stream(stay, 60_000.0, is_bulk=False)
    assert isinstance(lane, SessionLane)
    large = connection.publish_stream(stay, 60_000.0, is_bulk=True)
    assert not isinstance(large, SessionLane)
    large.cancel()
    await connection.close()


async def test_connection_is_shared_and_closed_with_the_last(node: FakeNode) -> None:
    first, second = share(node.address), share(node.address)
    assert first is second
    watched = share(node.address, is_watched=True)
    secured = share(node.address, Access(Tls()))
    assert len({id(one) for one in (first, watched, secured)}) == 3
    assert await first.wait_until_ready(None, is_patient=False)
    await first.leave()
    assert second.is_ready
    await second.leave()
    with pytest.raises(errors.Cancelled):
        await second.wait_until_ready(None, is_patient=True)
    another = share(node.address)
    assert another is not second
    for one in (another, watched, secured):
        await one.leave()
