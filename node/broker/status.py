"""What a shard says of itself, and of one message."""

from typing import Final

import numpy as np

from hourwheel.errors import DiskFull
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import MessageState
from hourwheel.types import SEQUENCE_MAX, Epoch, Key
from hourwheel.v1.status_pb2 import ShardStatus
from node.broker.disk_guard import DiskGuard
from node.contracts.broker import ShardGauges
from node.contracts.history import MessageInfo
from node.delivery.damaged import DamagedMessages
from node.shard.job_planner import Maintenance
from node.shard.shard import Shard
from storage.views.sequence_index import SlotState

_COUNT_MAX: Final = 1 << 40


def shard_status(shard: Shard, epoch: Epoch, maintenance: Maintenance) -> ShardStatus:
    """The state of a shard at this moment; `epoch`: of this node's mastership, 0 for none."""
    views, log = shard.views, shard.log
    cursor = views.cursor
    return ShardStatus(
        shard=shard.shard_id,
        epoch=epoch,
        log_start_offset=log.start_offset,
        log_end_offset=log.end_offset,
        high_watermark=shard.high_watermark,
        applied_offset=views.applied_offset,
        checkpoint_offset=maintenance.manifest.applied_offset,
        published_count=views.next_sequence,
        pending_count=views.counters.pending,
        released_count=cursor.released_count,
        cancelled_count=views.counters.cancelled,
        tick=max(cursor.tick, 0),
        local_index=cursor.local_index,
        next_due_ms=views.wheel.next_pending_ms(cursor.key) or 0,
        run_count=len(views.wheel.runs.all()),
        disk_bytes=maintenance.disk_bytes,
        feature_level=views.feature_level,
    )


def shard_gauges(
    shard: Shard, maintenance: Maintenance, guard: DiskGuard, now_ms: int
) -> ShardGauges:
    """What the metrics tell of a shard at this moment, beside its status."""
    views = shard.views
    wheel, cursor = views.wheel, views.cursor
    next_due = wheel.next_pending_ms(cursor.key)
    now = Key(now_ms, SEQUENCE_MAX)
    overdue = wheel.near.plan(cursor.key, now, _COUNT_MAX)[1] if cursor.key < now else 0
    oldest_ms = shard.oldest_unapplied_ms
    behind = overdue and next_due is not None and next_due < now_ms
    return ShardGauges(
        overdue_count=overdue,
        cursor_lag_ms=now_ms - next_due if behind and next_due is not None else 0,
        enqueue_lag_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        memtable_units=wheel.memtable.count,
        near_bytes=wheel.near.size_bytes,
        disk_free_bytes=guard.free_bytes,
        disk_free_bytes_min=guard.free_bytes_min,
        read_only_reason=DiskFull.reason if guard.refusal else "",
        topic_count=views.catalog.topic_count,
        group_count=views.catalog.group_count,
        subscription_count=views.catalog.subscription_count,
        recurrence_count=len(views.recurrences),
        log_retention_ms=maintenance.log_retention_ms,
    )


def describe(
    shard: Shard, message_id: MessageId, damaged: DamagedMessages | None = None
) -> MessageInfo:
    """What is known of one message."""
    views = shard.views
    sequence = np.array([message_id.sequence], np.uint64)
    due_ms, states = views.sequences.read_many(sequence)
    known = (
        message_id.shard == shard.shard_id
        and int(states[0]) != SlotState.REJECTED
        and int(due_ms[0]) == message_id.due_ms
        and int(views.epochs_of(sequence)[0]) == message_id.epoch
    )
    if not (known and bool(views.are_known(sequence)[0])):
        is_ours = message_id.shard == shard.shard_id and message_id.epoch > 0
        is_past = is_ours and message_id.sequence < views.sequence_floor
        state = MessageState.EXPIRED if is_past else MessageState.UNKNOWN
        return MessageInfo(state, message_id.due_ms)
    if bool(views.tombstones.contains(sequence)[0]):
        return MessageInfo(MessageState.CANCELLED, message_id.due_ms)
    moved = views.moved.find(sequence)
    current_ms = int(moved.due_ms[0]) if moved.are_moved[0] else message_id.due_ms
    key = Key(current_ms, message_id.sequence)
    waits = int(states[0]) == SlotState.WHEEL and key > views.cursor.key
    state = MessageState.PENDING if waits else MessageState.RELEASED
    is_damaged = damaged is not None and damaged.has(message_id.sequence)
    return MessageInfo(state, current_ms if waits else message_id.due_ms, is_damaged)
