"""The standard health service."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from node.api.standard_services import HEALTH_SERVICE, PLACES, Health
from tests.support.api_world import ApiWorld, complaints

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = (
    "",
    "hourwheel.v1.ProducerService",
    "hourwheel.v1.ConsumerService",
    "hourwheel.v1.AdminService",
)


@pytest.mark.parametrize("service", SERVICES)
async def test_health_is_serving_until_the_node_drains(service: str) -> None:
    async with ApiWorld() as world:
        stub: Any = health_pb2_grpc.HealthStub(world.channel)
        request = health_pb2.HealthCheckRequest(service=service)
        assert (await stub.Check(request)).status == SERVING
        await world.server.drain()
        assert (await stub.Check(request)).status == NOT_SERVING


async def test_health_tells_watchers_when_the_node_drains() -> None:
    async with ApiWorld() as world:
        stub: Any = health_pb2_grpc.HealthStub(world.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICES[1]))
        assert (await watch.read()).status == SERVING
        await world.server.drain()
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()


async def test_health_is_not_found_when_the_service_is_unknown() -> None:
    async with ApiWorld() as world:
        stub: Any = health_pb2_grpc.HealthStub(world.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="other"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_is_not_serving_before_everything_is_up() -> None:
    server = grpc.aio.server()
    health = Health(["a.B"], 60_000)
    await health.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="a.B")
        assert (await stub.Check(request)).status == NOT_SERVING
        await health.serve()
        assert (await stub.Check(request)).status == SERVING
    await asyncio.shield(server.stop(0))


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_health_is_invalid_argument_when_the_request_is_garbage(
    caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async with ApiWorld() as world:
        make: Any = {"Check": world.channel.unary_unary, "Watch": world.channel.unary_stream}
        call = make[method](f"/grpc.health.v1.Health/{method}")(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call if method == "Check" else call.read())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "this is no HealthCheckRequest"
    assert not complaints(caplog)


async def test_health_is_watched_by_so_many_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.api.standard_services.WATCHES_MAX", 2)
    async with ApiWorld() as world:
        stub: Any = health_pb2_grpc.HealthStub(world.channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        for watch in watches:
            assert (await watch.read()).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Watch(health_pb2.HealthCheckRequest()).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()
        async with asyncio.timeout(60):
            while True:
                again = stub.Watch(health_pb2.HealthCheckRequest())
                try:
                    assert (await again.read()).status == SERVING
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0)
        again.cancel()
        watches[1].cancel()


async def test_health_is_told_though_many_requests_are_half_here() -> None:
    async with ApiWorld() as world:
        halves: list[Any] = [
            world.channel.stream_unary(f"/{HEALTH_SERVICE}/Check")() for _ in range(4 * PLACES)
        ]
        stub: Any = health_pb2_grpc.HealthStub(world.channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        for call in halves:
            call.cancel()


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_health_is_refused_when_the_request_does_not_come(method: str) -> None:
    async with ApiWorld({"limits": {"request_wait_ms": 100}}) as world:
        call: Any = world.channel.stream_stream(f"/{HEALTH_SERVICE}/{method}")()
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "has not arrived whole" in await call.details()
