"""Streams and polls that a node passes on end with the login of those who opened them."""

import asyncio
from typing import Any

import grpc
import pytest

from hourwheel.clock import SystemClock
from hourwheel.v1.consumer_pb2 import ReceiveRequest
from node.access.control import LOGIN_ENDS_MS, LOGIN_HOLDS
from node.contracts.access import AccessPolicy
from tests.support.api_world import refusal_of, refused
from tests.support.callers import identify
from tests.support.eventually import until
from tests.unit.node.api.test_forwarder import Elsewhere, Served, batch


async def test_stream_that_is_passed_on_ends_with_the_login_that_opened_it() -> None:
    logged_in = True

    async def identify_for_now(context: Any) -> Any:
        LOGIN_HOLDS.set(lambda: logged_in)
        return await identify(context)

    async with (
        Served() as master,
        Elsewhere(master.peer_address, identify=identify_for_now) as node,
    ):
        stream = node.producer.PublishStream()
        await stream.write(batch(b"1"))
        assert (await stream.read()).published.count == 1
        logged_in = False
        await stream.write(batch(b"2"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert refusal_of(caught.value).reason == "UNAUTHENTICATED"
        assert len(master.engine.stored) == 1


async def test_stream_that_is_passed_on_ends_with_its_token() -> None:
    async def identify_for_now(context: Any) -> Any:
        LOGIN_ENDS_MS.set(int(SystemClock().wall_ms()) + 2_000)
        return await identify(context)

    async with (
        Served() as master,
        Elsewhere(master.peer_address, identify=identify_for_now) as node,
    ):
        stream = node.producer.PublishStream()
        await stream.write(batch(b"1"))
        assert (await stream.read()).published.count == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert refusal_of(caught.value).reason == "LOGIN_ENDED"


async def test_poll_that_is_passed_on_ends_with_the_user_who_waits() -> None:
    logged_in = True

    async def identify_for_now(context: Any) -> Any:
        LOGIN_HOLDS.set(lambda: logged_in)
        return await identify(context)

    async with (
        Served() as master,
        Elsewhere(master.peer_address, identify=identify_for_now) as node,
    ):
        policy = AccessPolicy(is_on=True, administrators=frozenset({"alice"}))
        node.access.replace(policy)
        request = ReceiveRequest(topic="orders", group="billing", wait_ms=20_000)
        call = node.consumer.Receive(request, metadata=(("who", "alice"),))
        poll = asyncio.ensure_future(refused(call))
        await until(lambda: bool(master.stats.long_polls))
        logged_in = False
        node.access.replace(policy)
        assert (await poll).reason == "UNAUTHENTICATED"
