import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.loop_thread import LoopThread
from tests.support.eventually import until


class Ending:
    """Notes how often the client was closed by itself."""

    def __init__(self) -> None:
        self.count = 0
        self.happened = threading.Event()

    async def close(self) -> None:
        self.count += 1
        self.happened.set()


async def one() -> int:
    return 1


async def nothing() -> None:
    return


async def forever(begun: threading.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.fixture
def ending() -> Ending:
    return Ending()


@pytest.fixture
def thread(ending: Ending) -> LoopThread:
    return LoopThread(ending.close)


def test_thread_when_its_client_is_never_used(thread: LoopThread) -> None:
    assert "hourwheel-client" not in names()
    thread.finish(nothing())
    with pytest.raises(errors.Cancelled):
        thread.run(one())


def test_thread_when_finished_twice(thread: LoopThread, ending: Ending) -> None:
    assert thread.run(one()) == 1
    thread.finish(nothing())
    thread.finish(nothing())
    assert "hourwheel-client" not in names()
    for call in (thread.check, lambda: thread.call_soon(gc.collect), lambda: thread.run(one())):
        with pytest.raises(errors.Cancelled):
            call()
    assert ending.count == 0


async def test_thread_when_the_caller_runs_a_loop_of_its_own(thread: LoopThread) -> None:
    assert thread.run(one()) == 1
    thread.finish(nothing())
    thread.finish(nothing())
    assert "hourwheel-client" not in names()


def test_thread_when_many_finish_it_at_a_time(thread: LoopThread) -> None:
    assert thread.run(one()) == 1
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: thread.finish(nothing()), range(8)))
    assert "hourwheel-client" not in names()


def test_calls_under_way_when_it_ends(thread: LoopThread) -> None:
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.run, forever(begun))
        begun.wait()
        thread.finish(nothing())
        with pytest.raises(errors.Cancelled):
            waiting.result()


def test_calls_when_they_race_with_the_end() -> None:
    for _ in range(50):
        thread = LoopThread(nothing)
        assert thread.run(one()) == 1

        def call(thread: LoopThread = thread) -> object:
            try:
                while True:
                    assert thread.run(one()) == 1
            except errors.Cancelled as error:
                return error

        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(call) for _ in range(3)]
            thread.finish(nothing())
            assert all(isinstance(done.result(), errors.Cancelled) for done in calls)


def test_end_when_its_coroutine_fails(thread: LoopThread) -> None:
    async def fail() -> None:
        raise errors.Timeout

    thread.run(one())
    with pytest.raises(errors.Timeout):
        thread.finish(fail())
    assert "hourwheel-client" not in names()
    thread.finish(nothing())


def test_own_thread_when_it_would_wait_for_itself(thread: LoopThread) -> None:
    async def inside() -> list[type[Exception]]:
        kinds: list[type[Exception]] = []
        for call in (thread.run, thread.finish):
            coroutine: Coroutine[Any, Any, None] = nothing()
            try:
                call(coroutine)
            except errors.HourwheelError as error:
                kinds.append(type(error))
        return kinds

    assert thread.run(inside()) == [errors.FailedPrecondition] * 2
    thread.finish(nothing())


