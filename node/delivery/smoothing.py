"""Smoothing: what becomes visible at one time is shown over a while, where its topic tolerates it.

A topic with a dispatch tolerance T lets its hot moments be spread. Of n messages of a queue that
all are due in one millisecond, the first is shown at once and the others at an even pace, the last
T later:

    due         |n
    without     |n
    with T      |======= n / T each millisecond =======|
                 0                                     T

Release, positions and cursor stay as they are, and so does the order: this only moves the end of
what the master shows of a queue. What becomes visible while others wait behind the end has a
deadline of its own, T after its time; the pace is the least that keeps all. It is never below
one message a millisecond, for small crowds need no smoothing, nor below 5/4 of what came in the
mean of the last 4 T or so: a steady flow is not made late. Nothing is early, and each message is at
most T later than without.

    marks     (position, deadline): below the position all has to be shown by then
    pace      the steepest way from the end of what is shown to any mark

Pure: readings of the clock come in, and positions go out. Belongs to one mastership. A new master
shows what is older than T at once and paces the rest by its own deadlines.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from hourwheel.types import FIRST_POSITION, Position, topic_of
from storage.queues.consume_queue import ConsumeQueue
from storage.views.catalog import Catalog
from storage.views.unit import rows_of

STEP_MS: Final = 5
"""Polls that wait are woken so often while a queue is being smoothed."""
_PER_MS_MIN: Final = 1.0
_MEAN_TOLERANCES: Final = 4
_ABOVE_MEAN: Final = 1.25
_MARKS: Final = 64
"""About so many deadlines are kept apart: what comes closer together has that of the first."""
_LOOKS_MAX: Final = 64
"""Chunks that are looked at for where the messages of the last T begin."""


@dataclass(slots=True)
class _Pace:
    """How one queue is shown. Invariants: shown <= seen; marks ascend in both."""

    shown: Position
    """The end of what is shown."""
    seen: Position
    """The end of what is visible without smoothing, as of the last look."""
    marks: deque[tuple[Position, int]] = field(default_factory=deque)
    anchor: tuple[Position, int] = (FIRST_POSITION, 0)
    """(position, instant) from which the pace goes."""
    per_ms: float = _PER_MS_MIN
    mean_per_ms: float = 0.0
    """What became visible, older things counting less and less."""
    counted_ms: int = 0
    """When it was counted last."""

    def count(self, count: int, tolerance_ms: int, now_ms: int) -> None:
        """So many have become visible."""
        window_ms = _MEAN_TOLERANCES * tolerance_ms
        passed = max(0, now_ms - self.counted_ms) / window_ms
        self.mean_per_ms = self.mean_per_ms * math.exp(-passed) + count / window_ms
        self.counted_ms = now_ms

    def mark(self, position: Position, deadline_ms: int, tolerance_ms: int) -> None:
        """Everything below `position` has to be shown by a deadline."""
        if self.marks and deadline_ms < self.marks[-1][1] + max(1, tolerance_ms // _MARKS):
            deadline_ms = min(deadline_ms, self.marks.pop()[1])
            while self.marks and self.marks[-1][1] >= deadline_ms:
                self.marks.pop()
        self.marks.append((position, deadline_ms))

    def move(self, now_ms: int) -> None:
        """Show what is to be shown by now."""
        if not self.marks:
            return
        position, since_ms = self.anchor
        paced = Position(position + 1 + int(self.per_ms * (now_ms - since_ms)))
        self.shown = max(self.shown, min(paced, self.marks[-1][0]))
        is_due = False
        while self.marks and (self.marks[0][1] <= now_ms or self.marks[0][0] <= self.shown):
            self.shown = max(self.shown, self.marks.popleft()[0])
            is_due = True
        if is_due:
            self.plan(now_ms)

    def plan(self, now_ms: int) -> None:
        """Find the pace anew, from here on."""
        self.anchor = self.shown, now_ms
        needed = (
            (position - self.shown) / (deadline_ms - now_ms) for position, deadline_ms in self.marks
        )
        self.per_ms = max(_PER_MS_MIN, _ABOVE_MEAN * self.mean_per_ms, *needed)


class Smoothing:
    """What of each queue is shown. One per mastership."""

    def __init__(self, catalog: Catalog) -> None:
        """`catalog` says what topics tolerate."""
        self._tolerances_ms = catalog.tolerances_ms
        self._paces: dict[int, _Pace] = {}
        """Of queues whose topic tolerates something."""

    def visible_end(self, queue: ConsumeQueue, now_ms: int) -> Position:
        """The first entry that consumers may not see yet; as `ConsumeQueue.visible_end`."""
        seen = queue.visible_end(now_ms)
        if not self._tolerances_ms and not self._paces:
            return seen
        tolerance_ms = self._tolerances_ms.get(topic_of(queue.topic_queue))
        if not tolerance_ms:
            self._paces.pop(queue.topic_queue, None)
            return seen
        pace = self._paces.get(queue.topic_queue)
        if pace is None:
            start = queue.start_position
            pace = self._paces[queue.topic_queue] = _Pace(start, start)
        if seen < pace.seen:  # the clock was set back
            pace.shown = pace.seen = min(pace.shown, seen)
            pace.marks.clear()
        pace.move(now_ms)
        if seen > pace.seen:
            self._note(queue, pace, seen, tolerance_ms, now_ms)
        return max(pace.shown, queue.start_position)

    def _note(
        self, queue: ConsumeQueue, pace: _Pace, seen: Position, tolerance_ms: int, now_ms: int
    ) -> None:
        """More has become visible: up to `seen`."""
        begin = max(pace.seen, queue.start_position)
        first = _find_fresh(queue, begin, seen, now_ms - tolerance_ms)
        if first > pace.seen:
            pace.shown = max(pace.shown, min(first, seen))
            while pace.marks and pace.marks[0][0] <= pace.shown:
                pace.marks.popleft()
        if first < seen:
            release_ms = rows_of(queue.read(first, 1))[0].release_ms
            deadline_ms = max(now_ms + 1, min(release_ms, now_ms) + tolerance_ms)
            pace.mark(seen, deadline_ms, tolerance_ms)
        pace.seen = seen
        pace.count(max(0, seen - first), tolerance_ms, now_ms)
        pace.plan(now_ms)
        pace.move(now_ms)

    def next_gate_ms(self, queue: ConsumeQueue, now_ms: int) -> int | None:
        """When to ask for the visible end again, behind `visible_end` at that instant."""
        gate_ms = queue.next_gate_ms()
        pace = self._paces.get(queue.topic_queue) if self._paces else None
        if pace is None or not pace.marks:
            return gate_ms
        step_ms = min(now_ms + STEP_MS, pace.marks[0][1])
        return step_ms if gate_ms is None else min(step_ms, gate_ms)


def _find_fresh(queue: ConsumeQueue, first: Position, seen: Position, older_ms: int) -> Position:
    """The first entry from `first` on that was released later than `older_ms`; or the end."""
    if first >= seen:  # trimmed up to there since the last look
        return first
    if rows_of(queue.read(first, 1))[0].release_ms > older_ms:
        return first
    at, is_found = first, False
    for _ in range(_LOOKS_MAX):
        at, is_found = queue.find_released(older_ms + 1, at)
        if is_found:
            break
    return at
