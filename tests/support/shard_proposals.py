"""What callers may propose to a shard in a simulation, and how their answers are compared."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from chaos.log_model import LogModel
from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.message_id import ID_DTYPE
from hourwheel.record_batch import RecordBatch, build_publish
from hourwheel.wire.state_pb2 import ConfigChange, GroupConfig, Subscription, TopicConfig
from node.api.ports import IncomingMessages
from node.judge import Published
from node.leases import Held
from node.publishing import Merge
from node.receive import Delivery
from node.retries import ack_rows, dead_rows, retry_rows
from node.shard import Shard
from storage.unit import Units

TOPIC, LETTERS, RETRIES, GROUP = 1, 2, 3, 1
QUEUES = [TOPIC << 8, TOPIC << 8 | 1]
ATTEMPTS_MAX = 3
UNKNOWN_DUE_MS = 1_800_000_000_000


@dataclass
class Token:
    """Finds its proposal's answer."""

    kind: str
    offset: int
    """Of its record."""
    verdict: Any = None
    error: HourwheelError | None = None
    is_answered: bool = False


def body_of(due_ms: int) -> bytes:
    """The body of every message that is due then: 0 to 96 bytes."""
    return due_ms.to_bytes(8, "big") * (due_ms % 13)


class ShardProposals:
    """Proposes to `shard` at `now_ms`; `model` tells what ids messages have."""

    shard: Shard
    model: LogModel
    now_ms: int
    tokens: list[Token]

    def _token(self, kind: str) -> Token:
        token = Token(kind, self.shard.log.end_offset)
        self.tokens.append(token)
        return token

    def configure(self) -> None:
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
        subscription = Subscription(group_id=GROUP, topic_id=TOPIC, retry_topic_id=RETRIES)
        changes = [ConfigChange(put_topic=topic) for topic in topics]
        changes.append(ConfigChange(put_group=group))
        changes.append(ConfigChange(put_subscription=subscription))
        for change in changes:
            self.shard.configure(change, self.now_ms, self._token("configure"))

    def publish(
        self, due_ms: list[int], *, producer_id: int = 0, producer_sequence: int = 0
    ) -> Token:
        """Append messages, alternately to the topic's queues."""
        batch = RecordBatch(
            build_publish(
                due_ms,
                [body_of(due) for due in due_ms],
                producer_id=producer_id,
                producer_sequence=producer_sequence,
            )
        )
        batch.verify()
        queues = np.resize(np.array(QUEUES, np.uint32), len(due_ms))
        token = self._token("publish")
        self.shard.publish(batch, batch.due_ms, queues, self.now_ms, token)
        return token

    def publish_merged(self, requests: list[tuple[int, int, list[int]]]) -> Token:
        """Append requests (producer, its number of the first message, due times) as one batch."""
        merge = Merge()
        for producer, first, due_ms in requests:
            count = len(due_ms)
            incoming = IncomingMessages(
                *("orders", due_ms, [body_of(due) for due in due_ms], [b""] * count),
                *([0] * count, [0] * count, producer, first),
            )
            merge.add(incoming, [QUEUES[0]] * count, 0, None)
        batch = merge.build()
        token = self._token("publish")
        self.shard.publish(batch, batch.due_ms, batch.topic_queue, self.now_ms, token)
        return token

    def cancel(self, sequences: list[int], *, due_shift_ms: int = 0, epoch_shift: int = 0) -> Token:
        """Append a cancel of messages by the ids that they have (or by forged ones)."""
        ids = np.zeros(len(sequences), ID_DTYPE)
        for row, sequence in zip(ids, sequences, strict=True):
            row["sequence"] = sequence
            row["due_ms"] = self.model.messages.get(sequence, UNKNOWN_DUE_MS) + due_shift_ms
            row["epoch"] = self.model.epoch_of(sequence) + epoch_shift
        token = self._token("cancel")
        self.shard.cancel(ids, self.now_ms, token)
        return token

    def ack(self, delivery: Delivery, low: int = 0, high: int | None = None) -> Token:
        """Acknowledge messages [low, high) of a delivery."""
        return self.resolve(ack_rows(delivery.lease.held, [_span(delivery, low, high)]))

    def bury(self, delivery: Delivery, low: int = 0, high: int | None = None) -> Token:
        """Make dead letters of messages [low, high) of a delivery."""
        return self.resolve(dead_rows(delivery.lease.held, [_span(delivery, low, high)]))

    def nack(
        self, delivery: Delivery, delay_ms: int | None, low: int = 0, high: int | None = None
    ) -> Token:
        """Give messages [low, high) of a delivery back."""
        return self.give_back(delivery.lease.held, [_span(delivery, low, high)], delay_ms)

    def give_back(
        self, held: Held, ranges: list[tuple[int, int]], delay_ms: int | None = None
    ) -> Token:
        group = self.shard.views.catalog.find_group_by_id(held.group_id)
        assert group is not None
        views = self.shard.views
        return self.resolve(retry_rows(views, group, held, ranges, self.now_ms, delay_ms))

    def resolve(self, rows: Any) -> Token:
        token = self._token("resolve")
        self.shard.resolve(rows, self.now_ms, token)
        return token


def split(delivery: Delivery) -> list[tuple[Units, bytes]]:
    """(unit, its meta and body) of each message."""
    units = delivery.units
    ends = np.cumsum(units["body_len"].astype(np.int64) + units["meta_len"]).tolist()
    starts = [0, *ends[:-1]]
    blobs = memoryview(delivery.blobs)
    return [(unit, bytes(blobs[at:end])) for unit, at, end in zip(units, starts, ends, strict=True)]


def _span(delivery: Delivery, low: int, high: int | None) -> tuple[int, int]:
    lease = delivery.lease
    return lease.first + low, lease.end if high is None else lease.first + high


def plain(verdict: Any) -> Any:
    """A verdict as the model gives it."""
    if isinstance(verdict, dict):
        return [_plain_publish(verdict[first]) for first in sorted(verdict)]
    return verdict.tolist() if isinstance(verdict, np.ndarray) else verdict


def _plain_publish(verdict: Published | HourwheelError) -> tuple[str, int, int]:
    if isinstance(verdict, errors.UnknownProducer):
        return "unknown producer", 0, 0
    if isinstance(verdict, HourwheelError):
        return "out of order", 0, 0
    what = "duplicate" if verdict.duplicate else "new"
    return what, verdict.base_sequence, verdict.count
