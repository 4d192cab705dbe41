"""PublishStream over real gRPC: pipelining, order, refusals, bounds, shutdown."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.filter_language.wire import gene_from_wire
from hourwheel.formats.record_batch import build_publish
from hourwheel.formats.tag_gene import GeneKind, GeneSpec
from hourwheel.limits import BATCH_TOPIC_COUNT_MAX
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.v1 import broker_pb2_grpc
from hourwheel.v1.broker_pb2 import PublishStreamRequest
from tests.support.api_world import ApiWorld, refusal_of
from tests.support.eventually import until
from tests.support.fake_engine import EPOCH, NOW_MS


def batch(*bodies: bytes, topic: str = "orders") -> PublishStreamRequest:
    raw = build_publish([NOW_MS + 60_000] * len(bodies), bodies)
    return PublishStreamRequest(topic=topic, record_batch=raw)


async def answers_to(world: ApiWorld, *requests: PublishStreamRequest) -> list[Any]:
    async def send() -> AsyncIterator[PublishStreamRequest]:
        for request in requests:
            yield request

    return [answer async for answer in world.producer.PublishStream(send())]


async def test_stream_answers_in_order_when_batches_are_good() -> None:
    async with ApiWorld() as world:
        answers = await answers_to(world, batch(b"a", b"b"), batch(b"c"), batch(b"d"))
    assert [answer.published.base_sequence for answer in answers] == [0, 2, 3]
    assert [answer.published.count for answer in answers] == [2, 1, 1]
    assert {answer.published.epoch for answer in answers} == {EPOCH}
    assert [stored.body for stored in world.engine.stored] == [b"a", b"b", b"c", b"d"]


async def test_stream_goes_on_when_batches_are_refused() -> None:
    corrupt = batch(b"x")
    corrupt.record_batch = corrupt.record_batch[:-1]
    async with ApiWorld() as world:
        answers = await answers_to(
            world,
            corrupt,
            batch(b"a"),
            batch(b"b", topic="no good"),
            PublishStreamRequest(topic="orders"),
            batch(b"c"),
        )
        handled = world.stats.method("PublishStream").handled
    reasons = [answer.error.reason for answer in answers]
    assert reasons == ["INVALID_BATCH", "", "INVALID_TOPIC", "INVALID_BATCH", ""]
    assert [answer.error.code for answer in answers] == [3, 0, 3, 3, 0]
    assert answers[0].error.params["expected"]
    assert handled == {"OK": 2, "INVALID_ARGUMENT": 3}
    assert world.stats.rejected == {"INVALID_BATCH": 2, "INVALID_TOPIC": 1}


async def test_stream_goes_on_when_the_engine_refuses_or_fails() -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_batch"] = errors.DiskFull("no room", free_bytes=3)
        (full,) = await answers_to(world, batch(b"a"))
        world.engine.errors["publish_batch"] = RuntimeError("a secret of the node's")
        (failed,) = await answers_to(world, batch(b"a"))
        del world.engine.errors["publish_batch"]
        (good,) = await answers_to(world, batch(b"a"))
    assert (full.error.reason, dict(full.error.params)) == ("DISK_FULL", {"free_bytes": "3"})
    assert failed.error.reason == "INTERNAL"
    assert "secret" not in failed.error.message
    assert good.published.count == 1


async def test_stream_reads_ahead_up_to_its_bounds_when_the_disk_is_slow() -> None:
    values = {"limits": {"stream_batches_in_flight": 3}}
    async with ApiWorld(values) as world:
        gate = world.engine.gates["publish_batch"] = asyncio.Event()
        stream = world.producer.PublishStream()
        for _ in range(10):
            await stream.write(batch(b"x"))
        await until(lambda: len(world.engine.stored) == 3)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(world.engine.stored) == 3
        assert world.stats.requests_in_flight == 3
        gate.set()
        await stream.done_writing()
        answers = [answer async for answer in stream]
    assert [answer.published.base_sequence for answer in answers] == list(range(10))


async def test_stream_reads_ahead_up_to_its_bytes_when_batches_are_large() -> None:
    values = {"limits": {"stream_bytes_in_flight": 65_536, "batch_bytes": 65_536}}
    async with ApiWorld(values) as world:
        world.engine.gates["publish_batch"] = asyncio.Event()
        stream = world.producer.PublishStream()
        for _ in range(4):
            await stream.write(batch(bytes(40_000)))
        await until(lambda: len(world.engine.stored) == 2)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(world.engine.stored) == 2
        world.engine.gates["publish_batch"].set()
        await stream.done_writing()
        assert len([answer async for answer in stream]) == 4
        assert world.stats.bytes_in_flight == 0


async def test_stream_answers_overloaded_when_too_much_is_in_flight() -> None:
    values = {"limits": {"requests_in_flight": 2}}
    async with ApiWorld(values) as world:
        gate = world.engine.gates["publish_batch"] = asyncio.Event()
        stream = world.producer.PublishStream()
        for _ in range(3):
            await stream.write(batch(b"x"))
        await until(lambda: world.stats.rejected)
        gate.set()
        await stream.done_writing()
        answers = [answer async for answer in stream]
    assert [answer.error.reason for answer in answers] == ["", "", "OVERLOADED"]


async def test_stream_leaves_nothing_behind_when_the_client_goes_away() -> None:
    async with ApiWorld() as world:
        world.engine.gates["publish_batch"] = asyncio.Event()
        stream = world.producer.PublishStream()
        await stream.write(batch(b"x"))
        await until(lambda: world.engine.stored)
        stream.cancel()
        await until(lambda: not world.stats.streams)
        assert (world.stats.requests_in_flight, world.stats.bytes_in_flight) == (0, 0)


async def test_stream_answers_what_it_read_then_ends_when_the_node_drains() -> None:
    async with ApiWorld() as world:
        gate = world.engine.gates["publish_batch"] = asyncio.Event()
        stream = world.producer.PublishStream()
        await stream.write(batch(b"x"))
        await until(lambda: world.engine.stored)
        await world.server.drain()
        gate.set()
        answer = await stream.read()
        assert answer.published.count == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert refusal_of(caught.value).reason == "SHUTTING_DOWN"


async def test_stream_is_refused_when_the_node_drains() -> None:
    async with ApiWorld() as world:
        await world.server.drain()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.producer.PublishStream().read()
        assert world.stats.streams == 0
    assert refusal_of(caught.value).reason == "SHUTTING_DOWN"


async def test_stream_reports_the_failure_when_the_node_cannot_go_on() -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_batch"] = errors.FsyncFailed("EIO")
        (answer,) = await answers_to(world, batch(b"x"))
        assert answer.error.reason == "TIMEOUT"
        assert isinstance(world.failure.found.result(), errors.FsyncFailed)


async def test_stream_says_how_the_topic_wants_genes_made() -> None:
    async with ApiWorld() as world:
        world.engine.expected_gene = GeneSpec(GeneKind.BLOOM, 2, ("region",))
        (told,) = await answers_to(world, batch(b"a"))
        world.engine.expected_gene = None
        (quiet,) = await answers_to(world, batch(b"a"))
    assert gene_from_wire(told.published.expected_gene) == GeneSpec(GeneKind.BLOOM, 2, ("region",))
    assert not quiet.published.HasField("expected_gene")


async def test_stream_is_ended_when_its_answers_are_not_read() -> None:
    values = {"limits": {"answer_wait_ms": 100}}
    async with ApiWorld(values) as world:
        world.engine.errors["publish_batch"] = errors.DiskFull("no room " * 100)  # a long answer
        few = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1_024)]
        channel = grpc.aio.insecure_channel(world.address, options=few)
        stream = broker_pb2_grpc.ProducerServiceStub(channel).PublishStream()
        for _ in range(100):  # which the network takes, so that no write waits
            await stream.write(batch(b"x"))
        await until(lambda: world.stats.rejected.get("OVERLOADED"))
        await until(lambda: world.stats.streams == 0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:  # when it reads at last
            async for _ in stream:
                pass
        await channel.close()
        assert (world.stats.requests_in_flight, world.stats.bytes_in_flight) == (0, 0)
    refusal = refusal_of(caught.value)
    assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.answer_wait_ms")


async def test_stream_is_refused_when_too_many_are_open() -> None:
    async with ApiWorld({"limits": {"publish_streams": 2}}) as world:
        open_ones = [world.producer.PublishStream() for _ in range(2)]
        await until(lambda: world.stats.streams == 2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.producer.PublishStream().read()
        await open_ones[0].done_writing()
        assert await open_ones[0].read() is grpc.aio.EOF
        assert [one.published.count for one in await answers_to(world, batch(b"x"))] == [1]
    refusal = refusal_of(caught.value)
    assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.publish_streams")


async def test_stream_keeps_no_batch_in_memory_when_it_was_answered() -> None:
    """Neither refused ones, by a circle of error and traceback, nor the last one."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        async with ApiWorld() as world:
            requests = [batch(bytes(4 << 20)) for _ in range(4)]
            for request in requests:
                request.record_batch = request.record_batch[:-1]
            stream = world.producer.PublishStream()
            for request in requests:
                await stream.write(request)
                assert (await stream.read()).error.reason == "INVALID_BATCH"
            del request, requests
            assert tracemalloc.get_traced_memory()[0] < 4 << 20
            await stream.done_writing()
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_stream_goes_on_when_a_batch_is_too_large() -> None:
    """Up to 2 MiB above the largest batch it is read, and told so."""
    values = {"limits": {"batch_bytes": 4 << 20, "message_body_bytes": 1 << 20}}
    async with ApiWorld(values) as world:
        answers = await answers_to(
            world, batch(bytes((4 << 20) + 1)), batch(bytes((1 << 20) + 1)), batch(b"x")
        )
    assert [answer.error.reason for answer in answers] == [
        "BATCH_TOO_LARGE",
        "MESSAGE_TOO_LARGE",
        "",
    ]
    assert answers[2].published.count == 1


