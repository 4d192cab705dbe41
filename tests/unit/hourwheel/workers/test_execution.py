import asyncio
import threading
from dataclasses import replace
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


async def test_functions_that_hang_take_no_place_of_later_messages() -> None:
    """Nor the time of those that wait for a place: they have not begun."""
    go_on = threading.Event()

    def function(context: MessageContext) -> None:
        if context.message_id == "hangs":
            go_on.wait()

    handler = make_handler(function, "orders", "shop", concurrency=2, time_limit_ms=50)
    execution = Execution([handler])
    contexts = [replace(CONTEXT, message_id=name) for name in ["hangs"] * 6 + ["ok"] * 6]
    try:
        results = await asyncio.gather(*(execution.run(handler, one) for one in contexts))
    finally:
        go_on.set()
        execution.close()
    failed, done = ResultKind.FAILED, ResultKind.DONE
    assert [one.kind for one in results] == [failed] * 6 + [done] * 6


async def test_when_too_many_functions_hang_messages_wait_until_one_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hourwheel.workers.execution.HUNG_MAX", 2)
    go_on = {f"hangs-{number}": threading.Event() for number in range(3)}

    def function(context: MessageContext) -> None:
        if context.message_id in go_on:
            go_on[context.message_id].wait()

    handler = make_handler(function, "orders", "shop", concurrency=1, time_limit_ms=10)
    execution = Execution([handler])
    begun: list[str] = []

    async def run(name: str) -> ResultKind:
        context = replace(CONTEXT, message_id=name)
        return (await execution.run(handler, context, lambda: begun.append(name))).kind

    try:
        for name in go_on:
            assert await run(name) is ResultKind.FAILED
        assert "hang in their threads: more than 2" in caplog.text
        waiting = asyncio.create_task(run("ok"))
        given_up = asyncio.create_task(run("given up"))
        await asyncio.wait({waiting}, timeout=0.1)  # ten times what it would have
        assert not waiting.done()
        given_up.cancel()
        await asyncio.wait({given_up})
        go_on["hangs-2"].set()
        assert await waiting is ResultKind.DONE
    finally:
        for one in go_on.values():
            one.set()
        execution.close()
    assert begun == [*go_on, "ok"]
