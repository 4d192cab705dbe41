"""Judges publishes as they would follow one another in a log, without one."""

from types import SimpleNamespace
from typing import cast

import numpy as np

from hourwheel.formats.record_batch import RecordBatch, Stamp, build_publish, stamp
from hourwheel.internal.v1.state_pb2 import TopicConfig
from hourwheel.types import FIRST_OFFSET, Epoch, SequenceNumber
from node.shard.deduplication import Mask, PublishResults, deduplicate
from node.shard.views import Views
from storage.views.catalog import Catalog
from storage.views.producer_state import ProducerStates

TOPIC, DELETED = 1, 2
EPOCH, STORE_MS = Epoch(4), 77_000


class Court:
    """Judges batches as they would follow one another in a log."""

    def __init__(self) -> None:
        catalog = Catalog(
            [TopicConfig(topic_id=TOPIC, name="orders", queue_count=1)], next_topic_id=DELETED + 1
        )
        self.producers = ProducerStates()
        self._catalog = catalog
        self.next_sequence = 100

    def judge(self, batch: RecordBatch, topics: list[int]) -> tuple[PublishResults, Mask | None]:
        sequence = SequenceNumber(self.next_sequence)
        at = Stamp(FIRST_OFFSET, sequence, STORE_MS, FIRST_OFFSET, EPOCH)
        queues = np.array([topic << 8 for topic in topics], np.uint32)
        self.next_sequence += batch.header.count
        pieces = stamp(batch, at, due_ms=batch.due_ms, topic_queue=queues)
        return deduplicate(self.views, RecordBatch.from_pieces(*pieces))

    @property
    def views(self) -> Views:
        """Those that are looked at, with `producers` as they are now."""
        return cast(Views, SimpleNamespace(catalog=self._catalog, producers=self.producers))

    def publish(
        self, count: int, producer: int = 0, first: int = 0, *, topic: int = TOPIC
    ) -> tuple[PublishResults, Mask | None]:
        """Judge a batch of one producer."""
        raw = build_publish(
            [0] * count, [b""] * count, producer_id=producer, producer_sequence=first
        )
        return self.judge(RecordBatch(raw), [topic] * count)

    def merged(
        self, producers: list[int], numbers: list[int], topics: list[int] | None = None
    ) -> tuple[PublishResults, Mask | None]:
        """Judge a batch of several producers' messages."""
        count = len(producers)
        raw = build_publish([0] * count, [b""] * count, message_producers=(producers, numbers))
        return self.judge(RecordBatch(raw), topics or [TOPIC] * count)
