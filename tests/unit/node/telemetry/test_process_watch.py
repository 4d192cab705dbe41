"""What keeps the loop waiting is seen; the clock is the test's."""

import asyncio
import gc

from node.telemetry.process_watch import STALL_S, ProcessStats, ProcessWatch
from tests.support.eventually import until


class Clock:
    """Goes on by itself, by so much each time that it is looked at."""

    def __init__(self) -> None:
        self.ms, self.step_ms = 0.0, 0.0

    def __call__(self) -> float:
        self.ms += self.step_ms
        return self.ms


async def test_timers_are_late_when_others_have_the_loop() -> None:
    clock, stats = Clock(), ProcessStats()
    watch = ProcessWatch(clock, stats)
    watch.start()
    try:
        await until(lambda: stats.loop_delay.count > 0)
        assert stats.loop_stalls == 0, "it is early by this clock"
        clock.ms += 25 + STALL_S * 1_000 + 1
        await until(lambda: stats.loop_stalls == 1)
    finally:
        watch.close()
    assert stats.loop_delay.read().total >= STALL_S


async def test_collections_are_timed_by_their_generation() -> None:
    clock, stats = Clock(), ProcessStats()
    clock.step_ms = 2.0
    watch = ProcessWatch(clock, stats)
    watch.start()
    try:
        before = [one.count for one in stats.gc_pauses]
        gc.collect(1)
        after = [one.count for one in stats.gc_pauses]
    finally:
        watch.close()
    assert after[1] - before[1] == 1
    assert stats.gc_pauses[1].read().total >= 0.002


async def test_nothing_is_watched_after_the_end() -> None:
    stats = ProcessStats()
    callbacks = len(gc.callbacks)
    watch = ProcessWatch(Clock(), stats)
    watch.start()
    assert len(gc.callbacks) == callbacks + 1
    watch.close()
    watch.close()
    assert len(gc.callbacks) == callbacks
    await asyncio.sleep(0)
    assert stats.loop_delay.count == 0
