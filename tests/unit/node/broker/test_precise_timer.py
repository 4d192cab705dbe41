"""Timers on a real loop: each is shown to be silent by another that fires after it would have."""

import asyncio
import ctypes
import select
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from hourwheel.clock import SystemClock
from node.broker.precise_timer import Timer, _FdTimer, _LoopTimer, make_timer

HOUR_MS = 3_600_000
Make = Callable[[Callable[[], None]], Timer]


def _by_loop(callback: Callable[[], None]) -> Timer:
    return _LoopTimer(asyncio.get_running_loop(), callback)


def _best(callback: Callable[[], None]) -> Timer:
    return make_timer(asyncio.get_running_loop(), callback)


@pytest.fixture(params=[_best, _by_loop])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


class Calls:
    """Counts calls, and waits for them."""

    def __init__(self) -> None:
        self.count = 0
        self._came = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._came.set()

    async def next(self) -> None:
        async with asyncio.timeout(30):
            await self._came.wait()
        self._came.clear()


async def pass_by(make: Make) -> None:
    """Until a timer that is set now has fired: those that were to fire earlier have."""
    calls = Calls()
    with closing(make(calls)) as timer:
        timer.set_in(3)
        await calls.next()
    await asyncio.sleep(0)


async def test_fires_once_each_time_it_is_set(make: Make) -> None:
    calls = Calls()
    with closing(make(calls)) as timer:
        timer.set_in(0.2)
        assert calls.count == 0
        await calls.next()
        await pass_by(make)
        assert calls.count == 1
        timer.set_in(0.2)
        await calls.next()
        assert calls.count == 2


@pytest.mark.parametrize("delay_ms", [0, -5, -HOUR_MS])
async def test_fires_from_the_loop_when_it_is_late(make: Make, delay_ms: float) -> None:
    calls = Calls()
    with closing(make(calls)) as timer:
        timer.set_in(delay_ms)
        assert calls.count == 0, "not from within set_in"
        await calls.next()


async def test_earlier_replaces_later(make: Make) -> None:
    calls = Calls()
    with closing(make(calls)) as timer:
        timer.set_in(HOUR_MS)
        timer.set_in(0.2)
        await calls.next()
        await pass_by(make)
        assert calls.count == 1


async def test_later_replaces_earlier(make: Make) -> None:
    calls = Calls()
    with closing(make(calls)) as timer:
        timer.set_in(0)
        timer.set_in(HOUR_MS)
        await pass_by(make)
        assert calls.count == 0


async def test_does_not_fire_when_cleared(make: Make) -> None:
    calls = Calls()
    with closing(make(calls)) as timer:
        timer.clear()
        timer.set_in(0)
        timer.clear()
        await pass_by(make)
        assert calls.count == 0
        timer.set_in(0)
        await calls.next()


async def test_does_not_fire_when_closed(make: Make) -> None:
    calls = Calls()
    timer = make(calls)
    timer.set_in(0)
    timer.close()
    await pass_by(make)
    assert calls.count == 0


async def test_cannot_be_set_when_closed(make: Make) -> None:
    calls, neighbours = Calls(), Calls()
    timer = make(calls)
    timer.close()
    with closing(make(neighbours)) as neighbour:  # where there are numbers, it gets the same
        neighbour.set_in(HOUR_MS)
        timer.set_in(0)
        await pass_by(make)
        assert (calls.count, neighbours.count) == (0, 0)
        neighbour.set_in(0)
        timer.clear()
        await neighbours.next()


async def test_callback_may_set_it_again(make: Make) -> None:
    calls = Calls()

    def again() -> None:
        calls()
        if calls.count < 3:
            timer.set_in(0.2)

    with closing(make(again)) as timer:
        timer.set_in(0.2)
        while calls.count < 3:
            await calls.next()
        await pass_by(make)
        assert calls.count == 3


async def test_does_not_fire_when_it_was_set_again_before_the_loop_looked() -> None:
    calls = Calls()
    with closing(_best(calls)) as timer:
        if isinstance(timer, _FdTimer):
            timer.set_in(0)
            assert select.select([timer._fd], [], [], 30)[0] == [timer._fd]
            timer.set_in(HOUR_MS)
            timer._fire()
        await pass_by(_best)
        assert calls.count == 0


async def test_system_is_told_of_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """The system's, with a count."""

        def __init__(self) -> None:
            self._true, self.count = ctypes.PyDLL(None, use_errno=True), 0
            self.timerfd_create = self._true.timerfd_create

        def timerfd_settime(self, *arguments: object) -> int:
            self.count += 1
            told: int = self._true.timerfd_settime(*arguments)
            return told

    library = Library()
    monkeypatch.setattr(ctypes, "PyDLL", lambda *_args, **_options: library)
    calls = Calls()
    with closing(_best(calls)) as timer:
        timer.clear()
        assert library.count == 0
        if isinstance(timer, _FdTimer):
            clock = SystemClock()
            until_ms = clock.monotonic_ms() + HOUR_MS
            for _ in range(100):
                timer.set_in(until_ms - clock.monotonic_ms())
            assert 1 <= library.count <= 50, "but where the machine stood still in between"
            timer.set_in(0.2)
            await calls.next()
            timer.set_in(0.2)
            await calls.next()


async def test_the_loops_own_timer_is_used_when_the_system_has_no_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(ctypes, "PyDLL", lambda *_args, **_options: object())
    assert isinstance(make_timer(loop, Calls()), _LoopTimer)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(ctypes, "PyDLL")
    assert isinstance(make_timer(loop, Calls()), _LoopTimer)
