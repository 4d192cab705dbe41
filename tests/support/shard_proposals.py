"""What callers may propose to a shard in a simulation, and how their answers are compared."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chaos.log_model import LogModel
from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire
from hourwheel.formats.committed_batch import of_transaction
from hourwheel.formats.dedup_key import DedupKey, make_dedup_key
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    PREPARE_ROW,
    RESCHEDULE_ROW,
    RESOLVE_ROW,
    TRANSACT_ROW,
    RecordBatch,
    build_publish,
)
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GENE_SPEC_OF_TOPIC, gene_of
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import (
    ConfigChange,
    GroupConfig,
    Prepared,
    RecurrenceChange,
    RecurrenceConfig,
    Subscription,
    SubscriptionReset,
    TopicConfig,
)
from hourwheel.types import GroupId, Offset, TopicId
from node.broker.priorities import place_batch
from node.broker.small_calls import Merge
from node.contracts.broker import IncomingMessages
from node.delivery.deliveries import Delivery
from node.delivery.message_lease import Part
from node.delivery.resolve_rows import (
    ack_rows,
    dead_rows,
    filtered_rows,
    give_back_rows,
    redrive_rows,
    retry_rows,
)
from node.replica.mastership import Mastership
from node.shard.deduplication import Published
from node.shard.group_queue import GroupQueue
from node.shard.shard import Shard
from node.shard.transaction_apply import Prepare
from storage.views.catalog_items import Group
from storage.views.unit import Units

TOPIC, LETTERS, RETRIES, GROUP = TopicId(1), TopicId(2), TopicId(3), GroupId(1)
SIDE_STEP = 8
"""Numbers that a side takes: of its topic, its dead letters and its retries, then and later."""
TAG_STEPS = {"even": 2, "third": 3, "rare": 29}
"""Tag -> it is on the messages whose due time is a multiple."""
QUEUES = [TOPIC << 8, TOPIC << 8 | 1]
ATTEMPTS_MAX = 3
UNKNOWN_DUE_MS = 1_800_000_000_000


class Side(NamedTuple):
    """A topic of one queue and the group that reads it, beside those of the whole life."""

    topic: int
    group: int

    @classmethod
    def of(cls, number: int) -> "Side":
        """That of a number, from 1."""
        return cls(SIDE_STEP * number + 1, GROUP + number)

    @property
    def queue(self) -> int:
        """Of the topic."""
        return self.topic << 8

    @property
    def letters(self) -> int:
        """Topic of its dead letters."""
        return self.topic + 1

    @property
    def retries(self) -> int:
        """Topic of its retries."""
        return self.topic + 2


@dataclass
class Token:
    """Finds its proposal's answer."""

    kind: str
    offset: int
    """Of its record."""
    result: Any = None
    error: HourwheelError | None = None
    is_answered: bool = False

    def answer(self, result: Any, error: HourwheelError | None) -> None:
        """See `node.replica.mastership.Proposer`."""
        assert not self.is_answered, "answered twice"
        self.result, self.error, self.is_answered = result, error, True


def body_of(due_ms: int) -> bytes:
    """The body of every message that is due then: 0 to 96 bytes."""
    return due_ms.to_bytes(8, "big") * (due_ms % 13)


def tags_of(due_ms: int) -> tuple[str, ...]:
    """The tags of every message that is due then, in worlds whose messages have any."""
    return tuple(tag for tag, step in TAG_STEPS.items() if due_ms % step == 0)


def keys_of(due_ms: int) -> tuple[str, ...]:
    """The keys of every message that is due then, in worlds whose messages have any: 0 to 2."""
    return tuple(f"{step}:{due_ms // 40 % step}" for step in (3, 50) if due_ms % step < 2)


def priority_of(due_ms: int) -> int:
    """The priority of every message that is due then, in worlds whose messages have any."""
    return due_ms // 4 % 10 if due_ms % 4 == 1 else 0


