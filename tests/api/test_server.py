"""The server as strangers meet it: reflection, caps, and those who behave badly."""

import asyncio
import gc
import re
import tracemalloc
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hourwheel import errors
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.v1 import broker_pb2, broker_pb2_grpc
from node.api import server
from node.api.admin import Admin
from node.api.consumer import Consumer
from node.api.lookup import Lookup
from node.api.producer import Producer
from node.api.recurring.service import Recurring
from node.api.transactions.service import Transactions
from node.config.model import LimitsSection
from tests.support.api_world import ApiWorld, refused
from tests.support.eventually import until
from tests.support.memory_bound import bound_bytes


async def reflect(world: ApiWorld, **asked: str) -> Any:
    make: Any = reflection_pb2_grpc.ServerReflectionStub
    request: Any = reflection_pb2.ServerReflectionRequest
    call = make(world.channel).ServerReflectionInfo(iter([request(**asked)]))
    answer = await call.read()
    call.cancel()
    return answer


async def test_reflection_names_every_service() -> None:
    async with ApiWorld() as world:
        answer = await reflect(world, list_services="")
    assert {each.name for each in answer.list_services_response.service} == {
        "hourwheel.v1.ProducerService",
        "hourwheel.v1.ConsumerService",
        "hourwheel.v1.AdminService",
        "hourwheel.v1.SessionService",
        "hourwheel.v1.AccessService",
        "hourwheel.v1.LookupService",
        "hourwheel.v1.TransactionService",
        "hourwheel.v1.RecurrenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_reflection_describes_a_service_when_asked_for_it() -> None:
    async with ApiWorld() as world:
        symbol = "hourwheel.v1.ProducerService"
        answer = await reflect(world, file_containing_symbol=symbol)
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(raw)
        for raw in answer.file_descriptor_response.file_descriptor_proto
    ]
    services = [service.name for file in files for service in file.service]
    assert "ProducerService" in services


def test_every_method_of_the_proto_files_has_a_handler() -> None:
    for service, kind in (
        (server.PRODUCER, Producer),
        (server.CONSUMER, Consumer),
        (server.ADMIN, Admin),
        (server.LOOKUP, Lookup),
        (server.TRANSACTION, Transactions),
        (server.RECURRENCE, Recurring),
    ):
        for method in service.methods:
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
            assert hasattr(kind, name) or method.client_streaming, method.full_name


async def test_call_is_refused_when_it_is_no_message_of_ours() -> None:
    async with ApiWorld() as world:
        call: Any = world.channel.unary_unary("/hourwheel.v1.ProducerService/Publish")
        refusal = await refused(call(b"\xff\xff\xff"))
    assert (refusal.reason, refusal.message) == (
        "INVALID_ARGUMENT",
        "this is no request of Publish",
    )


