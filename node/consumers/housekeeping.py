"""What the master resolves though no consumer asked: ended leases, and what filters passed over.

All of it goes through the log. Where there is no room for it, it is tried again later.
"""

import asyncio
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.types import topic_of
from node.catalog.serving import Serving
from node.delivery.filtered_ranges import Stretch
from node.delivery.message_lease import Part
from node.delivery.retries import filtered_rows, give_back_rows, unresolved_of
from node.shard.group_queue import GroupQueue
from storage.views.catalog_items import Group

_PARTS_AT_ONCE: Final = 64
_MESSAGES_AT_ONCE: Final = 512
"""What one turn of the loop ends of leases, and one record resolves: a few milliseconds each."""
_ENDING_MAX: Final = 4
"""Such records on their way: they are applied in one turn."""
_TRY_AGAIN_MS: Final = 1_000


class Unasked:
    """Proposes RESOLVE records of the master's own."""

    def __init__(
        self,
        serving: Serving,
    ) -> None:
        """Nothing is held yet."""
        self._mastership, self._receiver = serving.mastership, serving.mastership.receiver
        self._views, self._propose = self._mastership.shard.views, serving.propose
        self._rearm, self._stats = serving.rearm, serving.stats
        self._ending: set[asyncio.Future[Any]] = set()
        """Records on their way that end leases."""
        self.is_closing = False
        """Nothing is proposed any more."""

    # -- leases that end --------------------------------------------------------------------------

    def end_leases(self, now_ms: int) -> bool:
        """Give back what leases that are over still held. Returns whether anything was appended.

        So much as one turn of the loop has time for; the timer comes again at once for the rest.
        """
        if self.is_closing or len(self._ending) >= _ENDING_MAX:
            return False
        leases, views = self._receiver.leases, self._views
        taken = leases.take_ended(now_ms, _PARTS_AT_ONCE, _MESSAGES_AT_ONCE)
        ended: dict[GroupQueue, list[Part]] = {}
        for held, part in taken:
            if unresolved_of(views, held, part):
                ended.setdefault(held, []).append(part)
                is_beginning = leases.is_cut and part is taken[-1][1]
                self._stats.lease_expirations += not is_beginning
        given = self._give_back_all(ended, now_ms)
        if given is not None:
            self._ending.add(given)
            given.add_done_callback(self._on_ended)
        return given is not None

    def _on_ended(self, done: "asyncio.Future[Any]") -> None:
        self._ending.discard(done)
        self._rearm()

    def give_back(self, held: GroupQueue, part: Part, now_ms: int) -> bool:
        """Have what is left of a part of a lease delivered again. Returns whether it was asked."""
        return self._give_back_all({held: [part]}, now_ms) is not None

    def _give_back_all(
        self, ended: dict[GroupQueue, list[Part]], now_ms: int
    ) -> "asyncio.Future[Any] | None":
        """The same for many parts, in one record; None where there is nothing to be asked."""
        catalog = self._views.catalog
        rows, given = [], []
        for held, parts in ended.items():
            group = catalog.find_group_by_id(held.group_id)
            if group is None or not self.reads(group, held.topic_queue) or self.is_closing:
                continue
            found = give_back_rows(self._views, group, held, parts, now_ms)
            if len(found):
                rows.append(found)
                given += [(held, part) for part in parts]
        return self._resolve(given, np.concatenate(rows), now_ms) if given else None

    def reads(self, group: Group, topic_queue: int) -> bool:
        """Whether a group is given messages of a queue."""
        catalog, topic_id = self._views.catalog, topic_of(topic_queue)
        retries = catalog.find_subscription_by_retry(topic_id)
        if retries is not None and retries.group_id == group.group_id:
            return True
        return catalog.find_subscription(group.group_id, topic_id) is not None

    def _resolve(
        self, given: list[tuple[GroupQueue, Part]], rows: NDArray[Any], now_ms: int
    ) -> "asyncio.Future[Any]":
        """Propose what resolves some parts, and hold them until that is done, or for a while.

        What is under way when a reign ends may never be in the log. The next master is told what
        is held; it would take what nobody holds for finished, and never deliver it again.
        """
        leases = self._receiver.leases
        again_ms = now_ms + _TRY_AGAIN_MS
        held_again = [
            leases.hold(held, part.first, part.end, again_ms, part.messages) for held, part in given
        ]

        def end(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled() and done.exception() is None:
                for lease in held_again:
                    leases.end(lease.lease_id)
            self._rearm()

        proposed = self._append(rows, now_ms)
        proposed.add_done_callback(end)
        return proposed

    def _append(self, rows: NDArray[Any], now_ms: int) -> "asyncio.Future[Any]":
        """Propose rows. Where that is refused the future says so: no caller asked for them.

        A lease of mastership that is over must not end what just looks for messages, or the node.
        """
        try:
            return self._propose(
                lambda now, token: self._mastership.resolve(rows, now, token), now_ms
            )
        except errors.HourwheelError as refusal:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(refusal)
            return refused

    # -- what filters passed over -----------------------------------------------------------------

    def pass_over(self, now_ms: int, held: GroupQueue | None = None) -> bool:
        """Resolve stretches long or old enough, and all of `held`. Returns whether there were."""
        if self.is_closing:
            return False
        passed_over = self._receiver.passed_over
        due = passed_over.take_due(now_ms, held)
        if due:
            rows = np.concatenate([filtered_rows(one.held, [(one.first, one.end)]) for one in due])
            self._append(rows, now_ms).add_done_callback(partial(self._settle, due, now_ms))
        return bool(due)

    def _settle(self, ranges: list[Stretch], proposed_ms: int, done: "asyncio.Future[Any]") -> None:
        """Told what became of a proposal; a new reign knows nothing of the stretches any more."""
        is_lost = not done.cancelled() and done.exception() is not None
        again_ms = proposed_ms if is_lost else None
        for one in ranges:
            self._receiver.passed_over.settle(one, again_ms)
        if is_lost:
            self._rearm()

    def next_wakeup_ms(self) -> int | None:
        """When a lease ends, or something passed over is old enough; or None."""
        receiver = self._receiver
        is_full = len(self._ending) >= _ENDING_MAX  # then it goes on when one of them is done
        next_end_ms = None if is_full else receiver.leases.next_end_ms()
        times = (next_end_ms, receiver.passed_over.next_due_ms())
        return min((at for at in times if at is not None), default=None)
