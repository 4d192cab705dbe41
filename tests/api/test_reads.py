"""Reads that are given up: nobody hears of the message, and it does not stay in memory."""

import asyncio
import os
from typing import Any

import grpc
import pytest

from hourwheel.transport.reads import begin_read
from tests.support.eventually import until
from tests.support.memory_bound import resident_bytes

CALLS = 32
MESSAGE = bytes(8_000_000)
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Call:
    """One whose message comes when the test says so."""

    def __init__(self) -> None:
        self.message: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.was_cancelled = False

    async def read(self) -> object:
        try:
            return await self.message
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_outcome_is_the_message() -> None:
    call = Call()
    outcome = begin_read(call)
    call.message.set_result(b"message")
    assert await outcome == b"message"


async def test_outcome_is_the_error_of_the_call() -> None:
    call = Call()
    outcome = begin_read(call)
    call.message.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await outcome


async def test_outcome_is_cancelled_when_the_call_cancels_the_read() -> None:
    call = Call()
    outcome = begin_read(call)
    call.message.cancel()
    await until(outcome.cancelled)


@pytest.mark.parametrize("error", [None, ValueError("the call is over")])
async def test_read_goes_on_to_its_end_when_it_is_given_up(error: Exception | None) -> None:
    call, is_over = Call(), asyncio.Event()

    async def wait() -> None:
        await begin_read(call)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    call.message.add_done_callback(lambda _: is_over.set())
    if error is None:
        call.message.set_result(b"message")
    else:
        call.message.set_exception(error)
    await is_over.wait()
    assert not call.was_cancelled


async def test_message_does_not_stay_in_memory_when_its_read_is_given_up() -> None:
    """A read that is cancelled in gRPC's own coroutine leaves 8 MB of each call for ever."""
    is_sent: asyncio.Queue[None] = asyncio.Queue()

    async def serve(_requests: object, context: Any) -> None:
        outcome = begin_read(context)
        await asyncio.sleep(0)
        outcome.cancel()
        await is_sent.get()

    server = grpc.aio.server(options=OPTIONS)
    method = {"Give": grpc.stream_stream_rpc_method_handler(serve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Up", method),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            before_bytes = resident_bytes(os.getpid())
            for _ in range(CALLS):
                call: Any = channel.stream_stream("/test.Up/Give")()
                await call.write(MESSAGE)
                is_sent.put_nowait(None)
                assert await call.read() is grpc.aio.EOF
            grown_bytes = resident_bytes(os.getpid()) - before_bytes
    finally:
        await server.stop(0)
    assert grown_bytes < CALLS * len(MESSAGE) // 2
