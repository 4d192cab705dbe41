"""What keeps the loop waiting is seen, with what ran; clocks and counters are the test's."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from hourwheel.stalls import MACHINE, UNNAMED, WAITING, ThreadMeter, Usage
from node.telemetry.process_watch import ProcessStats, ProcessWatch
from node.telemetry.spans import Spans
from tests.support.eventually import until

_MS = 1_000_000


class Meter:
    """Goes on as the test says; its clocks are those of `Meter`."""

    def __init__(self) -> None:
        self.at_ns = self.worked_ns = self.step_ns = 0
        self.used = Usage()

    def now_ns(self) -> int:
        self.at_ns += self.step_ns
        return self.at_ns

    def cpu_ns(self) -> int:
        return self.worked_ns

    def wall_ms(self) -> int:
        return self.at_ns // _MS

    def usage(self) -> Usage:
        return self.used

    def work(self, ms: float) -> None:
        self.at_ns += int(ms * _MS)
        self.worked_ns += int(ms * _MS)


class World:
    """A watched loop."""

    def __init__(self) -> None:
        self.meter, self.stats = Meter(), ProcessStats()
        self.spans = Spans(self.meter.now_ns)
        self.watch = ProcessWatch(self.spans, self.stats, self.meter, stall_ms=5)
        self.watch.start()

    async def turn(self) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.watch.close()


async def test_turn_that_took_long_is_kept_with_what_ran(world: World) -> None:
    with world.spans.span("apply"):
        world.meter.work(4)
    with world.spans.span("turn"):
        world.meter.work(9)
    await world.turn()
    (stall,) = world.stats.stalls.last
    assert (stall.wall_ms, stall.cpu_ms, stall.cause) == (13, 13, "turn")
    assert stall.ran_ms == {"apply": 4, "turn": 9}
    assert world.stats.stalls.by_cause["turn"] == 1


async def test_short_turns_are_no_stall_and_do_not_add_up(world: World) -> None:
    for _ in range(5):
        with world.spans.span("turn"):
            world.meter.work(4)
        await world.turn()
    assert not world.stats.stalls.count
    with world.spans.span("apply"):
        world.meter.work(6)
    await world.turn()
    assert world.stats.stalls.last[0].ran_ms == {"apply": 6}


async def test_what_nobody_noted_has_no_name(world: World) -> None:
    with world.spans.span("turn"):
        world.meter.work(1)
    world.meter.work(20)
    await world.turn()
    assert world.stats.stalls.by_cause[UNNAMED] == 1


async def test_turn_without_a_core_is_told_from_one_that_waited(world: World) -> None:
    for unscheduled_ms in (15, 0):
        with world.spans.span("turn"):
            world.meter.work(2)
            world.meter.at_ns += 18 * _MS
        used = world.meter.used
        world.meter.used = Usage(used.unscheduled_ns + unscheduled_ms * _MS, 0, 0, 3)
        await world.turn()
    without_core, waited = world.stats.stalls.last
    assert (without_core.cause, without_core.unscheduled_ms) == (MACHINE, 15)
    assert (waited.cause, waited.unscheduled_ms) == (WAITING, 0)


async def test_idle_loop_is_woken_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, periods_s = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def note(delay_s: float, step: Callable[..., None], *args: object) -> asyncio.TimerHandle:
        if args:  # a sleep
            return call_later(delay_s, step, *args)
        periods_s.append(delay_s)
        one.meter.work(25 if len(periods_s) % 2 else 1)
        one.meter.at_ns += 24 * _MS
        return call_later(0, step)

    one = World()
    monkeypatch.setattr(loop, "call_later", note)
    await until(lambda: len(periods_s) > 4)
    one.watch.close()
    assert periods_s[1:5] == [0.025, 0.1, 0.025, 0.1]


async def test_work_beside_is_told_where_it_went_on_meanwhile(world: World) -> None:
    merge = world.spans.aside("merge")
    with world.spans.aside("checkpoint"):
        world.meter.at_ns += 1
    world.meter.at_ns += 1
    merge.__enter__()
    with world.spans.span("turn"):
        world.meter.work(6)
    merge.__exit__()
    await world.turn()
    assert world.stats.stalls.last[0].beside == ("merge",)


async def test_timers_are_late_when_others_have_the_loop(world: World) -> None:
    await until(lambda: world.stats.loop_delay.count > 0)
    assert not world.stats.stalls.count, "it is early by this clock"
    world.meter.at_ns += (100 + 6) * _MS  # it has not worked: the loop is idle
    world.meter.used = Usage(6 * _MS, 0, 0, 1)
    await until(lambda: world.stats.stalls.count == 1)
    assert world.stats.loop_delay.read().total == pytest.approx(0.006)
    assert world.stats.stalls.last[0].cause == MACHINE


async def test_late_timer_does_not_repeat_what_a_turn_has_told(world: World) -> None:
    with world.spans.span("turn"):
        world.meter.work(60)
    await world.turn()
    seen = world.stats.loop_delay.count
    await until(lambda: world.stats.loop_delay.count > seen)
    assert world.stats.stalls.count == 1


async def test_long_stalls_are_logged_now_and_then(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world.meter.at_ns = 20_000 * _MS
    for ms in (60, 70, 10, 60):
        with world.spans.span("turn"):
            world.meter.work(ms)
        await world.turn()
    assert [one.message.count("loop_stalled") for one in caplog.records] == [1]
    world.meter.at_ns += 10_000 * _MS
    with world.spans.span("turn"):
        world.meter.work(55)
    await world.turn()
    assert len(caplog.records) == 2
    assert "'unlogged': 2" in str(caplog.records[1].msg)


async def test_short_stalls_are_one_line_in_the_log_each_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        return [str(one.msg) for one in caplog.records if "loop_stalls" in str(one.msg)]

    for name, ms in (("turn", 8), ("apply", 30), ("turn", 9), ("apply", 4)):
        with world.spans.span(name):
            world.meter.work(ms)
        await world.turn()
    timers = world.stats.loop_delay.count
    await until(lambda: world.stats.loop_delay.count > timers)
    assert not lines(), "the minute is not over"
    world.meter.at_ns += 60_000 * _MS  # which is a stall itself
    await until(lambda: bool(lines()))
    assert len(lines()) == 1
    assert "'apply': 1, 'turn': 2}" in lines()[0]
    assert "'apply': 30.0, 'turn': 17.0}" in lines()[0]
    assert "'longest_cause': 'waiting'" in lines()[0]


async def test_collections_are_timed_by_their_generation(world: World) -> None:
    world.meter.step_ns = 2 * _MS
    before = [one.count for one in world.stats.gc_pauses]
    gc.collect(1)
    after = [one.count for one in world.stats.gc_pauses]
    assert after[1] - before[1] == 1
    assert world.stats.gc_pauses[1].read().total >= 0.002


async def test_nothing_is_watched_after_the_end(world: World) -> None:
    callbacks = len(gc.callbacks)
    world.watch.close()
    world.watch.close()
    assert len(gc.callbacks) == callbacks - 1
    with world.spans.span("turn"):
        world.meter.work(60)
    await world.turn()
    assert not world.stats.stalls.count


def test_this_machine_counts_what_its_threads_do() -> None:
    meter = ThreadMeter()
    try:
        before, worked_ns = meter.usage(), meter.cpu_ns()
        sum(range(100_000))
        assert meter.cpu_ns() > worked_ns
        assert all(now >= then for now, then in zip(meter.usage(), before, strict=True))
    finally:
        meter.close()
        meter.close()
