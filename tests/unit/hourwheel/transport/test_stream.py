from typing import Any

import pytest

from hourwheel import errors
from hourwheel.transport.channel import Channel
from hourwheel.transport.endpoints import Move
from hourwheel.transport.stream import Stream, StreamBroken
from hourwheel.v1 import broker_pb2
from tests.support.fake_node import FakeNode


async def test_stream_when_it_breaks(node: FakeNode, channel: Channel) -> None:
    node.break_stream(after_batches=1, is_taken=False)
    stream = channel.publish_stream(1_000.0, is_bulk=True)
    await stream.write(broker_pb2.PublishStreamRequest(topic="t", record_batch=b"nonsense"))
    assert (await stream.read()).error.reason == "INVALID_BATCH"
    await stream.write(broker_pb2.PublishStreamRequest(topic="t"))
    with pytest.raises(StreamBroken) as broken:
        await stream.read()
    assert isinstance(broken.value.failure.error, errors.Unavailable)
    assert not broken.value.failure.is_definite
    with pytest.raises(StreamBroken):
        await stream.write(broker_pb2.PublishStreamRequest(topic="t"))


async def test_stream_when_the_node_is_gone(node: FakeNode, channel: Channel) -> None:
    await node.stop()
    stream = channel.publish_stream(1_000.0, is_bulk=True)
    with pytest.raises(StreamBroken) as broken:
        await stream.read()
    assert broken.value.failure.is_definite


async def test_judge_when_several_things_speak_against_the_endpoint(channel: Channel) -> None:
    told: list[tuple[errors.HourwheelError, float]] = []

    def on_failure(error: errors.HourwheelError, waited_ms: float) -> Move:
        told.append((error, waited_ms))
        return Move.SEARCH

    await channel.connect()
    one = channel.publish_stream(1_000.0, is_bulk=True)
    stream = Stream[Any, Any](one._call, address="a:1", on_failure=on_failure)
    had_failed = stream.has_failed
    first = errors.NotMaster()
    assert stream.on_failure(first) is Move.SEARCH
    assert stream.on_failure(errors.Timeout(), 5.0) is Move.SEARCH
    assert (had_failed, stream.has_failed) == (False, True)
    assert told == [(first, 0.0)]
    stream.cancel()
