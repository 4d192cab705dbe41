"""What the API needs of the engine, and the values that pass between them.

`EnginePort` is what node/broker/engine.py is and what tests/support/fake_engine.py plays.
Everything is called on the event loop's thread. A coroutine may be cancelled at any await (its
caller went away): then nothing is leased, and what was appended may or may not become durable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.receipt import Receipt
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import Epoch, GroupId, Position, SequenceNumber, ShardId, TopicQueue
from hourwheel.v1.status_pb2 import ShardStatus
from node.contracts.answer_budget import AnswerBudget, HeldAnswer
from node.contracts.broadcast import BroadcastPort
from node.contracts.damaged_messages import DamagedInfo, DamagedPage
from node.contracts.dead_letters import (
    DeadLetterQuery,
    DeadLettersInfo,
    DeadLettersPage,
    RedrivenPage,
)
from node.contracts.ending import Attempt, Ending
from node.contracts.group_positions import GroupPositionsPort
from node.contracts.history import HistoryPage, MessageInfo
from node.contracts.lags import GroupLagInfo, LagPlace, LagsPart
from node.contracts.message_topics import TopicsPort
from node.contracts.pending_page import ChangedPage, KeyPage, KeysCancelled, PendingPage
from node.contracts.pending_token import KeyQuery, PendingQuery
from node.contracts.publishing import DedupedIds, DedupKeys, PublishedOne
from node.contracts.receive_stream import Push
from node.contracts.recurring import RecurringPort
from node.contracts.rescheduling import ReschedulePort
from node.contracts.transactions import TransactionPort
from node.contracts.wheel_info import WheelInfo
from node.telemetry.stats import EngineStats
from storage.views.catalog_items import GroupOrder
from storage.views.unit import Units


class IncomingMessages(NamedTuple):
    """n messages of one caller for one topic, checked against every limit but the horizon's."""

    topic: str
    due_ms: list[int]
    """Instants in epoch milliseconds; relative delays are resolved already."""
    bodies: list[bytes]
    metas: list[bytes]
    """Encoded; empty for none."""
    tag_genes: list[int]
    """As the topic's specification wants them (`EnginePort.gene_spec`)."""
    key_hashes: list[int]
    producer_id: int = 0
    """0: no idempotence."""
    producer_sequence: int = 0
    """Of the first message; the others follow densely."""
    dedup: DedupKeys = None
    requested_due_ms: tuple[int | None, ...] = ()
    """Instants as the caller named them; None: a delay, or now. Empty: not known."""


@dataclass(slots=True)
class PublishedBatchResult:
    """What became of a record batch."""

    shard: ShardId
    epoch: Epoch
    base_sequence: SequenceNumber
    count: int
    store_ms: int
    duplicate: bool
    expected_gene: GeneSpec | None = None
    """How the topic wants genes to be made, where those of this batch were made otherwise."""
    deduped: DedupedIds | None = None


@dataclass(frozen=True, slots=True)
class ReceiveParams:
    """A Receive, checked against every limit."""

    group: str
    topic: str
    messages_max: int
    bytes_max: int
    """Of metas and bodies together; one message may be larger."""
    wait_ms: int = 0
    """How long to wait for the first message."""
    invisible_ms: int = 0
    """How long the lease lasts; 0: as the group's settings say."""
    filter: FilterExpression | None = None
    """The group's filter as the caller knows it; None: the subscription's. On the cluster's own
    topics it is a filter for this call only."""
    attempt: Attempt | None = None
    """Where the same attempt was answered before, it gets that answer again."""
    held_answer: HeldAnswer | None = None
    """Counts the bytes of the answer until the client has read it; None: they are not counted."""
    overhead_bytes: int = 0
    """What each message takes of the answer beside its meta and body."""
    member_token: int = 0
    """Of the member of a broadcast; else 0."""


@dataclass(slots=True)
class Selection:
    """Some messages of one lease: ordinals [first, first + count), counted from its first one."""

    receipt: Receipt
    first: int
    count: int


