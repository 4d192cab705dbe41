"""An engine for tests of the API: keeps messages in lists, does what it is told to.

    engine = FakeEngine()
    engine.errors["publish_messages"] = errors.DiskFull("no room")    # the next calls raise it
    engine.gates["publish_messages"] = asyncio.Event()                # the next calls wait for it

What was asked is in `engine.calls`. Everything published is due at once; a lease is over when its
id is in `engine.stale_leases`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.outcomes import (
    CancelOutcome,
    MessageState,
    ReceiptOutcome,
    RescheduleOutcome,
)
from hourwheel.types import (
    FIRST_SHARD,
    Epoch,
    GroupId,
    Position,
    SequenceNumber,
    TopicId,
    topic_queue,
)
from hourwheel.v1.status_pb2 import ShardStatus
from node.contracts.answer_budget import AnswerBudget
from node.contracts.broadcast import Joining
from node.contracts.broker import (
    CatalogUpdate,
    Delivery,
    GroupInfo,
    GroupSettings,
    IncomingMessages,
    NewTopic,
    PublishedBatchResult,
    ReceiveParams,
    Selection,
    ShardGauges,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.damaged_messages import DamagedInfo, DamagedPage
from node.contracts.dead_letters import (
    DeadLetterQuery,
    DeadLettersInfo,
    DeadLettersPage,
    RedrivenPage,
)
from node.contracts.ending import Ending
from node.contracts.group_positions import (
    ResetInfo,
    ResetTarget,
    SkippedInfo,
    Unblocking,
)
from node.contracts.history import HistoryPage, MessageInfo
from node.contracts.lags import GroupLagInfo, LagPlace, LagsPart
from node.contracts.message_topics import May, MessageTopics
from node.contracts.pending_page import ChangedPage, KeyPage, KeysCancelled, PendingPage
from node.contracts.pending_token import KeyQuery, PendingQuery
from node.contracts.publishing import PublishedOne
from node.contracts.receive_stream import Piece, Push, ReceiveStream
from node.contracts.rescheduling import KeysRescheduled
from node.contracts.wheel_info import WheelInfo
from node.shard.apply import RESCHEDULED
from node.telemetry.stats import EngineStats
from storage.views.key_rows import keys_in
from storage.views.unit import UNIT
from tests.support.fake_recurring import FakeRecurring
from tests.support.fake_transactions import FakeTransactions

NOW_MS: Final = 1_800_000_000_000
EPOCH: Final = Epoch(3)
CLUSTER_ID: Final = bytes(range(16))


@dataclass
class Stored:
    """One message that the fake was given."""

    topic: str
    due_ms: int
    body: bytes
    meta: bytes = b""
    attempt: int = 1


@dataclass
class FakeEngine:
    """See the module."""

    clock_ms: int = NOW_MS
    cluster_id: bytes = CLUSTER_ID
    stats: EngineStats = field(default_factory=EngineStats)
    answers: AnswerBudget = field(default_factory=lambda: AnswerBudget(128 << 20))
    calls: list[tuple[str, Any]] = field(default_factory=list)
    errors: dict[str, BaseException] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    stored: list[Stored] = field(default_factory=list)
    delivered: int = 0
    cancelled: set[int] = field(default_factory=set)
    stale_leases: set[int] = field(default_factory=set)
    known_topics: dict[str, TopicInfo] = field(default_factory=dict)
    known_groups: dict[str, GroupInfo] = field(default_factory=dict)
    shard_status: ShardStatus = field(default_factory=ShardStatus)
    shard_gauges: ShardGauges = field(default_factory=ShardGauges)
    pending_page: PendingPage = field(default_factory=PendingPage)
    key_page: KeyPage = field(default_factory=KeyPage)
    history_page: HistoryPage = field(default_factory=HistoryPage)
    changed_page: ChangedPage = field(default_factory=ChangedPage)
    damaged_page: DamagedPage = field(default_factory=lambda: DamagedPage([]))
    dead_letters_page: DeadLettersPage = field(default_factory=DeadLettersPage)
    redriven_page: RedrivenPage = field(default_factory=RedrivenPage)
    dead: DeadLettersInfo = field(default_factory=DeadLettersInfo)
    recurrences: FakeRecurring = field(default_factory=FakeRecurring)
    is_closed: bool = False
    leases: int = 0
    hidden_due_ms: set[int] = field(default_factory=set)
    arrival: asyncio.Event = field(default_factory=asyncio.Event)
    streams: list[ReceiveStream] = field(default_factory=list)
    """Receive streams that were opened."""
    ends_streams: asyncio.Event = field(default_factory=asyncio.Event)
    prepared: FakeTransactions = field(default_factory=FakeTransactions)
    expected_gene: GeneSpec | None = None

    async def _begin(self, name: str, what: object) -> None:
        self._note(name, what)
        if name in self.gates:
            await self.gates[name].wait()

    def _note(self, name: str, what: object) -> None:
        self.calls.append((name, what))
        if name in self.errors:
            raise self.errors[name]

    def asked(self, name: str) -> list[Any]:
        """What the calls of one method were given."""
        return [what for called, what in self.calls if called == name]

    def now_ms(self) -> int:
        return self.clock_ms

    # -- producing ----------------------------------------------------------------------------

    async def publish_batch(self, topic: str, batch: RecordBatch) -> PublishedBatchResult:
        self._note("publish_batch", (topic, batch))
        base, at, raw = len(self.stored), 0, bytes(batch.blobs)
        for due, meta_len, body_len in zip(
            batch.due_ms.tolist(), batch.meta_len.tolist(), batch.body_len.tolist(), strict=True
        ):
            body_at = at + meta_len
            at = body_at + body_len
            meta = raw[body_at - meta_len : body_at]
            self.stored.append(Stored(topic, due, raw[body_at:at], meta))
        if "publish_batch" in self.gates:
            await self.gates["publish_batch"].wait()
        self.arrival.set()
        count, now_ms = batch.header.count, self.clock_ms
        return PublishedBatchResult(
            FIRST_SHARD, EPOCH, SequenceNumber(base), count, now_ms, False, self.expected_gene
        )

    async def publish_joined(
        self, topics: list[tuple[str, int]], batch: RecordBatch
    ) -> PublishedBatchResult:
        result = await self.publish_batch("", batch)
        names = [name for name, count in topics for _ in range(count)]
        for stored, name in zip(self.stored[result.base_sequence :], names, strict=True):
            stored.topic = name
        return result

    async def publish_messages(self, incoming: IncomingMessages) -> list[PublishedOne]:
        await self._begin("publish_messages", incoming)
        base = len(self.stored)
        for due, body, meta in zip(incoming.due_ms, incoming.bodies, incoming.metas, strict=True):
            self.stored.append(Stored(incoming.topic, due, body, meta))
        self.arrival.set()
        return [
            PublishedOne(
                str(MessageId(FIRST_SHARD, EPOCH, SequenceNumber(base + ordinal), due)), due
            )
            for ordinal, due in enumerate(incoming.due_ms)
        ]

    async def cancel(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        await self._begin("cancel", ids)
        outcomes = []
        for sequence in ids["sequence"].tolist():
            if sequence >= len(self.stored):
                outcomes.append(CancelOutcome.UNKNOWN)
            elif sequence < self.delivered:
                outcomes.append(CancelOutcome.ALREADY_RELEASED)
            else:
                self.cancelled.add(sequence)
                outcomes.append(CancelOutcome.CANCELLED)
        return np.array(outcomes, np.uint8)

    async def cancel_keys(self, topic: str, keys: Sequence[bytes]) -> KeysCancelled:
        """Of all that was published with them, due or not."""
        await self._begin("cancel_keys", (topic, list(keys)))
        counts = [
            sum(key in keys_in(one.meta) and one.topic == topic for one in self.stored)
            for key in keys
        ]
        outcomes = [CancelOutcome.CANCELLED if one else CancelOutcome.UNKNOWN for one in counts]
        return KeysCancelled(np.array(outcomes, np.uint8), np.array(counts, np.uint32))

    async def reschedule(
        self, ids: NDArray[Any], times_ms: NDArray[np.int64], *, are_delays: bool
    ) -> NDArray[Any]:
        await self._begin("reschedule", (ids, times_ms.tolist(), are_delays))
        found = np.zeros(len(ids), RESCHEDULED)
        for row, sequence, at in zip(
            found, ids["sequence"].tolist(), times_ms.tolist(), strict=True
        ):
            if sequence >= len(self.stored):
                row["outcome"] = RescheduleOutcome.UNKNOWN
            elif sequence < self.delivered:
                row["outcome"] = RescheduleOutcome.ALREADY_RELEASED
            elif sequence in self.cancelled:
                row["outcome"] = RescheduleOutcome.CANCELLED
            else:
                row["outcome"] = RescheduleOutcome.RESCHEDULED
                row["due_ms"] = at + NOW_MS if are_delays else at
        return found

    async def reschedule_keys(
        self, topic: str, keys: Sequence[bytes], times_ms: NDArray[np.int64], *, are_delays: bool
    ) -> KeysRescheduled:
        """Of all that was published with them, due or not."""
        await self._begin("reschedule_keys", (topic, list(keys), times_ms.tolist(), are_delays))
        counts = np.array(
            [
                sum(key in keys_in(one.meta) and one.topic == topic for one in self.stored)
                for key in keys
            ],
            np.uint32,
        )
        due_ms = times_ms + NOW_MS if are_delays else times_ms
        done, unknown = RescheduleOutcome.RESCHEDULED, RescheduleOutcome.UNKNOWN
        return KeysRescheduled(
            np.where(counts > 0, done, unknown).astype(np.uint8),
            np.where(counts > 0, due_ms, 0),
            counts,
        )

    # -- consuming ----------------------------------------------------------------------------

    async def receive(self, params: ReceiveParams) -> Delivery | None:
        await self._begin("receive", replace(params, held_answer=None))
        while self.delivered >= len(self.stored):
            if not params.wait_ms:
                return None
            self.arrival.clear()
            await self.arrival.wait()
        return self._lease(params)

    async def receive_stream(self, params: ReceiveParams, push: Push[Delivery]) -> None:
        """What is stored, answer by answer, as credits allow."""
        await self._begin("receive_stream", params)
        stream, more = push.stream, asyncio.Event()
        self.streams.append(stream)
        stream.on_ready = more.set
        while not self.ends_streams.is_set():
            while self.delivered < len(self.stored) and stream.is_ready:
                most = min(params.messages_max, stream.credits_count)
                delivery = self._lease(replace(params, messages_max=most))
                stream.take(len(delivery.blobs))
                held = stream.put(Piece(delivery.lease_id), len(delivery.units))
                push.send(delivery, held)
            more.clear()
            self.arrival.clear()
            waits = [
                asyncio.ensure_future(one.wait()) for one in (more, self.arrival, self.ends_streams)
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()

    def _lease(self, params: ReceiveParams) -> Delivery:
        first = self.delivered
        taken = self.stored[first : first + params.messages_max]
        self.delivered += len(taken)
        self.leases += 1
        units = np.zeros(len(taken), UNIT)
        units["sequence"] = np.arange(first, first + len(taken))
        units["due_ms"] = [each.due_ms for each in taken]
        units["store_ms"] = self.clock_ms
        units["body_len"] = [len(each.body) for each in taken]
        units["meta_len"] = [len(each.meta) for each in taken]
        units["crc"] = [crc32c(each.meta + each.body) for each in taken]
        units["attempt"] = [each.attempt for each in taken]
        if params.held_answer is not None:
            params.held_answer.take(sum(len(each.meta + each.body) for each in taken))
        return Delivery(
            shard=FIRST_SHARD,
            epoch=EPOCH,
            group_id=GroupId(1),
            topic_queue=topic_queue(TopicId(1), 0),
            topic=params.topic,
            lease_id=self.leases,
            first_position=Position(first),
            units=units,
            blobs=b"".join(each.meta + each.body for each in taken),
            message_epochs=EPOCH,
            due_ms=units["due_ms"].copy(),
            receive_ms=self.clock_ms,
            invisible_until_ms=self.clock_ms + (params.invisible_ms or 30_000),
        )

    def _outcome(self, selection: Selection) -> ReceiptOutcome:
        if selection.receipt.group_id != 1 or selection.receipt.lease_id > self.leases:
            return ReceiptOutcome.INVALID
        if selection.receipt.lease_id in self.stale_leases:
            return ReceiptOutcome.STALE
        return ReceiptOutcome.OK

    async def resolve(
        self,
        group: str,
        selections: list[Selection],
        ending: Ending,
    ) -> list[ReceiptOutcome]:
        await self._begin("resolve", (group, list(selections), ending))
        return [self._outcome(selection) for selection in selections]

    def change_invisible(
        self, group: str, selections: list[Selection], invisible_ms: int
    ) -> tuple[list[ReceiptOutcome], int]:
        self._note("change_invisible", (group, list(selections), invisible_ms))
        return [self._outcome(each) for each in selections], self.clock_ms + invisible_ms

    # -- administration -----------------------------------------------------------------------

    async def create_topic(
        self, name: str, queue_count: int, wanted: NewTopic | None = None
    ) -> TopicInfo:
        await self._begin("create_topic", (name, queue_count))
        gene, retention_ms = wanted or NewTopic()
        topic = TopicInfo(
            name, queue_count, gene=gene or DEFAULT_SPEC, retention_ms=retention_ms or 0
        )
        if self.known_topics.setdefault(name, topic) != topic:
            raise errors.AlreadyExists(f"topic {name} exists with other settings", topic=name)
        return topic

    async def delete_topic(self, name: str) -> None:
        await self._begin("delete_topic", name)
        self.topic(name)
        del self.known_topics[name]

    def topic(self, name: str) -> TopicInfo:
        if name not in self.known_topics:
            raise errors.UnknownTopic(f"there is no topic {name!r}", topic=name)
        return self.known_topics[name]

    def topics(self, after: str, count_max: int, *, include_internal: bool) -> list[TopicInfo]:
        found = [self.known_topics[name] for name in sorted(self.known_topics) if name > after]
        return [topic for topic in found if include_internal or not topic.is_internal][:count_max]

    async def update_topic(self, name: str, update: CatalogUpdate) -> TopicInfo:
        await self._begin("update_topic", (name, update))
        self.known_topics[name] = replace(self.topic(name), **changed_by(update))
        return self.known_topics[name]

    async def update_group(
        self, name: str, update: CatalogUpdate, settings: GroupSettings
    ) -> GroupInfo:
        await self._begin("update_group", (name, update, settings))
        if name not in self.known_groups:
            raise errors.UnknownGroup(f"there is no group {name!r}", group=name)
        self.known_groups[name] = replace(self.known_groups[name], **changed_by(update))
        return self.known_groups[name]

    async def put_subscription(
        self, group: str, topic: str, wanted: FilterExpression
    ) -> SubscriptionInfo:
        await self._begin("put_subscription", (group, topic, wanted))
        return SubscriptionInfo(topic, wanted)

    def gene_spec(self, topic: str) -> GeneSpec:
        known = self.known_topics.get(topic)
        return DEFAULT_SPEC if known is None else known.gene

    async def put_group(self, name: str, settings: GroupSettings) -> GroupInfo:
        await self._begin("put_group", (name, settings))
        self.known_groups[name] = GroupInfo(
            name,
            settings.attempts_max or 16,
            settings.invisible_ms or 30_000,
            settings.retry_delay_ms or 1_000,
            settings.retry_delay_ms_max or 600_000,
            (GroupLagInfo("orders", 7, 2),),
        )
        return self.known_groups[name]

    async def delete_group(self, name: str) -> None:
        await self._begin("delete_group", name)
        self.group(name, 0, 1)
        del self.known_groups[name]

    def group(self, name: str, after: int, count_max: int) -> GroupInfo:
        """The number of a topic is its place in the group's subscriptions, from 1."""
        if name not in self.known_groups:
            raise errors.UnknownGroup(f"there is no group {name!r}", group=name)
        group, end = self.known_groups[name], after + count_max
        return replace(
            group,
            lags=group.lags[after:end],
            subscriptions=group.subscriptions[after:end],
            next_after=end if end < len(group.subscriptions) else 0,
        )

    def groups(self, after: str, count_max: int) -> list[GroupInfo]:
        names = [name for name in sorted(self.known_groups) if name > after]
        return [self.known_groups[name] for name in names[:count_max]]

    def lags(self, after: LagPlace | None) -> LagsPart:
        """A group at a time."""
        found = self.groups("" if after is None else after.group, 1)
        if not found:
            return LagsPart([], None)
        told = [(found[0].name, lag) for lag in found[0].lags]
        return LagsPart(told, LagPlace(found[0].name, TopicId(0)))

    async def list_pending(
        self, query: PendingQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> PendingPage:
        await self._begin("list_pending", (query, token, count_max, with_bodies))
        return self.pending_page

    async def cancel_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        await self._begin("cancel_pending", (query, token))
        return self.changed_page

    async def reschedule_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        await self._begin("reschedule_pending", (query, token))
        return self.changed_page

    async def join_broadcast(self, joining: Joining) -> bool:
        await self._begin("join_broadcast", joining)
        return True

    async def leave_broadcast(self, group: str, token: int) -> None:
        await self._begin("leave_broadcast", (group, token))

    async def skip(
        self, group: str, topic: str, before_ms: int, positions: Sequence[int]
    ) -> SkippedInfo:
        await self._begin("skip", (group, topic, before_ms, list(positions)))
        return SkippedInfo(7, [Position(5), Position(6)])

    async def reset_group(
        self, group: str, topic: str, target: ResetTarget, *, count_only: bool
    ) -> ResetInfo:
        await self._begin("reset_group", (group, topic, target, count_only))
        return ResetInfo(1, 2, 3, 4, [Position(5), Position(6)])

    async def unblock(self, group: str, topic: str, unblocking: Unblocking) -> int:
        await self._begin("unblock", (group, topic, unblocking))
        return len(unblocking.ids)

    async def list_dead_letters(
        self, query: DeadLetterQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> DeadLettersPage:
        await self._begin("list_dead_letters", (query, token, count_max, with_bodies))
        return self.dead_letters_page

    async def redrive(self, query: DeadLetterQuery, token: bytes) -> RedrivenPage:
        await self._begin("redrive", (query, token))
        return self.redriven_page

    async def list_by_key(self, query: KeyQuery, token: bytes, *, count_max: int) -> KeyPage:
        await self._begin("list_by_key", (query, token, count_max))
        return self.key_page

    async def history(self, of: MessageId, topic: str, token: bytes) -> HistoryPage:
        await self._begin("history", (of, topic, token))
        return self.history_page

    @property
    def transactions(self) -> FakeTransactions:
        return self.prepared

    @property
    def recurring(self) -> FakeRecurring:
        self._note("recurring", None)
        return self.recurrences

    async def list_damaged(
        self, group: str, topic: str, token: bytes, *, count_max: int
    ) -> DamagedPage:
        await self._begin("list_damaged", (group, topic, token, count_max))
        return self.damaged_page

    async def discard_damaged(
        self, group: str, topic: str, ids: Sequence[MessageId] | None, *, count_max: int
    ) -> tuple[list[DamagedInfo], int]:
        await self._begin("discard_damaged", (group, topic, ids, count_max))
        return self.damaged_page.messages[:count_max], 7

    def status(self) -> ShardStatus:
        self._note("status", None)
        return self.shard_status

    def gauges(self) -> ShardGauges:
        self._note("gauges", None)
        return self.shard_gauges

    async def describe_wheel(self, bounds_ms: Sequence[int]) -> WheelInfo:
        """One message in the first range, two in the second and so on; every second is exact."""
        await self._begin("describe_wheel", list(bounds_ms))
        counts = np.arange(1, len(bounds_ms))
        return WheelInfo(self.clock_ms, counts, counts % 2 == 0, 7, 8, 9, 10)

    def describe(self, message_id: MessageId) -> MessageInfo:
        is_known = message_id.sequence < len(self.stored)
        state = MessageState.PENDING if is_known else MessageState.UNKNOWN
        if message_id.sequence < self.delivered:
            state = MessageState.RELEASED
        return MessageInfo(state, message_id.due_ms)

    async def is_shown(self, message_id: MessageId) -> bool:
        await self._begin("is_shown", message_id)
        return message_id.due_ms not in self.hidden_due_ms

    async def topics_of(self, ids: NDArray[Any], may: May) -> MessageTopics:
        """Of those that were published, without a look at the rest of their ids."""
        await self._begin("topics_of", ids)
        names = sorted({one.topic for one in self.stored})
        found = [
            names.index(self.stored[at].topic) if at < len(self.stored) else -1
            for at in ids["sequence"].tolist()
        ]
        return MessageTopics(names, np.array(found, np.int64))

    async def dead_letters(self, message_id: MessageId) -> DeadLettersInfo:
        await self._begin("dead_letters", message_id)
        return self.dead

    async def close(self) -> None:
        await self._begin("close", None)
        self.is_closed = True


def changed_by(update: CatalogUpdate) -> dict[str, Any]:
    """Fields that have another value then."""
    fields = {"description": update.description, "is_paused": update.is_paused, "version": 7}
    return {name: value for name, value in fields.items() if value is not None}
