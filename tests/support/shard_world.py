"""A shard driven by hand on a simulated disk: every step is a call, so a test can crash in between.

What the engine does with threads happens here in order: `commit` writes and applies, `work` runs one
background job to its end. The history of what was acknowledged is kept apart from the shard, and
`check_promises` holds the shard against it.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hourwheel.errors import HourwheelError
from hourwheel.message_id import ID_DTYPE
from hourwheel.record_batch import RecordBatch, build_publish
from hourwheel.types import topic_queue
from hourwheel.wire.broker_pb2 import CancelOutcome
from hourwheel.wire.state_pb2 import ConfigChange, GroupConfig, Subscription, TopicConfig
from node.checkpoint import ShardPlace
from node.judge import Published
from node.leases import Held
from node.opening import Opened, ShardConfig, open_shard
from node.receive import Delivery
from node.retries import ack_rows, retry_rows, unresolved_of
from node.shard import Shard
from storage.disk import Disk
from storage.file_header import Identity
from storage.unit import Units

IDENTITY = Identity(bytes(range(16)), 0)
TOPIC, LETTERS, RETRIES, GROUP = 1, 2, 3, 1
START_MS = 1_800_000_000_000


@dataclass
class Token:
    """Finds its proposal's answer."""

    kind: str
    facts: Any = None
    verdict: Any = None
    error: HourwheelError | None = None
    is_answered: bool = False


@dataclass
class History:
    """What the outside was told, by sequence."""

    published: dict[int, int] = field(default_factory=dict)
    """Sequence -> due_ms of every acknowledged message."""
    cancelled: set[int] = field(default_factory=set)
    too_late: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    delivered: dict[int, int] = field(default_factory=dict)
    """Sequence -> how often it was handed out."""
    epochs: dict[int, int] = field(default_factory=dict)


