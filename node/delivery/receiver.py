"""The receiver: leases the next messages of a group's queues, up to the release gate."""

from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from filters.compile import compile_filter
from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.internal.v1.replication_pb2 import LeaseTable
from hourwheel.types import NO_EPOCH, Epoch, GroupId, Position, TopicId, TopicQueue, topic_of
from node.contracts.receive_stream import Piece
from node.delivery.cuts import blob_bytes, cut, good_run
from node.delivery.dead_letter_selection import CallFilter, ScanMarks
from node.delivery.deliveries import Corrupt, Delivery, ReceiveLimits
from node.delivery.expiry import Expired, without
from node.delivery.filter_scan import Counts, FilterScanner, LongChecks, ScanFilter, ScanResult
from node.delivery.filtered_ranges import FilteredRanges
from node.delivery.leases import Leases
from node.delivery.message_lease import Lease, runs_of
from node.delivery.ordered import LookAhead, OrderedQueues
from node.delivery.reading_order import Reading, ReadingOrder
from node.delivery.resets import Resets
from node.delivery.smoothing import Smoothing
from node.shard.group_queue import GroupQueue
from node.shard.views import Views
from storage.queues.ack_state import WINDOW_POSITIONS
from storage.views.unit import FEW_UNITS, Row, Units, copied, rows_of
from timewheel.bodies import Bodies


