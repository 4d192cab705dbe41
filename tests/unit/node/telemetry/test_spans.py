"""Work is noted by name, each without what ran within it; the clock is the test's."""

import asyncio
import gc
import weakref
from contextlib import suppress

import pytest

from node.telemetry.spans import Spans, in_steps


class Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class World:
    """Some kinds of work."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.spans = Spans(self.clock)
        self.begun: list[int] = []
        self.spans.on_begin = self.begun.append


def test_inner_work_is_not_the_outer_ones() -> None:
    world, spans = World(), None
    spans = world.spans
    with spans.span("outer"):
        world.clock.ns += 5
        with spans.span("inner"):
            world.clock.ns += 7
        world.clock.ns += 2
    with spans.span("inner"):
        world.clock.ns += 1
    assert spans.ran_ns() == {"outer": 7, "inner": 8}
    assert spans.current is None


def test_work_that_calls_itself_counts_once() -> None:
    world = World()
    span = world.spans.span("turn")
    with span:
        world.clock.ns += 3
        with span:
            world.clock.ns += 4
        world.clock.ns += 2
    assert world.spans.ran_ns() == {"turn": 9}


def test_first_work_of_a_turn_is_told() -> None:
    world = World()
    for _ in range(2):
        world.clock.ns += 10
        with world.spans.span("a"):
            world.clock.ns += 1
        with world.spans.span("b"):
            pass
        world.spans.end_turn()
    assert world.begun == [10, 21]
    assert world.spans.ran_ns() == {}


def test_work_that_fails_ends() -> None:
    world = World()
    with pytest.raises(KeyError), world.spans.span("a"), world.spans.span("b"):
        raise KeyError
    assert world.spans.current is None


def test_asides_are_told_while_they_go_on_and_when_they_ended_since() -> None:
    world = World()
    world.clock.ns = 10
    with world.spans.aside("merge"):
        assert world.spans.ran_beside(20) == ("merge",)
    assert world.spans.ran_beside(9) == ("merge",)
    assert world.spans.ran_beside(10) == ()


async def test_steps_of_a_coroutine_count_and_what_it_waits_for_does_not() -> None:
    world = World()
    span = world.spans.span("Receive")

    async def work() -> str:
        world.clock.ns += 3
        await asyncio.sleep(0)
        world.clock.ns += 4
        return "done"

    async def others() -> None:
        world.clock.ns += 100

    found, _ = await asyncio.gather(in_steps(work(), span), others())
    assert found == "done"
    assert world.spans.ran_ns() == {"Receive": 7}


async def test_cancelling_and_errors_reach_the_coroutine() -> None:
    span, seen = World().spans.span("Receive"), list[str]()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError

    async def call() -> None:
        await in_steps(wait(), span)

    waiting = asyncio.create_task(call())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(KeyError):
        await in_steps(fail(), span)
    assert seen == ["cancelled"]


class Request:
    """Holds much memory."""


async def test_what_a_cancelled_coroutine_held_is_given_up_without_the_collector() -> None:
    span, request = World().spans.span("Publish"), Request()
    held = weakref.ref(request)

    async def wait(_: Request) -> None:
        await asyncio.Event().wait()

    async def call(request: Request) -> None:
        with suppress(asyncio.CancelledError):
            await in_steps(wait(request), span)

    gc.disable()
    try:
        waiting = asyncio.create_task(call(request))
        del request
        await asyncio.sleep(0)
        waiting.cancel()
        await waiting
        del waiting
        assert held() is None
    finally:
        gc.enable()
