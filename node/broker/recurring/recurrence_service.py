"""Recurrences are made, changed and looked at.

What they publish is planned beside (occurrence_planner.py). A change is one record, which takes
back the occurrence that lies ahead, too. It waits until no occurrence of the recurrence is on its
way into the log; so the record names the last one.
"""

import asyncio
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.formats import meta as metas
from hourwheel.formats.batch_columns import requested_by
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import CANCEL_ROW
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig
from hourwheel.types import Epoch, SequenceNumber
from node.broker.priorities import check_room
from node.broker.publish_service import PublishService
from node.broker.recurring.occurrence_planner import OccurrencePlanner, meta_of
from node.broker.recurring.occurrence_times import INSTANT_MS_MAX, check_times, schedule_of
from node.catalog.name_expiry import NameExpiry
from node.catalog.service import CatalogService
from node.catalog.serving import Serving
from node.contracts.recurring import RecurrenceInfo
from node.replica.mastership import Proposer
from node.shard.views import RECURRENCE_LEVEL, check_requested
from storage.views.recurrences import NO_SEQUENCE, State

_INDEX_MAX: Final = (1 << 64) - 1
_PAGE_BYTES_MAX: Final = 1 << 20


class RecurrenceService:
    """Is a `node.contracts.recurring.RecurrencePort`. Of one mastership."""

    def __init__(
        self,
        serving: Serving,
        publishing: PublishService,
        catalog_service: CatalogService,
        expiry: NameExpiry,
        planner: OccurrencePlanner,
    ) -> None:
        """Propose what `serving` appends; `planner` gets what has changed."""
        self._serving, self._publishing = serving, publishing
        self._catalog_service, self._expiry, self._planner = catalog_service, expiry, planner
        self._mastership, self._shard = serving.mastership, serving.mastership.shard
        self._view = self._shard.views.recurrences

    # -- changes ----------------------------------------------------------------------------------

    async def put(self, config: RecurrenceConfig, name: str, expected_version: int | None) -> int:
        """See RecurrencePort."""
        config.name = _full_name(config.topic, name)
        now_ms = self._serving.now_ms()
        if 0 < config.every_ms <= INSTANT_MS_MAX and not config.start_ms:
            config.start_ms = now_ms + config.every_ms
        await asyncio.to_thread(check_times, config, now_ms)
        # Raises where there is no room, or the last one's expiry would be no instant.
        metas.encode(meta_of(config.meta, name, _INDEX_MAX, INSTANT_MS_MAX))
        await self._catalog_service.settle_topic(config.topic)
        await self._prepare(config.name)
        requested = requested_by((config.meta,))
        check_requested(self._shard.views, requested)
        state = self._view.find(config.name)
        version = 0 if state is None else state.version
        if expected_version is not None and expected_version != version:
            raise _changed(version)
        self._check_room(config, is_new=state is None)
        found = self._catalog_service.topic_to_publish(config.topic)
        if requested.priority:
            check_room((found,))
        with self._expiry.publishing(found, self._serving.now_ms):
            return await self._change(
                config.name, state, RecurrenceChange(expected_version=version, put=config)
            )

    async def set_paused(self, topic: str, name: str, *, is_paused: bool) -> int:
        """See RecurrencePort."""
        full = _full_name(topic, name)
        if not is_paused and self._get(full).is_paused:
            await self._catalog_service.settle_topic(topic)
        await self._prepare(full)
        state = self._get(full)
        if bool(state.is_paused) == is_paused:
            return state.version
        version = state.version
        if is_paused:
            change = RecurrenceChange(expected_version=version, pause_name=full)
        else:
            self._catalog_service.topic_to_publish(topic)
            change = RecurrenceChange(expected_version=version, resume_name=full)
        return await self._change(full, state, change)

    async def delete(self, topic: str, name: str) -> None:
        """See RecurrencePort."""
        full = _full_name(topic, name)
        await self._prepare(full)
        state = self._get(full)
        change = RecurrenceChange(expected_version=state.version, delete_name=full)
        await self._change(full, state, change)

    async def _prepare(self, name: str) -> None:
        """Behind this, up to the next wait, nothing of the recurrence is under way."""
        await self._planner.settle(name)
        self._publishing.admit()
        level = self._shard.views.feature_level
        if level < RECURRENCE_LEVEL:
            raise errors.FeatureLevelTooLow(
                "messages can recur when all nodes are of a version that knows how",
                level=level,
                level_min=RECURRENCE_LEVEL,
            )

    async def _change(self, name: str, state: State | None, change: RecurrenceChange) -> int:
        """Carry out a change; the version that the recurrence has then."""
        offset = 0

        def append(now_ms: int, who: Proposer[bool]) -> None:
            nonlocal offset
            offset = self._shard.log.end_offset
            rows = self._to_take_back(state)
            if change.HasField("put"):
                # What is due was to be seen, and what follows is computed from now: it stays.
                rows = rows[self._current_due_ms(rows) > now_ms]
            self._mastership.recur(change, rows, now_ms, who)

        done: asyncio.Future[bool] = self._serving.propose(append)
        self._planner.hold(name)
        # Of the record: who asked may go, and the change is on its way all the same.
        done.add_done_callback(lambda _: self._planner.let_go(name))
        if not await asyncio.shield(done):
            raise _changed(0)
        return offset

    def _to_take_back(self, state: State | None) -> NDArray[np.void]:
        """CANCEL_ROW[n]: the occurrence that lies ahead, or did."""
        if state is None or state.sequence == NO_SEQUENCE:
            return np.zeros(0, CANCEL_ROW)
        rows = np.zeros(1, CANCEL_ROW)
        rows["due_ms"], rows["sequence"] = state.after_ms, state.sequence
        rows["epoch"] = self._epoch_of(state.sequence)
        return rows

    def _current_due_ms(self, rows: NDArray[np.void]) -> NDArray[np.int64]:
        """int64[n]: when the messages of CANCEL_ROW[n] are due, wherever they were moved."""
        moved = self._shard.views.moved.find(np.ascontiguousarray(rows["sequence"]))
        return np.where(moved.are_moved, moved.due_ms, rows["due_ms"])

    def _epoch_of(self, sequence: SequenceNumber) -> Epoch:
        return Epoch(int(self._shard.views.epochs_of(np.array([sequence], np.uint64))[0]))

    def _check_room(self, config: RecurrenceConfig, *, is_new: bool) -> None:
        count, size = len(self._view), self._view.size_bytes + config.ByteSize()
        if (is_new and count >= limits.RECURRENCE_COUNT_MAX) or size > limits.RECURRENCES_BYTES_MAX:
            raise errors.TooManyRecurrences(
                f"there are {count} recurrences of {self._view.size_bytes} bytes; at most"
                f" {limits.RECURRENCE_COUNT_MAX} of {limits.RECURRENCES_BYTES_MAX} may be",
                count=count,
                count_max=limits.RECURRENCE_COUNT_MAX,
                bytes_max=limits.RECURRENCES_BYTES_MAX,
            )

    # -- questions --------------------------------------------------------------------------------

    def get(self, topic: str, name: str) -> RecurrenceInfo:
        """See RecurrencePort."""
        full = _full_name(topic, name)
        return self._info(full, self._get(full))

    def _get(self, full: str) -> State:
        state = self._view.find(full)
        if state is None:
            topic, _, name = full.partition("\n")
            raise errors.UnknownRecurrence(
                f"topic {topic!r} has no recurrence {name[:200]!r}", topic=topic, name=name[:200]
            )
        return state

    def _info(self, full: str, state: State) -> RecurrenceInfo:
        config = RecurrenceConfig.FromString(self._view.definition(full))
        last, due_ms = "", 0
        if state.sequence != NO_SEQUENCE:
            due_ms, epoch = state.after_ms, self._epoch_of(state.sequence)
            last = str(MessageId(self._shard.shard_id, epoch, state.sequence, due_ms))
        return RecurrenceInfo(
            config=config,
            name=full.partition("\n")[2],
            version=state.version,
            is_paused=bool(state.is_paused),
            occurrence_count=state.count,
            last_message_id=last,
            last_due_ms=due_ms,
        )

    def page(self, topic: str, after: str, count_max: int) -> tuple[list[RecurrenceInfo], str]:
        """See RecurrencePort."""
        prefix = f"{topic}\n" if topic else ""
        found: list[RecurrenceInfo] = []
        last, size = after, 0
        for full in self._view.names_after(max(after, prefix)):
            if not full.startswith(prefix):
                break
            if len(found) == count_max or size > _PAGE_BYTES_MAX:
                return found, last
            size += len(self._view.definition(full))
            state = self._view.find(full)
            if state is not None:
                found.append(self._info(full, state))
            last = full
        return found, ""

    async def next_times(self, config: RecurrenceConfig, count: int) -> list[int]:
        """See RecurrencePort."""
        now_ms = self._serving.now_ms()
        if 0 < config.every_ms <= INSTANT_MS_MAX and not config.start_ms:
            config.start_ms = now_ms + config.every_ms
        await asyncio.to_thread(check_times, config, now_ms)
        if config.count_max:
            count = min(count, config.count_max)
        return await asyncio.to_thread(_times, config, now_ms, count)

    async def next_times_of(self, topic: str, name: str, count: int) -> list[int]:
        """See RecurrencePort."""
        full, now_ms = _full_name(topic, name), self._serving.now_ms()
        state = self._get(full)
        if state.is_paused:
            return []
        config = RecurrenceConfig.FromString(self._view.definition(full))
        planned = []
        if state.sequence != NO_SEQUENCE and state.after_ms > now_ms:
            planned = [state.after_ms]
        left = count - len(planned)
        if state.count_max:
            left = min(left, state.count_max - state.count)
        after_ms = max(state.after_ms, now_ms)
        return planned + await asyncio.to_thread(_times, config, after_ms, left)


def _times(config: RecurrenceConfig, after_ms: int, count: int) -> list[int]:
    """Up to so many times, on another thread."""
    schedule, found = schedule_of(config), list[int]()
    while len(found) < count:
        due_ms = schedule.after(after_ms)
        if due_ms is None:
            break
        found.append(due_ms)
        after_ms = due_ms
    return found


def _full_name(topic: str, name: str) -> str:
    """As the view has it. Raises InvalidRecurrence."""
    size = len(name.encode())
    if not 0 < size <= limits.RECURRENCE_NAME_BYTES_MAX or not name.isprintable():
        raise errors.InvalidRecurrence(
            f"a name has 1 to {limits.RECURRENCE_NAME_BYTES_MAX} bytes of printable text",
            field="name",
            bytes_max=limits.RECURRENCE_NAME_BYTES_MAX,
        )
    return f"{topic}\n{name}"


def _changed(version: int) -> errors.RecurrenceChanged:
    return errors.RecurrenceChanged(
        "the recurrence was changed by somebody else, or is not there", version=version
    )