class Receiver:
    """Hands out messages. Holds the leases, and which queue is next for each group."""

    def __init__(self, views: Views, bodies: Bodies, epoch: Epoch = NO_EPOCH) -> None:
        """Read from `views` and `bodies`. `epoch`: in which the leases are given."""
        self._views, self._bodies, self.epoch = views, bodies, epoch
        self.leases = Leases()
        self.resets, self._smoothing = Resets(views.catalog), Smoothing(views.catalog)
        self._order = ReadingOrder(views, self.resets)
        self.filtered_ranges = FilteredRanges()
        self.ordered = OrderedQueues(views, self.leases, self.filtered_ranges, self._smoothing)
        self.expired = Expired(views, self.leases, self.filtered_ranges)
        self._marks = ScanMarks()
        self.counts = Counts()
        """What filters did; the shell adds it up and makes it anew."""
        self._long_checks = LongChecks()
        self._turns: dict[GroupQueue, int] = {}
        """First queue of a group and priority -> which of these queues is next."""
        self.corrupt: list[Corrupt] = []
        """Messages that failed their checksum, withheld from the group: the shell sees to them."""
        self.work = 0
        """Work done in scans; the shell makes it 0 again. See `filter_scan`."""
        self.is_unfinished = False
        """The last `receive` ended with its slice: there may be more, so call again soon."""
        self.found_any = False
        """The last `receive` came upon something visible that was not delivered, or may have."""

    def table(self) -> LeaseTable:
        """What the next master needs in a planned transfer."""
        table = self.leases.table(self.epoch)
        self.filtered_ranges.add_to(table)
        return table

    def restore(self, table: LeaseTable, now_ms: int) -> None:
        """Go on where the former master ended; nothing was delivered here yet."""
        self.leases.restore(table, now_ms)
        self.leases.recount_all(self._views.acks)
        self.filtered_ranges.restore(table, now_ms)
        for one in table.passed_over:
            if one.are_expired:  # by the former master's clock: look again
                group_queue = GroupQueue.of(one.group_id, one.topic_queue)
                self.leases.deliver_again(group_queue, one.first, one.end)

    def forget(self, group_id: GroupId, topic_id: TopicId) -> None:
        """A group begins anew in a topic: nothing was delivered to it."""
        for number in self.queues_of(group_id, topic_id):
            group_queue = GroupQueue(group_id, number)
            self.leases.drop_queue(group_queue)
            self.ordered.drop(group_queue)
            self.filtered_ranges.drop_queue(group_queue)
        self._marks.clear()

    def queues_of(self, group_id: GroupId, topic_id: TopicId) -> list[TopicQueue]:
        """The queues that a group's Receive of a topic reads."""
        return self._order.find(group_id, topic_id).queues

    def has_undelivered(self, group_id: GroupId, topic_id: TopicId, now_ms: int) -> bool:
        """Whether anything is visible that was not delivered: else `receive` has nothing."""
        return self._has_undelivered(self._order.find(group_id, topic_id), now_ms)

    def _has_undelivered(self, reading: Reading, now_ms: int) -> bool:
        get, next_position = self._views.queues.get, self.leases.next_position
        visible_end = self._smoothing.visible_end
        if reading.is_ordered:
            return any(self.ordered.may_have(one, now_ms) for one in reading.group_queues)
        for one in reading.group_queues:
            if next_position(one) < visible_end(get(one.topic_queue), now_ms):
                return True
        return False

    def visible_end(self, number: TopicQueue, now_ms: int) -> Position:
        """Behind the last entry of a queue that consumers may see."""
        return self._smoothing.visible_end(self._views.queues.get(number), now_ms)

    def look(self, number: TopicQueue, now_ms: int) -> tuple[Position, int | None]:
        """(visible end of a queue, when the first entry opens that is not visible yet, or None).

        Not later than `now_ms` where it was not looked through all that is visible.
        """
        queue = self._views.queues.get(number)
        visible_end = self._smoothing.visible_end(queue, now_ms)
        return visible_end, self._smoothing.next_gate_ms(queue, now_ms)

    def _scan_filter(
        self, group_id: GroupId, topic_id: TopicId, call_filter: CallFilter | None
    ) -> ScanFilter | None:
        """The filter for the topic's own queues; None where everything matches.

        Raises:
            InvalidFilter: the subscription's filter is not understood by this version.
        """
        catalog = self._views.catalog
        subscription = catalog.find_subscription(group_id, topic_id)
        topic = catalog.find_topic_by_id(topic_id)
        expression = subscription.filter if subscription is not None else None
        if call_filter is not None:
            expression = call_filter.filter
        if topic is None or expression is None:
            return None
        compiled = compile_filter(expression, topic.gene)
        if compiled.is_everything:
            return None
        masks = not topic.internal  # else units are of several topics, whose genes differ
        return ScanFilter(compiled, masks=masks, checks=not (masks and expression.check_at_client))

    def receive(
        self,
        group_id: GroupId,
        topic_id: TopicId,
        limits: ReceiveLimits,
        call_filter: CallFilter | None = None,
    ) -> Delivery | None:
        """Lease the next messages of one queue, or None where nothing is visible.

        One of the highest priority that has any; those of one priority take turns.

        Where little matches a filter, it is also None when one turn of the loop has scanned
        enough: see `is_unfinished`.
        """
        reading = self._order.find(group_id, topic_id)
        self.is_unfinished = False
        if call_filter is None and reading.is_plain:
            self.found_any = False
            return self._receive_plainly(reading, limits, topic_id)
        self.found_any = call_filter is not None or self._has_undelivered(reading, limits.now_ms)
        if not self.found_any:
            return None
        scan_filter = self._scan_filter(group_id, topic_id, call_filter)
        scanner = FilterScanner(self._bodies, self.counts, self._long_checks)
        for queues in reading.levels:
            place = queues[0]
            turn = self._turns.get(place, 0)
            for step in range(len(queues)):
                group_queue, left = queues[(turn + step) % len(queues)], scanner.work
                wanted = scan_filter if topic_of(group_queue.topic_queue) == topic_id else None
                if reading.is_ordered:
                    rivals = queues[1:] if group_queue == place else queues[:1]
                    delivery = self._receive_in_order(group_queue, rivals, wanted, scanner, limits)
                elif wanted is None:
                    delivery = self._receive_from(group_queue, limits, topic_id)
                elif call_filter is None:
                    delivery = self._receive_matching(group_queue, wanted, scanner, limits)
                else:
                    delivery = self._receive_by_call(
                        group_queue, wanted, scanner, limits, call_filter
                    )
                self.work += left - scanner.work
                if delivery is not None or self.is_unfinished:
                    # An unfinished queue lets the others have their turn, too.
                    self._turns[place] = (turn + step + 1) % len(queues)
                    if delivery is None or scan_filter is None or scan_filter.checks:
                        return delivery
                    return delivery._replace(to_check=self._subscribed(group_id, topic_id))
        return None

    def _receive_plainly(
        self, reading: Reading, limits: ReceiveLimits, topic_id: TopicId
    ) -> Delivery | None:
        """As `receive`, where the group gets what stands next in each queue."""
        for queues in reading.levels:
            count = len(queues)
            turn = self._turns.get(queues[0], 0) % count
            for at in chain(range(turn, count), range(turn)):
                delivery = self._receive_from(queues[at], limits, topic_id)
                if delivery is not None or self.is_unfinished:
                    self._turns[queues[0]] = (at + 1) % count
                    return delivery
        return None

    def _subscribed(self, group_id: GroupId, topic_id: TopicId) -> FilterExpression | None:
        subscription = self._views.catalog.find_subscription(group_id, topic_id)
        return None if subscription is None else subscription.filter

    def find_to_check(
        self, group_id: GroupId, topic_id: TopicId, call_filter: CallFilter | None
    ) -> FilterExpression | None:
        """The filter that is left to the client; None: nothing is."""
        scan_filter = self._scan_filter(group_id, topic_id, call_filter)
        if scan_filter is None or scan_filter.checks:
            return None
        return self._subscribed(group_id, topic_id)

    def _receive_from(
        self,
        group_queue: GroupQueue,
        limits: ReceiveLimits,
        topic_id: TopicId,
    ) -> Delivery | None:
        count_max, bytes_max, invisible_ms, now_ms = limits
        queue = self._views.queues.get(group_queue.topic_queue)
        visible_end = self._smoothing.visible_end(queue, now_ms)
        if self.leases.next_position(group_queue) >= visible_end:
            return None
        self.found_any = True
        window = self._views.acks.get(*group_queue)
        bounds = queue.start_position, visible_end
        turns_left = _EXPIRED_TURNS if self.expired.may_have(topic_id) else None
        while True:
            first, end = self.leases.find_range(group_queue, window, bounds, count_max)
            if first >= end:
                return None
            units = cut(queue.read(first, end - first), bytes_max)
            end = first + len(units)
            rows = rows_of(units) if len(units) <= FEW_UNITS else None
            blobs, bad = self._bodies.read_joined(units, rows)
            if not bad:
                if turns_left is None:
                    break
                gone = self.expired.find(units, blobs, now_ms)
                if gone is None:
                    break
                positions = np.arange(first, end, dtype=np.int64)
                self.expired.give_up(group_queue, positions[gone], now_ms)
                if not gone.all():
                    return self._lease_rest(
                        group_queue, limits, positions, *without(units, blobs, gone)
                    )
                turns_left -= 1
                if not turns_left:
                    self.is_unfinished = True
                    return None
                count_max = max(count_max, _EXPIRED_LOOK)
                continue
            low, high = good_run([one.ordinal for one in bad], len(units))
            for ordinal, error in bad:
                unit = units[ordinal : ordinal + 1]
                at = Position(first + ordinal)
                if ordinal < low and not self._withhold(group_queue, at, unit, error):
                    return None
            count_max = max(1, high - low)  # and read those again, by themselves
        # It has looked further where it came upon what has expired.
        if end - first > limits.count_max:
            units, end = units[: limits.count_max], first + limits.count_max
            blobs, rows = blobs[: int(blob_bytes(units).sum())], None
        lease = self.leases.grant(group_queue, first, end, now_ms + invisible_ms)
        return self._delivery(lease, units, blobs, now_ms, rows)

    def _lease_rest(
        self,
        group_queue: GroupQueue,
        limits: ReceiveLimits,
        positions: NDArray[np.int64],
        kept: NDArray[np.int64],
        units: Units,
        blobs: bytes,
    ) -> Delivery:
        """Lease those at `kept` of some positions: the first that are allowed."""
        if len(kept) > limits.count_max:
            kept, units = kept[: limits.count_max], units[: limits.count_max]
            blobs = blobs[: int(blob_bytes(units).sum())]
        until_ms = limits.now_ms + limits.invisible_ms
        lease = self.leases.grant_selected(group_queue, positions[kept], until_ms)
        return self._delivery(lease, units, blobs, limits.now_ms)

    def _receive_in_order(
        self,
        group_queue: GroupQueue,
        rivals: list[GroupQueue],
        scan_filter: ScanFilter | None,
        scanner: FilterScanner,
        limits: ReceiveLimits,
    ) -> Delivery | None:
        """The next messages of keys of which none is leased, one of each.

        `rivals`: queues in which messages of the same keys may be leased.
        """
        queue = self._views.queues.get(group_queue.topic_queue)
        topic_id = topic_of(group_queue.topic_queue)
        may_expire = any(
            self.expired.may_have(topic_of(one.topic_queue)) for one in (group_queue, *rivals)
        )
        subscription = self._views.catalog.find_subscription(group_queue.group_id, topic_id)
        expression = None if subscription is None else subscription.filter
        lines = self.ordered.follow(group_queue, queue, expression)
        looking = LookAhead(scanner, scan_filter or _EVERYTHING, limits.now_ms)
        positions, damage = self.ordered.find_ready(group_queue, rivals, looking, limits.count_max)
        if damage is not None:
            self._withhold(group_queue, *damage)
        while positions:
            units = cut(queue.pick(np.array(positions, np.int64)), limits.bytes_max)
            lines.put_back(positions[len(units) :])
            positions = positions[: len(units)]
            blobs, bad = self._bodies.read_joined(units)
            gone = None
            if not bad and may_expire:
                gone = self.expired.find(units, blobs, limits.now_ms)
            if gone is not None:
                self._pass_in_order(group_queue, np.array(positions, np.int64)[gone], limits.now_ms)
                kept, units, blobs = without(units, blobs, gone)
                positions = [positions[at] for at in kept.tolist()]
                if not positions:
                    self.is_unfinished = True
                    return None
            if not bad:
                units = self.ordered.count_failures(group_queue, positions, units)
                until_ms = limits.now_ms + limits.invisible_ms
                held = np.array(positions, np.int64)
                lease = self.leases.grant_selected(group_queue, held, until_ms)
                lines.lease(positions, lease.lease_id)
                return self._delivery(lease, units, blobs, limits.now_ms)
            for ordinal, error in bad:
                self._withhold(group_queue, positions[ordinal], units[ordinal : ordinal + 1], error)
            damaged = {one.ordinal for one in bad}
            positions = [one for at, one in enumerate(positions) if at not in damaged]
        self.is_unfinished = scanner.work <= 0
        return None

    def _pass_in_order(
        self, group_queue: GroupQueue, positions: NDArray[np.int64], now_ms: int
    ) -> None:
        """Filter what has expired and the sweep has not seen; the next of a key comes behind it."""
        window = self._views.acks.get(*group_queue)
        for position in positions.tolist():
            first, end = self.leases.find_undelivered(group_queue, window, (position, position + 1))
            if first < end:
                self.expired.give_up(group_queue, np.array([position], np.int64), now_ms)

    def _receive_matching(
        self,
        group_queue: GroupQueue,
        scan_filter: ScanFilter,
        scanner: FilterScanner,
        limits: ReceiveLimits,
    ) -> Delivery | None:
        """The next messages that match the group's filter; the others are filtered."""
        queue, window = (
            self._views.queues.get(group_queue.topic_queue),
            self._views.acks.get(*group_queue),
        )
        bounds = queue.start_position, self._smoothing.visible_end(queue, limits.now_ms)
        count_max = min(limits.count_max, self.leases.room(group_queue, window, bounds[0]))
        while count_max and scanner.work > 0:
            undelivered = self.leases.find_undelivered(group_queue, window, bounds)
            first = undelivered[0]
            if first >= undelivered[1]:
                return None
            result = scanner.scan(
                queue, scan_filter, undelivered, count_max=count_max, bytes_max=limits.bytes_max
            )
            self.leases.skip_to(group_queue, result.end)
            goes_on = self._withhold_picked(group_queue, result)
            if result.count:
                positions, units, blobs = result.joined()
                until_ms = limits.now_ms + limits.invisible_ms
                gone = self._find_expired(group_queue, units, blobs, limits.now_ms)
                if gone is None:
                    span = self.filtered_ranges.absorb(group_queue, first), result.end
                    lease = self.leases.grant_picked(group_queue, span, positions, until_ms)
                    return self._delivery(lease, units, blobs, limits.now_ms)
                # The log is to tell what has expired from what does not match.
                self.filtered_ranges.add_between(
                    group_queue, (first, result.end), positions, limits.now_ms
                )
                self.expired.give_up(group_queue, positions[gone], limits.now_ms)
                if not gone.all():
                    kept, units, blobs = without(units, blobs, gone)
                    lease = self.leases.grant_selected(group_queue, positions[kept], until_ms)
                    return self._delivery(lease, units, blobs, limits.now_ms)
            elif result.end > first:
                self.filtered_ranges.add(group_queue, first, result.end, limits.now_ms)
            if not goes_on:
                return None
        self.is_unfinished = count_max > 0
        return None

    def _receive_by_call(
        self,
        group_queue: GroupQueue,
        scan_filter: ScanFilter,
        scanner: FilterScanner,
        limits: ReceiveLimits,
        call_filter: CallFilter,
    ) -> Delivery | None:
        """The next messages that match the call's filter; the others stay for other calls.

        Nothing expires here: only the cluster's own topics have such calls, dead letters above all.
        """
        queue, window = (
            self._views.queues.get(group_queue.topic_queue),
            self._views.acks.get(*group_queue),
        )
        end = int(self._smoothing.visible_end(queue, limits.now_ms))
        if self.leases.range_count(group_queue, window) >= WINDOW_POSITIONS // 2:
            floor = self.leases.window_floor(group_queue, window, queue.start_position)
            end = min(end, floor + WINDOW_POSITIONS)
        at = max(queue.start_position, call_filter.begin_at(group_queue, self._marks))
        while scanner.work > 0:
            undelivered = self.leases.find_undelivered(group_queue, window, (at, end))
            if undelivered[0] >= undelivered[1]:
                return None
            result = scanner.scan(
                queue,
                scan_filter,
                undelivered,
                count_max=limits.count_max,
                bytes_max=limits.bytes_max,
            )
            at = result.end
            call_filter.note(group_queue, at, self._marks)
            goes_on = self._withhold_picked(group_queue, result)
            if result.count:
                positions, units, blobs = result.joined()
                until_ms = limits.now_ms + limits.invisible_ms
                lease = self.leases.grant_selected(group_queue, positions, until_ms)
                return self._delivery(lease, units, blobs, limits.now_ms)
            if not goes_on:
                return None
        self.is_unfinished = True
        return None

    def _find_expired(
        self, group_queue: GroupQueue, units: Units, blobs: bytes, now_ms: int
    ) -> NDArray[np.bool_] | None:
        """Which of some messages of a topic's own queue have expired; None: none has."""
        if not self.expired.may_have(topic_of(group_queue.topic_queue)):
            return None
        return self.expired.find(units, blobs, now_ms)

    def give_up_expired(
        self, group_queue: GroupQueue, positions: NDArray[np.int64], now_ms: int
    ) -> int:
        """Deliver messages that have expired, at `positions`, which ascend, to no consumer.

        What the group does not want does not match, be it expired or not. Raises `InvalidFilter`.

        Returns:
            Where it has ended: before what cannot be read, or what takes long to be checked.
        """
        group_id, topic_id = group_queue.group_id, topic_of(group_queue.topic_queue)
        wanted = self._scan_filter(group_id, topic_id, None)
        if wanted is None:
            self.expired.give_up(group_queue, positions, now_ms)
            return int(positions[-1]) + 1
        queue = self._views.queues.get(group_queue.topic_queue)
        scanner = FilterScanner(self._bodies, self.counts, self._long_checks)
        for first, end in runs_of(positions).tolist():
            span = first, end
            found = scanner.scan(queue, wanted, span, count_max=end, bytes_max=_EXPIRED_BYTES)
            picked = found.joined()[0] if found.count else np.empty(0, np.int64)
            self.filtered_ranges.add_between(group_queue, (first, found.end), picked, now_ms)
            self.leases.skip(group_queue, first, found.end)
            self.expired.give_up(group_queue, picked, now_ms)
            if found.end < end:
                return found.end
        return int(positions[-1]) + 1

    def _withhold_picked(self, group_queue: GroupQueue, result: ScanResult) -> bool:
        return result.damage is None or self._withhold(group_queue, *result.damage)

    def _withhold(
        self, group_queue: GroupQueue, position: Position, unit: Units, error: errors.DataLoss
    ) -> bool:
        """Go on behind a message that cannot be read. False: there are too many such places."""
        if not self.leases.withhold(group_queue, position):
            return False
        self.corrupt.append(Corrupt(group_queue, position, copied(unit), error))
        return True

    def offer_again(self, group_queue: GroupQueue, first: int, end: int) -> None:
        """Deliver what is withheld of [first, end)."""
        self.leases.offer_again(group_queue, first, end)
        self.ordered.drop(group_queue)
        self._marks.clear()

    def on_reopened(
        self, group_queue: GroupQueue, lease_id: int, ranges: list[tuple[int, int]]
    ) -> None:
        """A lease that no client has seen is over: deliver what it held in these [first, end)."""
        self.ordered.let_go(group_queue, lease_id, ranges)
        self._marks.clear()

    def repeat(self, piece: Piece, until_ms: int, now_ms: int) -> Delivery | None:
        """The messages of a lease again, held until then; None where they are not whole any more.

        Whole: the lease holds all of them, and none is resolved, trimmed, damaged or expired.
        """
        lease, low = self.leases.get(piece.lease_id), piece.first
        if lease is None:
            return None
        high = lease.count if piece.size is None else min(lease.count, low + piece.size)
        if low >= high or not lease.holds_all(low, high):
            return None
        number = lease.group_queue.topic_queue
        if self._views.catalog.find_topic_by_id(topic_of(number)) is None:
            return None  # deleted since
        queue = self._views.queues.get(number)
        window = self._views.acks.get(*lease.group_queue)
        runs = lease.message_runs(low, high)
        left = window.count_unresolved_each(runs[:, 0], runs[:, 1])
        if runs[0, 0] < queue.start_position or (left != runs[:, 1] - runs[:, 0]).any():
            return None
        positions = lease.positions
        if positions is None:
            positions = np.arange(lease.first, lease.end, dtype=np.int64)
        positions = positions[low:high]
        units = queue.pick(positions)
        blobs, bad = self._bodies.read_joined(units)
        if bad or self._find_expired(lease.group_queue, units, blobs, now_ms) is not None:
            return None
        units = self.ordered.count_failures(lease.group_queue, positions.tolist(), units)
        self.leases.prolong(lease, lease.ranges(low, high), until_ms)
        delivery = self._delivery(lease, units, blobs, now_ms)
        return delivery._replace(first_ordinal=low, is_repeated=True)

    def _delivery(
        self,
        lease: Lease,
        units: Units,
        blobs: bytes,
        now_ms: int,
        rows: list[Row] | None = None,
    ) -> Delivery:
        """`rows`: of the units, where that is known."""
        if rows is None and len(units) <= FEW_UNITS:
            rows = rows_of(units)
        origin = int(units["origin_topic"][0]) if rows is None else rows[0].origin_topic
        topic = self._views.catalog.find_topic_by_id(TopicId(origin))
        return Delivery(lease, topic.name if topic else "", units, blobs, now_ms, rows=rows)

    def is_blocked(self, group_id: GroupId, topic_id: TopicId, now_ms: int) -> list[GroupQueue]:
        """The group's queues of a topic that have more, but only behind a full window."""
        reading = self._order.find(group_id, topic_id)
        if reading.is_ordered:
            return []  # its window is bounded by what is unfinished, and not by a floor
        is_filtered = self._scan_filter(group_id, topic_id, None) is not None
        found = []
        for group_queue in reading.group_queues:
            number = group_queue.topic_queue
            queue = self._views.queues.get(number)
            window = self._views.acks.get(*group_queue)
            bounds = queue.start_position, self._smoothing.visible_end(queue, now_ms)
            if is_filtered and topic_of(number) == topic_id:
                first, end = self.leases.find_undelivered(group_queue, window, bounds)
                is_blocked = first < end and not self.leases.room(group_queue, window, bounds[0])
            else:
                is_blocked = self.leases.is_blocked(group_queue, window, bounds)
            if is_blocked:
                found.append(group_queue)
        return found


_EVERYTHING: Final = ScanFilter(
    compile_filter(FilterExpression.everything(), DEFAULT_SPEC), masks=False, checks=False
)
"""Passes over nothing."""


_EXPIRED_LOOK: Final = 512
"""So many are looked at together behind what has expired, however few are asked for."""
_EXPIRED_TURNS: Final = 4
"""After so many looks without anything to deliver, others have their turn: some 5 ms."""
_EXPIRED_BYTES: Final = 1 << 20
"""So many bytes of messages that have expired, and a message more, are checked at once."""
