"""What each group has resolved in each consume queue: a floor, and ranges above it.

    position   0 ......... floor .................................... end of the queue
    resolved   everything  |     [start, end) [start, end)  [start, end)
                           ^ never resolved, or the floor would stand higher

Acknowledgements come as long ranges mostly, and one by one in any order at times. The node hands
out entries within `WINDOW_POSITIONS` above the floor only (the hole that keeps a window from moving
is resolved into a retry), so a window has at most half as many ranges: finding one is a bisection,
adding one moves at most some hundred KiB of memory. No object per message. Where a filter picks
few messages, the same number bounds the messages above the floor, however far apart they stand:
what was passed over between two is resolved with the second.

What an ordered group gives back is *held*: it stays unresolved, so that what stands behind it can
see that it is there, and the window knows how often it failed, and until when it waits.

A window at floor 0 without ranges is the same as none: looking at one does not change the state.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, pairwise
from operator import sub
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import Outcome
from hourwheel.internal.v1 import state_pb2
from hourwheel.types import (
    QUEUE_BITS,
    QUEUE_COUNT_MAX,
    GroupId,
    Position,
    TopicId,
    TopicQueue,
    numbers_from,
)
from storage.views.digest import Hasher, feed_numbers

WINDOW_POSITIONS: Final = 65_536
"""How far above a group's floor its node hands out entries of one queue."""

_Key = TypeVar("_Key")
_One = TypeVar("_One")

IN_PLACE: Final = frozenset({Outcome.HELD, Outcome.FREED})
"""Outcomes that resolve nothing."""
BLOCKED_MS: Final = 1 << 62
"""Until when a message is held that comes again by an operator's word only."""
CHANGES_MAX: Final = 4_096


class Held(NamedTuple):
    """A message that an ordered group has given back, and that keeps its place."""

    failure_count: int
    """How often it was given back."""
    until_ms: int
    """When it may be delivered again; `BLOCKED_MS`: when an operator says so."""


