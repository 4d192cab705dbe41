"""The standard reflection service, as those meet it who send garbage or open many streams."""

from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from tests.support.api_world import ApiWorld, complaints

PATH = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST = reflection_pb2.ServerReflectionRequest(list_services="*").SerializeToString()


async def test_reflection_is_invalid_argument_when_the_request_is_garbage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ApiWorld() as world:
        call: Any = world.channel.stream_stream(PATH)()
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "this is no ServerReflectionRequest"
    assert not complaints(caplog)


async def test_reflection_has_so_many_streams_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.api.standard_services.STREAMS_MAX", 1)
    async with ApiWorld() as world:
        first: Any = world.channel.stream_stream(PATH)()
        await first.write(LIST)
        assert b"hourwheel.v1.ProducerService" in await first.read()
        second: Any = world.channel.stream_stream(PATH)()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await second.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()
