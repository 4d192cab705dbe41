"""What TRIM records let go of: a topic that is retained for a time of its own has another part."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.log_parts.entries import Entry
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.internal.v1.state_pb2 import Subscription, TopicConfig

LEVEL: Final = 11
"""The feature level from which on a topic's own retention means something."""


@dataclass
class Retentions:
    """By topic."""

    own_ms: dict[int, int] = field(default_factory=dict)
    """Topic -> its own; 0: it has none."""

    def note(self, config: TopicConfig) -> None:
        """A topic is made or changed."""
        self.own_ms[config.topic_id] = config.retention_ms

    def from_ms(
        self, trim: RecordBatch, subscriptions: Sequence[Subscription], level: int, topic: int
    ) -> int:
        """From when on what was released stays in a topic's queues.

        Its own retention, or that of the topic whose retries it has, counts back from the record.
        """
        sources = [one.topic_id for one in subscriptions if one.retry_topic_id == topic]
        own_ms = self.own_ms.get((sources or [topic])[0], 0)
        if own_ms and level >= LEVEL:
            return trim.header.store_ms - own_ms
        return int(trim.rows[0]["retain_from_ms"])


def is_rejected(config: TopicConfig) -> bool:
    """No topic is retained for longer than time goes, and none of the cluster's own by itself."""
    return config.retention_ms >= 1 << 53 or bool(config.internal and config.retention_ms)


def trimmed(entries: Sequence[Entry], start: int, from_ms: int, chunk_entries: int) -> int:
    """Where a queue begins then: whole chunks go, if all in them was released before."""
    while start + chunk_entries <= len(entries):
        chunk = entries[start : start + chunk_entries]
        if max(entry.release_ms for entry in chunk) >= from_ms:
            break
        start += chunk_entries
    return start
