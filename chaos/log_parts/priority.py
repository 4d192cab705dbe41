"""Priorities, as the naive reading of a log (`chaos.log_model`) knows them: a queue for each."""

from dataclasses import dataclass, field

from hourwheel.formats.meta import decode
from hourwheel.internal.v1.state_pb2 import TopicConfig


@dataclass
class Priorities:
    """Which queues have messages of which priority."""

    queue_counts: dict[int, int] = field(default_factory=dict)
    """Topic -> how many queues of its own it has."""

    def note(self, config: TopicConfig) -> None:
        """A topic is made or changed."""
        self.queue_counts[config.topic_id] = config.queue_count

    def of(self, queue: int) -> int:
        """The priority of what stands in a queue."""
        own = self.queue_counts.get(queue >> 8, 1)
        return max(0, (queue & 0xFF) - 246) if own <= 247 else 0

    def retries(self, retry_topic_id: int, queue: int) -> int:
        """Where what was given from a queue is tried again."""
        priority = self.of(queue)
        return retry_topic_id << 8 | (246 + priority if priority else 0)

    def is_right(self, queue: int, raw: bytes) -> bool:
        """A message is to be released where its priority is; one with an ordering key has none."""
        meta = decode(raw)
        return self.of(queue) == (0 if meta.ordering_key else meta.priority)

    def check(self, queue: int, raw: bytes, sequence: int) -> None:
        """A log in which it is not makes no sense."""
        assert self.is_right(queue, raw), f"priority of {sequence}, in queue {queue & 0xFF}"