class Delivery(NamedTuple):
    """Leased messages, all from one queue.

    They stand side by side from `first_position` on; with a filter others may stand between them.
    """

    shard: ShardId
    epoch: Epoch
    """In which the lease is given."""
    group_id: GroupId
    topic_queue: TopicQueue
    """The queue that they stand in: of the topic itself, or of the group's retries."""
    lease_id: int
    first_position: Position
    units: Units
    """Structured array[n] of `UNIT`."""
    blobs: bytes
    """Meta and body of each message, one behind the other."""
    message_epochs: NDArray[np.uint32] | Epoch
    """u32[n], or one for all: in which each message was first appended (its id has it)."""
    due_ms: NDArray[np.int64]
    """i64[n]: the due times that were asked for; `units` of retries have later ones."""
    receive_ms: int
    invisible_until_ms: int
    topic: str = ""
    """Topic that they were published to; empty: the one that was asked for."""
    to_check: FilterExpression | None = None
    """Some of them may not match this: the client has to check."""
    first_ordinal: int = 0
    """Of the first one, in its lease: of a lease that comes again in parts."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the API shows it."""

    name: str
    queue_count: int
    is_internal: bool = False
    released_count: int = 0
    gene: GeneSpec = DEFAULT_SPEC
    description: str = ""
    is_paused: bool = False
    version: int = field(default=0, compare=False)
    """Grows with each change: two that are alike may have come about at different times."""
    dispatch_tolerance_ms: int = 0
    retention_ms: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """What a group wants of one topic."""

    topic: str
    filter: FilterExpression | None
    """In canonical form; None: everything."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group as the API shows it."""

    name: str
    attempts_max: int
    invisible_ms: int
    retry_delay_ms: int
    retry_delay_ms_max: int
    lags: tuple[GroupLagInfo, ...] = ()
    subscriptions: tuple[SubscriptionInfo, ...] = ()
    next_after: int = 0
    """Of a part: from where the next one goes on; 0 for the last one."""
    description: str = ""
    is_paused: bool = False
    version: int = field(default=0, compare=False)
    """Grows with each change: two that are alike may have come about at different times."""
    retry_delays_ms: tuple[int, ...] = ()
    """Empty: they double."""
    retry_jitter_percent: int = 0
    start_ms: int = 0
    """Of new subscriptions."""
    in_flight_max: int = 0
    per_second_max: int = 0
    """0: any number."""
    order: GroupOrder = GroupOrder.NONE
    keeps_expired: bool = False


@dataclass(frozen=True, slots=True)
class ShardGauges:
    """What the metrics tell of the shard at one moment, beside its status."""

    overdue_count: int = 0
    """Pending although due: behind by so many."""
    cursor_lag_ms: int = 0
    """How far the dispatch cursor is behind the clock while something due is pending; else 0."""
    enqueue_lag_ms: int = 0
    """How long the oldest batch of the log waits to be applied; 0 without one."""
    memtable_units: int = 0
    near_bytes: int = 0
    disk_free_bytes: int = 0
    disk_free_bytes_min: int = 0
    """With less free no messages are accepted."""
    read_only_reason: str = ""
    """Such as "DISK_FULL"; empty while messages are accepted."""
    topic_count: int = 0
    """Topics, the cluster's own not counted."""
    group_count: int = 0
    subscription_count: int = 0
    recurrence_count: int = 0
    log_retention_ms: int = 0


@dataclass(slots=True)
class GroupSettings:
    """Settings of a group; 0 stands for the default everywhere, and None for what there is."""

    attempts_max: int = 0
    invisible_ms: int = 0
    retry_delay_ms: int = 0
    retry_delay_ms_max: int = 0
    retry_delays_ms: tuple[int, ...] | None = None
    """Empty: they double."""
    retry_jitter_percent: int | None = None
    start_ms: int | None = None
    """Of new subscriptions; see `storage.views.catalog_items.Group`."""
    in_flight_max: int | None = None
    """0: any number."""
    per_second_max: int | None = None
    """0: any number."""
    order: GroupOrder | None = None
    keeps_expired: bool | None = None
    idle_ms_max: int | None = None
    """Of the member of a broadcast, and so is what follows."""
    member_token: int | None = None


class NewTopic(NamedTuple):
    """How a topic is made; None: as the default is, or what there is."""

    gene: GeneSpec | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CatalogUpdate:
    """What to change of a topic or group; None: it stays."""

    description: str | None = None
    is_paused: bool | None = None
    expected_version: int | None = None
    """Change nothing unless it has this version; None: whatever it has."""
    dispatch_tolerance_ms: int | None = None
    """Of a topic, and so is what follows."""
    retention_ms: int | None = None