def dedup_of(numbers: list[int] | None, count: int) -> list[DedupKey] | None:
    """Dedup keys: of 0 none, else one of a few with one of the three things to do."""
    if not numbers:
        return None
    chosen = [numbers[at % len(numbers)] for at in range(count)]
    keys = [(f"unique-{one // 3 % 4}" if one else "", 1 + one % 3 if one else 0) for one in chosen]
    return [make_dedup_key(*one) for one in keys]


class ShardProposals:
    """Proposes to `mastership` at `now_ms`; `model` tells what ids messages have."""

    mastership: Mastership
    shard: Shard
    model: LogModel
    now_ms: int
    tokens: list[Token]
    is_tagged = False
    """Whether messages have tags and keys, and some a priority."""
    expires_after_ms = 0
    """When every third message expires, after its due time; 0: never."""
    acked: set[tuple[int, int]]
    """(topic_queue, position) of each message that somebody acknowledged."""

    def meta_of(self, due_ms: int) -> bytes:
        """The metadata of every message that is due then."""
        meta = MessageMeta()
        if self.is_tagged:
            meta = MessageMeta(
                tags=tags_of(due_ms), keys=keys_of(due_ms), priority=priority_of(due_ms)
            )
        if self.expires_after_ms and due_ms % 3 == 0:
            meta = replace(meta, expires_ms=due_ms + self.expires_after_ms)
        return encode(meta).raw

    def _genes(self, due_ms: list[int]) -> list[int]:
        return [gene_of(DEFAULT_SPEC, tags_of(due)) if self.is_tagged else 0 for due in due_ms]

    def _token(self, kind: str) -> Token:
        token = Token(kind, self.shard.log.end_offset)
        self.tokens.append(token)
        return token

    def configure(self, wanted: FilterExpression | None = None) -> None:
        """Append one topic of two queues, and one group that reads it."""
        group = GroupConfig(
            group_id=GROUP,
            name="workers",
            attempts_max=ATTEMPTS_MAX,
            invisible_ms=30_000,
            retry_delay_ms=1_000,
            retry_delay_ms_max=8_000,
            dead_letter_topic_id=LETTERS,
        )
        topics = (
            TopicConfig(topic_id=TOPIC, name="orders", queue_count=2),
            TopicConfig(topic_id=LETTERS, name="%DLQ%workers", queue_count=1, internal=True),
            TopicConfig(
                topic_id=RETRIES, name="%RETRY%workers|orders", queue_count=1, internal=True
            ),
        )
        changes = [ConfigChange(put_topic=topic) for topic in topics]
        changes.append(ConfigChange(put_group=group))
        for change in changes:
            self.mastership.configure(change, self.now_ms, self._token("configure"))
        self.subscribe(wanted)

    def subscribe(self, wanted: FilterExpression | None) -> Token:
        """Append the group's subscription; None: everything."""
        subscription = Subscription(
            group_id=GROUP,
            topic_id=TOPIC,
            retry_topic_id=RETRIES,
            filter=None if wanted is None else filter_to_wire(wanted.canonical()),
        )
        token = self._token("subscribe")
        self.mastership.configure(ConfigChange(put_subscription=subscription), self.now_ms, token)
        return token

    def publish(
        self,
        due_ms: list[int],
        *,
        producer_id: int = 0,
        producer_sequence: int = 0,
        gene_spec: int = DEFAULT_SPEC.number,
        queues: list[int] | None = None,
        dedup: list[int] | None = None,
    ) -> Token:
        """Append messages, alternately to the topic's queues, or to others.

        `dedup`: numbers that dedup keys are made of; they begin again behind the last.
        """
        batch = RecordBatch(
            self._messages(
                due_ms,
                gene_spec=gene_spec,
                producer_id=producer_id,
                producer_sequence=producer_sequence,
                dedup=dedup_of(dedup, len(due_ms)),
            )
        )
        batch.verify()
        chosen = self._queues_of(batch, queues)
        token = self._token("publish")
        self.mastership.publish(batch, batch.due_ms, chosen, self.now_ms, token)
        return token

    def _queues_of(self, batch: RecordBatch, queues: list[int] | None) -> NDArray[np.uint32]:
        chosen = np.resize(np.array(queues or QUEUES, np.uint32), batch.header.count)
        return self._placed(batch, chosen)

    def _placed(self, batch: RecordBatch, queues: NDArray[np.uint32]) -> NDArray[np.uint32]:
        return place_batch(batch, queues, self.shard.views.catalog.topics())

    def _messages(self, due_ms: list[int], **fields: Any) -> bytes:
        """An unstamped PUBLISH batch of messages that are due then."""
        return build_publish(
            due_ms,
            [body_of(due) for due in due_ms],
            metas=[self.meta_of(due) for due in due_ms],
            tag_genes=self._genes(due_ms),
            **fields,
        )

    # -- transactions ---------------------------------------------------------------------------

    def prepare(self, due_ms: list[int], token: int, topic: int = TOPIC) -> Token:
        """Append messages for a topic that nobody sees before they are committed."""
        raw = self._messages(due_ms, gene_spec=DEFAULT_SPEC.number)
        blob = Prepared(
            producer_group="tills",
            check_interval_ms=1_000,
            checks_max=3,
            age_max_ms=60_000,
            batch=raw,
        )
        rows = np.zeros(1, PREPARE_ROW)
        rows["token_low"], rows["topic_id"], rows["message_count"] = token, topic, len(due_ms)
        found = self._token("prepare")
        self.mastership.prepare(rows, blob.SerializeToString(), self.now_ms, found)
        return found

    def commit_transaction(self, offset: Offset, queues: list[int] | None = None) -> Token:
        """Append the commit of a transaction; of one that is not open, with another message."""
        raw = self._messages([self.now_ms + 700])
        if self.shard.views.transactions.is_open(offset):
            prepare = self.shard.log.read_batch(offset)
            raw = Prepared.FromString(bytes(prepare.blobs)).batch
        batch = of_transaction(raw, offset)
        chosen = self._queues_of(batch, queues)
        token = self._token("publish")
        self.mastership.publish(batch, batch.due_ms, chosen, self.now_ms, token)
        return token

    def transact(self, offsets: list[int], step: Step) -> Token:
        """Append a check of transactions, or their end."""
        rows = np.zeros(len(offsets), TRANSACT_ROW)
        rows["prepare_offset"], rows["step"] = offsets, step
        token = self._token("transact")
        self.mastership.transact(rows, self.now_ms, token)
        return token

    # -- sides ----------------------------------------------------------------------------------

    def make_side(self, number: int) -> Side:
        """Append a topic and a group of their own; `number`: of the side, from 1, never again."""
        side = Side.of(number)
        name = f"side-{number}"
        group = GroupConfig(
            group_id=side.group,
            name=name,
            attempts_max=ATTEMPTS_MAX,
            invisible_ms=30_000,
            retry_delay_ms=1_000,
            retry_delay_ms_max=8_000,
            dead_letter_topic_id=side.letters,
        )
        names = ((side.letters, f"%DLQ%{name}"), (side.retries, f"%RETRY%{name}|{name}"))
        topics = [TopicConfig(topic_id=side.topic, name=name, queue_count=1)]
        topics += [TopicConfig(topic_id=n, name=t, queue_count=1, internal=True) for n, t in names]
        reading = Subscription(
            group_id=side.group, topic_id=side.topic, retry_topic_id=side.retries
        )
        for change in (
            *(ConfigChange(put_topic=topic) for topic in topics),
            ConfigChange(put_group=group),
            ConfigChange(put_subscription=reading),
        ):
            self.mastership.configure(change, self.now_ms, self._token("configure"))
        return side

    def retain(self, topic_id: TopicId, retention_ms: int) -> Token | None:
        """Append that a topic has a retention of its own, or, with 0, none; None: it is gone."""
        topic = self.shard.views.catalog.find_topic_by_id(topic_id)
        if topic is None:
            return None
        token, config = self._token("configure"), topic.config()
        config.retention_ms = retention_ms
        self.mastership.configure(ConfigChange(put_topic=config), self.now_ms, token)
        return token

    def delete_topic(self, number: int) -> Token:
        """Append that a topic goes."""
        token = self._token("configure")
        self.mastership.configure(ConfigChange(delete_topic_id=number), self.now_ms, token)
        return token

    def delete_group(self, number: int) -> Token:
        """Append that a group goes."""
        token = self._token("configure")
        self.mastership.configure(ConfigChange(delete_group_id=number), self.now_ms, token)
        return token

    def resolve_side(self, side: Side, queue: int, first: int, count: int, outcome: int) -> Token:
        """Append that a side's group is through with positions of a queue that it reads."""
        row = (side.group, queue, first, count, outcome, self.now_ms + 500)
        rows = np.zeros(1, RESOLVE_ROW)
        names = ("group_id", "topic_queue", "first_position", "count", "outcome", "retry_due_ms")
        for name, value in zip(names, row, strict=True):
            rows[name] = value
        return self.resolve(rows)

    def retries_of(self, side: Side) -> int:
        """Topic that takes a side's retries; where nothing does, what took them first."""
        known = self.shard.views.catalog.find_subscription(GroupId(side.group), TopicId(side.topic))
        return side.retries if known is None else known.retry_topic_id

    def reset_side(self, side: Side, position: int, *, is_stale: bool = False) -> Token:
        """Append that a side's group begins anew in its topic; void where that is no more."""
        last = side.topic + SIDE_STEP - 1
        reset = SubscriptionReset(
            group_id=side.group,
            topic_id=side.topic,
            former_retry_topic_id=self.retries_of(side) - is_stale,
            retry_topic_id=min(self.shard.views.catalog.next_topic_id, last),
            topic_queues=[side.queue],
            positions=[position],
        )
        change, token = ConfigChange(reset_subscription=reset), self._token("configure")
        self.mastership.configure(change, self.now_ms, token)
        return token

    def redrive(self, first: int, count: int) -> Token:
        """Append that the group gets its dead letters at these positions again, soon."""
        letters = GroupQueue.of(GROUP, LETTERS << 8)
        return self.resolve(redrive_rows(letters, [(first, first + count)], self.now_ms + 500))

    def publish_merged(
        self, requests: list[tuple[int, int, list[int]]], dedup: list[int] | None = None
    ) -> Token:
        """Append requests (producer, its number of the first message, due times) as one batch."""
        merge = Merge[None]()
        for producer, first, due_ms in requests:
            count = len(due_ms)
            incoming = IncomingMessages(
                "orders",
                due_ms,
                bodies=[body_of(due) for due in due_ms],
                metas=[self.meta_of(due) for due in due_ms],
                tag_genes=self._genes(due_ms),
                key_hashes=[0] * count,
                producer_id=producer,
                producer_sequence=first,
                dedup=dedup_of(dedup, count),
            )
            dedup = dedup and dedup[1:]
            merge.add(incoming, [QUEUES[0]] * count, 0, None)
        batch = merge.build()
        token, queues = self._token("publish"), self._placed(batch, batch.topic_queue)
        self.mastership.publish(batch, batch.due_ms, queues, self.now_ms, token)
        return token

    def cancel(self, sequences: list[int], *, due_shift_ms: int = 0, epoch_shift: int = 0) -> Token:
        """Append a cancel of messages by the ids that they have (or by forged ones)."""
        ids = np.zeros(len(sequences), ID_DTYPE)
        for row, sequence in zip(ids, sequences, strict=True):
            row["sequence"] = sequence
            row["due_ms"] = self.model.messages.get(sequence, UNKNOWN_DUE_MS) + due_shift_ms
            row["epoch"] = self.model.epoch_of(sequence) + epoch_shift
        token = self._token("cancel")
        self.mastership.cancel(ids, self.now_ms, token)
        return token

    def reschedule(
        self,
        sequences: list[int],
        due_ms: list[int],
        *,
        due_shift_ms: int = 0,
        epoch_shift: int = 0,
    ) -> Token:
        """Append moves of messages by the ids that they have (or by forged ones)."""
        rows = np.zeros(len(sequences), RESCHEDULE_ROW)
        for row, sequence, new_due_ms in zip(rows, sequences, due_ms, strict=True):
            row["sequence"], row["new_due_ms"] = sequence, new_due_ms
            row["due_ms"] = self.model.messages.get(sequence, UNKNOWN_DUE_MS) + due_shift_ms
            row["epoch"] = self.model.epoch_of(sequence) + epoch_shift
        token = self._token("reschedule")
        self.mastership.reschedule(rows, self.now_ms, token)
        return token

    def recur(self, name: str, what: str, *, count_max: int = 0, is_stale: bool = False) -> Token:
        """Append a change of a recurrence, which takes its last occurrence back: "put", ..."""
        old = self.model.recurring.recurrences.get(name)
        version = old.version if old else 0
        change = RecurrenceChange(expected_version=version + int(is_stale))
        if what == "put":
            times = RecurrenceConfig(name=name, topic="orders", every_ms=1, count_max=count_max)
            change.put.MergeFrom(times)
        else:
            setattr(change, f"{what}_name", name)
        last = old.own[-1:] if old else []
        rows = np.zeros(len(last), CANCEL_ROW)
        for row, (sequence, due_ms) in zip(rows, last, strict=True):
            row["sequence"], row["due_ms"] = sequence, due_ms
            row["epoch"] = self.model.epoch_of(sequence)
        token = self._token("recur")
        self.mastership.recur(change, rows, self.now_ms, token)
        return token

    def occur(self, names: list[str], delays_ms: list[int], *, skew: int = 0) -> Token:
        """Append the next occurrence of recurrences, if they are there, in one batch."""
        known = [self.model.recurring.recurrences.get(name) for name in names]
        due_ms = [self.now_ms + delay for delay in delays_ms]
        batch = RecordBatch(
            build_publish(
                due_ms,
                [body_of(due) for due in due_ms],
                metas=[self.meta_of(due) for due in due_ms],
                tag_genes=self._genes(due_ms),
                topic_queues=[QUEUES[0]] * len(due_ms),
                message_producers=(
                    [one.version if one else 9 for one in known],
                    [max(0, one.next_index + skew) if one else 0 for one in known],
                ),
                are_occurrences=True,
                gene_spec=GENE_SPEC_OF_TOPIC,
            )
        )
        token, queues = self._token("publish"), self._placed(batch, batch.topic_queue)
        self.mastership.publish(batch, batch.due_ms, queues, self.now_ms, token)
        return token

    def ack(self, delivery: Delivery, low: int = 0, high: int | None = None) -> Token:
        """Acknowledge messages [low, high) of a delivery."""
        ranges, runs = _span(delivery, low, high)
        queue = delivery.lease.group_queue.topic_queue
        self.acked |= {(queue, at) for first, end in runs for at in range(first, end)}
        return self.resolve(ack_rows(delivery.lease.group_queue, ranges))

    def bury(self, delivery: Delivery, low: int = 0, high: int | None = None) -> Token:
        """Make dead letters of messages [low, high) of a delivery."""
        return self._put_away(delivery, low, high, dead_rows)

    def nack(
        self, delivery: Delivery, delay_ms: int | None, low: int = 0, high: int | None = None
    ) -> Token:
        """Give messages [low, high) of a delivery back."""

        def rows(group_queue: GroupQueue, runs: list[tuple[int, int]]) -> Any:
            return retry_rows(
                self.shard.views, self._group(group_queue), group_queue, runs, self.now_ms, delay_ms
            )

        return self._put_away(delivery, low, high, rows)

    def _put_away(
        self,
        delivery: Delivery,
        low: int,
        high: int | None,
        rows: Callable[[GroupQueue, list[tuple[int, int]]], Any],
    ) -> Token:
        group_queue = delivery.lease.group_queue
        ranges, runs = _span(delivery, low, high)
        made = rows(group_queue, runs)
        if runs != ranges:
            made = np.concatenate([made, filtered_rows(group_queue, ranges)])
        return self.resolve(made)

    def give_back(self, group_queue: GroupQueue, part: Part) -> Token:
        """Give back what is left of a part of a lease that is over."""
        group, views = self._group(group_queue), self.shard.views
        return self.resolve(give_back_rows(views, group, group_queue, [part], self.now_ms))

    def _group(self, group_queue: GroupQueue) -> Group:
        group = self.shard.views.catalog.find_group_by_id(group_queue.group_id)
        assert group is not None
        return group

    def is_known(self, delivery: Delivery) -> bool:
        """Whether the node still knows what the delivery's receipts mean."""
        lease = delivery.lease
        return (
            lease.positions is None or self.mastership.receiver.leases.get(lease.lease_id) is lease
        )

    def check_acknowledged(self) -> None:
        """Nothing that the group wants is done with but what somebody acknowledged."""
        for queue, position in self.model.done.get(GROUP, set()) - self.acked:
            sequence = self.model.queues[queue][position].sequence
            assert queue >> 8 == TOPIC, "a retry that nobody acknowledged"
            assert not self.model.is_wanted(GROUP, TOPIC, sequence), "acknowledged by nobody"

    def resolve(self, rows: Any) -> Token:
        token = self._token("resolve")
        self.mastership.resolve(rows, self.now_ms, token)
        return token


