"""The naive reading of what TRIM lets go of."""

import numpy as np

from chaos.log_parts.entries import Entry
from chaos.log_parts.retention import LEVEL, Retentions, is_rejected, trimmed
from hourwheel.formats.record_batch import TRIM_ROW, Kind, RecordBatch, Stamp, build_rows, stamp
from hourwheel.internal.v1.state_pb2 import Subscription, TopicConfig
from node.shard.views import RETENTION_LEVEL

READS = [Subscription(group_id=1, topic_id=1, retry_topic_id=3)]


def trim(retain_from_ms: int, store_ms: int) -> RecordBatch:
    batch = RecordBatch(build_rows(Kind.TRIM, np.array([(retain_from_ms,)], TRIM_ROW)))
    raw = b"".join(map(bytes, stamp(batch, Stamp(0, 0, store_ms, 0, 1))))
    return RecordBatch(raw)


def test_level_is_the_nodes() -> None:
    assert LEVEL == RETENTION_LEVEL


def test_topics_own_retention_counts_back_from_the_record_also_for_its_retries() -> None:
    found = Retentions()
    for config in (
        TopicConfig(topic_id=1, retention_ms=70),
        TopicConfig(topic_id=2),
        TopicConfig(topic_id=3, internal=True),
    ):
        found.note(config)
    record = trim(10, 1_000)
    assert [found.from_ms(record, READS, LEVEL, one) for one in (1, 2, 3)] == [930, 10, 930]
    assert found.from_ms(record, READS, LEVEL - 1, 1) == 10
    found.note(TopicConfig(topic_id=1))
    assert found.from_ms(record, READS, LEVEL, 1) == 10


def test_change_is_void_when_nothing_lasts_so_long_or_the_cluster_decides_itself() -> None:
    assert is_rejected(TopicConfig(topic_id=1, retention_ms=1 << 53))
    assert is_rejected(TopicConfig(topic_id=1, retention_ms=1, internal=True))
    assert not is_rejected(TopicConfig(topic_id=1, retention_ms=(1 << 53) - 1))


def test_queue_loses_whole_chunks_all_of_whose_entries_are_old() -> None:
    entries = [Entry(due_ms, at, 1, 256, due_ms) for at, due_ms in enumerate((5, 1, 9, 2, 3))]
    assert trimmed(entries, 0, 5, 2) == 0
    assert trimmed(entries, 0, 6, 2) == 2
    assert trimmed(entries, 0, 10, 2) == 4
    assert trimmed(entries, 2, 9, 2) == 2
