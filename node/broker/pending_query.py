"""Listing, cancelling and moving what is pending, page by page, beside all else that a node does.

A page is made in slices of a few milliseconds, between which the loop goes on; it ends when it is
full, at the end of the range, or after a bounded amount of work, and then says where to go on. One
page is made at a time. Changes go through the log as any other's do, in pieces; their outcomes are
decided where they are applied.

What is moved may come into the range again, further on. It is due at the one new time then, and
left alone, as it is by a call that begins again where another was interrupted.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from filters.compile import compile_filter
from hourwheel import errors, limits
from hourwheel.outcomes import CancelOutcome, RescheduleOutcome
from hourwheel.types import KEY_MIN, SEQUENCE_MAX
from node.broker.keys.prefix import KeyPrefix
from node.broker.reschedule_service import RescheduleService
from node.catalog.filter_cache import make_ready
from node.catalog.serving import Serving
from node.consumers.loop_share import LoopShare, Turns
from node.contracts.pending_page import ChangedPage, PendingPage, PendingPart, ids_of
from node.contracts.pending_token import PendingQuery, Purpose, Reached, TokenMaker
from node.repair.damage_control import DamageControl
from node.shard.pending_scan import Matches, PendingRange, PendingScan
from storage.log.commit_log import CommitLog
from storage.views.catalog_items import Topic
from storage.views.unit import Units, pick

Outcomes: TypeAlias = "asyncio.Future[NDArray[np.uint8]]"
Propose: TypeAlias = Callable[[Units], Outcomes]

_PAGE_S: Final = 0.25
"""A page's time, what else the loop does meanwhile included."""
_PAGE_UNITS_MAX: Final = 8 << 20
_PAGE_READS_MAX: Final = 131_072
PAGE_BYTES_MAX: Final = limits.RECEIVE_BYTES_MAX
"""Of metas and bodies; the last slice may come on top."""
CANCEL_PIECE: Final = 4_096
"""Cancels of one record: so many are applied at once. Of moves it is some records."""
_CHANGES_IN_FLIGHT: Final = 4
PAGE_CANCELS_MAX: Final = 65_536
"""And moves."""
_WAITING_MAX: Final = 16
"""Pages that wait for their turn; each takes `_PAGE_S` at most."""


