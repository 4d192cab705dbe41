"""Ordered delivery: which messages an ordered group may be given, one of each ordering key.

A message may be leased when no message before it in its queue that has the same key is unfinished.
So the log needs no more than what the group has finished: leases and lines may be lost, and a new
master finds the same order again. What is given back keeps its place (RESOLVE held).

Keys are read from the messages' metadata. A message that cannot be read here has none that is
known, and what stands behind it waits until it can be read, from here or a replica, or is given up.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.tag_gene import key_hash
from hourwheel.types import GroupId, Position, TopicQueue
from hourwheel.v1.meta_pb2 import MessageMeta
from node.delivery.filter_scan import Damage, FilterScanner, ScanFilter
from node.delivery.filtered_ranges import FilteredRanges
from node.delivery.key_lines import LOOK_AHEAD, NO_KEY, KeyLines
from node.delivery.leases import Leases
from node.delivery.message_lease import Lease
from node.delivery.smoothing import Smoothing
from node.shard.group_queue import GroupQueue
from node.shard.views import Views
from storage.queues.ack_state import BLOCKED_MS, AckWindow
from storage.queues.consume_queue import ConsumeQueue
from storage.views.unit import Units, copied

_ORDERING_KEY_FIELD: Final = b"\x32"
"""Number and wire type of `MessageMeta.ordering_key`."""
_SCAN_MESSAGES: Final = 1_024
_SCAN_BYTES: Final = 1 << 20
"""What one step looks at."""


class _Kept(NamedTuple):
    lines: KeyLines
    expression: FilterExpression | None
    """What the group wanted when the lines were begun."""
    filtered: list[tuple[int, int]]
    """Ranges that it did not want until then, which the log may not say yet."""


class LookAhead(NamedTuple):
    """How a Receive looks further."""

    scanner: FilterScanner
    scan_filter: ScanFilter
    now_ms: int


class OrderedQueues:
    """The lines of all queues of ordered groups, in one mastership."""

    def __init__(
        self,
        views: Views,
        leases: Leases,
        filtered_ranges: FilteredRanges,
        smoothing: Smoothing,
    ) -> None:
        """None yet."""
        self._views, self._leases, self._filtered_ranges = views, leases, filtered_ranges
        self._smoothing = smoothing
        self._kept: dict[GroupQueue, _Kept] = {}
        self._alarms: list[tuple[int, GroupQueue]] = []
        """A heap of when messages may be delivered again, and of when some might have been."""
        self._alarm_of: dict[GroupQueue, int] = {}
        """When, of those queues that are in the heap."""

    # -- lines ------------------------------------------------------------------------------------

    def _window(self, group_queue: GroupQueue) -> AckWindow:
        return self._views.acks.get(*group_queue)

    def find(self, group_queue: GroupQueue) -> KeyLines | None:
        """The lines of a queue, if they are begun."""
        kept = self._kept.get(group_queue)
        return None if kept is None else kept.lines

    def follow(
        self, group_queue: GroupQueue, queue: ConsumeQueue, expression: FilterExpression | None
    ) -> KeyLines:
        """The lines of a queue, as the log has it by now."""
        kept, window = self._kept.get(group_queue), self._window(group_queue)
        is_watching = kept is not None and kept.lines.changes is window.changes
        if kept is not None and is_watching and kept.expression is expression:
            given_back: dict[int, list[tuple[int, int]]] = {}
            for position, lease_id in kept.lines.take_changes(window, queue.start_position):
                given_back.setdefault(lease_id, []).append((position, position + 1))
                self._leases.deliver_again(group_queue, position, position + 1)
            for lease_id, ranges in given_back.items():
                self._leases.give_up(lease_id, ranges)
            if not kept.lines.is_over:
                return kept.lines
        return self._begin(group_queue, window, queue, expression)

    def _begin(
        self,
        group_queue: GroupQueue,
        window: AckWindow,
        queue: ConsumeQueue,
        expression: FilterExpression | None,
    ) -> KeyLines:
        window.changes = []
        leased = self._leases.positions_of(group_queue)
        for position in [one for one in leased if window.is_resolved(one)]:
            del leased[position]
        filtered = self._filtered_ranges.ranges_of(group_queue)
        self._leases.begin_delivery_again(group_queue, filtered)
        lines = KeyLines(window.first_unresolved(queue.start_position), window.changes, leased)
        self._kept[group_queue] = _Kept(lines, expression, filtered)
        return lines

    def drop(self, group_queue: GroupQueue) -> None:
        """Begin the lines of a queue anew when they are needed."""
        self._kept.pop(group_queue, None)

    def drop_group(self, group_id: GroupId) -> None:
        """Forget a group's."""
        for group_queue in [one for one in self._kept if one.group_id == group_id]:
            del self._kept[group_queue]

    # -- looking ahead ----------------------------------------------------------------------------

    def may_have(self, group_queue: GroupQueue, now_ms: int) -> bool:
        """Whether to look for something to deliver."""
        queue, lines = self._views.queues.get(group_queue.topic_queue), self.find(group_queue)
        visible_end = self._smoothing.visible_end(queue, now_ms)
        if lines is None:
            return self._window(group_queue).first_unresolved(queue.start_position) < visible_end
        if lines.may_have(now_ms):
            return True
        return lines.at < visible_end and len(lines) < LOOK_AHEAD

    def find_ready(
        self,
        group_queue: GroupQueue,
        others: Sequence[GroupQueue],
        looking: LookAhead,
        count_max: int,
    ) -> tuple[list[Position], Damage | None]:
        """Positions that may be leased now, ascending, at most so many.

        Also behind those whose keys are leased from elsewhere: these hold no others up.

        Args:
            group_queue: the queue, whose lines were followed.
            others: as `take`.
            looking: how to look further.
            count_max: how many.

        Returns:
            They, and what cannot be read, where that is why there are no more.
        """
        lines, now_ms = self._kept[group_queue].lines, looking.now_ms
        positions, damage = self.take(group_queue, others, count_max, now_ms), None
        while len(positions) < count_max and damage is None:
            at, count = lines.at, count_max - len(positions)
            damage = self._look_ahead(group_queue, looking, count)
            if lines.at == at:
                break
            positions += self.take(group_queue, others, count, now_ms)
        return positions, damage

    def _look_ahead(self, group_queue: GroupQueue, looking: LookAhead, count: int) -> Damage | None:
        """Put messages in their lines until so many may be delivered, or the slice is used up.

        Returns:
            What cannot be read, where that is why it ended.
        """
        scanner, scan_filter, now_ms = looking
        queue, window = self._views.queues.get(group_queue.topic_queue), self._window(group_queue)
        lines = self._kept[group_queue].lines
        while lines.ready_count < count and scanner.work > 0 and len(lines) < LOOK_AHEAD:
            end = self._smoothing.visible_end(queue, now_ms)
            bounds = self._next_range(group_queue, lines.at, end) if lines.at < end else None
            if bounds is None:
                return None
            result = scanner.scan(
                queue,
                scan_filter,
                bounds,
                count_max=min(_SCAN_MESSAGES, LOOK_AHEAD - len(lines)),
                bytes_max=_SCAN_BYTES,
            )
            picked = np.empty(0, np.int64)
            if result.count:
                picked, units, blobs = result.joined()
                positions = map(Position, picked.tolist())
                for position, key in zip(positions, _keys(units, blobs), strict=True):
                    lines.add(position, key, window)
            self._note_filtered(group_queue, (bounds[0], result.end), picked.tolist(), now_ms)
            lines.at = max(lines.at, result.end)
            if result.damage is not None:
                return result.damage
        return None

    def _next_range(
        self, group_queue: GroupQueue, at: int, end: Position
    ) -> tuple[int, int] | None:
        """[first, end) of the next positions to look at: neither resolved nor filtered, readable.

        None: there are none, or what comes first is withheld.
        """
        known = sorted(
            [(*one, False) for one in self._kept[group_queue].filtered]
            + [(*one, True) for one in self._leases.withheld_ranges(group_queue)]
        )
        for begin, limit in self._window(group_queue).unresolved(at, end):
            first = begin
            for low, high, is_withheld in known:
                if high <= first or low >= limit:
                    continue
                if low > first:
                    return first, low
                if is_withheld:
                    return None
                first = high
            if first < limit:
                return first, limit
        return None

    def _note_filtered(
        self, group_queue: GroupQueue, bounds: tuple[int, int], picked: list[int], now_ms: int
    ) -> None:
        window, at = self._window(group_queue), bounds[0]
        for position in [*picked, bounds[1]]:
            while at < position:  # but for what the sweep of what has expired came upon before
                at, end = self._leases.find_undelivered(group_queue, window, (at, position))
                if at >= end:
                    break
                self._filtered_ranges.add(group_queue, at, end, now_ms)
                self._leases.skip(group_queue, at, end)
            at = position + 1

    def _follow_leased(self, group_queue: GroupQueue) -> KeyLines | None:
        """The lines of a queue of which messages are leased, as the log has it by now, or None."""
        kept = self._kept.get(group_queue)
        if kept is None and not self._leases.positions_of(group_queue):
            return None
        queue = self._views.queues.get(group_queue.topic_queue)
        lines = self.follow(group_queue, queue, None if kept is None else kept.expression)
        return lines if lines.leased else None

    # -- taking -----------------------------------------------------------------------------------

    def take(
        self, group_queue: GroupQueue, others: Sequence[GroupQueue], count_max: int, now_ms: int
    ) -> list[Position]:
        """Positions that may be leased now, ascending.

        `others`: queues of the same topic and group where messages of the same key may be leased.
        """
        lines = self._kept[group_queue].lines
        positions: list[Position] = []
        if lines.may_have(now_ms):
            rivals = [lines for lines in map(self._follow_leased, others) if lines is not None]
            positions = lines.take(
                count_max,
                self._window(group_queue),
                now_ms,
                lambda key: not any(rival.is_leased(key) for rival in rivals),
            )
        next_ms = lines.next_ms()
        if next_ms is not None:
            self._alarm(group_queue, next_ms)
        return positions

    def keep_back(self, group_queue: GroupQueue, positions: list[Position]) -> Lease:
        """Give messages that are in no lease, and ascend, to no consumer, until `offer`.

        What an operator decides of them is on its way into the log. Who got one meanwhile would
        have it taken away, for the next one to get, too.
        """
        kept = self._kept.get(group_queue)
        if kept is not None:  # else a change that is not seen yet would end this
            queue = self._views.queues.get(group_queue.topic_queue)
            self.follow(group_queue, queue, kept.expression)
        lease = self._leases.grant_selected(group_queue, np.array(positions, np.int64), BLOCKED_MS)
        self._leases.note_ending(lease.lease_id, [part[:2] for part in lease.parts], is_ending=True)
        lines = self.find(group_queue)
        if lines is not None:
            lines.lease(positions, lease.lease_id)
        return lease

    def offer(self, lease: Lease) -> None:
        """What was kept back may be given to consumers, as far as the log says so by now."""
        ranges = [part[:2] for part in lease.parts]
        self._leases.end(lease.lease_id)
        self.let_go(lease.group_queue, lease.lease_id, ranges)

    def let_go(
        self, group_queue: GroupQueue, lease_id: int, ranges: Iterable[tuple[int, int]]
    ) -> None:
        """A lease is over: what it held in these [first, end) was given back.

        Lines that were begun between the record that says so and this took it for leased.
        """
        lines = self.find(group_queue)
        if lines is None:
            return
        found = lines.let_go(lease_id, ranges, self._window(group_queue))
        for position in found:
            self._leases.deliver_again(group_queue, position, position + 1)
        next_ms = 0 if lines.ready_count else lines.next_ms()
        if found and next_ms is not None:
            self._alarm(group_queue, next_ms)

    def count_failures(
        self, group_queue: GroupQueue, positions: list[Position], units: Units
    ) -> Units:
        """The units, whose attempts tell how often they were given back in their place."""
        held = self._window(group_queue).held
        if not held:
            return units
        counts = [held[one].failure_count if one in held else 0 for one in positions]
        if not any(counts):
            return units
        counted = copied(units)
        counted["attempt"] = np.maximum(units["attempt"], 1) + np.array(counts, np.uint16)
        return counted

    # -- alarms -----------------------------------------------------------------------------------

    def _alarm(self, group_queue: GroupQueue, at_ms: int) -> None:
        if at_ms < self._alarm_of.get(group_queue, BLOCKED_MS):
            self._alarm_of[group_queue] = at_ms
            heapq.heappush(self._alarms, (at_ms, group_queue))

    def next_ms(self) -> int | None:
        """When to ask `take_due`, or None."""
        while self._alarms:
            at_ms, group_queue = self._alarms[0]
            if self._alarm_of.get(group_queue) == at_ms:
                return at_ms
            heapq.heappop(self._alarms)
        return None

    def take_due(self, now_ms: int) -> Iterator[TopicQueue]:
        """Queues of which messages may be delivered again."""
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            group_queue = heapq.heappop(self._alarms)[1]
            del self._alarm_of[group_queue]
            yield group_queue.topic_queue


def _keys(units: Units, blobs: bytes | memoryview) -> Iterator[int]:
    """The hash of each message's ordering key, or `NO_KEY`."""
    at, raw = 0, bytes(blobs)
    for meta_len, body_len in zip(
        units["meta_len"].tolist(), units["body_len"].tolist(), strict=True
    ):
        meta = raw[at : at + meta_len]
        at += meta_len + body_len
        yield _key(meta) if _ORDERING_KEY_FIELD in meta else NO_KEY


def _key(meta: bytes) -> int:
    try:
        key = MessageMeta.FromString(meta).ordering_key
    except DecodeError:  # of an earlier version, which has no such key
        return NO_KEY
    return key_hash(key) if key else NO_KEY
