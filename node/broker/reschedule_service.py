"""Rescheduling: moves pending messages to other due times, by id and by key.

A call's messages are moved one by one, in records of some rows each: what becomes of each is
decided where its record is applied, as of a cancel. What is looked at here, before, only refuses
calls: the times, the room, and whether all nodes know the record.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.formats.record_batch import RESCHEDULE_ROW
from hourwheel.outcomes import RescheduleOutcome
from hourwheel.types import ShardId
from node.broker.keys.service import I64, U64, KeyCall, KeyService
from node.broker.publish_service import PublishService, check_horizon
from node.broker.small_calls import RESCHEDULES_MAX
from node.catalog.serving import Serving
from node.contracts.rescheduling import KeysRescheduled
from node.shard.apply import RESCHEDULED
from node.shard.views import RESCHEDULE_LEVEL, Views

_PIECES_IN_FLIGHT: Final = 4

Rows: TypeAlias = NDArray[np.void]


class _Moving(KeyCall[Rows]):
    """Moves the messages of n keys."""

    def __init__(self, service: KeyService, due_ms: I64) -> None:
        """To these due times, one a key."""
        super().__init__(service, len(due_ms))
        self._due_ms = due_ms
        self.moved_to_ms = np.zeros(len(due_ms), np.int64)

    def propose(self, ids: Rows, ordinals: I64, /) -> "asyncio.Future[Rows]":
        check_room(self._shard.views, len(ids))
        rows = _rows(ids, self._due_ms[ordinals], self._shard.shard_id)
        pieces = []
        for at in range(0, len(rows), RESCHEDULES_MAX):
            piece: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()
            self._service.small_calls.reschedule(rows[at : at + RESCHEDULES_MAX], piece)
            pieces.append(piece)
        return asyncio.ensure_future(_joined(pieces))

    def note(self, ordinals: I64, _sequences: U64, results: Rows, /) -> None:
        outcomes = results["outcome"]
        done = outcomes == RescheduleOutcome.RESCHEDULED
        self.tally.note_done(ordinals[done])
        self.moved_to_ms[ordinals[done]] = results["due_ms"][done]
        self.tally.note_released(ordinals[outcomes == RescheduleOutcome.ALREADY_RELEASED])
        self.tally.note_cancelled(ordinals[outcomes == RescheduleOutcome.CANCELLED])


class RescheduleService:
    """See the top of this file. Of one mastership."""

    def __init__(self, serving: Serving, publishing: PublishService, keys: KeyService) -> None:
        """Records are shared with others' by way of `keys`."""
        self._serving, self._shard = serving, serving.mastership.shard
        self._publishing, self._keys = publishing, keys

    async def reschedule(self, ids: Rows, times_ms: I64, *, are_delays: bool) -> Rows:
        """See EnginePort."""
        due_ms = self.admit(times_ms, are_delays=are_delays)
        rows, shard = _rows(ids, due_ms, self._shard.shard_id), self._keys
        found: list[Rows] = []
        step = RESCHEDULES_MAX * _PIECES_IN_FLIGHT
        for first in range(0, len(rows), step):
            if first:
                self._serving.check()
            pieces: list[asyncio.Future[Rows]] = []
            for at in range(first, min(first + step, len(rows)), RESCHEDULES_MAX):
                piece: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()
                shard.small_calls.reschedule(rows[at : at + RESCHEDULES_MAX], piece)
                pieces.append(piece)
            shard.group_commit.wake_for_small()
            found.append(await _joined(pieces))
        await self._publishing.wait_until_near()
        results = np.concatenate(found)
        self._count(int((results["outcome"] == RescheduleOutcome.RESCHEDULED).sum()))
        return results

    async def reschedule_keys(
        self, topic: str, keys: Sequence[bytes], times_ms: I64, *, are_delays: bool
    ) -> KeysRescheduled:
        """See EnginePort."""
        due_ms = self.admit(times_ms, are_delays=are_delays)
        call = _Moving(self._keys, due_ms)
        await self._keys.carry_out(call, topic, keys)
        await self._publishing.wait_until_near()
        self._count(int(call.tally.done.sum()))
        was = RescheduleOutcome
        outcomes = call.tally.outcomes(
            was.UNKNOWN, was.CANCELLED, was.ALREADY_RELEASED, was.RESCHEDULED
        )
        return KeysRescheduled(outcomes, call.moved_to_ms, call.tally.done)

    def _count(self, count: int) -> None:
        self._serving.stats.rescheduled += count

    def admit(self, times_ms: I64, *, are_delays: bool) -> I64:
        """The new due times of a call that may go on. Raises: see EnginePort.reschedule."""
        self._publishing.admit()
        views = self._shard.views
        if views.feature_level < RESCHEDULE_LEVEL:
            raise errors.FeatureLevelTooLow(
                "messages can be rescheduled when all nodes are of a version that knows how",
                level=views.feature_level,
                level_min=RESCHEDULE_LEVEL,
            )
        check_room(views, len(times_ms))
        now_ms = self._serving.now_ms()
        if len(times_ms):
            earliest, latest = int(times_ms.min()), int(times_ms.max())
            if earliest < 0:
                raise errors.InvalidDueTime("a due time or delay is negative", due_ms=earliest)
            check_horizon(
                latest + now_ms if are_delays else latest, now_ms, self._publishing.horizon_ms
            )
        return times_ms + now_ms if are_delays else times_ms


def check_room(views: Views, count: int) -> None:
    """Raises TooManyMoved where so many more may not be moved."""
    if views.moved.count + count > limits.MOVED_COUNT_MAX:
        raise errors.TooManyMoved(
            f"{views.moved.count} pending messages were rescheduled; at most"
            f" {limits.MOVED_COUNT_MAX} may be",
            count=views.moved.count,
            count_max=limits.MOVED_COUNT_MAX,
        )


def _rows(ids: Rows, due_ms: I64, shard_id: ShardId) -> Rows:
    """array[n] of RESCHEDULE_ROW; the epoch of another shard's ids is 0."""
    rows = np.zeros(len(ids), RESCHEDULE_ROW)
    rows["due_ms"], rows["sequence"], rows["new_due_ms"] = ids["due_ms"], ids["sequence"], due_ms
    rows["epoch"] = np.where(ids["shard"] == shard_id, ids["epoch"], 0)
    return rows


async def _joined(pieces: "Sequence[asyncio.Future[Rows]]") -> Rows:
    """The results of all pieces, when the last of them is there. Raises what one raised."""
    found = await asyncio.gather(*pieces, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return np.concatenate([np.zeros(0, RESCHEDULED), *found])
