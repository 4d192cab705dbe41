"""What a shard says of itself, and of one message."""

import pytest

from hourwheel.errors import DiskFull
from hourwheel.formats.message_id import MessageId
from hourwheel.v1.admin_pb2 import MessageState
from hourwheel.v1.status_pb2 import ShardStatus
from node.broker.disk_guard import DiskGuard
from node.broker.status import describe, shard_gauges, shard_status
from node.contracts.broker import ShardGauges
from node.shard.recovery import ShardConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import ShardWorld
from timewheel.levels import HOUR_MS


@pytest.fixture
def world() -> ShardWorld:
    return ShardWorld(SimulatedDisk(), ShardConfig())


def status(world: ShardWorld) -> ShardStatus:
    return shard_status(world.shard, world.mastership.epoch, world.maintenance)


def gauges(world: ShardWorld, *, free_bytes_min: int = 0) -> ShardGauges:
    guard = DiskGuard(world.disk, free_bytes_min=free_bytes_min, reserve_bytes=0)
    return shard_gauges(world.shard, world.maintenance, guard, world.now_ms)


def test_numbers_are_zero_when_nothing_was_published(world: ShardWorld) -> None:
    found, beside = status(world), gauges(world)
    counts = (found.published_count, found.pending_count, found.released_count)
    assert (*counts, beside.overdue_count) == (0, 0, 0, 0)
    assert (found.next_due_ms, found.tick, found.run_count, beside.cursor_lag_ms) == (0, 0, 0, 0)
    assert found.epoch == world.mastership.epoch
    assert beside.read_only_reason == ""


def test_numbers_are_told_when_there_is_something(world: ShardWorld) -> None:
    now = world.now_ms
    world.publish([now, now + 500, now + HOUR_MS, now + HOUR_MS + 5])
    world.commit()
    world.cancel([3])
    world.commit()
    world.advance(500)
    world.save()
    saved = world.shard.views.applied_offset
    world.publish([world.now_ms + 2 * HOUR_MS])
    world.commit()
    world.publish([world.now_ms])
    found = status(world)
    assert found.published_count == 5, "applied"
    assert (found.pending_count, found.released_count, found.cancelled_count) == (2, 2, 1)
    assert found.next_due_ms == now + HOUR_MS
    assert (found.tick, found.local_index) == (now // 1_000, 1)
    assert (found.run_count, gauges(world).memtable_units) == (1, 1)
    assert found.checkpoint_offset == saved
    assert saved < found.applied_offset == found.high_watermark < found.log_end_offset
    assert found.log_start_offset == 0
    world.maintenance.measure_disk()
    used_bytes = world.disk.used_bytes(world.place.directory)
    assert status(world).disk_bytes == used_bytes > 0
    end_offset = world.shard.log.end_offset
    world.publish([world.now_ms] * 9)
    grown = world.shard.log.end_offset - end_offset
    assert status(world).disk_bytes == used_bytes + grown > used_bytes, "until the next look"
    beside = gauges(world)
    assert beside.disk_free_bytes == world.disk.free_bytes()
    assert beside.near_bytes == world.shard.views.wheel.near.size_bytes
    assert (beside.overdue_count, beside.cursor_lag_ms) == (0, 0)


def test_lag_is_told_when_what_is_due_is_not_released(world: ShardWorld) -> None:
    now = world.now_ms
    world.publish([now + 100, now + 150, now + 5_000])
    world.commit()
    world.tick()
    world.now_ms = now + 400
    found = gauges(world)
    assert (found.overdue_count, found.cursor_lag_ms) == (2, 300)


def test_reason_is_told_when_the_disk_is_full(world: ShardWorld) -> None:
    world.disk.capacity_bytes = world.disk.used_bytes("") + 100
    found = gauges(world, free_bytes_min=1 << 20)
    assert found.read_only_reason == DiskFull.reason
    assert found.disk_free_bytes == world.disk.free_bytes()


# --- one message


def state_of(world: ShardWorld, sequence: int, due_ms: int) -> int:
    found = describe(world.shard, MessageId(0, world.model.epoch_of(sequence), sequence, due_ms))
    assert found.due_ms == due_ms
    return found.state


def test_message_is_described_through_its_life(world: ShardWorld) -> None:
    now = world.now_ms
    world.publish([now, now + 100, now + 100, now + 200])
    world.commit()
    world.cancel([2])
    world.commit()
    world.advance(100)
    released, cancelled = MessageState.MESSAGE_STATE_RELEASED, MessageState.MESSAGE_STATE_CANCELLED
    assert state_of(world, 0, now) == released
    assert state_of(world, 1, now + 100) == released
    assert state_of(world, 2, now + 100) == cancelled
    assert state_of(world, 3, now + 200) == MessageState.MESSAGE_STATE_PENDING
    world.advance(100)
    assert state_of(world, 3, now + 200) == released
    world.restart()
    assert state_of(world, 2, now + 100) == cancelled


@pytest.mark.parametrize("forged", [{"shard": 1}, {"epoch": 9}, {"due_ms": 5}, {"sequence": 77}])
def test_message_is_unknown_when_its_id_is_forged(
    world: ShardWorld, forged: dict[str, int]
) -> None:
    world.publish([world.now_ms])
    world.commit()
    message = MessageId(0, world.mastership.epoch, 0, world.now_ms)
    assert describe(world.shard, message).state == MessageState.MESSAGE_STATE_RELEASED
    found = describe(world.shard, message._replace(**forged))
    assert found.state == MessageState.MESSAGE_STATE_UNKNOWN


def test_message_is_expired_when_it_is_past_and_below_the_floor(world: ShardWorld) -> None:
    now = world.now_ms
    world.publish([now, now + 100, now + 9_000, now + 9_000])
    world.commit()
    world.cancel([1, 3])
    world.advance(200)
    world.mastership.trim_sequences(4, world.now_ms)
    world.commit()
    cancelled, expired = MessageState.MESSAGE_STATE_CANCELLED, MessageState.MESSAGE_STATE_EXPIRED
    assert state_of(world, 0, now) == state_of(world, 1, now + 100) == expired
    assert state_of(world, 2, now + 9_000) == MessageState.MESSAGE_STATE_PENDING
    assert state_of(world, 2, now + 9_001) == expired
    assert state_of(world, 3, now + 9_000) == cancelled
    message = MessageId(1, world.mastership.epoch, 0, now)
    unknown = MessageState.MESSAGE_STATE_UNKNOWN
    assert describe(world.shard, message).state == unknown, "another shard's"
    world.advance(9_000)
    assert state_of(world, 2, now + 9_000) == state_of(world, 3, now + 9_000) == expired


def test_message_is_unknown_when_it_was_a_duplicate(world: ShardWorld) -> None:
    for _ in range(2):
        world.publish([world.now_ms], producer_id=7, producer_sequence=0)
        world.commit()
    assert state_of(world, 1, world.now_ms) == MessageState.MESSAGE_STATE_UNKNOWN
