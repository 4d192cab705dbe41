"""Which queues prioritised messages are for: those of their priorities (`hourwheel.priorities`).

The master reads priorities as it stamps queues, and nothing reads them after it: apply, the wheel,
retries and groups go by an entry's queue. Order within a key wins over priority: what has an
ordering key stays in the queue of its key.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.batch_columns import priorities_of
from hourwheel.formats.priority_field import priority_field
from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.priorities import FIRST_PRIORITY_QUEUE, has_room, priority_queue
from hourwheel.types import QUEUE_BITS, topic_of
from hourwheel.v1.meta_pb2 import MessageMeta
from storage.views.catalog_items import Topic

_ORDERING_KEY_FIELD = b"\x32"
"""Number and wire type of `MessageMeta.ordering_key`."""


def place_batch(
    batch: RecordBatch, queues: NDArray[np.uint32], topics: Iterable[Topic]
) -> NDArray[np.uint32]:
    """The queues of a batch's messages, given those that they would have without priorities.

    Raises:
        FailedPrecondition: a topic has no room for priorities.
    """
    if not batch.header.flags & Flag.PRIORITY:
        return queues
    priorities = priorities_of(batch.blobs, batch.meta_len, batch.body_len)
    wanted = set((queues[priorities != 0] >> np.uint32(QUEUE_BITS)).tolist())
    check_room(topic for topic in topics if topic.topic_id in wanted)
    keyed = np.flatnonzero((priorities != 0) & (batch.key_hash != 0)).tolist()
    if keyed:
        ends = (batch.meta_len.astype(np.int64) + batch.body_len).cumsum().tolist()
        starts, lengths = [0, *ends], batch.meta_len.tolist()
        for at in keyed:
            if _is_ordered(bytes(batch.blobs[starts[at] : starts[at] + lengths[at]])):
                priorities[at] = 0
    first = queues >> np.uint32(QUEUE_BITS) << np.uint32(QUEUE_BITS)
    placed = first + np.uint32(FIRST_PRIORITY_QUEUE - 1) + priorities
    return np.where(priorities != 0, placed, queues).astype(np.uint32)


def place_few(metas: Sequence[bytes], queues: list[int], topic: Topic) -> list[int]:
    """The same of a few messages for one topic of which some have priorities."""
    check_room((topic,))
    placed = []
    for meta, queue in zip(metas, queues, strict=True):
        priority = priority_field(meta)
        if priority and not _is_ordered(meta):
            placed.append(int(priority_queue(topic_of(queue), priority)))
        else:
            placed.append(queue)
    return placed


def check_room(topics: Iterable[Topic]) -> None:
    """Raises FailedPrecondition where a topic has no room for priorities."""
    for topic in topics:
        if not has_room(topic.queue_count):
            raise errors.FailedPrecondition(
                f"topic {topic.name!r} has {topic.queue_count} queues; messages of a topic with "
                f"more than {FIRST_PRIORITY_QUEUE} have no priorities",
                topic=topic.name,
                queue_count=topic.queue_count,
                queue_count_max=FIRST_PRIORITY_QUEUE,
            )


def _is_ordered(meta: bytes) -> bool:
    """Whether a message has an ordering key; its meta was checked as it came."""
    return _ORDERING_KEY_FIELD in meta and bool(MessageMeta.FromString(meta).ordering_key)
