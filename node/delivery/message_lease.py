"""One message lease: which positions of a queue it holds, and how its messages are counted.

A receipt names messages by their ordinals in the answer. Where they stand side by side, ordinal i
is position first + i, and the receipt alone says which positions are meant. Where a filter picked
them, only the lease knows:

    position   first ........ p0 ............ p1 p2 ............. end
    finished   |<-- with message 0 -->|<- with 1 ->|<-- with 2 -->|

So an acknowledgement of all of them is one range, which resolves what the filter did not match
between them, too. A lease that `keeps_gaps` finishes its messages' own positions and nothing else.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.internal.v1.replication_pb2 import (
    DeliveredTo,
    HeldPart,
    HeldRange,
    PollAnswer,
    SparseLease,
)
from hourwheel.types import FIRST_POSITION, NO_EPOCH, Epoch, Position, TopicId, numbers_from
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import WINDOW_POSITIONS, AckWindow

Bounds: TypeAlias = tuple[Position, Position]
"""The first position of a queue, and the end of what may be seen of it."""
SPARSE_ID: Final = 1 << 63
"""Bit of the id of a sparse lease: its receipts mean nothing without the lease."""
_WITHHELD_RANGES_MAX: Final = WINDOW_POSITIONS // 2


class Part(NamedTuple):
    """Positions [first, end) of a lease that end at one time."""

    first: int
    end: int
    until_ms: int
    messages: tuple[int, ...] | None = None
    """Positions of the messages in it, ascending; None: all of them."""
    is_ending: bool = False
    """What ends it is on its way into the log: until it is there, nothing else may end it."""
    is_unseen: bool = False
    """No client has seen its messages, or begun with them: when it ends, they are delivered as if
    it had never been."""


class PollMark(NamedTuple):
    """Which poll a lease answered, or which stream it was pushed to."""

    topic_id: TopicId
    """The topic that was polled."""
    poller_id: int
    """Or `ReceiveStream.stream_id`."""
    number: int
    """Of a stream: its messages, up to the last one of the lease that was pushed."""
    at_ms: int
    """When it was answered, or when this mastership learned of it."""
    stream_owner: str | None = None
    """`ReceiveStream.owner`; None: it was a poll."""

    @classmethod
    def from_wire(cls, wire: PollAnswer, now_ms: int) -> "PollMark":
        """As a former master has sent it."""
        owner = wire.stream_owner if wire.HasField("stream_owner") else None
        return cls(TopicId(wire.topic_id), wire.poller_id, wire.poll_number, now_ms, owner)


class Reopened(NamedTuple):
    """Positions [first, end) of a lease that is over and that no client has seen."""

    group_queue: GroupQueue
    lease_id: int
    first: int
    end: int


_FIRST_OF: Final = attrgetter("first")
_END_OF: Final = attrgetter("end")


@dataclass(slots=True)
class Lease:
    """Positions [first, end) of one queue, held by one consumer of a group.

    Invariants: `parts` ascend, are disjoint and within the lease; what is in none has ended.
    `positions` ascend within [first, end).
    """

    lease_id: int
    group_queue: GroupQueue
    first: int
    end: int
    parts: list[Part]
    positions: NDArray[np.int64] | None = None
    """int64[n]: where each message stands; None: they are neighbours, from `first` on."""
    keeps_gaps: bool = False
    origin: tuple[Epoch, int] = (NO_EPOCH, 0)
    """(epoch, lease id) that its receipts have, where it was granted in an earlier mastership."""
    gap_count: int = 0
    """Positions of its parts that are not resolved and hold none of its messages."""
    poll: PollMark | None = None
    """None: its caller cannot repeat the poll."""
    left_count: int = 0
    """About how many messages it holds that are not resolved, for statistics; kept by `Leases`."""

    @property
    def count(self) -> int:
        """How many messages."""
        return self.end - self.first if self.positions is None else len(self.positions)

    @property
    def until_ms(self) -> int:
        """When the first part ends; 0 where none is left."""
        if len(self.parts) == 1:  # as most have
            return self.parts[0].until_ms
        return min((part.until_ms for part in self.parts), default=0)

    @property
    def next_end_ms(self) -> int | None:
        """When the first part is to be ended; None where the end of each is on its way."""
        if len(self.parts) == 1:
            part = self.parts[0]
            return None if part.is_ending else part.until_ms
        times = (part.until_ms for part in self.parts if not part.is_ending)
        return min(times, default=None)

    @property
    def is_whole(self) -> bool:
        """Whether it holds all that it was granted, and somebody may have seen it."""
        is_unseen = any(part.is_unseen for part in self.parts)
        return not is_unseen and self.holds_all(0, self.count)

    @property
    def seen_parts(self) -> list[Part]:
        """Parts that the next master is to hold, too: not what no client has seen."""
        return [part for part in self.parts if part.is_ending or not part.is_unseen]

    @property
    def unseen_ranges(self) -> list[tuple[int, int]]:
        """[first, end) of the others."""
        return [part[:2] for part in self.parts if part.is_unseen and not part.is_ending]

    def ranges(self, low: int, high: int) -> list[tuple[int, int]]:
        """[first, end) of the positions that finish with the messages [low, high), ascending."""
        if self.positions is None:
            return [(self.first + low, self.first + high)]
        if self.keeps_gaps:
            return [(low, high) for low, high in runs_of(self.positions[low:high]).tolist()]
        first = self.first if low == 0 else int(self.positions[low - 1]) + 1
        end = self.end if high == self.count else int(self.positions[high - 1]) + 1
        return [(first, end)]

    def message_runs(self, low: int, high: int) -> NDArray[np.int64]:
        """int64[n, 2]: [first, end) of the runs of neighbours in messages [low, high)."""
        if self.positions is None:
            return np.array([(self.first + low, self.first + high)], np.int64)
        return runs_of(self.positions[low:high])

    def messages_in(self, part: Part) -> list[Position]:
        """Where the messages of a part stand."""
        if self.positions is None:
            return list(numbers_from(Position(part.first), part.end - part.first))
        low, high = np.searchsorted(self.positions, (part.first, part.end))
        found: list[Position] = self.positions[low:high].tolist()
        return found

    def holds_all(self, low: int, high: int) -> bool:
        """Whether the messages [low, high), as far as it ever had them, are still in its parts.

        Not those whose end is on its way.
        """
        runs = self.message_runs(low, min(high, self.count)).tolist()
        held: int = sum(
            min(part.end, end) - max(part.first, first)
            for first, end in runs
            for part in self.parts_in(first, end)
            if not part.is_ending
        )
        count: int = sum(end - first for first, end in runs)
        return held == count

    def parts_in(self, first: int, end: int) -> list[Part]:
        """The parts that reach into [first, end)."""
        return self.parts[self._parts_between(first, end)]

    def _parts_between(self, first: int, end: int) -> slice:
        low = bisect_right(self.parts, first, key=_END_OF)
        return slice(low, bisect_left(self.parts, end, low, key=_FIRST_OF))

    def count_messages(self, first: int, end: int) -> int:
        """How many messages stand in [first, end), which is within the lease."""
        if self.positions is None:
            return end - first
        if (first, end) == (self.first, self.end):
            return len(self.positions)
        low, high = np.searchsorted(self.positions, (first, end))
        return int(high - low)

    def count_unresolved(self, window: AckWindow) -> int:
        """How many of its messages are not resolved; what has ended is not its any more."""
        left = 0
        for part in self.parts:
            if self.positions is None:
                left += window.count_unresolved(part.first, part.end)
                continue
            low, high = np.searchsorted(self.positions, (part.first, part.end))
            if low < high:
                runs = runs_of(self.positions[low:high])
                left += int(window.count_unresolved_each(runs[:, 0], runs[:, 1]).sum())
        return left

    def change(self, first: int, end: int, change: Callable[[Part], Part | None]) -> None:
        """Put what `change` makes of it in the place of what is left of [first, end).

        None: nothing is left of it.
        """
        if first >= end:
            return
        where, parts = self._parts_between(first, end), list[Part]()
        for part in self.parts[where]:
            low, high = max(part.first, first), min(part.end, end)
            inner = change(part._replace(first=low, end=high))
            cut = part._replace(end=low), inner, part._replace(first=high)
            parts += [one for one in cut if one is not None and one.first < one.end]
        self.parts[where] = parts

    def prolong(self, seen: Iterable[tuple[int, int]], until_ms: int) -> None:
        """Let no part of it end before then: these [first, end) go out, and the rest comes next.

        What its holder has made to last longer lasts longer; what is unseen stays so until it goes.
        """

        def held(part: Part) -> Part:
            return part if part.is_ending else part._replace(until_ms=max(part.until_ms, until_ms))

        def gone_out(part: Part) -> Part:
            return part if part.is_ending else part._replace(is_unseen=False)

        self.change(self.first, self.end, held)
        for first, end in seen:
            self.change(first, end, gone_out)

    def cut(self, part: Part, count_max: int) -> tuple[Part, Part | None]:
        """A part behind its first `count_max` picked messages: (them, the rest, if any).

        Neighbours are not cut: a range is as cheap as one of them.
        """
        if self.positions is None or self.keeps_gaps:
            return part, None
        low, high = np.searchsorted(self.positions, (part.first, part.end))
        if high - low <= count_max:
            return part, None
        end = int(self.positions[low + count_max - 1]) + 1
        return part._replace(end=end), part._replace(first=end)

    def with_messages(self, part: Part) -> Part:
        """A part of this lease, which says where its messages stand."""
        if self.positions is None or self.keeps_gaps:
            return part
        low, high = np.searchsorted(self.positions, (part.first, part.end))
        return part._replace(messages=tuple(self.positions[low:high].tolist()))

    def note_answered(self, wire: PollAnswer, now_ms: int) -> None:
        """A former master has answered a poll with it, or pushed it."""
        self.poll = PollMark.from_wire(wire, now_ms)

    def answer_to_wire(self, poll: PollMark) -> PollAnswer:
        """For the next master: which poll the lease answered."""
        return PollAnswer(
            group_id=self.group_queue.group_id,
            topic_id=poll.topic_id,
            poller_id=poll.poller_id,
            poll_number=poll.number,
            topic_queue=self.group_queue.topic_queue,
            first=self.first,
            end=self.end,
            stream_owner=poll.stream_owner,
        )

    def ranges_to_wire(self) -> list[HeldRange]:
        """For the next master; only of neighbours, whose receipts need no lease."""
        return [
            HeldRange(
                group_id=self.group_queue.group_id,
                topic_queue=self.group_queue.topic_queue,
                first=part.first,
                end=part.end,
                until_ms=part.until_ms,
            )
            for part in self.seen_parts
        ]

    def to_wire(self, epoch: Epoch) -> SparseLease:
        """For the next master, by that of `epoch`; only of sparse ones."""
        origin = self.origin if self.origin[0] else (epoch, self.lease_id)
        positions = np.empty(0, np.int64) if self.positions is None else self.positions
        deltas = np.diff(positions, prepend=self.first).tolist()
        return SparseLease(
            group_id=self.group_queue.group_id,
            topic_queue=self.group_queue.topic_queue,
            epoch=origin[0],
            lease_id=origin[1],
            first=self.first,
            end=self.end,
            position_deltas=deltas,
            parts=[
                HeldPart(first=part.first, end=part.end, until_ms=part.until_ms)
                for part in self.seen_parts
            ],
            keeps_gaps=self.keeps_gaps,
        )

    @classmethod
    def from_wire(cls, lease_id: int, wire: SparseLease) -> "Lease":
        """A lease of the former master, under an id of this mastership."""
        deltas = np.array(wire.position_deltas, np.int64)
        return cls(
            lease_id,
            GroupQueue.of(wire.group_id, wire.topic_queue),
            wire.first,
            wire.end,
            [Part(part.first, part.end, part.until_ms) for part in wire.parts],
            deltas.cumsum() + wire.first,
            wire.keeps_gaps,
            (Epoch(wire.epoch), wire.lease_id),
        )


@dataclass(slots=True)
class Progress:
    """How far a queue was delivered to a group in one mastership."""

    delivered: AckWindow = field(default_factory=AckWindow)
    """What was delivered or filtered: everything below its floor, and ranges ahead."""
    sparse: deque[tuple[int, int]] = field(default_factory=deque)
    """(end, messages) of each lease of picked messages, ascending, for which the group's floor may
    still lie below the end."""
    sparse_count: int = 0
    """Invariant: the sum of their messages."""
    leases: dict[int, Lease] = field(default_factory=dict)
    """By id: those of the group and queue."""
    held_count: int = 0
    """Invariant: the sum of their `left_count`."""
    gap_count: int = 0
    """Invariant: the sum of their `gap_count`."""
    withheld: AckWindow = field(default_factory=AckWindow)
    """Positions whose messages cannot be read here now: not to be delivered, and in no lease.
    Invariant: all of it is `delivered`."""
    exempt: AckWindow = field(default_factory=AckWindow)
    """What was ever withheld in this mastership: it does not count in the consumer window."""
    window_floor: Position = FIRST_POSITION
    """Everything below is resolved or `exempt`: where to look on for the floor that counts."""

    inherited: list[tuple[int, int]] = field(default_factory=list)
    """(first, id here) of each lease of neighbours that a former master has granted, ascending. Its
    receipts have another id: only positions tell which lease they are of."""

    def inherit(self, lease: Lease) -> None:
        """A former master has granted a lease of neighbours."""
        insort(self.inherited, (lease.first, lease.lease_id))

    def inherited_in(self, first: int, end: int) -> list[int]:
        """The ids of such leases that have held something of [first, end)."""
        low = bisect_right(self.inherited, first, key=itemgetter(0)) - 1
        high = bisect_left(self.inherited, end, key=itemgetter(0))
        return [lease_id for _, lease_id in self.inherited[max(0, low) : high]]

    def to_wire(self, group_queue: GroupQueue) -> DeliveredTo:
        """For the next master, whose files may well be sound: without what is withheld here.

        And without what no client has seen.
        """
        delivered = self.delivered
        unseen = [one for lease in self.leases.values() for one in lease.unseen_ranges]
        if unseen or not self.withheld.is_untouched:
            delivered = delivered.copy()
            for first, end in (*unseen, *self.withheld.all_ranges()):
                delivered.reopen(first, end)
        return DeliveredTo(
            group_id=group_queue.group_id,
            topic_queue=group_queue.topic_queue,
            position=delivered.floor,
            ahead_deltas=delivered.deltas(),
        )

    def withhold(self, position: Position) -> bool:
        """See `Leases.withhold`."""
        exempt = self.exempt
        if exempt.range_count >= _WITHHELD_RANGES_MAX and not exempt.is_resolved(position):
            exempt.resolve(0, self.window_floor)  # all that is not exempt there is resolved
            if exempt.range_count >= _WITHHELD_RANGES_MAX:
                return False
        self.delivered.resolve(position, 1)
        self.withheld.resolve(position, 1)
        exempt.resolve(position, 1)
        return True

    def offer_again(self, first: int, end: int) -> None:
        """See `Leases.offer_again`."""
        for low, high in self.withheld.all_ranges():
            if max(low, first) < min(high, end):
                self.delivered.reopen(max(low, first), min(high, end))
        self.withheld.reopen(first, end)

    def begin_again(self, filtered: list[tuple[int, int]]) -> None:
        """See `Leases.begin_delivery_again`."""
        self.delivered = AckWindow()
        leased = [part[:2] for one in self.leases.values() for part in one.parts]
        for first, end in [*filtered, *self.withheld.all_ranges(), *leased]:
            self.delivered.resolve(first, end - first)

    def add_sparse(self, end: int, count: int) -> None:
        """So many messages that a filter picked are delivered, with all below `end`."""
        if self.sparse and end < self.sparse[-1][0]:  # what no client has seen, again
            insort(self.sparse, (end, count))
        else:
            self.sparse.append((end, count))
        self.sparse_count += count

    def drop_sparse(self, end: int, count: int) -> None:
        """So many of them are to be delivered again."""
        for at, one in enumerate(self.sparse):
            if one[0] == end:
                self.sparse_count -= min(count, one[1])
                if one[1] > count:
                    self.sparse[at] = end, one[1] - count
                else:
                    del self.sparse[at]
                return


def runs_of(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n, 2]: [first, end) of each run of neighbours in ascending positions."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return np.array([(positions[0], positions[-1] + 1)], np.int64)  # most often: one, or a row
    cuts = np.flatnonzero(positions[1:] != positions[:-1] + 1) + 1
    runs = np.empty((len(cuts) + min(1, len(positions)), 2), np.int64)
    runs[:1, 0], runs[1:, 0] = positions[:1], positions[cuts]
    runs[:-1, 1], runs[-1:, 1] = positions[cuts - 1], positions[-1:]
    runs[:, 1] += 1
    return runs
