import asyncio
import threading
from typing import Any

import pytest

from hourwheel.workers import frames
from hourwheel.workers.execution import CallNext, Execution
from hourwheel.workers.handler import MessageContext, make_handler
from hourwheel.workers.results import DONE, Reject, ResultKind, Retry

CONTEXT = MessageContext(
    "id", "orders", "shop", b"17", 2, 5, 6, ("a",), ("k",), {"p": "q"}, "mine", "text/plain"
)


async def result_of(function: Any, **settings: Any) -> Any:
    handler = make_handler(function, "orders", "shop", **settings)
    execution = Execution([handler])
    try:
        return await execution.run(handler, CONTEXT), execution.is_spoiled
    finally:
        execution.close()


class Base(BaseException): ...


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, StopIteration, Base])
async def test_whatever_a_handler_raises_costs_its_message_one_attempt(
    error: type[BaseException],
) -> None:
    def function() -> None:
        raise error("why")

    async def coroutine() -> None:
        raise error("why")

    for one in (function, coroutine):
        result, is_spoiled = await result_of(one)
        assert result.kind is ResultKind.FAILED
        assert error.__name__ in result.error
        assert not is_spoiled


async def test_a_handler_may_say_when_its_message_is_to_come_again() -> None:
    def function() -> None:
        raise Retry("busy", delay="250ms")

    result, _ = await result_of(function)
    assert (result.kind, result.delay_ms, result.error) == (ResultKind.RETRY, 250, "busy")


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    async def coroutine() -> None:
        raise asyncio.CancelledError

    result, _ = await result_of(coroutine)
    assert result.kind is ResultKind.FAILED


async def test_a_handler_may_say_that_no_attempt_is_of_any_use() -> None:
    async def coroutine() -> None:
        raise Reject("no such order")

    result, is_spoiled = await result_of(coroutine)
    assert (result.kind, result.error) == (ResultKind.REJECTED, "no such order")
    assert not is_spoiled


class Untold(Reject):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Delayless(Retry):
    def __init__(self) -> None:
        """Without that of `Retry`."""


@pytest.mark.parametrize("error", [Untold, Delayless])
async def test_what_cannot_be_told_is_a_failure_with_its_name(error: type[Exception]) -> None:
    async def coroutine() -> None:
        raise error

    result, is_spoiled = await result_of(coroutine)
    assert result.kind is ResultKind.FAILED
    assert error.__name__ in result.error
    assert not is_spoiled


async def test_a_payload_that_is_none_is_rejected_without_a_call() -> None:
    def function(number: list[int]) -> None:
        raise AssertionError(number)

    result, _ = await result_of(function)
    assert result.kind is ResultKind.REJECTED
    assert "valid array" in result.error
    assert "AssertionError" not in result.error


async def test_a_coroutine_that_takes_too_long_is_ended() -> None:
    ended = asyncio.Event()

    async def coroutine() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    result, is_spoiled = await result_of(coroutine, time_limit_ms=1)
    assert "longer than 1 ms" in result.error
    assert ended.is_set()
    assert not is_spoiled


async def test_a_thread_that_takes_too_long_spoils_its_process() -> None:
    go_on = threading.Event()

    def function() -> None:
        go_on.wait()

    result, is_spoiled = await result_of(function, time_limit_ms=1)
    go_on.set()
    assert result.kind is ResultKind.FAILED
    assert is_spoiled


async def test_middleware_goes_around_a_handler_in_order() -> None:
    seen: list[str] = []

    async def outer(context: MessageContext, call_next: CallNext) -> None:
        seen.append("outer")
        await call_next(context)
        seen.append("outer's end")

    async def inner(context: MessageContext, call_next: CallNext) -> None:
        seen.append("inner")
        await call_next(context)

    def function() -> None:
        seen.append("handler")

    handler = make_handler(function, "orders", "shop")
    execution = Execution([handler], [outer, inner])
    assert await execution.run(handler, CONTEXT) == DONE
    assert seen == ["outer", "inner", "handler", "outer's end"]
    execution.close()


async def test_frames_carry_messages_and_results_whole() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frames.pack_work(3, 1, CONTEXT))
    failed = frames.pack_result(3, DONE, is_spoiled=True)
    reader.feed_data(failed + failed[:-1])
    reader.feed_eof()
    work, result = await frames.read(reader), await frames.read(reader)
    assert work is not None
    assert result is not None
    assert frames.context_of(work) == CONTEXT
    assert (work.head["number"], work.head["handler"]) == (3, 1)
    assert frames.result_of(result) == DONE
    assert await frames.read(reader) is None
