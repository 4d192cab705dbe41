"""Ack, nack and change-invisible: what consumers say of the messages that a receipt names.

A call may name thousands of messages one by one. So the master works through it in pieces, and
appends records that are quickly applied; other calls have their turns in between.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.joined_rows import join_rows
from hourwheel.formats.record_batch import Outcome
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import GroupId, SequenceNumber, TopicQueue
from node.catalog.serving import ServingConsumers
from node.consumers.rejections import REMEMBERED_MAX, Rejections
from node.contracts.broker import Selection
from node.contracts.ending import Ending
from node.delivery.receiver import Receiver
from node.delivery.resolve_rows import SelectedPositions, find_positions
from node.shard.group_queue import GroupQueue
from storage.views.catalog_items import Group

SELECTIONS_AT_ONCE: Final = 256
"""Of one turn of the loop: some milliseconds."""
NOTES_AT_ONCE: Final = 1_024
ROWS_AT_ONCE: Final = 256
"""Of one RESOLVE record, which is applied as a whole, and several of them in one turn."""
ASCENDING_ROWS_AT_ONCE: Final = 4_096
"""The same of rows of one sparse lease: applied at once, in half a millisecond."""


class _Proposed(NamedTuple):
    """What is to be done for a selection."""

    ordinal: int
    rows: NDArray[np.void]
    positions: SelectedPositions


class AckService:
    """Ends and changes leases for those who hold them."""

    def __init__(
        self,
        serving: ServingConsumers,
        reads: Callable[[Group, TopicQueue], bool],
    ) -> None:
        """`reads`: as `find_positions`."""
        self._mastership, self._receiver = serving.mastership, serving.mastership.receiver
        self._now_ms, self._propose = serving.now_ms, serving.propose_resolve
        self._rearm, self._stats, self._reads = serving.rearm, serving.stats, reads
        self.rejections = Rejections()
        """Why consumers of this mastership rejected what they did."""

    async def resolve(
        self,
        group: Group,
        selections: Sequence[Selection],
        ending: Ending,
    ) -> list[ReceiptOutcome]:
        """What became of each selection."""
        if ending.is_unbegun:
            return await self._open_again(group, selections)
        in_place, is_ack = _InPlace(self._receiver, group.group_id), ending.is_ack
        keeps_place = group.is_ordered and not is_ack
        outcomes, proposed = await self._find_rows(group, selections, ending, in_place)
        rejected: list[SequenceNumber] = []
        if ending.rejection:
            rejected += chain.from_iterable(one.positions.sequences() for one in proposed)
        records = _Records()
        for _, rows, positions in proposed:
            records.add(rows, is_ascending=is_ack and positions.picked is not None)
        counts = await self._append(records.take(), in_place)
        self.rejections.note(group.group_id, rejected[-REMEMBERED_MAX:], ending.rejection or "")
        at = 0
        for number, (ordinal, rows, positions) in enumerate(proposed, 1):
            done = sum(counts[at : at + len(rows)])
            if keeps_place:  # one that becomes a dead letter has two rows
                each = zip(counts[at : at + len(rows)], rows["outcome"].tolist(), strict=True)
                done = sum(count for count, outcome in each if outcome == Outcome.HELD)
            at += len(rows)
            if not self._note(group, positions, done, is_ack=is_ack):
                outcomes[ordinal] = ReceiptOutcome.STALE
            if not number % NOTES_AT_ONCE:
                await asyncio.sleep(0)
        if self._receiver.leases.freed:
            self._rearm()  # somebody waits for that
        return outcomes

    async def _find_rows(
        self,
        group: Group,
        selections: Sequence[Selection],
        ending: Ending,
        in_place: "_InPlace",
    ) -> "tuple[list[ReceiptOutcome], list[_Proposed]]":
        """What can be said of each selection, and what is to be done for those that are OK."""
        outcomes, proposed = list[ReceiptOutcome](), list[_Proposed]()
        now_ms, reset_count = self._now_ms(), self._receiver.resets.count
        with in_place.finding():
            for ordinal, one in enumerate(selections):
                if ordinal and not ordinal % SELECTIONS_AT_ONCE:
                    await asyncio.sleep(0)
                positions = self._find_positions(group, one)
                outcomes.append(positions.outcome)
                if positions.outcome != ReceiptOutcome.OK:
                    continue
                if ending.is_ack:
                    rows = positions.ack_rows()
                else:
                    rows = positions.nack_rows(group, now_ms, ending)
                if group.is_ordered and not ending.is_ack:
                    in_place.add(positions.lease_id, rows)
                proposed.append(_Proposed(ordinal, rows, positions))
        if self._receiver.resets.count != reset_count:
            proposed = self._without_stale(proposed, selections, outcomes)
        return outcomes, proposed

    def _without_stale(
        self,
        proposed: "list[_Proposed]",
        selections: Sequence[Selection],
        outcomes: list[ReceiptOutcome],
    ) -> "list[_Proposed]":
        """A group was reset since these rows were made: some would be about its new windows."""
        kept = []
        for one in proposed:
            if self._receiver.resets.is_stale(selections[one.ordinal].receipt):
                outcomes[one.ordinal] = ReceiptOutcome.STALE
            else:
                kept.append(one)
        return kept

    def _find_positions(self, group: Group, one: Selection) -> SelectedPositions:
        shard = self._mastership.shard
        return find_positions(shard, self._receiver, group, one, reads=self._reads)

    def _note(self, group: Group, positions: SelectedPositions, done: int, *, is_ack: bool) -> bool:
        """Update the lease. Returns whether all of the selection was resolved just now.

        Or held: what an ordered group gives back keeps its place.
        """
        leases, count = self._receiver.leases, positions.message_count
        if is_ack:
            self._stats.acknowledged += min(done, count)
        is_done = done == positions.position_count
        if group.is_ordered and not is_ack:
            return is_done  # see `_InPlace`
        if not positions.lease_id:  # it is over, or the receipt is a former master's
            acks = self._mastership.shard.views.acks
            for first, end in positions.ranges:
                for lease_id in leases.inherited_in(positions.group_queue, first, end):
                    leases.recount(lease_id, acks.get(*positions.group_queue))
        elif is_done and positions.is_whole:
            leases.end(positions.lease_id)
        elif group.in_flight_max:
            window = self._mastership.shard.views.acks.get(*positions.group_queue)
            leases.recount(positions.lease_id, window)
        elif is_done:
            leases.note_resolved(positions.lease_id, count, positions.position_count)
        return is_done

    async def _append(self, records: list[NDArray[np.void]], in_place: "_InPlace") -> list[int]:
        """How many positions each row has resolved; where it raises, some may be resolved."""
        if not in_place:
            proposed = [self._propose(rows) for rows in records]
            return list(chain.from_iterable(await asyncio.gather(*proposed)))
        proposed = [self._propose_one(rows) for rows in records]
        for rows, future in zip(records, proposed, strict=True):
            future.add_done_callback(partial(self._settle, in_place, rows))
        # The records stay on their way where the caller goes away.
        counts = await asyncio.shield(asyncio.gather(*proposed))
        return list(chain.from_iterable(counts))

    def _propose_one(self, rows: NDArray[np.void]) -> "asyncio.Future[Sequence[int]]":
        """As `propose_resolve`; where it is refused the future fails, as it may later."""
        try:
            return self._propose(rows)
        except errors.HourwheelError as refusal:
            refused: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
            refused.set_exception(refusal)
            return refused

    def _settle(
        self, in_place: "_InPlace", rows: NDArray[np.void], done: "asyncio.Future[Sequence[int]]"
    ) -> None:
        """A record is applied, or was refused."""
        in_place.settle(rows, is_lost=done.cancelled() or done.exception() is not None)
        self._rearm()

    async def _open_again(
        self, group: Group, selections: Sequence[Selection]
    ) -> list[ReceiptOutcome]:
        """Have these delivered as if they had never been. No record is needed: leases end.

        What no lease holds any more comes again by itself, or is somebody else's by now.
        """
        outcomes, now_ms = list[ReceiptOutcome](), self._now_ms()
        for ordinal, one in enumerate(selections):
            if ordinal and not ordinal % SELECTIONS_AT_ONCE:
                await asyncio.sleep(0)
            positions = self._find_positions(group, one)
            outcome = positions.outcome
            if outcome == ReceiptOutcome.OK and self._open(positions, now_ms) < one.count:
                outcome = ReceiptOutcome.STALE
            outcomes.append(outcome)
        self._rearm()
        return outcomes

    def _open(self, positions: SelectedPositions, now_ms: int) -> int:
        """Have leases end unseen, where they hold messages of a selection; of how many they do."""
        leases, group_queue, count = self._receiver.leases, positions.group_queue, 0
        window = self._mastership.shard.views.acks.get(*group_queue)
        for first, end in positions.ranges:
            own = [positions.lease_id] if positions.lease_id else None
            for lease_id in own or leases.inherited_in(group_queue, first, end):
                lease = leases.get(lease_id)
                for part in [] if lease is None else lease.parts_in(first, end):
                    if lease is None or part.is_ending or part.is_unseen:
                        continue
                    low, high = max(part.first, first), min(part.end, end)
                    for run in list(window.unresolved(low, high)):
                        leases.change(lease, *run, now_ms, is_unseen=True)
                        count += lease.count_messages(*run)
        return count

    def change_invisible(
        self, group: Group, selections: Sequence[Selection], invisible_ms: int
    ) -> tuple[list[ReceiptOutcome], int]:
        """What became of each selection, and when the changed leases end."""
        until_ms = self._now_ms() + invisible_ms
        outcomes = [self._change_one(group, one, until_ms) for one in selections]
        self._rearm()
        return outcomes, until_ms

    def _change_one(self, group: Group, one: Selection, until_ms: int) -> ReceiptOutcome:
        positions = self._find_positions(group, one)
        if positions.outcome != ReceiptOutcome.OK:
            return positions.outcome
        leases = self._receiver.leases
        lease = leases.get(positions.lease_id)
        if lease is None:
            return ReceiptOutcome.STALE
        if one.receipt.first_position != lease.first:
            return ReceiptOutcome.INVALID
        held = [one for one in positions.ranges if lease.parts_in(*one)]
        if not held:
            return ReceiptOutcome.STALE  # these messages have been given to others by now
        for first, end in held:
            leases.change(lease, first, end, until_ms)
        return ReceiptOutcome.OK


class _InPlace:
    """What an ordered group gives back, while the records that say so are on their way.

    The leases hold it until these are applied, and nothing else may end them. Neither the clock nor
    the same call once more: each record would count a failure, and the second one would take the
    message from the one that has got it after the first.
    """

    def __init__(self, receiver: Receiver, group_id: GroupId) -> None:
        self._leases, self._ordered = receiver.leases, receiver.ordered
        self._group_id = group_id
        self._holders: dict[tuple[int, int], int] = {}
        """(topic_queue, position) -> the lease that holds it."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._holders)

    @contextmanager
    def finding(self) -> Iterator[None]:
        """What was added inside is held as before, if an error ends that."""
        try:
            yield
        except BaseException:
            self._note(self._holders, is_ending=False)
            raise

    def add(self, lease_id: int, rows: NDArray[np.void]) -> None:
        """These rows of RESOLVE give back what a lease holds."""
        places = _held_places(rows)
        self._holders.update(dict.fromkeys(places, lease_id))
        self._note(places, is_ending=True)

    def settle(self, rows: NDArray[np.void], *, is_lost: bool) -> None:
        """A record is applied: leases hold no more what it gives back. `is_lost`: they do."""
        if is_lost:
            self._note(_held_places(rows), is_ending=False)
            return
        for (number, lease_id), ranges in self._by_lease(_held_places(rows)):
            self._leases.give_up(lease_id, ranges)
            self._ordered.let_go(GroupQueue.of(self._group_id, number), lease_id, ranges)

    def _note(self, places: Iterable[tuple[int, int]], *, is_ending: bool) -> None:
        for (_, lease_id), ranges in self._by_lease(places):
            self._leases.note_ending(lease_id, ranges, is_ending=is_ending)

    def _by_lease(
        self, places: Iterable[tuple[int, int]]
    ) -> Iterable[tuple[tuple[int, int], list[tuple[int, int]]]]:
        """((topic_queue, lease), ranges of what it holds)."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for topic_queue, position in places:
            holder = self._holders[topic_queue, position]
            found.setdefault((topic_queue, holder), []).append((position, position + 1))
        return found.items()


def _held_places(rows: NDArray[np.void]) -> list[tuple[int, int]]:
    """(topic_queue, position) of each row that gives something back in its place."""
    held = rows[rows["outcome"] == Outcome.HELD]
    return list(zip(held["topic_queue"].tolist(), held["first_position"].tolist(), strict=True))


class _Records:
    """Rows of RESOLVE, in their order, cut into records: see `ROWS_AT_ONCE`."""

    def __init__(self) -> None:
        self._full: list[NDArray[np.void]] = []
        self._begun: list[NDArray[np.void]] = []
        """Rows of the next one; fewer than it may have."""
        self._begun_count = 0

    def add(self, rows: NDArray[np.void], *, is_ascending: bool) -> None:
        """These come next. `is_ascending`: they finish positions of one queue, from low to high."""
        if is_ascending and len(rows) > ROWS_AT_ONCE:
            self._end()
            self._full += _cut(rows, ASCENDING_ROWS_AT_ONCE)
            return
        self._begun.append(rows)
        self._begun_count += len(rows)
        if self._begun_count >= ROWS_AT_ONCE:
            self._end()

    def _end(self) -> None:
        if self._begun:
            self._full += _cut(join_rows(self._begun), ROWS_AT_ONCE)
            self._begun, self._begun_count = [], 0

    def take(self) -> list[NDArray[np.void]]:
        """The rows of each record."""
        self._end()
        return self._full


def _cut(rows: NDArray[np.void], count_max: int) -> list[NDArray[np.void]]:
    return [rows[first : first + count_max] for first in range(0, len(rows), count_max)]