class ShardWorld:
    """One shard, its clock and its history."""

    def __init__(self, disk: Disk, config: ShardConfig, *, seed: int = 0) -> None:
        """Open a new shard with one topic and one group."""
        self.disk, self.config = disk, config
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.history = History()
        self.boots = 0
        self.open()
        self._configure()

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> Opened:
        """Start the process."""
        self.place = ShardPlace(self.disk, "shard-0", IDENTITY)
        self.opened = open_shard(self.place, self.config)
        self.shard: Shard = self.opened.shard
        self.maintenance = self.opened.maintenance
        self.tokens: list[Token] = []
        self.boots += 1
        self.shard.begin_epoch("node-1", f"boot-{self.boots}", self.now_ms)
        self.commit()
        return self.opened

    def close(self) -> None:
        """A clean stop."""
        self.commit()
        self.save()
        self.shard.log.close()

    def _configure(self) -> None:
        for change in (
            ConfigChange(put_topic=TopicConfig(topic_id=TOPIC, name="orders", queue_count=1)),
            ConfigChange(
                put_topic=TopicConfig(
                    topic_id=LETTERS, name="%DLQ%workers", queue_count=1, internal=True
                )
            ),
            ConfigChange(
                put_topic=TopicConfig(
                    topic_id=RETRIES, name="%RETRY%workers|orders", queue_count=1, internal=True
                )
            ),
            ConfigChange(
                put_group=GroupConfig(
                    group_id=GROUP,
                    name="workers",
                    attempts_max=3,
                    invisible_ms=30_000,
                    retry_delay_ms=1_000,
                    retry_delay_ms_max=8_000,
                    dead_letter_topic_id=LETTERS,
                )
            ),
            ConfigChange(
                put_subscription=Subscription(
                    group_id=GROUP, topic_id=TOPIC, retry_topic_id=RETRIES
                )
            ),
        ):
            token = self._token("configure")
            self.shard.configure(change, self.now_ms, token)
            self.commit()
            assert token.verdict is True

    def _token(self, kind: str, facts: object = None) -> Token:
        token = Token(kind, facts)
        self.tokens.append(token)
        return token

    # -- steps ------------------------------------------------------------------------------------

    def publish(
        self, due_ms: list[int], *, producer_id: int = 0, producer_sequence: int = 0
    ) -> Token:
        """Append messages; their bodies tell their due times."""
        batch = RecordBatch(
            build_publish(
                due_ms,
                [due.to_bytes(8, "big") * (due % 5) for due in due_ms],
                producer_id=producer_id,
                producer_sequence=producer_sequence,
            )
        )
        batch.verify()
        queues = np.full(len(due_ms), topic_queue(TOPIC, 0), np.uint32)
        token = self._token("publish", list(due_ms))
        self.shard.publish(batch, batch.due_ms, queues, self.now_ms, token)
        return token

    def cancel(self, sequences: list[int], *, due_shift_ms: int = 0) -> Token:
        """Append a cancel of messages by the ids that they have (or a forged due time)."""
        ids = np.zeros(len(sequences), ID_DTYPE)
        for row, sequence in zip(ids, sequences, strict=True):
            row["sequence"] = sequence
            row["due_ms"] = self.history.published.get(sequence, 0) + due_shift_ms
            row["epoch"] = self.history.epochs.get(sequence, self.shard.epoch)
        token = self._token("cancel", list(sequences))
        self.shard.cancel(ids, self.now_ms, token)
        return token

    def commit(self) -> None:
        """Write and apply everything that is appended."""
        while True:
            write = self.shard.take_write()
            if write is None:
                break
            write.run(True)
            self.shard.finish_write(write)
            while self.shard.has_committed:
                self.note(self.shard.apply_some(4))

    def note(self, answers: list[Any]) -> None:
        """The outside learns the answers."""
        for token, verdict, error in answers:
            if token is None:
                continue
            token.verdict, token.error, token.is_answered = verdict, error, True
            if error is None:
                getattr(self, f"_note_{token.kind}", lambda _token: None)(token)

    def _note_publish(self, token: Token) -> None:
        verdict = token.verdict[0]
        if isinstance(verdict, Published):
            for ordinal, due in enumerate(token.facts):
                sequence = verdict.base_sequence + ordinal
                known = self.history.published.setdefault(sequence, due)
                assert known == due
                self.history.epochs[sequence] = verdict.epoch

    def _note_cancel(self, token: Token) -> None:
        for sequence, outcome in zip(token.facts, token.verdict.tolist(), strict=True):
            if outcome == CancelOutcome.CANCEL_OUTCOME_CANCELLED:
                assert sequence not in self.history.delivered
                self.history.cancelled.add(sequence)
            elif outcome == CancelOutcome.CANCEL_OUTCOME_ALREADY_RELEASED:
                assert sequence not in self.history.cancelled
                self.history.too_late.add(sequence)

    def _note_ack(self, token: Token) -> None:
        self.history.acknowledged.update(token.facts)

    def advance(self, by_ms: int) -> None:
        """Time passes; what falls due is dispatched, leases end."""
        self.now_ms += by_ms
        self.tick()

    def tick(self) -> None:
        """What the engine's timer does, until nothing is left to do."""
        while True:
            again = self.shard.dispatch_due(self.now_ms)
            for held, part in self.shard.receiver.leases.take_ended(self.now_ms, 100):
                ranges = unresolved_of(self.shard.views, held, part)
                again += self._give_back(held, ranges, None)
            self.commit()
            if not again:
                return

    def _give_back(self, held: Held, ranges: list[tuple[int, int]], delay_ms: int | None) -> bool:
        group = self.shard.views.catalog.find_group_by_id(held.group_id)
        assert group is not None
        if ranges:
            rows = retry_rows(self.shard.views, group, held, ranges, self.now_ms, delay_ms)
            self.shard.resolve(rows, self.now_ms, self._token("retry"))
        return bool(ranges)

    def receive(self, count_max: int = 32) -> Delivery | None:
        """Lease messages for the group; they must be due, right and not cancelled."""
        delivery = self.shard.receiver.receive(
            GROUP,
            TOPIC,
            count_max=count_max,
            bytes_max=1 << 20,
            invisible_ms=5_000,
            now_ms=self.now_ms,
        )
        assert not self.shard.receiver.corrupt
        if delivery is not None:
            at = 0
            for unit in delivery.units:
                end = at + int(unit["meta_len"]) + int(unit["body_len"])
                self._check_delivered(unit, delivery.blobs[at:end])
                at = end
        return delivery

    def _check_delivered(self, unit: Units, blob: bytes) -> None:
        sequence = int(unit["sequence"])
        assert int(unit["due_ms"]) <= self.now_ms, "early"
        assert sequence not in self.history.cancelled, "delivered although cancelled"
        due = self.history.published.get(sequence)
        if due is not None:
            assert due <= self.now_ms, "early"
            assert blob == due.to_bytes(8, "big") * (due % 5)
        self.history.delivered[sequence] = self.history.delivered.get(sequence, 0) + 1

    def ack(self, delivery: Delivery) -> Token:
        """Acknowledge all of a delivery."""
        span = (delivery.lease.first, delivery.lease.end)
        token = self._token("ack", delivery.units["sequence"].tolist())
        self.shard.resolve(ack_rows(delivery.lease.held, [span]), self.now_ms, token)
        return token

    def nack(self, delivery: Delivery, delay_ms: int | None) -> None:
        """Give all of a delivery back."""
        lease = delivery.lease
        self._give_back(lease.held, [(lease.first, lease.end)], delay_ms)

    def work(self) -> bool:
        """Run one background job, if one is due."""
        job = self.maintenance.plan(self.now_ms)
        if job is None:
            return False
        job.run(lambda: None)
        self.maintenance.finish(job, self.now_ms)
        return True

    def save(self) -> None:
        """A checkpoint now."""
        job = self.maintenance.plan(self.now_ms, force_checkpoint=True)
        assert job is not None
        job.run(lambda: None)
        self.maintenance.finish(job, self.now_ms)

    # -- what must hold -----------------------------------------------------------------------------

    def check_promises(self) -> None:
        """I1 and I6 over everything that was ever acknowledged."""
        self.shard.check()
        views, history = self.shard.views, self.history
        pending = set(views.pending_units()["sequence"].tolist())
        released = self._released()
        for sequence in history.published:
            places = (
                (sequence in pending) + (sequence in released) + (sequence in history.cancelled)
            )
            in_retry = sequence in pending and sequence in released
            assert places == 1 or in_retry, f"sequence {sequence} is in {places} places"
        assert not (history.too_late - released), "answered released, and it is not"
        assert not (history.cancelled & released), "cancelled and released"

    def _released(self) -> set[int]:
        """Sequences in the topic's own queue; each at most once."""
        queue = self.shard.views.queues.get(topic_queue(TOPIC, 0))
        sequences: list[int] = []
        at = queue.start_position
        while at < queue.end_position:
            units = queue.read(at, 4_096)
            sequences += units["sequence"].tolist()
            at += len(units)
        assert len(sequences) == len(set(sequences)), "released twice"
        return set(sequences)
