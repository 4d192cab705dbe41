"""Whether messages are in the log for the queues of their priorities (`hourwheel.priorities`).

The master reads a message's priority once, as it stamps the batch. No node does after that: a
message in another queue would wait behind others, or overtake them, and retries and moves would
keep it there. So the audit reads the metadata of every batch that says that it has priorities.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from hourwheel.formats.batch_columns import priorities_column
from hourwheel.formats.record_batch import Flag
from hourwheel.priorities import FIRST_PRIORITY_QUEUE, has_room, is_priority_queue, priority_of
from hourwheel.types import QUEUE_BITS
from hourwheel.v1.meta_pb2 import MessageMeta
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.logs.block_table import BlockTable, MessageTable
from spark_jobs.logs.replica import ERROR

Array = NDArray[Any]
MISPLACED: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("sequence", "<u8"),
        ("due_ms", "<i8"),
        ("topic_queue", "<u4"),
        ("priority", "<u4"),
    ]
)
"""A message that is in the log for another queue than that of its priority, unless its topic has
so many queues that there are none of priorities."""


def misplaced_of(table: BlockTable) -> Array:
    """MISPLACED[n] of a piece of a log. Of messages without priority one for each queue."""
    messages = table.messages
    if not len(messages):
        return np.empty(0, MISPLACED)
    may_have = (messages.of_batch("flags") & int(Flag.PRIORITY)) != 0
    level = messages.column("queue").astype(np.int64) - (FIRST_PRIORITY_QUEUE - 1)
    level = np.maximum(level, 0)
    if not may_have.any() and not level.any():
        return np.empty(0, MISPLACED)
    wanted = np.zeros(len(messages), np.int64)
    rows = np.flatnonzero(may_have)
    lengths = messages.column("meta_len").astype(np.int64)
    wanted[rows] = priorities_column(table.raw, messages.column("blob_at")[rows], lengths[rows])
    keyed = np.flatnonzero((wanted != 0) & (messages.column("key_hash") != 0))
    wanted[[at for at in keyed.tolist() if _is_ordered(messages, at)]] = 0
    chosen = np.flatnonzero(wanted != level)
    queues = messages.column("topic_queue")[chosen]
    # A topic with very many queues has all its messages here.
    firsts = np.unique(np.where(wanted[chosen] == 0, queues, 0), return_index=True)[1]
    kept = wanted[chosen] != 0
    kept[firsts] = True
    chosen = chosen[kept]
    found = np.zeros(len(chosen), MISPLACED)
    for name in ("offset", "sequence", "due_ms", "topic_queue"):
        found[name] = messages.column(name)[chosen]
    found["priority"] = wanted[chosen]
    return found


def _is_ordered(messages: MessageTable, ordinal: int) -> bool:
    """Whether a message has an ordering key, and so stays in that key's place."""
    try:
        return bool(MessageMeta.FromString(messages.blobs(ordinal)[0]).ordering_key)
    except DecodeError:  # damaged, as its CRC says, or never valid
        return False


def priority_findings(
    misplaced: Array, queue_counts: Mapping[int, int], shard: int
) -> list[Finding]:
    """The findings that misplaced messages are, but for those of topics without priorities.

    Args:
        misplaced: MISPLACED[n].
        queue_counts: topic id -> how many queues of its own a topic has.
        shard: of which shard.
    """
    found = []
    for offset, sequence, due_ms, number, priority in misplaced.tolist():
        count = queue_counts.get(number >> QUEUE_BITS, 0)
        if not count or not has_room(count):
            continue
        is_of = f"that of priority {priority_of(number, count)}"
        where = is_of if is_priority_queue(number) else "one without priority"
        detail = f"it has priority {priority}, and its queue {number & 0xFF} is {where}"
        found.append(
            Finding(
                ERROR,
                "priority-misplaced",
                shard,
                "",
                offset=offset,
                sequence=sequence,
                due_ms=due_ms,
                detail=detail,
            )
        )
    return found
