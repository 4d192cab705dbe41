"""Plans the occurrences of recurrences: each is published when the one before it is due.

    recurrences --> what is to be looked at, by time --> a PUBLISH batch of occurrences --> log
         ^                                                        |
         +------------------- applied: what comes next -----------+

So of each recurrence one occurrence lies ahead, in the wheel, as any other message. What is planned
already is for the log to say: a new master looks at each recurrence once and goes on. Until it has
done that it dispatches nothing, for an occurrence whose policy does not want it late has to be
taken back first.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors, limits
from hourwheel.errors import HourwheelError
from hourwheel.formats import meta as metas
from hourwheel.formats.expiry_field import expiry_of
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.meta import MessageMeta
from hourwheel.formats.record_batch import CANCEL_ROW, RecordBatch, build_publish
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC, gene_of
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig
from hourwheel.outcomes import Missed
from hourwheel.priorities import has_room
from node.broker.priorities import place_few
from node.broker.publish_service import PublishService, queues_of_few
from node.broker.recurring.occurrence_times import (
    Schedule,
    plan_next,
    schedule_of,
)
from node.catalog.service import CatalogService
from node.catalog.serving import Serving
from node.shard.deduplication import PublishResults
from node.telemetry import logs
from storage.views.catalog_items import Topic
from storage.views.recurrences import NO_SEQUENCE, State

RECURRENCE_PROPERTY: Final = "hourwheel.recurrence"
"""Of each occurrence: the name of its recurrence, and"""
OCCURRENCE_PROPERTY: Final = "hourwheel.occurrence"
"""its index."""
_TURN_MS: Final = 3.0
"""Of planning, in a turn."""
_LOOKED_AT_ONCE: Final = 64
"""Between two looks at the clock."""
_BATCH_COUNT_MAX: Final = 512
_BATCH_BYTES_MAX: Final = 1 << 20
_BATCHES_IN_FLIGHT_MAX: Final = 4
_RETRY_MS: Final = 1_000
"""Before planning is tried again where nothing is accepted."""
_LAST_MS_MAX: Final = 1_000.0
"""For so long a takeover may look which late occurrences are not the last ones."""
_STALE_MAX: Final = 1_024
"""Entries for what was changed or deleted, beside one of each recurrence."""
_log = logs.get(__name__)


class Occurrence(NamedTuple):
    """One that is to be published."""

    name: str
    version: int
    ordinal: int
    due_ms: int
    queue: int
    meta: bytes
    gene: int
    key_hash: int
    body: bytes


class _Batch:
    """Hears what became of a batch of occurrences."""

    def __init__(self, planner: "OccurrencePlanner", occurrences: list[Occurrence]) -> None:
        self._planner, self._occurrences = planner, occurrences

    def answer(self, results: PublishResults | None, error: HourwheelError | None) -> None:
        """See `node.replica.mastership.Proposer`."""
        self._planner.on_applied(self._occurrences, results or {}, error)


class OccurrencePlanner:
    """See the top of this file. Of one mastership."""

    def __init__(
        self,
        serving: Serving,
        publishing: PublishService,
        catalog_service: CatalogService,
        horizon_ms: int,
        monotonic_ms: Callable[[], float],
    ) -> None:
        """All recurrences are to be looked at."""
        self._serving, self._publishing = serving, publishing
        self._catalog_service = catalog_service
        self._mastership = serving.mastership
        self._views = serving.mastership.shard.views
        self._horizon_ms, self._monotonic_ms = horizon_ms, monotonic_ms
        self._unseen = self._views.recurrences.versions()
        self._late: list[tuple[int, int, int, int]] = []
        """As ID_DTYPE: occurrences that no one wants late."""
        self._last_until_ms: float | None = None
        self._due: list[tuple[int, int]] = []
        """A heap of (when to look at it, version); stale ones, too: see `_push`."""
        self._look_ms: dict[int, int] = {}
        """Version -> when to look at it. There is an entry of the heap for each."""
        self._in_flight: dict[str, asyncio.Future[None]] = {}
        """Name -> done when its occurrence, or its pause, is applied."""
        self._batches = 0
        self._not_before_ms = 0
        self._is_over = False

    # -- what others ask --------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it has looked at all recurrences: dispatching may begin."""
        return not self._unseen

    @property
    def look_count(self) -> int:
        """Entries that say when to look at recurrences: not many more than there are of these."""
        return len(self._due)

    async def settle(self, name: str) -> None:
        """Wait until nothing that this planner has proposed of a recurrence is under way."""
        while name in self._in_flight:
            await asyncio.shield(self._in_flight[name])

    def hold(self, name: str) -> None:
        """A change of a recurrence is under way: nothing is planned until `let_go`."""
        self._in_flight[name] = asyncio.get_running_loop().create_future()

    def let_go(self, name: str) -> None:
        """It is over, whatever became of it."""
        self._let_go(name)
        self._look_again(name, 0)
        self._serving.rearm()

    def next_wakeup_ms(self) -> int | None:
        """When the next turn has to be, or None."""
        if self._unseen:
            return 0
        if not self._due or self._batches >= _BATCHES_IN_FLIGHT_MAX or self._is_held:
            return None
        return max(self._due[0][0], self._not_before_ms)

    def close(self, error: HourwheelError) -> None:
        """The mastership is over: who waits hears why."""
        self._is_over = True
        self._due, self._look_ms, self._unseen = [], {}, []
        for future in self._in_flight.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # most of them are not waited for
        self._in_flight = {}

    @property
    def _is_held(self) -> bool:
        """An operator holds back all that is due: what would be late is no outage's."""
        return self._views.catalog.is_dispatch_paused

    # -- turns ------------------------------------------------------------------------------------

    def turn(self, now_ms: int) -> bool:
        """Look at what is to be looked at, for some milliseconds. Whether it has appended."""
        if self._unseen:
            return self._look_at_all(now_ms)
        if not self._due or self._due[0][0] > now_ms or now_ms < self._not_before_ms:
            return False
        if self._is_held or self._batches >= _BATCHES_IN_FLIGHT_MAX:
            return False
        try:
            self._publishing.admit()
        except HourwheelError:
            self._not_before_ms = now_ms + _RETRY_MS
            return False
        found, size, until_ms = list[Occurrence](), 0, self._monotonic_ms() + _TURN_MS
        while self._due and self._due[0][0] <= now_ms and len(found) < _BATCH_COUNT_MAX:
            look_ms, version = heapq.heappop(self._due)
            one: Occurrence | None = None
            if self._look_ms.get(version) == look_ms:
                del self._look_ms[version]
                one = self._plan(version, now_ms)
            if one is not None:
                self._in_flight[one.name] = asyncio.get_running_loop().create_future()
                found.append(one)
                size += len(one.body) + len(one.meta)
            if size > _BATCH_BYTES_MAX or self._monotonic_ms() > until_ms:
                break
        if found:
            self._append(found, now_ms)
        return bool(found)

    def _append(self, occurrences: list[Occurrence], now_ms: int) -> None:
        batch = RecordBatch(
            build_publish(
                [one.due_ms for one in occurrences],
                [one.body for one in occurrences],
                metas=[one.meta for one in occurrences],
                tag_genes=[one.gene for one in occurrences],
                key_hashes=[one.key_hash for one in occurrences],
                topic_queues=[one.queue for one in occurrences],
                message_producers=(
                    [one.version for one in occurrences],
                    [one.ordinal for one in occurrences],
                ),
                are_occurrences=True,
                gene_spec=GENE_SPEC_OF_TOPIC,
            )
        )
        self._batches += 1
        who = _Batch(self, occurrences)
        self._mastership.publish(batch, batch.due_ms, batch.topic_queue, now_ms, who)

    def on_applied(
        self, occurrences: list[Occurrence], results: PublishResults, error: HourwheelError | None
    ) -> None:
        """A batch was applied, or never will be."""
        self._batches -= 1
        for at, one in enumerate(occurrences):
            self._let_go(one.name)
            if error is not None or isinstance(results.get(at), HourwheelError):
                # Refused: changed meanwhile, or its topic is gone.
                self._look_again(one.name, self._serving.now_ms() + _RETRY_MS)
            else:
                self._serving.stats.occurrences += 1
                self._look_again(one.name, one.due_ms)
        self._serving.rearm()

    def _look_again(self, name: str, at_ms: int) -> None:
        """As it is now: it may have been changed while something of it was under way."""
        state = self._views.recurrences.find(name)
        if state is not None and state.has_more and not self._is_over:
            self._push(state.version, at_ms)

    def _push(self, version: int, at_ms: int) -> None:
        """Look at a recurrence then, and not when it was said before."""
        self._look_ms[version] = at_ms
        heapq.heappush(self._due, (at_ms, version))
        recurrences = self._views.recurrences
        if self.look_count > 2 * len(recurrences) + _STALE_MAX:
            kept = {
                one: look_ms
                for one, look_ms in self._look_ms.items()
                if recurrences.find_name(one) is not None
            }
            self._look_ms, self._due = kept, [(look_ms, one) for one, look_ms in kept.items()]
            heapq.heapify(self._due)

    def _let_go(self, name: str) -> None:
        future = self._in_flight.pop(name, None)
        if future is not None and not future.done():
            future.set_result(None)

    # -- one recurrence ---------------------------------------------------------------------------

    def _plan(self, version: int, now_ms: int) -> Occurrence | None:
        """The occurrence that a recurrence needs now; None: it needs none."""
        name = self._views.recurrences.find_name(version)
        state = None if name is None else self._views.recurrences.find(name)
        if name is None or state is None or not state.has_more or name in self._in_flight:
            return None
        if state.sequence != NO_SEQUENCE and state.after_ms > now_ms:
            self._push(version, state.after_ms)
            return None
        config = RecurrenceConfig.FromString(self._views.recurrences.definition(name))
        topic = self._views.catalog.find_topic(config.topic)
        if topic is None:
            self._pause(name, version, now_ms)
            return None
        if topic.is_paused or self._catalog_service.is_deleting(topic.topic_id):
            # (What came behind its deletion would be lost. When that is known, it is clear.)
            self._push(version, now_ms + _RETRY_MS)
            return None
        try:
            return self._occurrence(name, state, config, topic, schedule_of(config), now_ms)
        except errors.InvalidArgument as error:
            # Another master could compute it: this one's time zones are older. Or its messages are
            # none, which `put` refuses now; that must not end one master after the other.
            _log.warning("recurrence_unreadable", recurrence=name, error=str(error))
            self._push(version, now_ms + 60 * _RETRY_MS)
            return None

    def _occurrence(
        self,
        name: str,
        state: State,
        config: RecurrenceConfig,
        topic: Topic,
        schedule: Schedule,
        now_ms: int,
    ) -> Occurrence | None:
        planned = plan_next(schedule, state.missed, state.after_ms, now_ms)
        if planned.has_missed:
            self._serving.stats.occurrences_skipped += 1
        due_ms = planned.due_ms
        if due_ms is None:
            return None
        if due_ms > now_ms + self._horizon_ms:
            self._push(state.version, due_ms - self._horizon_ms)
            return None
        meta = meta_of(config.meta, name.partition("\n")[2], state.next_index, due_ms)
        raw = metas.encode(meta)
        (queue,) = queues_of_few(
            topic.topic_id,
            topic.queue_count,
            [raw.key_hash],
            self._mastership.next_sequence + state.next_index,
        )
        if meta.priority and has_room(topic.queue_count):  # it may have been made anew since
            (queue,) = place_few((raw.raw,), [queue], topic)
        return Occurrence(
            name=name,
            version=state.version,
            ordinal=state.next_index,
            due_ms=due_ms,
            queue=queue,
            meta=raw.raw,
            gene=gene_of(topic.gene, meta.tags, meta.properties),
            key_hash=raw.key_hash,
            body=config.body,
        )

    def _pause(self, name: str, version: int, now_ms: int) -> None:
        """The topic of a recurrence is gone: it stays, and nothing comes of it."""
        _log.warning("recurrence_paused", recurrence=name, reason="its topic is gone")
        self.hold(name)
        change = RecurrenceChange(expected_version=version, pause_name=name)
        rows = np.zeros(0, CANCEL_ROW)
        done: asyncio.Future[bool] = self._serving.propose(
            lambda _, who: self._mastership.recur(change, rows, now_ms, who), now_ms
        )
        # (The node that ceases to be the master has nothing to plan.)
        done.add_done_callback(lambda done: done.cancelled() or done.exception())
        done.add_done_callback(lambda _: self.let_go(name))

    # -- the beginning of a mastership ------------------------------------------------------------

    def _look_at_all(self, now_ms: int) -> bool:
        """Look at the next recurrences for the first time. Whether something was appended."""
        until_ms = self._monotonic_ms() + _TURN_MS
        if self._last_until_ms is None:
            self._last_until_ms = self._monotonic_ms() + _LAST_MS_MAX
        while self._unseen:
            for version in self._unseen[-_LOOKED_AT_ONCE:]:
                self._see(version, now_ms)
            del self._unseen[-_LOOKED_AT_ONCE:]
            if self._monotonic_ms() > until_ms:
                break
        late, self._late = self._late, []
        if not late:
            return False
        self._mastership.cancel(np.array(late, ID_DTYPE), now_ms, None)
        self._serving.stats.occurrences_skipped += len(late)
        return True

    def _see(self, version: int, now_ms: int) -> None:
        name = self._views.recurrences.find_name(version)
        state = None if name is None else self._views.recurrences.find(name)
        if name is None or state is None or state.is_paused:
            return
        if state.has_more:
            at_ms = state.after_ms if state.sequence != NO_SEQUENCE else 0
            self._push(version, at_ms)
        if state.sequence != NO_SEQUENCE:
            self._see_late(name, state, now_ms)

    def _see_late(self, name: str, state: State, now_ms: int) -> None:
        """Take back the occurrence that waits, if it is late and its policy does not want it."""
        late_ms = now_ms - limits.RECURRENCE_MISSED_MS
        is_waiting = (state.after_ms, state.sequence) > self._views.cursor.key
        if state.after_ms >= late_ms or state.missed == Missed.ALL or not is_waiting:
            return
        numbers = np.array([state.sequence], np.uint64)
        if self._views.moved.find(numbers).are_moved[0]:
            return  # a user has said when it is to come
        if state.missed == Missed.LAST and not self._has_later(name, state, now_ms):
            return
        epoch = int(self._views.epochs_of(numbers)[0])
        self._late.append((self._mastership.shard.shard_id, epoch, state.sequence, state.after_ms))

    def _has_later(self, name: str, state: State, now_ms: int) -> bool:
        """Whether an occurrence that waits is not the last one that is late, as far as is known."""
        if not state.has_more or self._monotonic_ms() > (self._last_until_ms or 0.0):
            return False
        try:
            definition = self._views.recurrences.definition(name)
            schedule = schedule_of(RecurrenceConfig.FromString(definition))
        except errors.InvalidRecurrence:
            return False
        return schedule.after(state.after_ms, now_ms) is not None


def meta_of(raw: bytes, name: str, index: int, due_ms: int) -> MessageMeta:
    """The meta of an occurrence: that of the recurrence, and which one it is.

    A length of time after which a message expires is counted from when each is due.
    """
    meta = metas.decode(raw)
    return MessageMeta(
        tags=meta.tags,
        keys=meta.keys,
        properties=(
            *meta.properties,
            (RECURRENCE_PROPERTY, name),
            (OCCURRENCE_PROPERTY, str(index)),
        ),
        client_message_id=meta.client_message_id,
        content_type=meta.content_type,
        ordering_key=meta.ordering_key,
        expires_ms=expiry_of(meta.expires_ms, due_ms),
        priority=meta.priority,
    )
