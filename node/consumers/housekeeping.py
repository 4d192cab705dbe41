"""Housekeeping: the master resolves leases that have ended, and what filters did not match.

All of it goes through the log. Where the disk has no room, housekeeping tries again later.
"""

import asyncio
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.joined_rows import join_rows
from hourwheel.instants import earliest
from hourwheel.types import TopicQueue, topic_of
from node.catalog.serving import Serving
from node.delivery.filtered_ranges import FilteredRange
from node.delivery.message_lease import Part
from node.delivery.resolve_rows import (
    expired_rows,
    filtered_rows,
    give_back_rows,
    unresolved_of,
)
from node.shard.group_queue import GroupQueue
from storage.views.catalog_items import Group

PARTS_AT_ONCE: Final = 64
MESSAGES_AT_ONCE: Final = 512
"""What one turn of the loop ends of leases, and one record resolves: a few milliseconds each."""
_ENDING_MAX: Final = 4
"""Such records on their way: they are applied in one turn."""
_TRY_AGAIN_MS: Final = 1_000


class Housekeeping:
    """Proposes RESOLVE records of the master's own."""

    def __init__(
        self,
        serving: Serving,
    ) -> None:
        """Begin with a mastership: there are no leases yet."""
        self._mastership, self._receiver = serving.mastership, serving.mastership.receiver
        self._views, self._propose = self._mastership.shard.views, serving.propose
        self._rearm, self._stats = serving.rearm, serving.stats
        self._ending: set[asyncio.Future[list[int]]] = set()
        """Records on their way that end leases."""
        self.reopened: set[TopicQueue] = set()
        """Queues of which something is to be delivered that no client has seen; their waiters look,
        and the code that wakes them clears it."""
        self.is_closing = False
        """Nothing is proposed any more."""

    # -- leases that end --------------------------------------------------------------------------

    def end_leases(self, now_ms: int) -> bool:
        """Give back what ended leases still hold. Returns whether anything was appended.

        One call does what one turn of the loop has time for; the timer fires again for the rest.
        """
        if self.is_closing or len(self._ending) >= _ENDING_MAX:
            return False
        leases, views = self._receiver.leases, self._views
        taken = leases.take_ended(now_ms, PARTS_AT_ONCE, MESSAGES_AT_ONCE)
        ended: dict[GroupQueue, list[Part]] = {}
        for group_queue, part in taken:
            if unresolved_of(views, group_queue, part):
                ended.setdefault(group_queue, []).append(part)
                is_beginning = leases.is_cut and part is taken[-1][1]
                self._stats.lease_expirations += not is_beginning
        given = self._give_back_all(ended, now_ms)
        for one in leases.reopened:
            bounds = [(one.first, one.end)]
            self._receiver.on_reopened(one.group_queue, one.lease_id, bounds)
            self.reopened.add(one.group_queue.topic_queue)
        leases.reopened.clear()
        if given is not None:
            self._ending.add(given)
            given.add_done_callback(self._on_ended)
        return given is not None

    def _on_ended(self, done: "asyncio.Future[list[int]]") -> None:
        self._ending.discard(done)
        self._rearm()

    def give_back(self, group_queue: GroupQueue, part: Part, now_ms: int) -> bool:
        """Have what is left of a part of a lease delivered again. Returns whether any was."""
        return self._give_back_all({group_queue: [part]}, now_ms) is not None

    def _give_back_all(
        self, ended: dict[GroupQueue, list[Part]], now_ms: int
    ) -> "asyncio.Future[list[int]] | None":
        """The same for many parts, in one record; None where there is nothing to propose."""
        catalog = self._views.catalog
        rows, given = [], []
        for group_queue, parts in ended.items():
            group = catalog.find_group_by_id(group_queue.group_id)
            if group is None or not self.reads(group, group_queue.topic_queue) or self.is_closing:
                continue
            found = give_back_rows(self._views, group, group_queue, parts, now_ms)
            if len(found):
                rows.append(found)
                given += [(group_queue, part) for part in parts]
        return self._resolve(given, join_rows(rows), now_ms) if given else None

    def reads(self, group: Group, topic_queue: TopicQueue) -> bool:
        """Whether a group is given messages of a queue."""
        catalog, topic_id = self._views.catalog, topic_of(topic_queue)
        retries = catalog.find_subscription_by_retry(topic_id)
        if retries is not None and retries.group_id == group.group_id:
            return True
        return catalog.find_subscription(group.group_id, topic_id) is not None

    def _resolve(
        self, given: list[tuple[GroupQueue, Part]], rows: NDArray[np.void], now_ms: int
    ) -> "asyncio.Future[list[int]]":
        """Propose what resolves some parts, and hold them until that is done, or was refused.

        However long it takes: an ordered group would count another failure if they ended again.
        Where it was refused they end again after a while.

        What is proposed when a mastership ends may never be in the log. The next master learns
        what is leased; it would take anything else for finished, and never deliver it again.
        """
        leases, ordered = self._receiver.leases, self._receiver.ordered
        again_ms = now_ms + _TRY_AGAIN_MS
        held_again = [
            leases.hold(group_queue, part.first, part.end, again_ms, part.messages, is_ending=True)
            for group_queue, part in given
        ]

        def end(done: "asyncio.Future[list[int]]") -> None:
            is_lost = done.cancelled() or done.exception() is not None
            for lease in held_again:
                whole = [(lease.first, lease.end)]
                if is_lost:
                    leases.note_ending(lease.lease_id, whole, is_ending=False)
                else:
                    leases.end(lease.lease_id)
                    ordered.let_go(lease.group_queue, lease.lease_id, whole)
            self._rearm()

        proposed = self._append(rows, now_ms)
        proposed.add_done_callback(end)
        return proposed

    def _append(self, rows: NDArray[np.void], now_ms: int) -> "asyncio.Future[list[int]]":
        """Propose rows. Where that is refused the future fails, and nothing is raised.

        A mastership lease that has run out must fail neither a Receive under way nor the node.
        """
        try:
            return self._propose(
                lambda now, token: self._mastership.resolve(rows, now, token), now_ms
            )
        except errors.HourwheelError as refusal:
            refused: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
            refused.set_exception(refusal)
            return refused

    # -- filtered ranges --------------------------------------------------------------------------

    def resolve_filtered(self, now_ms: int, group_queue: GroupQueue | None = None) -> bool:
        """Resolve ranges long or old enough, and all of `group_queue`. Returns whether any were."""
        if self.is_closing:
            return False
        filtered_ranges = self._receiver.filtered_ranges
        due = filtered_ranges.take_due(now_ms, group_queue)
        if due:
            rows = join_rows([self._rows_of(one) for one in due])
            self._append(rows, now_ms).add_done_callback(partial(self._settle, due, now_ms))
        return bool(due)

    def _rows_of(self, passed: FilteredRange) -> NDArray[np.void]:
        group_queue, ranges = passed.group_queue, [(passed.first, passed.end)]
        if not passed.are_expired:
            return filtered_rows(group_queue, ranges)
        group = self._views.catalog.find_group_by_id(group_queue.group_id)
        return expired_rows(group_queue, ranges, kept=group is not None and group.keeps_expired)

    def _settle(
        self, ranges: list[FilteredRange], proposed_ms: int, done: "asyncio.Future[list[int]]"
    ) -> None:
        """A proposal was applied or refused; a new mastership has none of these ranges."""
        is_lost = not done.cancelled() and done.exception() is not None
        again_ms = proposed_ms if is_lost else None
        if not is_lost and not done.cancelled():
            counts = zip(ranges, done.result(), strict=True)
            self._stats.expired += sum(count for one, count in counts if one.are_expired)
        for one in ranges:
            self._receiver.filtered_ranges.settle(one, again_ms)
        if is_lost:
            self._rearm()

    def next_wakeup_ms(self) -> int | None:
        """When a lease ends, or a filtered range is old enough; or None."""
        receiver = self._receiver
        is_full = len(self._ending) >= _ENDING_MAX  # then it goes on when one of them is done
        next_end_ms = None if is_full else receiver.leases.next_end_ms()
        return earliest(next_end_ms, receiver.filtered_ranges.next_due_ms())