async def test_call_is_unimplemented_when_there_is_no_such_method() -> None:
    async with ApiWorld() as world:
        call: Any = world.channel.unary_unary("/hourwheel.v1.ProducerService/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_call_is_refused_unread_when_it_is_larger_than_any_may_be() -> None:
    async with ApiWorld() as world:
        call: Any = world.channel.unary_unary("/hourwheel.v1.ProducerService/Publish")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(bytes(17 << 20))
        assert world.stats.method("Publish").handled == {"OK": 0}
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = failure_of(caught.value).error
    assert (type(error), error.retriable) == (errors.MessageTooLarge, False), "to our client"


async def test_call_is_refused_unread_when_it_is_a_compression_bomb() -> None:
    async with ApiWorld() as world:
        call: Any = world.channel.unary_unary("/hourwheel.v1.ProducerService/Publish")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(bytes(60 << 20), compression=grpc.Compression.Gzip)
        assert world.stats.method("Publish").handled == {"OK": 0}
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_call_is_refused_when_its_metadata_is_too_large() -> None:
    async with ApiWorld() as world:
        metadata = grpc.aio.Metadata(("x", "y" * 40_000))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.producer.Publish(broker_pb2.PublishRequest(), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_calls_are_overloaded_when_too_many_are_in_flight() -> None:
    async with ApiWorld({"limits": {"requests_in_flight": 3}}) as world:
        gate = world.engine.gates["publish_messages"] = asyncio.Event()
        calls = [asyncio.ensure_future(world.publish(b"x")) for _ in range(3)]
        await until(lambda: world.stats.requests_in_flight == 3)
        refusal = await refused(world.publish(b"y"))
        gate.set()
        await asyncio.gather(*calls)
        await world.publish(b"z")
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.requests_in_flight")
    assert world.stats.rejected == {"OVERLOADED": 1}


async def test_calls_are_overloaded_when_too_many_bytes_are_in_flight() -> None:
    limits = {
        "batch_bytes": 65_536,
        "stream_bytes_in_flight": 65_536,
        "bytes_in_flight": 65_536,
    }
    async with ApiWorld({"limits": limits}) as world:
        gate = world.engine.gates["publish_messages"] = asyncio.Event()
        first = asyncio.ensure_future(world.publish(bytes(40_000)))
        await until(lambda: world.stats.requests_in_flight == 1)
        refusal = await refused(world.publish(bytes(40_000)))
        gate.set()
        await first
        await world.publish(bytes(40_000))
        assert world.stats.bytes_in_flight == 0
    assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.bytes_in_flight")


async def test_calls_are_cut_off_by_grpc_when_a_crowd_comes() -> None:
    """Beyond what admission counts, gRPC itself refuses: no memory, and no typed reason."""
    limits = {"requests_in_flight": 1, "long_polls": 1}
    async with ApiWorld({"limits": limits}) as world:
        world.engine.gates["publish_messages"] = asyncio.Event()
        channels = [grpc.aio.insecure_channel(world.address) for _ in range(2)]
        streams = [
            broker_pb2_grpc.ProducerServiceStub(channels[number % 2]).PublishStream()
            for number in range(300)
        ]
        waiting = [asyncio.ensure_future(stream.read()) for stream in streams]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        error = next(iter(done)).exception()
        assert world.stats.streams <= 258
        for channel in channels:
            await channel.close()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(error, grpc.aio.AioRpcError)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_connections_are_closed_when_there_are_too_many() -> None:
    async with ApiWorld({"limits": {"connections": 3}}) as world:
        await world.publish(b"x")  # the first
        host, port = world.address.split(":")
        ends = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for reader, _ in ends:
            assert await reader.read(1)  # let in: the server has begun to talk
        late, late_end = await asyncio.open_connection(host, int(port))
        assert await late.read() == b""
        assert len((await world.publish(b"y")).messages) == 1
        ends[0][1].transport.abort()
        ends += [(late, late_end)]
        is_in = False
        while not is_in:  # once the server has seen that one is gone
            reader, writer = await asyncio.open_connection(host, int(port))
            is_in = await reader.read(1) != b""
            ends.append((reader, writer))
        for _, writer in ends:
            writer.transport.abort()


async def test_connection_is_closed_when_it_says_nothing() -> None:
    async with ApiWorld({"limits": {"request_wait_ms": 100}}) as world:
        host, port = world.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        while await reader.read(1 << 16):  # what a server says of itself first
            continue
        writer.transport.abort()


REFUSED = {
    "/hourwheel.v1.ProducerService/Publish": b"\xff",
    "/hourwheel.v1.AdminService/GetTopic": b"\x0a\x03no ",
    "/grpc.health.v1.Health/Check": b"\xff",
    "/grpc.health.v1.Health/Watch": b"\xff",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": b"\xff",
}


@pytest.mark.parametrize("path", REFUSED)
async def test_refused_request_is_not_kept_in_memory(path: str) -> None:
    """By a circle of the call's context, gRPC's error, its traceback and the frames in that."""
    field = b"\xfa\x3f" + b"\x80\x80\x80\x01" + bytes(2 << 20)  # one that nobody knows
    request = field + REFUSED[path]
    async with ApiWorld() as world:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(4):
                call: Any = world.channel.stream_stream(path)()
                await call.write(request)
                await call.done_writing()
                assert await call.code() is not grpc.StatusCode.OK
            del call
            await until(lambda: tracemalloc.get_traced_memory()[0] < 3 << 20)
        finally:
            tracemalloc.stop()
            gc.enable()


async def test_second_server_is_refused_when_the_port_is_taken() -> None:
    async with ApiWorld() as world:
        second = ApiWorld()
        taken = second.config.node.model_copy(update={"listen": world.address})
        object.__setattr__(second.config, "node", taken)
        with pytest.raises(errors.ConfigError, match=r"node\.listen"):
            await second.server.start()
        await second.server.stop(0)


async def test_clients_are_told_the_advertised_address_when_there_is_one() -> None:
    world = ApiWorld()
    advertised = world.config.node.model_copy(update={"advertised": "broker.example:7400"})
    object.__setattr__(world.config, "node", advertised)
    assert await world.server.start() == "broker.example:7400"
    await world.server.stop(0)


async def test_calls_in_flight_end_well_when_the_server_stops_with_grace() -> None:
    async with ApiWorld() as world:
        gate = world.engine.gates["publish_messages"] = asyncio.Event()
        call = asyncio.ensure_future(world.publish(b"x"))
        await until(lambda: world.stats.requests_in_flight == 1)
        await world.server.drain()
        stopping = asyncio.ensure_future(world.server.stop(60_000))
        gate.set()
        assert len((await call).messages) == 1
        await stopping


async def test_calls_in_flight_are_cancelled_when_the_grace_is_over() -> None:
    async with ApiWorld() as world:
        world.engine.gates["publish_messages"] = asyncio.Event()
        call = asyncio.ensure_future(world.publish(b"x"))
        await until(lambda: world.stats.requests_in_flight == 1)
        await world.server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        assert world.stats.requests_in_flight == 0


def test_defaults_are_bounded_by_what_a_laptop_has() -> None:
    assert bound_bytes(LimitsSection()) <= 7.3 * 2**30