def test_thread_when_none_can_be_started(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(errors.FailedPrecondition, match="can't start new thread"):
        thread.run(one())


def test_thread_when_its_client_is_left_to_the_garbage_collector(
    thread: LoopThread, ending: Ending
) -> None:
    thread.run(one())
    with pytest.warns(ResourceWarning, match="not closed"):
        thread.abandon()
    assert ending.happened.wait(60)
    thread.join()
    assert "hourwheel-client" not in names()
    thread.abandon()  # again, and after the end: nothing
    thread.finish(nothing())
    assert ending.count == 1


def test_abandoned_thread_when_closing_fails() -> None:
    async def fail() -> None:
        raise errors.Timeout

    thread = LoopThread(fail)
    thread.run(one())
    with pytest.warns(ResourceWarning):
        thread.abandon()
    thread.join()
    assert "hourwheel-client" not in names()


@pytest.mark.parametrize("last", ["asyncio.sleep(0)", "asyncio.Event().wait()"])
def test_exit_of_the_interpreter_when_nobody_closed(last: str) -> None:
    script = f"""
import asyncio, hourwheel.client.loop_thread
from hourwheel.client.loop_thread import LoopThread
hourwheel.client.loop_thread.EXIT_S = {0.1 if "Event" in last else 60}
async def close():
    print("closing", flush=True)
    await {last}
    print("closed", flush=True)
thread = LoopThread(close)
thread.run(asyncio.sleep(0))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    said = done.stdout.split()
    assert said == (["closing"] if "Event" in last else ["closing", "closed"])
    assert done.stderr == ""


def test_loop_when_grpc_has_something_for_it_after_its_end(thread: LoopThread) -> None:
    async def own_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = thread.run(own_loop())
    thread.finish(nothing())
    assert loop.is_closed()
    loop.call_soon_threadsafe(gc.collect)  # an exception would end up in another client's loop


def test_future_that_is_waited_for_without_a_task(thread: LoopThread) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    def soon() -> "asyncio.Future[int]":
        loops.append(asyncio.get_running_loop())
        found = loops[-1].create_future()
        loops[-1].call_soon(found.set_result, 7)
        return found

    def failing() -> "asyncio.Future[int]":
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        found.set_exception(errors.Timeout("late"))
        return found

    def refused() -> "asyncio.Future[int]":
        raise errors.InvalidTopic("no name")

    assert thread.wait_for(soon) == 7
    with pytest.raises(errors.Timeout):
        thread.wait_for(failing)
    with pytest.raises(errors.InvalidTopic):
        thread.wait_for(refused)
    thread.finish(nothing())
    with pytest.raises(errors.Cancelled):
        thread.wait_for(soon)


def test_futures_under_way_when_it_ends(thread: LoopThread) -> None:
    """They are no tasks: whoever waits for one is told all the same."""
    begun = threading.Event()

    def never() -> "asyncio.Future[int]":
        begun.set()
        return asyncio.get_running_loop().create_future()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.wait_for, never)
        begun.wait()
        thread.finish(nothing())
        with pytest.raises(errors.Cancelled):
            waiting.result()


def test_future_is_cancelled_when_its_waiter_is_interrupted(thread: LoopThread) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    cancelled = threading.Event()

    def never() -> "asyncio.Future[int]":
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        found.add_done_callback(lambda one: cancelled.set() if one.cancelled() else None)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return found

    old = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            thread.wait_for(never)
        assert cancelled.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, old)
        thread.finish(nothing())


class Calls:
    """Two threads that call, each as often as a test says; the test gives the first results."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.log: list[str] = []
        self.waiting: dict[str, asyncio.Future[None]] = {}

    def _begin(self, name: str) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        self.log.append(name)
        loop.call_soon(self.log.append, "turn")
        future: asyncio.Future[None] = loop.create_future()
        if name.startswith("first"):
            self.waiting[name] = future
        else:
            loop.call_soon(future.set_result, None)
        return future

    def call(self, name: str) -> None:
        self._thread.wait_for(partial(self._begin, name))

    def give_first_results(self) -> None:
        for one in self.waiting.values():
            one.set_result(None)

    def begun(self) -> list[str]:
        return [one for one in self.log if one != "turn"]


async def twice_each(calls: Calls, thread: LoopThread, *, do_both_return: bool) -> None:
    a_returns = threading.Event()

    def call(name: str) -> None:
        calls.call(f"first {name}")
        if name == "a":
            a_returns.set()
            calls.call("second a")
        elif do_both_return:
            a_returns.wait()
            for _ in range(20):  # turns of the loop, in which it gets the other thread's call
                thread.run(one())
            calls.call("second b")

    both = [asyncio.create_task(asyncio.to_thread(call, name)) for name in ("a", "b")]
    await until(lambda: len(calls.waiting) == 2)
    calls.log.clear()
    thread.call_soon(calls.give_first_results)
    await asyncio.gather(*both)


async def test_calls_of_threads_that_get_results_together_begin_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hourwheel.client.loop_thread.GATHER_S", 3_600.0)
    thread = LoopThread(nothing)
    calls = Calls(thread)
    await twice_each(calls, thread, do_both_return=True)
    assert sorted(calls.log[:2]) == ["second a", "second b"], "in one turn of the loop"
    thread.finish(nothing())


async def test_a_call_does_not_wait_for_long_for_a_thread_that_does_not_come_back() -> None:
    thread = LoopThread(nothing)
    calls = Calls(thread)
    await twice_each(calls, thread, do_both_return=False)
    assert calls.begun() == ["second a"]
    thread.finish(nothing())


async def test_a_call_that_waits_for_others_is_begun_when_the_client_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hourwheel.client.loop_thread.GATHER_S", 3_600.0)
    thread = LoopThread(nothing)
    calls = Calls(thread)
    working = asyncio.create_task(twice_each(calls, thread, do_both_return=False))
    await until(lambda: calls.waiting and all(one.done() for one in calls.waiting.values()))
    for _ in range(20):  # as above
        await asyncio.to_thread(thread.run, one())
    await asyncio.to_thread(thread.finish, nothing())
    with suppress(errors.Cancelled):
        await working
