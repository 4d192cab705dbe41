"""Leases: which released messages a group's consumers hold, and until when. In the master's memory.

Deliveries of a queue to a group go strictly forward (`next_position`). A lease that ends without an
acknowledgement becomes a RESOLVE(retry) in the log, so its messages come back through the wheel
with their attempt counted there: durable, and the group's floor moves on. A restart forgets the
leases: what was in flight is delivered again.
"""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.wire.replication_pb2 import DeliveredTo, HeldRange, LeaseTable
from storage.ack_state import WINDOW_POSITIONS, AckWindow


class Held(NamedTuple):
    """A group and one of its queues."""

    group_id: int
    topic_queue: int


class Part(NamedTuple):
    """Positions [first, end) of a lease that end at one time."""

    first: int
    end: int
    until_ms: int


@dataclass(slots=True)
class Lease:
    """Positions [first, first + count) of one queue, held by one consumer of a group.

    Invariant: `parts` ascend, are disjoint and within the lease; what is in none has ended.
    """

    lease_id: int
    held: Held
    first: int
    count: int
    parts: list[Part]

    @property
    def end(self) -> int:
        """Behind the last position."""
        return self.first + self.count

    @property
    def until_ms(self) -> int:
        """When the first part ends."""
        return min(part.until_ms for part in self.parts)


class Leases:
    """All leases of one reign.

    Invariants: the leases of a group and queue are disjoint and below its `next_position`; `_ends`
    has an entry (until, id) for every lease, and stale ones for leases that changed or ended.
    """

    def __init__(self) -> None:
        """None yet."""
        self._by_id: dict[int, Lease] = {}
        self._ends: list[tuple[int, int]] = []
        self._next_position: dict[Held, int] = {}
        self._last_id = 0

    def find_range(
        self, held: Held, window: AckWindow, bounds: tuple[int, int], count_max: int
    ) -> tuple[int, int]:
        """[first, end) of the next positions to deliver: unresolved, neighbours, maybe none.

        `bounds` are the queue's first position and the end of what may be seen of it.
        """
        floor = max(window.floor, bounds[0])
        position = max(self._next_position.get(held, 0), floor)
        limit = min(bounds[1], floor + WINDOW_POSITIONS)
        for first, end in window.unresolved(position, limit):
            return first, min(end, first + count_max)
        return position, position

    def is_blocked(self, held: Held, window: AckWindow, bounds: tuple[int, int]) -> bool:
        """Whether there is more to deliver, but only behind a full window."""
        floor = max(window.floor, bounds[0])
        position = max(self._next_position.get(held, 0), floor)
        return position < bounds[1] and position >= floor + WINDOW_POSITIONS

    def grant(self, held: Held, first: int, end: int, until_ms: int) -> Lease:
        """Hold [first, end), which `find_range` found, until an instant."""
        self._next_position[held] = end
        return self.hold(held, first, end, until_ms)

    def hold(self, held: Held, first: int, end: int, until_ms: int) -> Lease:
        """Hold [first, end), which was delivered or skipped before and is nobody's, until then."""
        self._last_id += 1
        lease = Lease(self._last_id, held, first, end - first, [Part(first, end, until_ms)])
        self._by_id[lease.lease_id] = lease
        heapq.heappush(self._ends, (until_ms, lease.lease_id))
        return lease

    def skip_to(self, held: Held, position: int) -> None:
        """Deliver nothing below `position` in this reign."""
        self._next_position[held] = max(position, self._next_position.get(held, 0))

    def next_position(self, held: Held) -> int:
        """Everything below has been delivered in this reign, or was resolved before it."""
        return self._next_position.get(held, 0)

    def get(self, lease_id: int) -> Lease | None:
        """The lease of this id while it lasts, or None."""
        return self._by_id.get(lease_id)

    def change(self, lease: Lease, first: int, end: int, until_ms: int) -> None:
        """Let what is left of [first, end) end at another time."""
        parts: list[Part] = []
        for part in lease.parts:
            low, high = max(part.first, first), min(part.end, end)
            if low >= high:
                parts.append(part)
                continue
            cut = (
                Part(part.first, low, part.until_ms),
                Part(low, high, until_ms),
                Part(high, part.end, part.until_ms),
            )
            parts += [one for one in cut if one.first < one.end]
        lease.parts = parts
        heapq.heappush(self._ends, (lease.until_ms, lease.lease_id))

    def end(self, lease_id: int) -> None:
        """All of it is resolved."""
        self._by_id.pop(lease_id, None)

    def next_end_ms(self) -> int | None:
        """When the first part of a lease ends, or None."""
        while self._ends:
            until_ms, lease_id = self._ends[0]
            lease = self._by_id.get(lease_id)
            if lease is not None and lease.until_ms == until_ms:
                return until_ms
            heapq.heappop(self._ends)
        return None

    def take_ended(self, now_ms: int, count_max: int) -> list[tuple[Held, Part]]:
        """Remove and return parts of leases that are over, the first ones first."""
        ended: list[tuple[Held, Part]] = []
        while len(ended) < count_max:
            until_ms = self.next_end_ms()
            if until_ms is None or until_ms > now_ms:
                break
            lease = self._by_id[heapq.heappop(self._ends)[1]]
            ended += [(lease.held, part) for part in lease.parts if part.until_ms <= now_ms]
            lease.parts = [part for part in lease.parts if part.until_ms > now_ms]
            if lease.parts:
                heapq.heappush(self._ends, (lease.until_ms, lease.lease_id))
            else:
                del self._by_id[lease.lease_id]
        return ended

    def take_at(self, held: Held, position: int) -> list[Part]:
        """Remove the lease that holds a position, and return its parts."""
        for lease in self._by_id.values():
            if lease.held == held and lease.first <= position < lease.end:
                return self._by_id.pop(lease.lease_id).parts
        return []

    def table(self, epoch: int) -> LeaseTable:
        """All of it, for the successor of a master whose reign ends in order."""
        return LeaseTable(
            epoch=epoch,
            ranges=[
                HeldRange(
                    group_id=lease.held.group_id,
                    topic_queue=lease.held.topic_queue,
                    first=part.first,
                    end=part.end,
                    until_ms=part.until_ms,
                )
                for lease in self._by_id.values()
                for part in lease.parts
            ],
            delivered=[
                DeliveredTo(group_id=held[0], topic_queue=held[1], position=position)
                for held, position in self._next_position.items()
            ],
        )

    def restore(self, table: LeaseTable) -> None:
        """Go on where a former master ended; nothing was delivered here yet."""
        for one in table.delivered:
            self.skip_to(Held(one.group_id, one.topic_queue), one.position)
        for one_range in table.ranges:
            held = Held(one_range.group_id, one_range.topic_queue)
            self.hold(held, one_range.first, one_range.end, one_range.until_ms)

    def drop_group(self, group_id: int) -> None:
        """Forget a group's leases."""
        gone = [one for one, lease in self._by_id.items() if lease.held.group_id == group_id]
        for lease_id in gone:
            del self._by_id[lease_id]
        for held in [held for held in self._next_position if held.group_id == group_id]:
            del self._next_position[held]

    @property
    def count(self) -> int:
        """Leases held."""
        return len(self._by_id)

    def leased_ranges(self, held: Held) -> list[tuple[int, int]]:
        """What is leased of a group's queue, as [first, end); some of it may be resolved."""
        return [
            (part.first, part.end)
            for lease in self._by_id.values()
            if lease.held == held
            for part in lease.parts
        ]