class Pending:
    """See EnginePort.list_pending, cancel_pending and reschedule_pending."""

    def __init__(
        self,
        serving: Serving,
        cluster_id: bytes,
        damage: DamageControl,
        rescheduling: RescheduleService,
    ) -> None:
        """Read the shard of a mastership; `damage` takes what cannot be read."""
        self._rescheduling = rescheduling
        self._serving, self._mastership = serving, serving.mastership
        self._shard, self._cluster_id, self._damage = serving.mastership.shard, cluster_id, damage
        self._turns = Turns("pending listings and bulk changes", _WAITING_MAX)

    async def list_pending(
        self, query: PendingQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> PendingPage:
        """See EnginePort."""
        topic = await self._ready_topic(query)
        maker = TokenMaker(self._cluster_id, Purpose.LIST, topic.topic_id, query)
        position = maker.unpack(token) if token else Reached(KEY_MIN)
        page, size = PendingPage(), 0
        async with self._turns.one():
            scan = self._scan(
                topic, query, position, with_metas=count_max > 0, with_bodies=with_bodies
            )
            budget = _Budget(scan, self._shard.log)
            while not scan.is_done:
                left = count_max - page.matched_count if count_max else SEQUENCE_MAX
                matches = self._step(scan, topic, left)
                page.matched_count += len(matches.units)
                if count_max and len(matches.units):
                    ids = ids_of(self._shard.shard_id, self._shard.views, matches.units)
                    page.parts.append(PendingPart(matches.units, matches.blobs, ids))
                    size += sum(len(blob.meta) + len(blob.body) for blob in matches.blobs)
                is_full = page.matched_count == count_max > 0 or size >= PAGE_BYTES_MAX
                if is_full or budget.is_spent_by(scan):
                    break
                await budget.rest()
        page.scanned_count, page.corrupt_count = scan.scanned_count, scan.corrupt_count
        if not scan.is_done:
            page.next_token = maker.pack(Reached(scan.after))
        return page

    async def cancel_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        """See EnginePort."""
        done = CancelOutcome.CANCELLED
        page = await self._change(query, token, Purpose.CANCEL, (self._cancel, done))
        self._serving.stats.cancelled = self._shard.views.counters.cancelled
        return page

    async def reschedule_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        """See EnginePort."""
        self._rescheduling.admit(np.array([query.new_due_ms]), are_delays=False)

        def move(units: Units) -> Outcomes:
            return asyncio.ensure_future(self._move(units, query.new_due_ms))

        done = RescheduleOutcome.RESCHEDULED
        return await self._change(query, token, Purpose.RESCHEDULE, (move, done))

    async def _change(
        self, query: PendingQuery, token: bytes, purpose: Purpose, how: tuple[Propose, int]
    ) -> ChangedPage:
        """Change a page. `how`: what proposes it, and the outcome of what is changed."""
        topic = await self._ready_topic(query)
        maker = TokenMaker(self._cluster_id, purpose, topic.topic_id, query)
        propose, done = how
        beginning = Reached(KEY_MIN, self._shard.views.next_sequence)
        position = maker.unpack(token) if token else beginning
        page, in_flight = ChangedPage(), deque[Outcomes]()
        async with self._turns.one():
            scan = self._scan(topic, query, position)
            try:
                async for ended in self._propose_all(scan, topic, propose, in_flight):
                    _count(page, ended, done)
            finally:  # also the others are waited for when one fails
                outcomes = await asyncio.gather(*in_flight, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            _count(page, outcome, done)
        page.scanned_count, page.corrupt_count = scan.scanned_count, scan.corrupt_count
        if not scan.is_done:
            page.next_token = maker.pack(Reached(scan.after, position.end_sequence))
        return page

    async def _propose_all(
        self, scan: PendingScan, topic: Topic, propose: Propose, in_flight: "deque[Outcomes]"
    ) -> AsyncIterator[NDArray[np.uint8]]:
        """Propose to change what matches, until the page is over; leaves the last in flight."""
        budget, found = _Budget(scan, self._shard.log), 0
        while not scan.is_done:
            matches = self._step(scan, topic, CANCEL_PIECE)
            if len(matches.units):
                found += len(matches.units)
                in_flight.append(propose(matches.units))
            while len(in_flight) > _CHANGES_IN_FLIGHT:
                yield await in_flight.popleft()
            if found >= PAGE_CANCELS_MAX or budget.is_spent_by(scan):
                return
            await budget.rest()

    def _cancel(self, units: Units) -> Outcomes:
        """Append a cancel of these messages."""
        ids = ids_of(self._shard.shard_id, self._shard.views, units)
        return self._serving.propose(lambda now, who: self._mastership.cancel(ids, now, who))

    async def _move(self, units: Units, due_ms: int) -> NDArray[np.uint8]:
        """Move those of these messages that are not there already."""
        units = pick(units, np.flatnonzero(units["due_ms"] != due_ms))
        if not len(units):
            return np.zeros(0, np.uint8)
        ids = ids_of(self._shard.shard_id, self._shard.views, units)
        times_ms = np.full(len(ids), due_ms)
        found = await self._rescheduling.reschedule(ids, times_ms, are_delays=False)
        outcomes: NDArray[np.uint8] = found["outcome"]
        return outcomes

    # -- what all do ------------------------------------------------------------------------------

    async def _ready_topic(self, query: PendingQuery) -> Topic:
        """The topic that is asked about; the filter is compiled for it.

        Raises:
            UnknownTopic: there is none.
            InvalidTopic: one of the cluster's own: nothing is published to it.
            InvalidFilter: the filter cannot be understood.
        """
        topic: Topic = self._shard.views.catalog.get_topic(query.topic)
        if topic.internal:
            raise errors.InvalidTopic("this topic is the cluster's own", topic=topic.name)
        await make_ready(query.filter, topic.gene)
        return topic

    def _scan(
        self,
        topic: Topic,
        query: PendingQuery,
        position: Reached,
        *,
        with_metas: bool = False,
        with_bodies: bool = False,
    ) -> PendingScan:
        return PendingScan(
            self._shard.views,
            self._shard.bodies,
            PendingRange(
                topic.topic_id,
                max(query.after, position.after),
                query.to,
                position.end_sequence,
            ),
            KeyPrefix(query.key_prefix)
            if query.key_prefix
            else compile_filter(query.filter, topic.gene),
            with_metas=with_metas,
            with_bodies=with_bodies,
            on_damage=self._damage.take_listed,
        )

    def _step(self, scan: PendingScan, topic: Topic, matches_max: int) -> Matches:
        """The next slice.

        Raises:
            ShuttingDown, NotMaster, UnknownTopic: to go on makes no sense any more.
            CorruptFile: a view is damaged: the node ends.
        """
        self._serving.check()
        if self._shard.views.catalog.find_topic_by_id(topic.topic_id) is None:
            raise errors.UnknownTopic("the topic was deleted", topic=topic.name)
        try:
            return scan.step(matches_max)
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise


class _Budget:
    """What one page may cost. But it gets on in any case, if only by a slice."""

    def __init__(self, scan: PendingScan, log: CommitLog) -> None:
        self._begun = scan.after
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + _PAGE_S
        self.rest = LoopShare(lambda: log.end_offset).rest

    def is_spent_by(self, scan: PendingScan) -> bool:
        """Whether a scan had its share."""
        return scan.after > self._begun and (
            scan.masked_count >= _PAGE_UNITS_MAX
            or scan.read_count >= _PAGE_READS_MAX
            or self._now() >= self._until
        )


def _count(page: ChangedPage, outcomes: NDArray[np.uint8], done: int) -> None:
    changed = int((outcomes == done).sum())
    page.changed_count += changed
    page.missed_count += len(outcomes) - changed