class AckWindow:
    """What one group has resolved in one queue. Not for two threads at once."""

    __slots__ = ("_ends", "_floor", "_starts", "changes", "generation", "held")

    def __init__(self, floor: int = 0, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Everything below `floor` is resolved, and so are `ranges` [first, end).

        Ranges must ascend above the floor, with at least one position between them.
        """
        self.generation = 0
        """See `AckStates`."""
        self.held: dict[Position, Held] = {}
        """By position. Invariant: none of them is resolved."""
        self.changes: list[tuple[int, int]] | None = None
        """Where a master watches the window: ranges [first, end) that were resolved, held or freed,
        for it to take. Where they become too many the last one is (0, 0), and says so."""
        self._floor = floor
        pairs = list(ranges)
        self._starts = [first for first, _ in pairs]
        """First position of each range. Invariant: floor < starts[i] < ends[i] < starts[i + 1]."""
        self._ends = [end for _, end in pairs]
        self.check()

    def check(self) -> None:
        """Assert the invariants."""
        errors.invariant(len(self._starts) == len(self._ends), "ranges without an end")
        bounds = [self._floor, *chain.from_iterable(self.ranges())]
        errors.invariant(
            self._floor >= 0 and all(low < high for low, high in pairwise(bounds)),
            "resolved ranges do not ascend above their floor",
            floor=self._floor,
        )

    @property
    def floor(self) -> Position:
        """Everything below is resolved; the position itself is not."""
        return Position(self._floor)

    def first_unresolved(self, position: Position) -> Position:
        """The first position from `position` on that is not resolved.

        Of a queue's start it is what the group still works on. The floor may lie below the start
        for long: what was trimmed before a group resolved anything is never resolved.
        """
        at = max(position, self._floor)
        index = bisect_right(self._starts, at) - 1
        is_resolved = index >= 0 and at < self._ends[index]
        return Position(self._ends[index] if is_resolved else at)

    @property
    def end(self) -> Position:
        """Behind the last position that is resolved; the floor where none is above it."""
        return Position(self._ends[-1] if self._ends else self._floor)

    @property
    def span(self) -> int:
        """End of the highest resolved range - floor; 0 where there is none."""
        return self._ends[-1] - self._floor if self._ends else 0

    @property
    def range_count(self) -> int:
        """How many resolved ranges there are above the floor."""
        return len(self._starts)

    @property
    def is_untouched(self) -> bool:
        """Nothing was ever resolved here."""
        return self._floor == 0 and not self._starts and not self.held

    def ranges(self) -> list[tuple[int, int]]:
        """The resolved ranges [first, end) above the floor, ascending."""
        return list(zip(self._starts, self._ends, strict=True))

    def is_resolved(self, position: Position) -> bool:
        """Whether one position is resolved."""
        if position < self._floor:
            return True
        index = bisect_right(self._starts, position) - 1
        return index >= 0 and position < self._ends[index]

    def has_resolved(self, from_: int, to: int) -> bool:
        """Whether any position of [from_, to) is resolved."""
        return self.count_unresolved(from_, to) < to - from_

    def resolve(self, first: int, count: int) -> list[tuple[int, int]]:
        """Resolve the positions [first, first + count).

        Returns:
            Those of them that were not resolved yet, as ranges [first, end), ascending. Only these
            take effect (a retry of what is resolved already must not be made twice).
        """
        errors.invariant(first >= 0 and count >= 0, "no such positions", first=first, count=count)
        end = first + count
        first = max(first, self._floor)
        if first >= end:
            return []
        # Ranges low..high - 1 overlap [first, end) or touch it, and melt into one with it.
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, end)
        fresh = [(first, end)]
        if low < high:
            fresh = self._holes(first, end, low, high)
            first = min(first, self._starts[low])
            end = max(end, self._ends[high - 1])
        if first == self._floor:
            self._floor = end
            del self._starts[:high], self._ends[:high]
        else:
            self._starts[low:high] = [first]
            self._ends[low:high] = [end]
        if self.held:
            self._forget_held(fresh)
        if self.changes is not None:
            for one in fresh:
                self._note(*one)
        return fresh

    def _forget_held(self, resolved: list[tuple[int, int]]) -> None:
        for first, end in resolved:
            if end - first < len(self.held):
                for position in numbers_from(Position(first), end - first):
                    self.held.pop(position, None)
            else:
                self.held = {at: one for at, one in self.held.items() if not first <= at < end}

    def hold(self, first: int, end: int, until_ms: int) -> int:
        """What is not resolved of [first, end) has failed once more, and waits until an instant.

        Returns how many positions that are.
        """
        count = 0
        for low, high in list(self.unresolved(first, end)):
            count += high - low
            for position in numbers_from(Position(low), high - low):
                before = self.held.get(position)
                failure_count = 1 if before is None else before.failure_count + 1
                self.held[position] = Held(failure_count, until_ms)
            self._note(low, high)
        return count

    def free(self, first: int, end: int) -> int:
        """Nothing in [first, end) is held any more. Returns how many positions were."""
        freed = [position for position in self.held if first <= position < end]
        for position in freed:
            del self.held[position]
            self._note(position, position + 1)
        return len(freed)

    def _note(self, first: int, end: int) -> None:
        if self.changes is None:
            return
        if len(self.changes) < CHANGES_MAX:
            self.changes.append((first, end))
        elif self.changes[-1] != (0, 0):
            self.changes.append((0, 0))

    def _holes(self, first: int, end: int, low: int, high: int) -> list[tuple[int, int]]:
        """What [first, end) has outside of the ranges low..high - 1."""
        holes = []
        for index in range(low, high):
            if first < self._starts[index]:
                holes.append((first, self._starts[index]))
            first = max(first, self._ends[index])
        if first < end:
            holes.append((first, end))
        return holes

    def reopen(self, first: int, end: int) -> None:
        """Let [first, end) not be resolved any more.

        For what a master remembers of its deliveries. What a group has resolved stays resolved.
        """
        errors.invariant(0 <= first <= end, "no such positions", first=first, end=end)
        if first == end:
            return  # else a range would be cut in two
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, end)
        overlapping = zip(self._starts[low:high], self._ends[low:high], strict=True)
        cut = [piece for one in overlapping for piece in ((one[0], first), (end, one[1]))]
        kept = [(start, stop) for start, stop in cut if start < stop]
        if first < self._floor:
            if end < self._floor:
                kept.insert(0, (end, self._floor))
            self._floor = first
        self._starts[low:high] = [start for start, _ in kept]
        self._ends[low:high] = [stop for _, stop in kept]

    def all_ranges(self) -> list[tuple[int, int]]:
        """Everything that is resolved as [first, end), ascending: what is below the floor, too."""
        below = [(0, self._floor)] if self._floor else []
        return below + self.ranges()

    def unresolved(self, from_: int, to: int) -> Iterator[tuple[int, int]]:
        """The ranges [first, end) of [from_, to) that are not resolved, ascending.

        Looks again at each step, so resolving while iterating is fine.
        """
        while (found := self.next_unresolved(from_, to)) is not None:
            yield found
            from_ = found[1]

    def next_unresolved(self, from_: int, to: int) -> tuple[int, int] | None:
        """The first of these ranges, or None."""
        at, starts = max(from_, self._floor), self._starts
        index = bisect_right(starts, at)
        if index and at < self._ends[index - 1]:
            at = self._ends[index - 1]  # where the next range does not begin: see `_starts`
        if at >= to:
            return None
        return at, min(starts[index], to) if index < len(starts) else to

    def count_unresolved(self, from_: int, to: int) -> int:
        """How many positions of [from_, to) are not resolved: two sums, however many ranges."""
        at = max(from_, self._floor)
        if at >= to:
            return 0
        low, high = bisect_right(self._ends, at), bisect_left(self._starts, to)
        resolved = sum(self._ends[low:high]) - sum(self._starts[low:high])
        if low < high:
            resolved -= max(0, at - self._starts[low]) + max(0, self._ends[high - 1] - to)
        return to - at - resolved

    def count_unresolved_each(
        self, from_: NDArray[np.int64], to: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """int64[n]: as `count_unresolved`, of n ranges [from_, to) that ascend and are disjoint."""
        low, high = bisect_right(self._ends, int(from_[0])), bisect_left(self._starts, int(to[-1]))
        from_, to = np.maximum(from_, self._floor), np.maximum(to, self._floor)
        if low >= high:
            return to - from_
        starts, ends = (np.array(one[low:high], np.int64) for one in (self._starts, self._ends))
        totals = np.append(0, np.cumsum(ends - starts))

        def resolved_below(positions: NDArray[np.int64]) -> NDArray[np.int64]:
            begun = starts.searchsorted(positions)
            beyond = np.maximum(ends[begun - 1] - positions, 0)
            return totals[begun] - np.where(begun > 0, beyond, 0)

        return to - from_ - (resolved_below(to) - resolved_below(from_))

    def count_free(self, other: "AckWindow", from_: int, to: int) -> int:
        """How many positions of [from_, to) are resolved in neither window."""
        at = max(from_, self._floor, other.floor)
        if not other.range_count:
            return self.count_unresolved(at, to)
        if at >= to:
            return 0
        starts = np.array([*self._starts, *other._starts], np.int64).clip(at, to)  # noqa: SLF001
        ends = np.array([*self._ends, *other._ends], np.int64).clip(at, to)  # noqa: SLF001
        order = starts.argsort(kind="stable")
        starts, ends = starts[order], ends[order]
        reached = np.maximum.accumulate(np.concatenate(([at], ends[:-1])))
        taken = np.maximum(ends - np.maximum(starts, reached), 0)
        return to - at - int(taken.sum())

    def copy(self) -> "AckWindow":
        """A window of the same content; costs a copy of two arrays."""
        twin = AckWindow(self._floor)
        twin._starts = self._starts.copy()
        twin._ends = self._ends.copy()
        twin.held = self.held.copy()
        twin.changes = self.changes
        return twin

    def state(self, group_id: GroupId, topic_queue: TopicQueue) -> state_pb2.AckState:
        """For the manifest."""
        held = sorted(self.held.items())
        positions = [position for position, _ in held]
        return state_pb2.AckState(
            group_id=group_id,
            topic_queue=topic_queue,
            floor_position=self._floor,
            resolved_range_deltas=self.deltas(),
            held_position_deltas=list(map(sub, positions, [self._floor, *positions])),
            held_failure_counts=[one.failure_count for _, one in held],
            held_until_ms=[one.until_ms for _, one in held],
        )

    @classmethod
    def read(cls, state: state_pb2.AckState) -> "AckWindow":
        """From the manifest."""
        window = cls.from_deltas(state.floor_position, state.resolved_range_deltas)
        positions = list(accumulate(state.held_position_deltas, initial=state.floor_position))[1:]
        held = map(Held, state.held_failure_counts, state.held_until_ms)
        window.held = dict(zip(map(Position, positions), held, strict=True))
        return window

    def deltas(self) -> list[int]:
        """First and end of each range as differences from the number before, first the floor."""
        bounds = [0] * (2 * len(self._starts))
        bounds[0::2] = self._starts
        bounds[1::2] = self._ends
        return list(map(sub, bounds, chain((self._floor,), bounds)))

    @classmethod
    def from_deltas(cls, floor: int, deltas: Iterable[int]) -> "AckWindow":
        """The window whose `deltas` these are."""
        bounds = list(accumulate(deltas, initial=floor))[1:]
        errors.invariant(len(bounds) % 2 == 0, "a resolved range without an end", floor=floor)
        return cls(floor, zip(bounds[0::2], bounds[1::2], strict=True))


class AckStates:
    """All windows: (group_id, topic_queue) -> AckWindow. Lies in the checkpoint's manifest.

    Ten thousands of them are captured by copying a dict: a window that was captured is not changed
    any more, but replaced by a copy of it when something is resolved in it (`to_change`).
    """

    def __init__(self, state: Iterable[state_pb2.AckState] = ()) -> None:
        """Take up the state of a checkpoint."""
        self._windows: dict[tuple[GroupId, TopicQueue], AckWindow] = {}
        self._groups_of: dict[TopicQueue, set[GroupId]] = {}
        """topic_queue -> groups with a window of it; and the same the other way round."""
        self._queues_of: dict[GroupId, set[TopicQueue]] = {}
        self._generation = 0
        """How often all windows were captured: those of lower ones may be in a capture."""
        for each in state:
            self._add(GroupId(each.group_id), TopicQueue(each.topic_queue), AckWindow.read(each))

    def _add(self, group_id: GroupId, topic_queue: TopicQueue, window: AckWindow) -> None:
        self._windows[group_id, topic_queue] = window
        self._groups_of.setdefault(topic_queue, set()).add(group_id)
        self._queues_of.setdefault(group_id, set()).add(topic_queue)

    def get(self, group_id: GroupId, topic_queue: TopicQueue) -> AckWindow:
        """The window of one group and queue, to be looked at; a new one stands at 0."""
        window = self._windows.get((group_id, topic_queue))
        if window is None:
            window = AckWindow()
            self._add(group_id, topic_queue, window)
        return window

    def to_change(self, group_id: GroupId, topic_queue: TopicQueue) -> AckWindow:
        """The window of one group and queue, to resolve something in it. For apply."""
        window = self.get(group_id, topic_queue)
        if window.generation != self._generation:
            window = self._windows[group_id, topic_queue] = window.copy()
            window.generation = self._generation
        return window

    def begin_at(self, group_id: GroupId, topic_queue: TopicQueue, position: Position) -> None:
        """Let a group have resolved what stands before a position of a queue, and nothing else."""
        if self.find(group_id, topic_queue) is None and not position:
            return
        window = AckWindow(position)
        window.generation = self._generation
        self._add(group_id, topic_queue, window)

    def find(self, group_id: GroupId, topic_queue: TopicQueue) -> AckWindow | None:
        """The window of one group and queue, if it was ever asked for."""
        return self._windows.get((group_id, topic_queue))

    def groups_of(self, topic_queue: TopicQueue) -> list[GroupId]:
        """Groups that have a window of a queue, ascending."""
        return sorted(self._groups_of.get(topic_queue, ()))

    def items(self) -> list[tuple[tuple[GroupId, TopicQueue], AckWindow]]:
        """((group_id, topic_queue), window) of all in which something is resolved, by key."""
        return _touched(self._windows)

    def windows_of(self, group_id: GroupId) -> list[tuple[TopicQueue, AckWindow]]:
        """(topic_queue, window) of each queue that a group ever asked for, in any order."""
        queues = self._queues_of.get(group_id, ())
        return [(queue, self._windows[group_id, queue]) for queue in queues]

    def drop_group(self, group_id: GroupId) -> None:
        """Forget a group."""
        for topic_queue in list(self._queues_of.get(group_id, ())):
            self._drop(group_id, topic_queue)

    def drop_topic(self, topic_id: TopicId, queue_count: int = QUEUE_COUNT_MAX) -> None:
        """Forget all queues of a topic."""
        first = topic_id << QUEUE_BITS
        for topic_queue in map(TopicQueue, range(first, first + queue_count)):
            for group_id in list(self._groups_of.get(topic_queue, ())):
                self._drop(group_id, topic_queue)

    def _drop(self, group_id: GroupId, topic_queue: TopicQueue) -> None:
        del self._windows[group_id, topic_queue]
        _discard(self._groups_of, topic_queue, group_id)
        _discard(self._queues_of, group_id, topic_queue)

    def capture(self) -> Callable[[], list[state_pb2.AckState]]:
        """The state as of now, to be sorted and encoded by another thread: for the manifest."""
        self._generation += 1
        captured = self._windows.copy()
        return lambda: [window.state(*key) for key, window in _touched(captured)]

    def state(self) -> list[state_pb2.AckState]:
        """The state as of now, by group, then queue."""
        return self.capture()()

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        items = self.items()
        feed_numbers(hasher, len(items))
        for (group_id, topic_queue), window in items:
            deltas = window.deltas()
            feed_numbers(hasher, group_id, topic_queue, window.floor, len(deltas), *deltas)
            if window.held:  # older versions know of none
                state = window.state(group_id, topic_queue)
                feed_numbers(hasher, len(window.held), *state.held_position_deltas)
                feed_numbers(hasher, *state.held_failure_counts, *state.held_until_ms)


def _discard(index: dict[_Key, set[_One]], key: _Key, one: _One) -> None:
    index[key].discard(one)
    if not index[key]:
        del index[key]


def _touched(
    windows: dict[tuple[GroupId, TopicQueue], AckWindow],
) -> list[tuple[tuple[GroupId, TopicQueue], AckWindow]]:
    """Those in which something is resolved, by key."""
    return sorted((key, window) for key, window in windows.items() if not window.is_untouched)
