"""The standard health service."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from node.api.health import Health
from tests.support.api_world import ApiWorld

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
    health = Health(["a.B"])
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
