"""Message leases: what a group's consumers hold, and until when. In the master's memory.

Deliveries of a queue to a group go forward (`next_position`). A lease that ends without an
acknowledgement becomes a RESOLVE(retry) in the log, so its messages come back through the wheel
with their attempt counted there: durable, and the group's floor moves on. A restart forgets the
leases: what was in flight is delivered again.

A lease without a filter holds neighbours. With one it is *sparse*: it knows where each of its
messages stands (node/delivery/message_lease.py), and finishing them finishes what was filtered in
between.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.internal.v1.replication_pb2 import LeaseTable
from hourwheel.types import FIRST_POSITION, Epoch, GroupId, Position
from node.delivery.message_lease import SPARSE_ID, Bounds, Lease, Part, Progress, Reopened, runs_of
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import WINDOW_POSITIONS, AckStates, AckWindow

_NOTHING: Final = AckWindow()


class Leases:
    """All message leases of one mastership.

    Invariants: the leases of a group and queue are disjoint and have been delivered; `_ends` has an
    entry (next end, id) for every lease that has one, and stale ones for leases that changed or
    ended.
    """

    def __init__(self) -> None:
        """None yet."""
        self._by_id: dict[int, Lease] = {}
        self._former: dict[tuple[Epoch, int], Lease] = {}
        """(epoch, lease id) that receipts have -> a sparse lease of an earlier mastership."""
        self._ends: list[tuple[int, int]] = []
        self._progress: dict[GroupQueue, Progress] = {}
        self._of_group: dict[GroupId, set[GroupQueue]] = {}
        """Group -> its keys of `_progress`."""
        self.last_id = 0
        """Of the lease granted last, but for `SPARSE_ID`."""
        self._held: dict[GroupId, int] = {}
        """Group -> messages that it holds. Invariant: the sum of `held_count` of its queues."""
        self.watched: set[GroupId] = set()
        """Groups of which somebody waits to hold fewer messages."""
        self.freed: set[GroupId] = set()
        """Those of them that do; the one that waits clears it."""
        self.is_cut = False
        """The last part that `take_ended` returned is the beginning of one; the rest comes next."""
        self.reopened: list[Reopened] = []
        """What `take_ended` has opened again, since no client has seen it; its caller clears it."""

    # -- what to deliver next ---------------------------------------------------------------------

    def find_range(
        self, group_queue: GroupQueue, window: AckWindow, bounds: Bounds, count_max: int
    ) -> tuple[int, int]:
        """[first, end) of the next positions to deliver: unresolved, neighbours, maybe none."""
        limit: int = bounds[1]
        if limit - max(bounds[0], window.floor) > WINDOW_POSITIONS:  # else it is in the window
            limit = min(limit, self.window_floor(group_queue, window, bounds[0]) + WINDOW_POSITIONS)
        first, end = self.find_undelivered(group_queue, window, (bounds[0], limit))
        return first, min(end, first + count_max)

    def window_floor(
        self, group_queue: GroupQueue, window: AckWindow, start_position: Position = FIRST_POSITION
    ) -> Position:
        """The first position that the group still works on: where its consumer window begins.

        Positions that are, or were, withheld do not count. They may stay unresolved for long, and
        must not stop a group.
        """
        floor = window.first_unresolved(start_position)
        progress = self._progress.get(group_queue)
        if progress is None or progress.exempt.is_untouched:
            return floor
        at = max(floor, progress.window_floor)
        while True:  # from where it ended the last time: neither of the two ever shrinks
            beyond = progress.exempt.first_unresolved(window.first_unresolved(at))
            if beyond == at:
                break
            at = beyond
        progress.window_floor = at
        return at

    def range_count(self, group_queue: GroupQueue, window: AckWindow) -> int:
        """How many ranges a window has, but for those that only withheld positions separate."""
        progress = self._progress.get(group_queue)
        exempt = 0 if progress is None else progress.exempt.range_count
        return max(0, window.range_count - exempt)

    def find_undelivered(
        self, group_queue: GroupQueue, window: AckWindow, bounds: tuple[int, int]
    ) -> tuple[int, int]:
        """[first, end) of the next positions in `bounds` neither delivered nor resolved, if any.

        However far above the floor: most of it may not match a filter.
        """
        progress = self._progress.get(group_queue)
        delivered = _NOTHING if progress is None else progress.delivered
        at = position = max(delivered.floor, window.floor, bounds[0])
        while (some := window.next_unresolved(at, bounds[1])) is not None:
            found = delivered.next_unresolved(*some)
            if found is not None:
                return found
            at = some[1]
        return position, position

    def room(
        self, group_queue: GroupQueue, window: AckWindow, start_position: Position = FIRST_POSITION
    ) -> int:
        """How many messages more a filter may pick: so many that the window's ranges are bounded.

        What lies below `start_position` was trimmed: the group has finished it in any case.

        A window without a filter is full when so many *positions* above the floor are delivered.
        With one it is *messages*: positions between them are finished with them, in one range.
        """
        progress = self._progress.get(group_queue)
        ranges = min(self.range_count(group_queue, window), WINDOW_POSITIONS // 2)
        if progress is None:
            return WINDOW_POSITIONS - ranges
        floor = self.window_floor(group_queue, window, start_position)
        while progress.sparse and progress.sparse[0][0] <= floor:
            progress.sparse_count -= progress.sparse.popleft()[1]
        return max(0, WINDOW_POSITIONS - ranges - progress.sparse_count)

    def is_blocked(self, group_queue: GroupQueue, window: AckWindow, bounds: Bounds) -> bool:
        """Whether there is more to deliver, but only behind a full window."""
        floor = self.window_floor(group_queue, window, bounds[0])
        position = max(self.next_position(group_queue), floor)
        return position < bounds[1] and position >= floor + WINDOW_POSITIONS

    def next_position(self, group_queue: GroupQueue) -> Position:
        """Everything below has been delivered in this mastership, or was resolved before it."""
        progress = self._progress.get(group_queue)
        return FIRST_POSITION if progress is None else progress.delivered.floor

    def delivered_end(self, group_queue: GroupQueue) -> Position:
        """Behind the last position that was delivered in this mastership."""
        progress = self._progress.get(group_queue)
        return FIRST_POSITION if progress is None else progress.delivered.end

    def _progress_of(self, group_queue: GroupQueue) -> Progress:
        progress = self._progress.get(group_queue)
        if progress is None:
            progress = self._progress[group_queue] = Progress()
            self._of_group.setdefault(group_queue.group_id, set()).add(group_queue)
        return progress

    # -- granting ---------------------------------------------------------------------------------

    def grant(self, group_queue: GroupQueue, first: int, end: int, until_ms: int) -> Lease:
        """Hold [first, end), which `find_range` found, until an instant."""
        self.skip_to(group_queue, Position(end))
        return self.hold(group_queue, first, end, until_ms)

    def grant_picked(
        self,
        group_queue: GroupQueue,
        span: tuple[int, int],
        positions: NDArray[np.int64],
        until_ms: int,
    ) -> Lease:
        """Hold the messages at `positions`, which ascend within `span`, until an instant.

        The rest of the span does not match, and is finished with them.
        """
        progress = self._progress_of(group_queue)
        progress.add_sparse(span[1], len(positions))
        if len(positions) == span[1] - span[0]:
            return self.grant(group_queue, *span, until_ms)  # its receipts need no memory
        self.skip_to(group_queue, Position(span[1]))
        return self._add_sparse(group_queue, span, [Part(*span, until_ms)], positions)

    def grant_selected(
        self, group_queue: GroupQueue, positions: NDArray[np.int64], until_ms: int
    ) -> Lease:
        """Hold the messages at `positions`, which ascend, until an instant, and nothing else.

        Positions between them are delivered to others, or still to be delivered.
        """
        runs = runs_of(positions).tolist()
        for first, end in runs:
            self.skip(group_queue, first, end)
        parts = [Part(first, end, until_ms) for first, end in runs]
        span = runs[0][0], runs[-1][1]
        return self._add_sparse(group_queue, span, parts, positions, keeps_gaps=True)

    def _add_sparse(
        self,
        group_queue: GroupQueue,
        span: tuple[int, int],
        parts: list[Part],
        positions: NDArray[np.int64],
        *,
        keeps_gaps: bool = False,
    ) -> Lease:
        self.last_id += 1
        lease_id = self.last_id | SPARSE_ID
        return self._add(Lease(lease_id, group_queue, *span, parts, positions, keeps_gaps))

    def hold(
        self,
        group_queue: GroupQueue,
        first: int,
        end: int,
        until_ms: int,
        messages: Sequence[int] | None = None,
        *,
        is_ending: bool = False,
    ) -> Lease:
        """Hold [first, end), which was delivered or skipped before and is in no lease, until then.

        `messages`, `is_ending`: see `Part`.
        """
        parts = [Part(first, end, until_ms, is_ending=is_ending)]
        if messages is not None:
            return self._add_sparse(group_queue, (first, end), parts, np.array(messages, np.int64))
        self.last_id += 1
        return self._add(Lease(self.last_id, group_queue, first, end, parts))

    def _add(self, lease: Lease) -> Lease:
        self._by_id[lease.lease_id] = lease
        for part in lease.parts:
            count = lease.count_messages(part.first, part.end)
            lease.left_count += count
            lease.gap_count += part.end - part.first - count
        progress = self._progress_of(lease.group_queue)
        progress.leases[lease.lease_id] = lease
        progress.held_count += lease.left_count
        progress.gap_count += lease.gap_count
        group_id = lease.group_queue.group_id
        self._held[group_id] = self._held.get(group_id, 0) + lease.left_count
        self._note_end(lease)
        return lease

    def _note_end(self, lease: Lease) -> None:
        if (next_ms := lease.next_end_ms) is not None:
            heapq.heappush(self._ends, (next_ms, lease.lease_id))

    def skip_to(self, group_queue: GroupQueue, position: Position) -> None:
        """Deliver nothing below `position` in this mastership."""
        self._progress_of(group_queue).delivered.resolve(0, position)

    def skip(self, group_queue: GroupQueue, first: int, end: int) -> None:
        """Do not deliver [first, end) in this mastership."""
        self._progress_of(group_queue).delivered.resolve(first, end - first)

    # -- withholding ------------------------------------------------------------------------------

    def withhold(self, group_queue: GroupQueue, position: Position) -> bool:
        """Deliver a message to no consumer until it is offered again: it cannot be read here.

        Returns:
            Whether there was room for it: scattered positions are bounded like a group's window.
        """
        return self._progress_of(group_queue).withhold(position)

    def offer_again(self, group_queue: GroupQueue, first: int, end: int) -> None:
        """Deliver what is withheld of [first, end): it can be read again, or may be."""
        progress = self._progress.get(group_queue)
        if progress is not None:
            progress.offer_again(first, end)

    def settle(self, group_queue: GroupQueue, position: Position) -> None:
        """A withheld position is resolved, or gone: it will not be offered again."""
        progress = self._progress.get(group_queue)
        if progress is not None:
            progress.withheld.reopen(position, position + 1)

    def withheld_ranges(self, group_queue: GroupQueue) -> list[tuple[int, int]]:
        """The withheld positions of a group's queue, as [first, end), ascending."""
        progress = self._progress.get(group_queue)
        return [] if progress is None else progress.withheld.all_ranges()

    def withheld_count(
        self, group_queue: GroupQueue, window: AckWindow, bounds: tuple[int, int]
    ) -> int:
        """How many positions in `bounds` are withheld and not resolved."""
        ranges = self.withheld_ranges(group_queue)
        low, high = bounds
        return sum(
            window.count_unresolved(max(first, low), min(end, high)) for first, end in ranges
        )

    # -- ordered groups ---------------------------------------------------------------------------

    def positions_of(self, group_queue: GroupQueue) -> dict[Position, int]:
        """Position of each message that is leased -> the lease's id."""
        progress = self._progress.get(group_queue)
        found: dict[Position, int] = {}
        for lease in progress.leases.values() if progress is not None else ():
            for part in lease.parts:
                found.update(dict.fromkeys(lease.messages_in(part), lease.lease_id))
        return found

    def begin_delivery_again(
        self, group_queue: GroupQueue, filtered: list[tuple[int, int]]
    ) -> None:
        """Deliver all that is neither leased nor withheld, nor in these ranges."""
        self._progress_of(group_queue).begin_again(filtered)

    def deliver_again(self, group_queue: GroupQueue, first: int, end: int) -> None:
        """What stands in [first, end) was given back and keeps its place."""
        self._progress_of(group_queue).delivered.reopen(first, end)

    def give_up(self, lease_id: int, ranges: Iterable[tuple[int, int]]) -> None:
        """The lease holds nothing in these [first, end) any more, if it lasts at all."""
        lease = self._by_id.get(lease_id)
        if lease is None:
            return

        def let_go(part: Part) -> None:
            count = lease.count_messages(part.first, part.end)
            self._let_go(lease, count, part.end - part.first - count)

        for first, end in ranges:
            lease.change(first, end, let_go)
        if lease.parts:
            self._note_end(lease)
        else:
            self.end(lease_id)

    # -- holding ----------------------------------------------------------------------------------

    def get(self, lease_id: int) -> Lease | None:
        """The lease of this id while it lasts, or None."""
        return self._by_id.get(lease_id)

    def find_former(self, epoch: Epoch, lease_id: int) -> Lease | None:
        """A sparse lease that was granted in an earlier mastership and lasts, or None."""
        return self._former.get((epoch, lease_id))

    def change(
        self, lease: Lease, first: int, end: int, until_ms: int, *, is_unseen: bool = False
    ) -> None:
        """Let what is left of [first, end) end at another time, but for what is ending.

        `is_unseen`: see `Part`.
        """

        def moved(part: Part) -> Part:
            return part._replace(until_ms=until_ms, is_unseen=is_unseen)

        lease.change(first, end, lambda part: part if part.is_ending else moved(part))
        self._note_end(lease)

    def prolong(self, lease: Lease, seen: Iterable[tuple[int, int]], until_ms: int) -> None:
        """See `Lease.prolong`."""
        lease.prolong(seen, until_ms)
        self._note_end(lease)

    def _open_again(self, lease: Lease, part: Part, count: int) -> None:
        """Have a part delivered as if it had never been."""
        progress = self._progress_of(lease.group_queue)
        if not lease.keeps_gaps:
            progress.drop_sparse(lease.end, count)
        progress.delivered.reopen(part.first, part.end)
        self.reopened.append(Reopened(lease.group_queue, lease.lease_id, part.first, part.end))

    def note_ending(
        self, lease_id: int, ranges: Iterable[tuple[int, int]], *, is_ending: bool
    ) -> None:
        """What ends these [first, end) of a lease is on its way into the log; or is so no more."""
        lease = self._by_id.get(lease_id)
        if lease is not None:
            for first, end in ranges:
                lease.change(first, end, lambda part: part._replace(is_ending=is_ending))
            self._note_end(lease)

    def note_resolved(self, lease_id: int, count: int, position_count: int) -> None:
        """So many of its messages are resolved, and positions with them; others are not."""
        lease = self._by_id.get(lease_id)
        if lease is not None:
            self._let_go(lease, count, position_count - count)

    def _let_go(self, lease: Lease, count: int, gap_count: int) -> None:
        """So many of its messages are not held any more, and of what stands between them."""
        count, gap_count = min(count, lease.left_count), min(gap_count, lease.gap_count)
        lease.left_count -= count
        lease.gap_count -= gap_count
        progress = self._progress_of(lease.group_queue)
        progress.held_count -= count
        progress.gap_count -= gap_count
        group_id = lease.group_queue.group_id
        self._held[group_id] -= count
        if group_id in self.watched:
            self.freed.add(group_id)

    def recount(self, lease_id: int, window: AckWindow) -> None:
        """Count anew what a lease holds that is not resolved: parts of it ended, or came twice."""
        lease = self._by_id.get(lease_id)
        if lease is not None:
            self._let_go(lease, lease.left_count - lease.count_unresolved(window), 0)

    def inherited_in(self, group_queue: GroupQueue, first: int, end: int) -> list[int]:
        """Leases of a former master, of neighbours, that have held something of [first, end)."""
        progress = self._progress.get(group_queue)
        return [] if progress is None else progress.inherited_in(first, end)

    def recount_all(self, acks: AckStates) -> None:
        """The same of each lease: a former master's hold what is resolved, too."""
        for lease_id, lease in self._by_id.items():
            self.recount(lease_id, acks.get(*lease.group_queue))

    def held_count(self, group_id: GroupId) -> int:
        """How many messages a group holds; never fewer than are leased to it and not resolved.

        Of a group whose leases are recounted wherever that may go wrong; see `note_resolved`.
        """
        return self._held.get(group_id, 0)

    def end(self, lease_id: int) -> None:
        """All of it is resolved."""
        lease = self._by_id.pop(lease_id, None)
        if lease is not None:
            self._let_go(lease, lease.left_count, lease.gap_count)
            del self._progress_of(lease.group_queue).leases[lease_id]
            self._former.pop(lease.origin, None)

    def next_end_ms(self) -> int | None:
        """When the first part of a lease ends, or None."""
        while self._ends:
            until_ms, lease_id = self._ends[0]
            lease = self._by_id.get(lease_id)
            if lease is not None and lease.next_end_ms == until_ms:
                return until_ms
            heapq.heappop(self._ends)
        return None

    def take_ended(
        self, now_ms: int, count_max: int, messages_max: int = WINDOW_POSITIONS
    ) -> list[tuple[GroupQueue, Part]]:
        """Remove and return parts of leases that are over, the first ones first.

        What no client has seen is opened again instead: see `reopened`.

        Args:
            now_ms: what ends up to this instant is over.
            count_max: about so many parts; those of one lease that end together stay together.
            messages_max: of so many messages at most, but for the first part of neighbours, which
                is one row in any case. A part of picked messages is cut, and the rest stays.
        """
        ended: list[tuple[GroupQueue, Part]] = []
        left, self.is_cut = messages_max, False
        while len(ended) < count_max and left > 0:
            until_ms = self.next_end_ms()
            if until_ms is None or until_ms > now_ms:
                break
            lease = self._by_id[heapq.heappop(self._ends)[1]]
            parts, lease.parts = lease.parts, []
            for part in parts:
                if part.is_ending or part.until_ms > now_ms or left <= 0:
                    lease.parts.append(part)
                    continue
                over, rest = (part, None) if part.is_unseen else lease.cut(part, left)
                lease.parts += [] if rest is None else [rest]
                count = lease.count_messages(over.first, over.end)
                self._let_go(lease, count, over.end - over.first - count)
                if over.is_unseen:
                    self._open_again(lease, over, count)
                    continue
                self.is_cut = rest is not None
                ended.append((lease.group_queue, lease.with_messages(over)))
                left -= count
            if lease.parts:
                self._note_end(lease)
            else:
                self.end(lease.lease_id)
        return ended

    def take_at(self, group_queue: GroupQueue, position: Position) -> list[Part]:
        """Remove the lease that holds a position, and return its parts."""
        progress = self._progress.get(group_queue)
        for lease in progress.leases.values() if progress is not None else ():
            if lease.first <= position < lease.end and any(
                part.first <= position < part.end for part in lease.parts
            ):
                self.end(lease.lease_id)
                return [lease.with_messages(one) for one in lease.parts]
        return []

    def has_any(self, group_id: GroupId) -> bool:
        """Whether a group holds a lease."""
        return any(
            self._progress[group_queue].leases for group_queue in self._of_group.get(group_id, ())
        )

    def drop_group(self, group_id: GroupId) -> None:
        """Forget a group's leases."""
        for group_queue in list(self._of_group.get(group_id, ())):
            self.drop_queue(group_queue)
        self._of_group.pop(group_id, None)
        self._held.pop(group_id, None)

    def drop_queue(self, group_queue: GroupQueue) -> None:
        """Forget a group's leases of a queue, and how far it was delivered."""
        progress = self._progress.get(group_queue)
        for lease_id in () if progress is None else list(progress.leases):
            self.end(lease_id)
        if self._progress.pop(group_queue, None) is not None:
            self._of_group[group_queue.group_id].discard(group_queue)

    @property
    def count(self) -> int:
        """Leases held."""
        return len(self._by_id)

    def count_unresolved(
        self,
        group_queue: GroupQueue,
        window: AckWindow,
        bounds: tuple[int, int],
        filtered_count: int,
    ) -> tuple[int, int]:
        """(messages leased, positions not delivered), neither resolved; however many leases.

        Withheld positions are not delivered. What is delivered, not resolved, and not filtered is
        leased: messages, and positions between those that a filter picked. The latter are only
        counted as they come and go. So where an acknowledgement came twice in part, the messages
        may be too few until their lease ends.

        Args:
            group_queue: of which group and queue.
            window: what of it is resolved.
            bounds: the queue's first position and its end.
            filtered_count: unresolved positions that were filtered and are in no lease.
        """
        progress = self._progress.get(group_queue)
        if progress is None:
            return 0, window.count_unresolved(*bounds)
        waiting = window.count_free(progress.delivered, *bounds)
        waiting += self.withheld_count(group_queue, window, bounds)
        covered = window.count_unresolved(*bounds) - waiting - filtered_count
        return max(0, covered - progress.gap_count), waiting

    def count_resolved(
        self, group_queue: GroupQueue, window: AckWindow, start_position: Position = FIRST_POSITION
    ) -> int:
        """How many messages above the group's floor are delivered and resolved.

        Without a filter these are the resolved positions. With one it is a lower bound: each
        Receive of a full window needs it, so the leases are not gone through.
        """
        progress = self._progress.get(group_queue)
        if progress is not None and progress.sparse_count:
            return max(0, progress.sparse_count - progress.held_count)
        floor = self.window_floor(group_queue, window, start_position)
        return sum(end - first for first, end in window.ranges() if first > floor)

    # -- transfer ---------------------------------------------------------------------------------

    def table(self, epoch: Epoch) -> LeaseTable:
        """All leases, for the next master of a planned transfer."""
        table = LeaseTable(epoch=epoch)
        for lease in self._by_id.values():
            if lease.positions is None:
                table.ranges.extend(lease.ranges_to_wire())
            elif lease.seen_parts:
                table.sparse.append(lease.to_wire(epoch))
            if lease.poll is not None and lease.is_whole:
                table.answers.append(lease.answer_to_wire(lease.poll))
        for group_queue, progress in self._progress.items():
            table.delivered.append(progress.to_wire(group_queue))
        return table

    def restore(self, table: LeaseTable, now_ms: int) -> None:
        """Take over the leases of the former master; nothing was delivered here yet."""
        restored: dict[tuple[GroupQueue, int, int], Lease] = {}
        for one in table.delivered:
            progress = self._progress_of(GroupQueue.of(one.group_id, one.topic_queue))
            progress.delivered = AckWindow.from_deltas(one.position, one.ahead_deltas)
        for one_range in table.ranges:
            group_queue = GroupQueue.of(one_range.group_id, one_range.topic_queue)
            lease = self.hold(group_queue, one_range.first, one_range.end, one_range.until_ms)
            self._progress_of(group_queue).inherit(lease)
            restored[group_queue, lease.first, lease.end] = lease
        for wire in sorted(table.sparse, key=lambda one: one.end):
            self.last_id += 1
            lease = self._add(Lease.from_wire(self.last_id | SPARSE_ID, wire))
            self._former[lease.origin] = lease
            if not lease.keeps_gaps:
                self._progress_of(lease.group_queue).add_sparse(lease.end, lease.count)
            restored[lease.group_queue, lease.first, lease.end] = lease
        for answer in table.answers:
            group_queue = GroupQueue.of(answer.group_id, answer.topic_queue)
            answered = restored.get((group_queue, answer.first, answer.end))
            if answered is not None:
                answered.note_answered(answer, now_ms)

    def polled(self) -> list[Lease]:
        """Leases whose poll may be repeated, or stream opened again, the oldest first."""
        return [lease for lease in self._by_id.values() if lease.poll is not None]