class EnginePort(
    RecurringPort, ReschedulePort, TopicsPort, GroupPositionsPort, BroadcastPort, Protocol
):
    """One node's broker. Errors are those of hourwheel.errors."""

    stats: EngineStats
    answers: AnswerBudget
    """Of messages that were handed out and not read yet."""
    cluster_id: bytes
    """16 bytes."""

    @property
    def transactions(self) -> TransactionPort:
        """Messages that are prepared, then committed or rolled back."""
        ...

    def now_ms(self) -> int:
        """The cluster clock, in epoch milliseconds; it never goes back."""
        ...

    async def publish_batch(self, topic: str, batch: RecordBatch) -> PublishedBatchResult:
        """Accept a checked, unstamped PUBLISH batch; returns when it is durable and applied.

        What concerns order (producer sequences) is decided by the order of the calls, before the
        first await.

        Raises:
            InvalidDueTime, BeyondHorizon, InvalidTopic, UnknownTopic, OutOfOrderSequence,
            UnknownProducer, DiskFull, Overloaded, ShuttingDown: nothing of it is stored.
        """
        ...

    async def publish_joined(
        self, topics: list[tuple[str, int]], batch: RecordBatch
    ) -> PublishedBatchResult:
        """As `publish_batch`, of a batch for many topics: taken or refused as a whole.

        Args:
            topics: topics, and how many of the messages, from the first on, are for each.
            batch: as there.

        Raises:
            InvalidBatch: as well where the counts are not those of the batch, where topics want
                genes of different kinds, or one of them is being deleted: publish apart.
        """
        ...

    async def publish_messages(self, incoming: IncomingMessages) -> list[PublishedOne]:
        """Accept messages, together or not at all. As above."""
        ...

    async def cancel(self, ids: NDArray[np.void]) -> NDArray[np.uint8]:
        """uint8[n] values of CancelOutcome for structured array[n] of `message_id.ID_DTYPE`."""
        ...

    async def cancel_keys(self, topic: str, keys: Sequence[bytes]) -> KeysCancelled:
        """Take back all messages of a topic that have one of n keys.

        Args:
            topic: its name.
            keys: UTF-8, 1 to 255 bytes each.

        Raises:
            UnknownTopic: there is none. InvalidTopic: it is the cluster's own.
            Unavailable: the index of keys is being built; some may be cancelled then, and to call
                again is safe.
        """
        ...

    async def receive(self, params: ReceiveParams) -> Delivery | None:
        """Lease messages; None if there is none within `wait_ms`.

        Where clients hold too many answers of `answers` unread, a call that waits gets its answer
        when others have read theirs.

        Raises:
            InvalidFilter, SubscriptionMismatch, MemberReplaced: nothing is leased.
            Overloaded: the call does not wait, and too many bytes of answers are not read.
        """
        ...

    async def receive_stream(self, params: ReceiveParams, push: "Push[Delivery]") -> None:
        """Push messages as they become visible. Returns when the stream ends: open it anew.

        Raises:
            InvalidFilter, SubscriptionMismatch, NotMaster: also when it becomes so.
            InvalidArgument: a filter of its own, on one of the cluster's topics.
        """
        ...

    async def resolve(
        self,
        group: str,
        selections: list[Selection],
        ending: Ending,
    ) -> list[ReceiptOutcome]:
        """End leases. Returns what became of each selection."""
        ...

    def change_invisible(
        self, group: str, selections: list[Selection], invisible_ms: int
    ) -> tuple[list[ReceiptOutcome], int]:
        """Move the ends of leases. Returns (what became of each selection, the new end)."""
        ...

    async def create_topic(
        self, name: str, queue_count: int, wanted: NewTopic | None = None
    ) -> TopicInfo:
        """Make a topic; AlreadyExists if there is one with other settings."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and discard what is in it."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """One topic, or UnknownTopic."""
        ...

    def topics(self, after: str, count_max: int, *, include_internal: bool) -> list[TopicInfo]:
        """Topics behind a name, by name: at most so many; none only where there are none."""
        ...

    async def put_group(self, name: str, settings: GroupSettings) -> GroupInfo:
        """Make a group, or change its settings."""
        ...

    async def update_topic(self, name: str, update: CatalogUpdate) -> TopicInfo:
        """Change what is given of a topic. UnknownTopic; FailedPrecondition: another version."""
        ...

    async def update_group(
        self, name: str, update: CatalogUpdate, settings: GroupSettings
    ) -> GroupInfo:
        """Change what is given of a group; settings of 0 stay. As `update_topic`; UnknownGroup."""
        ...

    async def put_subscription(
        self, group: str, topic: str, wanted: FilterExpression
    ) -> SubscriptionInfo:
        """Subscribe a group to a topic, or change what it wants of it from now on.

        Raises:
            InvalidFilter, InvalidArgument: nothing has changed.
        """
        ...

    def gene_spec(self, topic: str) -> GeneSpec:
        """How genes of a topic's messages are made; the default of one that does not exist."""
        ...

    async def delete_group(self, name: str) -> None:
        """Forget a group."""
        ...

    def group(self, name: str, after: int, count_max: int) -> GroupInfo:
        """One group, or UnknownGroup; with lags and subscriptions of at most so many topics.

        `after` 0: the first ones; else `GroupInfo.next_after` of the part before.
        """
        ...

    def groups(self, after: str, count_max: int) -> list[GroupInfo]:
        """Groups behind a name, as `topics`: without lags, and with few subscriptions each."""
        ...

    def lags(self, after: LagPlace | None) -> LagsPart:
        """Some of all lags, in no order that means anything; None: the first ones."""
        ...

    async def list_pending(
        self, query: PendingQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> PendingPage:
        """A page of the pending messages that match, in key order; `count_max` 0: count only.

        Raises:
            UnknownTopic, InvalidTopic, InvalidFilter, Overloaded, ShuttingDown.
            InvalidArgument: `token` is none that this question's last page gave.
        """
        ...

    async def cancel_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        """Cancel a page of them, but none published after the first page was asked for.

        Raises as list_pending, and what appending may raise: to ask again is safe.
        """
        ...

    async def reschedule_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        """Move a page of them to `query.new_due_ms`. Raises as cancel_pending and reschedule."""
        ...

    async def list_by_key(self, query: KeyQuery, token: bytes, *, count_max: int) -> KeyPage:
        """A page of the messages that have a key, the newest first; `count_max` 0: count only.

        Raises as list_pending. Unavailable: the index is being built.
        """
        ...

    async def history(self, of: MessageId, topic: str, token: bytes) -> HistoryPage:
        """A page of what became of a message; of another topic than `topic` (empty: any): nothing.

        Raises:
            ShuttingDown. CorruptLog: it stands at a damaged place of the log.
            InvalidArgument: `token` is none that this question's last page gave.
        """
        ...

    async def list_damaged(
        self, group: str, topic: str, token: bytes, *, count_max: int
    ) -> DamagedPage:
        """A page of what this master cannot read; empty names: of any group, of any topic.

        Raises:
            UnknownGroup, UnknownTopic. InvalidArgument: `token` is of another mastership, or none.
        """
        ...

    async def discard_damaged(
        self, group: str, topic: str, ids: Sequence[MessageId] | None, *, count_max: int
    ) -> tuple[list[DamagedInfo], int]:
        """Give up so many damaged messages of a group, of these `ids` or all.

        Returns:
            Which were given up, and how many are left that match.

        Raises:
            UnknownGroup, UnknownTopic; and whatever appending may raise.
        """
        ...

    async def list_dead_letters(
        self, query: DeadLetterQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> DeadLettersPage:
        """A page of a group's dead letters, oldest first.

        Raises:
            UnknownGroup, UnknownTopic, InvalidFilter, Overloaded, ShuttingDown.
            InvalidArgument: `token` is none that this question's last page gave.
        """
        ...

    async def redrive(self, query: DeadLetterQuery, token: bytes) -> RedrivenPage:
        """Give a page of them to the group again, but none that became one after the first page.

        Raises:
            As list_dead_letters; and whatever appending may raise: some may be given back then,
            and to ask again is safe.
            FailedPrecondition: a node of an earlier version is in the cluster.
        """
        ...

    def status(self) -> ShardStatus:
        """The state of the shard now, without what only the cluster knows of its mastership."""
        ...

    def gauges(self) -> ShardGauges:
        """What the metrics tell of it beside."""
        ...

    async def describe_wheel(self, bounds_ms: Sequence[int]) -> WheelInfo:
        """How many messages are due between `bounds_ms`, which are instants and ascend.

        Of what this node has applied, whether it is the master or not. Exact where bounds are whole
        seconds, and further than `wheel.hour_level_days` away whole hours (UTC).

        Raises:
            InvalidArgument: there are less than 2 or more than `WHEEL_BOUND_COUNT_MAX` of them, or
                they do not ascend.
            Overloaded, ShuttingDown.
        """
        ...

    def describe(self, message_id: MessageId) -> MessageInfo:
        """What is known of one message. Raises NotMaster, ShuttingDown."""
        ...

    async def is_shown(self, message_id: MessageId) -> bool:
        """Whether its topic's retention still lets callers see it. Raises Overloaded."""
        ...

    async def dead_letters(self, message_id: MessageId) -> DeadLettersInfo:
        """Where this message, which was released, is a dead letter: a bounded search."""
        ...

    async def close(self) -> None:
        """Stop dispatching, write a checkpoint, close the files. Calls in flight end first."""
        ...
