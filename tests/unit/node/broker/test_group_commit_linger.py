"""How long small calls wait for others: by a loop whose time a test moves."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import pytest

from node.broker.group_commit import Linger
from tests.support.eventually import until


class SlowLoop:
    """Time stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.looks: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now_s

    def create_future(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_future()

    def call_at(self, at_s: float, look: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        self.looks.append((at_s, look, args))
        return asyncio.get_running_loop().call_later(3_600, lambda: None)

    def go_on(self, late_ms: float = 0.0) -> None:
        """To the next look, or somewhat beyond."""
        at_s, look, args = self.looks.pop(0)
        self.now_s = at_s + late_ms / 1_000
        look(*args)


class Wait:
    """Someone who lingers, and how many calls there are."""

    def __init__(self) -> None:
        self.loop, self.calls = SlowLoop(), 1
        self.linger = Linger(self.loop)  # type: ignore[arg-type]  # all that it needs
        self.begun_s = self.loop.now_s
        self.task = asyncio.ensure_future(self.linger.wait(lambda: self.calls))

    async def __aenter__(self) -> Self:
        await until(lambda: self.linger.is_waiting)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def ends(self) -> float:
        """It is over without anything more; how long it was, in ms."""
        await asyncio.wait_for(asyncio.shield(self.task), 60)
        assert not self.linger.is_waiting
        return round((self.loop.now_s - self.begun_s) * 1_000, 3)


async def test_wait_ends_when_no_more_come() -> None:
    async with Wait() as wait:
        wait.loop.go_on()
        assert await wait.ends() == 2


async def test_wait_ends_when_only_one_more_comes() -> None:
    async with Wait() as wait:
        wait.calls += 1
        wait.loop.go_on()
        assert await wait.ends() == 2


async def test_wait_goes_on_while_calls_keep_coming() -> None:
    async with Wait() as wait:
        for _ in range(2):
            wait.calls += 2
            wait.loop.go_on()
            assert wait.linger.is_waiting
        wait.loop.go_on()
        assert await wait.ends() == 6


async def test_wait_ends_at_last_when_calls_do_not_stop_coming() -> None:
    async with Wait() as wait:
        while wait.loop.looks:
            wait.calls += 2
            wait.loop.go_on()
        assert await wait.ends() == pytest.approx(7, abs=2)


async def test_wait_is_longer_when_many_calls_are_being_read() -> None:
    """The loop is busy with them: nothing would be gained by writing meanwhile."""
    async with Wait() as wait:
        while wait.calls < 64:
            wait.calls += 10
            wait.loop.go_on()
            assert wait.linger.is_waiting
        wait.loop.go_on()
        assert await wait.ends() == 16


async def test_late_look_proves_no_silence() -> None:
    async with Wait() as wait:
        wait.loop.go_on(late_ms=3)
        assert wait.linger.is_waiting
        wait.loop.go_on()
        assert await wait.ends() == 7


async def test_busy_loop_is_not_waited_for_without_end() -> None:
    async with Wait() as wait:
        wait.loop.go_on(late_ms=3)
        wait.loop.go_on(late_ms=30)
        assert await wait.ends() == 37


async def test_wait_ends_when_it_is_told_to() -> None:
    async with Wait() as wait:
        wait.linger.end()
        wait.linger.end()
        assert await wait.ends() == 0


async def test_ending_is_nothing_when_nobody_waits() -> None:
    async with Wait() as wait:
        wait.linger.end()
        await wait.ends()
        wait.linger.end()
        assert not wait.linger.is_waiting


async def test_nothing_is_left_when_who_waits_is_cancelled() -> None:
    async with Wait() as wait:
        wait.task.cancel()
        await asyncio.wait([wait.task])
        assert not wait.linger.is_waiting
