"""Which calls are read from the network, and what becomes of halves."""

import asyncio
from typing import Any, cast

import grpc
import pytest

from hourwheel import errors
from hourwheel.v1.broker_pb2 import OutgoingMessage, PublishRequest
from node.api.calls import Context
from node.api.request_gate import PLACES, RequestGate
from tests.support.api_world import ApiWorld, refusal_of
from tests.support.eventually import until

PUBLISH = "/hourwheel.v1.ProducerService/Publish"


class Caller:
    """A call whose request comes when the test says so."""

    def __init__(self) -> None:
        self.request: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_read = False

    async def read(self) -> Any:
        self.is_read = True
        return await self.request


def reading(gate: RequestGate, caller: Caller) -> "asyncio.Task[bytes]":
    return asyncio.ensure_future(gate.read(cast(Context, caller)))


async def test_requests_are_read_one_after_the_other_when_many_come() -> None:
    gate, callers = RequestGate(60_000), [Caller() for _ in range(3 * PLACES)]
    tasks = [reading(gate, caller) for caller in callers]
    await until(lambda: any(caller.is_read for caller in callers))
    assert [caller.is_read for caller in callers].count(True) == PLACES
    for number, caller in enumerate(callers):
        caller.request.set_result(b"%d" % number)
    assert await asyncio.gather(*tasks) == [b"%d" % number for number in range(len(callers))]


async def test_whole_requests_are_read_though_many_halves_are_on_their_way() -> None:
    gate = RequestGate(60_000)
    halves = [Caller() for _ in range(PLACES + 2 * PLACES)]
    tasks = [reading(gate, caller) for caller in halves]
    whole = Caller()
    whole.request.set_result(b"whole")
    assert await reading(gate, whole) == b"whole"
    await until(lambda: sum(task.done() for task in tasks) == len(halves) - PLACES)
    failed = [task.exception() for task in tasks if task.done()]
    assert all(isinstance(error, errors.Overloaded) for error in failed)
    slow = [caller for caller, task in zip(halves, tasks, strict=True) if not task.done()]
    for caller in slow:
        caller.request.set_result(b"late")
    assert await asyncio.gather(*(task for task in tasks if not task.done())) == [b"late"] * len(
        slow
    )
    assert gate.slow_count == 0


async def test_request_is_given_up_when_it_does_not_arrive() -> None:
    gate, caller = RequestGate(1), Caller()
    with pytest.raises(errors.Overloaded, match="has not arrived whole") as caught:
        await reading(gate, caller)
    assert not caller.request.cancelled(), "what came of it would stay in memory"
    assert caught.value.params["limit"] == "limits.request_wait_ms"
    assert gate.slow_count == 0


async def test_places_are_given_back_when_callers_go_away() -> None:
    gate = RequestGate(60_000)
    for _ in range(3):
        tasks = [reading(gate, Caller()) for _ in range(2 * PLACES)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    whole = Caller()
    whole.request.set_result(b"")
    assert await reading(gate, whole) == b""


async def test_call_is_refused_when_it_has_no_request() -> None:
    async with ApiWorld() as world:
        call: Any = world.channel.stream_unary(PUBLISH)()
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert refusal_of(caught.value).reason == "INVALID_ARGUMENT"


async def test_half_sent_call_is_refused_in_time() -> None:
    """What comes of it over the network: a typed error, and its place is free again."""
    async with ApiWorld({"limits": {"request_wait_ms": 100}}) as world:
        call: Any = world.channel.stream_unary(PUBLISH)()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        body = OutgoingMessage(body=bytes(1 << 20))
        request = PublishRequest(topic="orders", messages=[body])
        assert len((await world.producer.Publish(request)).messages) == 1
    refusal = refusal_of(caught.value)
    assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.request_wait_ms")
