"""The names of topics and groups, which the log gives in CONFIG records and messages by number.

Numbers are never used twice, so the names of all replicas and of all times fit together. They come
from the checkpoints, and from the CONFIG records behind the newest one; without any checkpoint the
log is read from its beginning, headers only. What was deleted before the oldest record that is left
has no name any more.
"""

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from hourwheel.formats.record_batch import Kind
from hourwheel.internal.v1.state_pb2 import ConfigChange
from spark_jobs.logs.ranges import plan_ranges
from spark_jobs.logs.replica import Inventory, Replica, ShardCopy
from spark_jobs.logs.segment_reader import HEADERS, read_blocks


@dataclass(slots=True)
class Names:
    """Names of one shard's log. Picklable."""

    topics: dict[int, str] = field(default_factory=dict)
    """By topic_id; internal topics (retries, dead letters) too."""
    groups: dict[int, str] = field(default_factory=dict)
    """By group_id."""

    def learn(self, raw: bytes) -> None:
        """Take the names out of a CONFIG record's blob; nothing from one that cannot be read."""
        try:
            change = ConfigChange.FromString(raw)
        except DecodeError:
            return
        if change.HasField("put_topic"):
            self.topics[change.put_topic.topic_id] = change.put_topic.name
        elif change.HasField("put_group"):
            self.groups[change.put_group.group_id] = change.put_group.name
        elif change.HasField("reset_subscription"):
            reset = change.reset_subscription
            former = self.topics.get(reset.former_retry_topic_id)
            if former is not None:
                self.topics[reset.retry_topic_id] = former

    def topic_ids(self, name: str) -> list[int]:
        """All topics that had a name, one after the other."""
        return [topic_id for topic_id, one in self.topics.items() if one == name]


def read_names(inventory: Inventory, shard: int) -> Names:
    """All names that the replicas know of one shard's log."""
    names, best = Names(), None
    for replica, copy in inventory.copies(shard):
        manifest = copy.manifest
        if manifest:
            names.topics.update((one.topic_id, one.name) for one in manifest.topics)
            names.groups.update((one.group_id, one.name) for one in manifest.groups)
        newest = best is None or _reach(copy) > _reach(best[1])
        if newest:
            best = (replica, copy)
    if best is not None:
        _learn_from_log(names, *best)
    return names


def _reach(copy: ShardCopy) -> tuple[int, int]:
    """Better copies have later checkpoints, so that less is left to be read; then longer logs."""
    return copy.applied_offset, copy.end_offset


def _learn_from_log(names: Names, replica: Replica, copy: ShardCopy) -> None:
    for one in plan_ranges(replica, copy, from_offset=copy.applied_offset):
        for table in read_blocks(one, verify=HEADERS):
            for ordinal in table.select(Kind.CONFIG).tolist():
                names.learn(table.blob(ordinal))
