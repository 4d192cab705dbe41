"""The node's own clock: it follows the wall clock, but never goes back and never jumps.

    now = monotonic + offset

The offset moves towards `wall - monotonic` by at most `slew_ratio_max` of the time that passes: an
hour of this clock is an hour within 5 %, whatever happens to the machine's date. The clock follows
small errors (what NTP leaves) at once, within that rate. A larger step of the wall clock may be a
mistake: it must last `step_settle_ms` before the offset moves towards it, as slowly.

    wall      ----------+            someone sets the date 10 min ahead; 60 s later it is still so
                        |+--------
    now       ----------+---~~~~~~   unchanged for 60 s, then 5 % faster until it has caught up

Why not follow at once: a typing error that sets the date a year ahead would release a year of
messages, and what is released cannot be taken back. Pure: time comes from the `Clock` that it gets.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import Final

from hourwheel.clock import Clock

_SLEW_RATIO_MAX: Final = 0.05
_STEP_MS_MAX: Final = 1_000.0
_STEP_SETTLE_MS: Final = 60_000.0
_LOOK_EVERY_MS: Final = 10.0
"""Reads the wall clock so often at most: a broker asks for the time with every call."""


class StepEvent(Enum):
    """What the clock has noticed of a step of the wall clock."""

    SEEN = "seen"
    """The wall clock differs; the offset stays."""
    FOLLOWED = "followed"
    """It has lasted; from now on the offset moves towards it."""
    WITHDRAWN = "withdrawn"
    """The wall clock came back by itself."""


class SlewedClock:
    """The cluster clock of a single node.

    Invariants: `now_ms` never falls; between two calls it advances by the monotonic time that
    passed, give or take `slew_ratio_max` of it and 1 ms of rounding. One thread.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        slew_ratio_max: float = _SLEW_RATIO_MAX,
        step_ms_max: float = _STEP_MS_MAX,
        step_settle_ms: float = _STEP_SETTLE_MS,
        on_step: Callable[[StepEvent, float], None] | None = None,
    ) -> None:
        """Starts at the wall clock.

        Args:
            clock: the machine's.
            slew_ratio_max: 0.05 means at most 5 % faster or slower; above 0, below 1.
            step_ms_max: a larger difference is a step.
            step_settle_ms: monotonic time that a step must last.
            on_step: called at each change of mind, once, with the step in ms (signed).
        """
        self._clock = clock
        self._slew_ratio_max = slew_ratio_max
        self._step_ms_max = step_ms_max
        self._step_settle_ms = step_settle_ms
        self._on_step = on_step
        self._monotonic_ms = clock.monotonic_ms()
        """When the wall clock was last looked at."""
        self._offset_ms = clock.wall_ms() - self._monotonic_ms
        self._target_ms = self._offset_ms
        """The offset that is believed and moved towards."""
        self._step_target_ms: float | None = None
        """The offset of a step that is not believed yet, ..."""
        self._step_since_ms = 0.0
        """... and since when it lasts (monotonic)."""
        self._now_ms = math.floor(self._monotonic_ms + self._offset_ms)

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, never less than any answer before; about 0.5 us."""
        self.exact_at(self._clock.monotonic_ms())
        return self._now_ms

    def exact_ms(self) -> float:
        """As `now_ms`, with a fraction; for comparing clocks."""
        return self.exact_at(self._clock.monotonic_ms())

    def exact_at(self, monotonic_ms: float) -> float:
        """As `exact_ms`, by this reading of the same monotonic clock."""
        elapsed = monotonic_ms - self._monotonic_ms
        if elapsed >= _LOOK_EVERY_MS:
            self._follow(monotonic_ms, elapsed)
        exact = monotonic_ms + self._offset_ms
        # Floats round and offsets shrink: the maximum makes "never back" a fact.
        self._now_ms = max(self._now_ms, int(exact))
        return max(float(self._now_ms), exact)

    def until_ms(self, at_ms: int) -> float:
        """How long until `now_ms` says `at_ms`, in milliseconds with a fraction; negative if over.

        For timers: waiting by whole milliseconds would be half a millisecond late on average.
        """
        exact = self._clock.monotonic_ms() + self._offset_ms
        return at_ms - max(float(self._now_ms), exact)

    def _follow(self, monotonic: float, elapsed: float) -> None:
        """Look at the wall clock and move the offset by what `elapsed` allows."""
        self._check_step(self._clock.wall_ms() - monotonic, monotonic)
        error = self._target_ms - self._offset_ms
        if error:
            bound = self._slew_ratio_max * elapsed
            self._offset_ms += max(-bound, min(error, bound))
        self._monotonic_ms = monotonic

    @property
    def offset_ms(self) -> float:
        """What is added to the monotonic clock, as of the last look."""
        return self._offset_ms

    @property
    def error_ms(self) -> float:
        """Wall clock minus this clock, as of the last look."""
        seen = self._target_ms if self._step_target_ms is None else self._step_target_ms
        return seen - self._offset_ms

    @property
    def step_pending(self) -> bool:
        """Whether the wall clock has made a step that is not followed yet."""
        return self._step_target_ms is not None

    def _check_step(self, wall_offset: float, monotonic: float) -> None:
        """Decide what to believe of a reading of the wall clock."""
        if abs(wall_offset - self._target_ms) <= self._step_ms_max:
            self._target_ms = wall_offset
            if self._step_target_ms is not None:
                self._end_step(StepEvent.WITHDRAWN)
            return
        pending = self._step_target_ms
        if pending is None or abs(wall_offset - pending) > self._step_ms_max:
            self._step_target_ms, self._step_since_ms = wall_offset, monotonic
            self._report(StepEvent.SEEN, wall_offset - self._target_ms)
        elif monotonic - self._step_since_ms >= self._step_settle_ms:
            self._target_ms = wall_offset
            self._end_step(StepEvent.FOLLOWED)

    def _end_step(self, event: StepEvent) -> None:
        step_target, self._step_target_ms = self._step_target_ms, None
        if step_target is not None:
            self._report(event, step_target - self._offset_ms)

    def _report(self, event: StepEvent, step_ms: float) -> None:
        if self._on_step is not None:
            self._on_step(event, step_ms)
