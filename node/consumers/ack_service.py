"""Ack, nack and change-invisible: what consumers say of the messages that a receipt names.

A call may name thousands of messages one by one. So the master works through it in pieces, and
appends records that are quickly applied; other calls have their turns in between.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.joined_rows import join_rows
from hourwheel.formats.record_batch import Outcome
from hourwheel.outcomes import ReceiptOutcome
from node.catalog.serving import ServingConsumers
from node.consumers.rejections import REMEMBERED_MAX, Rejections
from node.contracts.broker import Selection
from node.contracts.ending import Ending
from node.delivery.resolve_rows import SelectedPositions, find_positions
from storage.views.catalog_items import Group

SELECTIONS_AT_ONCE: Final = 256
"""Of one turn of the loop: some milliseconds."""
NOTES_AT_ONCE: Final = 1_024
ROWS_AT_ONCE: Final = 256
"""Of one RESOLVE record, which is applied as a whole, and several of them in one turn."""
ASCENDING_ROWS_AT_ONCE: Final = 4_096
"""The same of rows of one sparse lease: applied at once, in half a millisecond."""


class AckService:
    """Ends and changes leases for those who hold them."""

    def __init__(
        self,
        serving: ServingConsumers,
        reads: Callable[[Group, int], bool],
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
        outcomes: list[ReceiptOutcome] = []
        records = _Records()
        proposed: list[tuple[int, NDArray[np.void], SelectedPositions]] = []
        rejected: list[int] = []
        is_ack = ending.is_ack
        keeps_place = group.is_ordered and not is_ack
        now_ms = self._now_ms()
        for ordinal, one in enumerate(selections):
            if ordinal and not ordinal % SELECTIONS_AT_ONCE:
                await asyncio.sleep(0)
            positions = self._find_positions(group, one)
            outcomes.append(positions.outcome)
            if positions.outcome == ReceiptOutcome.OK:
                if is_ack:
                    rows = positions.ack_rows()
                else:
                    rows = positions.nack_rows(group, now_ms, ending)
                records.add(rows, is_ascending=is_ack and positions.picked is not None)
                if ending.rejection:
                    rejected += positions.sequences()
                proposed.append((ordinal, rows, positions))
        counts = await self._append(records.take())
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
            for first, end in positions.ranges:
                leases.give_up(positions.lease_id, first, end)
        elif is_done and positions.is_whole:
            leases.end(positions.lease_id)
        elif group.in_flight_max:
            window = self._mastership.shard.views.acks.get(*positions.group_queue)
            leases.recount(positions.lease_id, window)
        elif is_done:
            leases.note_resolved(positions.lease_id, count, positions.position_count)
        return is_done

    async def _append(self, records: list[NDArray[np.void]]) -> list[int]:
        """How many positions each row has resolved; where it raises, some may be resolved."""
        proposed = [self._propose(rows) for rows in records]
        return list(chain.from_iterable(await asyncio.gather(*proposed)))

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
        held = [
            (first, end)
            for first, end in positions.ranges
            if any(part.first < end and first < part.end for part in lease.parts)
        ]
        if not held:
            return ReceiptOutcome.STALE  # these messages have been given to others by now
        for first, end in held:
            leases.change(lease, first, end, until_ms)
        return ReceiptOutcome.OK


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