async def test_stream_ends_when_a_request_is_larger_than_any_may_be() -> None:
    """gRPC refuses it unread; what came before is answered, and the client knows the error."""
    values = {"limits": {"batch_bytes": 4 << 20}}
    async with ApiWorld(values) as world:
        stream = world.producer.PublishStream()
        await stream.write(batch(b"x"))
        assert (await stream.read()).published.count == 1
        await stream.write(batch(bytes(7 << 20)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert isinstance(failure_of(caught.value).error, errors.MessageTooLarge)
        await until(lambda: not world.stats.streams)
        assert (world.stats.requests_in_flight, world.stats.bytes_in_flight) == (0, 0)
        assert [one.published.count for one in await answers_to(world, batch(b"y"))] == [1]


def joined(*topics: tuple[str, int], names: list[str] | None = None) -> PublishStreamRequest:
    bodies = [name.encode() for name, count in topics for _ in range(count)]
    raw = build_publish([NOW_MS + 60_000] * len(bodies), bodies)
    counts = [count for _, count in topics]
    named = [name for name, _ in topics] if names is None else names
    return PublishStreamRequest(record_batch=raw, topics=named, counts=counts)


async def test_stream_takes_batches_of_many_topics() -> None:
    async with ApiWorld() as world:
        answers = await answers_to(world, joined(("a", 2), ("b", 1)), batch(b"c"))
    assert [answer.published.base_sequence for answer in answers] == [0, 3]
    assert {answer.published.topic_count_max for answer in answers} == {BATCH_TOPIC_COUNT_MAX}
    assert [(one.topic, one.body) for one in world.engine.stored] == [
        ("a", b"a"),
        ("a", b"a"),
        ("b", b"b"),
        ("orders", b"c"),
    ]


async def test_stream_refuses_topics_that_make_no_sense() -> None:
    too_many = [(f"t{number}", 1) for number in range(BATCH_TOPIC_COUNT_MAX + 1)]
    both, no_count = joined(("a", 1)), joined(("a", 1), ("b", 1))
    both.topic = "orders"
    no_count.counts[1] = 0
    async with ApiWorld() as world:
        answers = await answers_to(
            world,
            both,
            no_count,
            joined(("a", 1), ("b", 1), names=["a"]),
            joined(("a", 1), names=[]),
            joined(*too_many),
            joined(("a", 1), ("no good", 1)),
            joined(("a", 1)),
        )
    assert [answer.error.reason for answer in answers] == [
        *["INVALID_ARGUMENT"] * 4,
        "TOO_MANY_ITEMS",
        "INVALID_TOPIC",
        "",
    ]
    assert len(world.engine.stored) == 1
