"""Messages that calls and records name by id: what there is of them, and what is shown. Pure.

A topic with a retention of its own is shown for no longer. The log and the views by sequence belong
to all topics and stay for the one that asks for most: what another topic's messages were is there
after their time, and is left out of answers. A message counts from its due time, or from its
publish where that was later, as its entry in a queue does; one that is pending is shown for as long
as it is. Decisions take no part in this: a cancel that comes too late is answered by what is known.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import CANCEL_ROW
from hourwheel.types import SequenceNumber, ShardId
from node.shard.views import Views
from storage.log.commit_log import CommitLog
from storage.views.catalog_items import Topic
from storage.views.moved import are_above
from storage.views.sequence_index import SlotState


class Named(NamedTuple):
    """The messages that n rows name."""

    sequences: NDArray[np.uint64]
    current_due_ms: NDArray[np.int64]
    last_due_ms: NDArray[np.int64]
    """The latest due time that each ever had."""
    are_moved: NDArray[np.bool_]
    exist: NDArray[np.bool_]
    """There is such a message, whatever became of it."""
    cancelled: NDArray[np.bool_]
    waiting: NDArray[np.bool_]
    expired: NDArray[np.bool_]
    """Its outcome is not known any more."""


def look_up(views: Views, rows: NDArray[Any]) -> Named:
    """What the messages are that rows of CANCEL or RESCHEDULE name."""
    sequences, due = rows["sequence"].copy(), rows["due_ms"].copy()
    stored_due, states = views.sequences.read_many(sequences)
    exist = (states != SlotState.REJECTED) & (stored_due == due)
    exist &= views.epochs_of(sequences) == rows["epoch"]
    moved = views.moved.find(sequences)
    are_moved = exist & moved.are_moved
    current = np.where(are_moved, moved.due_ms, due)
    last = np.where(are_moved, moved.last_due_ms, due)
    in_wheel = exist & (states == SlotState.WHEEL)
    cancelled = exist & views.tombstones.contains(sequences)
    waiting = in_wheel & ~cancelled & are_above(sequences, current, views.cursor.key)
    # What is left over of messages below the floor may differ from replica to replica. An epoch
    # of 0 is the mark of another shard's id.
    expired = (sequences < np.uint64(views.sequence_floor)) & (rows["epoch"] > 0)
    if expired.any():
        expired &= ~(in_wheel & are_above(sequences, last, views.cursor.key))
    return Named(
        sequences=sequences,
        current_due_ms=current,
        last_due_ms=last,
        are_moved=are_moved,
        exist=exist,
        cancelled=cancelled,
        waiting=waiting,
        expired=expired,
    )


def rows_of(ids: NDArray[Any], shard_id: ShardId) -> NDArray[Any]:
    """array[n] of CANCEL_ROW; the epoch of another shard's ids is 0."""
    rows = np.zeros(len(ids), CANCEL_ROW)
    rows["due_ms"], rows["sequence"] = ids["due_ms"], ids["sequence"]
    rows["epoch"] = np.where(ids["shard"] == shard_id, ids["epoch"], 0)
    return rows


def are_shown(
    log: CommitLog,
    topic: Topic,
    sequences: NDArray[np.uint64],
    last_due_ms: NDArray[np.int64],
    now_ms: int,
) -> NDArray[np.bool_]:
    """bool[n]: of which messages of a topic, none of them pending, it is shown what became of them.

    Args:
        log: of the topic's shard. It knows by its sparse indexes when a message was stored, so some
            are shown a little longer.
        topic: of the messages.
        sequences: of the messages.
        last_due_ms: the latest due time of each.
        now_ms: cluster clock.
    """
    if not topic.retention_ms:
        return np.ones(len(sequences), np.bool_)
    from_ms = now_ms - topic.retention_ms
    shown: NDArray[np.bool_] = last_due_ms >= from_ms
    if not shown.all():
        shown |= sequences >= np.uint64(log.find_sequence_before(from_ms))
    return shown


def is_shown(
    views: Views, log: CommitLog, topic: Topic, sequence: SequenceNumber, now_ms: int
) -> bool:
    """Whether a message of a topic is shown, pending or not."""
    sequences = np.array([sequence], np.uint64)
    if not topic.retention_ms or bool(views.are_pending(sequences)[0]):
        return True
    due_ms, _ = views.sequences.read_many(sequences)
    moved = views.moved.find(sequences)
    last_ms = np.where(moved.are_moved, moved.last_due_ms, due_ms)
    return bool(are_shown(log, topic, sequences, last_ms, now_ms)[0])
