"""Slices of long work, and the rests between them: the loop's clock is the test's."""

import asyncio

import pytest

from node.consumers.loop_share import REST_S_MAX, LoopShare


class Times:
    """A clock that moves by hand, and by what is slept; `busy_s`: what others take of each turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.busy_s, self.activity = 100.0, 0.0, 0
        self.slept: list[float] = []
        self._sleep = asyncio.sleep
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)
        monkeypatch.setattr(loop, "call_later", self._call_later)
        self.share = LoopShare(lambda: self.activity)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.slept.append(seconds)
        self.now += seconds + self.busy_s
        await self._sleep(0)

    def _call_later(self, seconds: float, step: object, *args: object) -> asyncio.Handle:
        self.slept.append(seconds)
        self.now += seconds
        return asyncio.get_running_loop().call_soon(step, *args)  # type: ignore[arg-type]

    async def called(self) -> None:
        """`after_rest` called."""
        done = asyncio.Event()
        self.share.after_rest(done.set)
        self.now += self.busy_s
        await done.wait()


@pytest.mark.parametrize("is_callback", [False, True])
async def test_who_works_in_slices_rests_as_long_as_a_slice_took_where_others_work(
    monkeypatch: pytest.MonkeyPatch, *, is_callback: bool
) -> None:
    times = Times(monkeypatch)
    rest = times.called if is_callback else times.share.rest
    times.now += 0.004
    await rest()
    assert times.slept == [], "nobody else has anything to do"
    times.busy_s = 0.001
    times.now += 0.003
    await rest()
    assert times.slept == [pytest.approx(0.003)]
    times.now += 1.0
    await rest()
    assert times.slept[1:] == [REST_S_MAX], "and not for ever"
    times.busy_s = 0.0
    times.now += 0.002
    await rest()
    assert times.slept[2:] == [pytest.approx(0.002)], "they are thought to go on for a while"
    times.now += 1.0
    await rest()
    assert len(times.slept) == 3
    times.now, times.activity = times.now + 0.001, 1
    await rest()
    assert times.slept[3:] == [pytest.approx(0.001)], "something was done, if between turns"
