"""Simulated true time: what happens when, one thing after the other, all from one seed.

And the clocks by which machines know it, more or less.
"""

import heapq
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tests.support.shard_world import START_MS

Action: TypeAlias = Callable[[], None]


class Events:
    """A queue of actions by true time; equal times in the order in which they were asked for.

    Attributes:
        now_ms: true time since the simulation began. No node knows it.
        random: the only source of chance.
        after_each: called after each action: the checkers.
        trace: what happened, newest last, where `is_tracing`.
    """

    def __init__(self, seed: int) -> None:
        self.now_ms = 0.0
        self.random = Random(seed)
        self.after_each: list[Action] = []
        self.trace: list[str] = []
        self.is_tracing = False
        self._queue: list[tuple[float, int, Action]] = []
        self._count = 0

    def later(self, delay_ms: float, action: Action) -> None:
        """Do `action` after a delay."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, duration_ms)

    def run_until(self, is_done: Callable[[], bool], duration_max_ms: float) -> bool:
        """Let time pass until `is_done`, asked after each action. Returns whether it came true."""
        end_ms = self.now_ms + duration_max_ms
        while not is_done():
            if not self._queue or self._queue[0][0] > end_ms:
                self.now_ms = end_ms
                return False
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
            for check in self.after_each:
                check()
        return True

    def note(self, what: str) -> None:
        """Remember something for whoever reads the trace of a failing seed."""
        if self.is_tracing:
            self.trace.append(f"{self.now_ms:10.2f} {what}")


class MachineClock:
    """A machine's clocks: they run at a rate of their own, and the wall clock can be set.

    Attributes:
        error_ms: how far the wall clock is ahead of the truth.
    """

    def __init__(self, events: Events, rate: float, error_ms: float) -> None:
        """`rate`: 1.01 counts 1 % too much."""
        self._events, self._rate = events, rate
        self.error_ms = error_ms
        self._start_ms = events.random.uniform(0, 1e6)

    def monotonic_ms(self) -> float:
        return self._start_ms + self._events.now_ms * self._rate

    def wall_ms(self) -> float:
        return START_MS + self._events.now_ms + self.error_ms
