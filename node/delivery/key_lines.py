"""Key lines: the messages of one queue that a group has still to finish, in a line for each key.

    position   12   13   14   15   16   17  |  at: not looked at yet
    key         A    B    A    -    A    B  |
                                               A: 12 14 16    B: 13 17    15 stands alone

The first of a line may be given to a consumer, the others wait until it is finished: so of a key
there is one lease at most, in queue order. It is all in the master's memory, made of the queue's
messages and the group's window, and may be made again from them at any time; of that there are
`LOOK_AHEAD` messages at most, however many keys there are.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from hourwheel.types import Position, numbers_from
from storage.queues.ack_state import BLOCKED_MS, AckWindow

LOOK_AHEAD: Final = 16_384
"""How many unfinished messages of one queue a group looks at: those of a key that is blocked stand
not in the way of others, up to so many."""
NO_KEY: Final = 0


class KeyLines:
    """See the top of this file.

    Invariant: all positions are below `at` and not resolved, as far as the window's changes were
    taken.
    """

    def __init__(
        self, at: Position, changes: list[tuple[int, int]], leased: dict[Position, int]
    ) -> None:
        """Begin at position `at`.

        Args:
            at: what is not resolved below it is trimmed.
            changes: of the window that is watched.
            leased: position -> lease that holds it, of leases that are there already.
        """
        self.at = at
        """The next position to look at."""
        self.changes = changes
        self.leased = leased
        """Position -> lease."""
        self._unknown = set(leased)
        """Leased positions whose keys are not known yet."""
        self._keys: dict[Position, int] = {}
        """Position -> key."""
        self._firsts: dict[int, Position] = {}
        """Key -> first position of its line."""
        self._behind: dict[int, deque[Position]] = {}
        """Key -> the others; finished ones, too, until they come first."""
        self._ready: list[Position] = []
        """A heap of what may be delivered, and of what no longer may."""
        self._aside_count = 0
        """Of these, how many had a key that was not free when they were looked at last."""
        self._waiting: list[tuple[int, Position]] = []
        """A heap of (when, position) of what may be delivered later."""
        self.is_over = False
        """It does not know what has changed: to be made again."""

    def __len__(self) -> int:
        """How many messages it knows."""
        return len(self._keys)

    @property
    def ready_count(self) -> int:
        """How many may be delivered, at most, as far as their keys are free."""
        return len(self._ready) - self._aside_count

    def add(self, position: Position, key: int, window: AckWindow) -> None:
        """A message, in the order of positions. `key`: a hash, or `NO_KEY`."""
        self._keys[position] = key
        self._unknown.discard(position)
        if key != NO_KEY:
            first = self._firsts.setdefault(key, position)
            if first != position:
                self._behind.setdefault(key, deque()).append(position)
                return
        self._place(position, window)

    def _place(self, position: Position, window: AckWindow) -> None:
        """It is the first of its line."""
        if position in self.leased:
            return
        held = window.held.get(position)
        if held is None:
            heapq.heappush(self._ready, position)
        elif held.until_ms < BLOCKED_MS:
            heapq.heappush(self._waiting, (held.until_ms, position))

    def take_changes(
        self, window: AckWindow, start_position: Position
    ) -> list[tuple[Position, int]]:
        """See what was resolved, held and freed since the last time, and what was trimmed.

        Returns:
            (position, lease) of what is leased no more, without being resolved.
        """
        given_back: list[tuple[Position, int]] = []
        changes = [*self.changes]
        self.changes.clear()
        if changes and changes[-1] == (0, 0):
            self.is_over = True
            return given_back
        if self._keys and next(iter(self._keys)) < start_position:
            changes.append((0, start_position))
        for first, end in changes:
            for position in self._known(first, end):
                if position < start_position or window.is_resolved(position):
                    self._remove(position, window)
                    continue
                lease_id = self.leased.pop(position, None)
                self._unknown.discard(position)
                if lease_id is not None:
                    given_back.append((position, lease_id))
                if self._is_first(position):
                    self._place(position, window)
        return given_back

    def let_go(
        self, lease_id: int, ranges: Iterable[tuple[int, int]], window: AckWindow
    ) -> list[Position]:
        """A lease is over, without being resolved in these [first, end).

        Returns:
            The positions that it still held here.
        """
        found = [
            position
            for first, end in ranges
            for position in self._known(first, end)
            if self.leased.get(position) == lease_id
        ]
        for position in found:
            del self.leased[position]
            self._unknown.discard(position)
            if self._is_first(position):
                self._place(position, window)
        return found

    def _known(self, first: int, end: int) -> list[Position]:
        if end - first > len(self._keys) + len(self.leased):
            known = self._keys.keys() | self.leased.keys()
            return sorted(position for position in known if first <= position < end)
        every = numbers_from(Position(first), end - first)
        return [one for one in every if one in self._keys or one in self.leased]

    def _is_first(self, position: Position) -> bool:
        key = self._keys.get(position)
        return key is not None and (key == NO_KEY or self._firsts[key] == position)

    def _remove(self, position: Position, window: AckWindow) -> None:
        self.leased.pop(position, None)
        self._unknown.discard(position)
        key = self._keys.pop(position, NO_KEY)
        if key == NO_KEY or self._firsts[key] != position:
            return
        behind = self._behind.get(key, ())
        while behind:
            following = behind.popleft()
            if following in self._keys:
                self._firsts[key] = following
                self._place(following, window)
                return
        del self._firsts[key]
        self._behind.pop(key, None)

    def is_leased(self, key: int) -> bool:
        """Whether a message of this key may be leased."""
        first = self._firsts.get(key)
        return bool(self._unknown) or (first is not None and first in self.leased)

    def take(
        self, count_max: int, window: AckWindow, now_ms: int, is_free: Callable[[int], bool]
    ) -> list[Position]:
        """Positions that may be leased now, ascending; they are to be leased or `put_back`.

        Those whose key is not free elsewhere stay.
        """
        while self._waiting and self._waiting[0][0] <= now_ms:
            heapq.heappush(self._ready, heapq.heappop(self._waiting)[1])
        taken: list[Position] = []
        aside: list[Position] = []
        while self._ready and len(taken) < count_max:
            position = heapq.heappop(self._ready)
            if position in self.leased or not self._is_first(position):
                continue
            if taken and position == taken[-1]:
                continue
            held = window.held.get(position)
            if held is not None and held.until_ms > now_ms:
                self._place(position, window)
                continue
            key = self._keys[position]
            (taken if key == NO_KEY or is_free(key) else aside).append(position)
        self.put_back(aside)
        self._aside_count = len(aside)
        return taken

    def put_back(self, positions: list[Position]) -> None:
        """They are not leased, after all."""
        for position in positions:
            heapq.heappush(self._ready, position)

    def lease(self, positions: list[Position], lease_id: int) -> None:
        """They are leased."""
        self.leased.update(dict.fromkeys(positions, lease_id))

    def next_ms(self) -> int | None:
        """When the first message may be delivered that waits, or None."""
        return self._waiting[0][0] if self._waiting else None

    def may_have(self, now_ms: int) -> bool:
        """Whether to look for something that may be delivered."""
        next_ms = self.next_ms()
        return bool(self.changes or self._ready or (next_ms is not None and next_ms <= now_ms))