def split(delivery: Delivery) -> list[tuple[Units, bytes]]:
    """(unit, its meta and body) of each message."""
    units = delivery.units
    ends = np.cumsum(units["body_len"].astype(np.int64) + units["meta_len"]).tolist()
    starts = [0, *ends[:-1]]
    blobs = memoryview(delivery.blobs)
    return [(unit, bytes(blobs[at:end])) for unit, at, end in zip(units, starts, ends, strict=True)]


Ranges = list[tuple[int, int]]


def _span(delivery: Delivery, low: int, high: int | None) -> tuple[Ranges, Ranges]:
    """(positions finished with messages [low, high), where these stand)."""
    lease = delivery.lease
    high = lease.count if high is None else high
    runs = lease.message_runs(low, high).tolist()
    return lease.ranges(low, high), [(first, end) for first, end in runs]


def plain(result: Any) -> Any:
    """A result as the model gives it."""
    if isinstance(result, dict):
        return [_plain_publish(result[first]) for first in sorted(result)]
    if isinstance(result, Prepare):
        return result.offset
    return result.tolist() if isinstance(result, np.ndarray) else result


def told_of_dedup_keys(result: Any) -> dict[int, tuple[int, int]]:
    """Ordinal in the record -> (`DedupOutcome`, sequence) of what a PUBLISH's proposer is told."""
    if not isinstance(result, dict):
        return {}
    return {
        first + ordinal: (outcome, sequence)
        for first, one in result.items()
        if isinstance(one, Published)
        for ordinal, outcome, sequence in one.deduped.tolist()
    }


def _plain_publish(result: Published | HourwheelError) -> tuple[str, int, int]:
    if isinstance(result, errors.UnknownProducer):
        return "unknown producer", 0, 0
    if isinstance(result, errors.UnknownTopic):
        return "unknown topic", 0, 0
    if isinstance(result, errors.UnknownTransaction):
        return "unknown transaction", 0, 0
    if isinstance(result, errors.TransactionDecided):
        return "decided", 0, 0
    if isinstance(result, HourwheelError):
        return "out of order", 0, 0
    what = "duplicate" if result.duplicate else "new"
    return what, result.base_sequence, result.count
