"""A life on a disk that is full after any number of blocks, and later has room again.

Whatever finds no room - a group commit, a view while a record is applied, a checkpoint, a merge,
the start of the process - what is refused is refused for good, what was acknowledged is released,
and life goes on when there is room.
"""

import os
from collections.abc import Iterator

import pytest

from hourwheel import errors
from node.shard.dispatcher import DispatchConfig
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=5_000, index_interval_bytes=512),
    wheel=WheelConfig(
        near_bytes_max=64 * 48,
        load_units=16,
        memtable_units_max=60,
        hour_level_days=2,
        merge_run_count=2,
        job_units_per_slice=8,
    ),
    dispatch=DispatchConfig(units_max=32, interval_ms=4),
)
STRIDE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 5


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(32):
        yield


def live(world: ShardWorld) -> None:
    """Publish a lot, release it, save it; every step may find no room."""
    for turn in range(4):
        now = world.now_ms
        world.publish([now + n for n in range(45)], producer_id=7, producer_sequence=turn * 45)
        world.publish([now + HOUR_MS + n for n in range(45)])
        world.publish([now + 3 * DAY_MS])
        world.commit()
        world.cancel([turn * 91 + 60])
        world.commit()
        world.begin_job(save=True)
        world.advance(100)
        delivery = world.receive(20)
        if delivery is not None:
            world.ack(delivery, 0, delivery.lease.count // 2)
        world.end_job()
        world.work()
        world.advance(HOUR_MS)
        world.check_promises()


def begin() -> ShardWorld:
    return ShardWorld(SimulatedDisk(), CONFIG)


def test_I1_life_goes_on_when_the_disk_was_full() -> None:  # noqa: N802
    world = begin()
    empty = world.disk.used_bytes("")
    live(world)
    blocks = (world.disk.used_bytes("") - empty) // 4_096
    found = {"refused": 0, "failed jobs": 0, "stalls": 0}
    for room in range(0, blocks + 1, STRIDE):
        world = begin()
        world.disk.capacity_bytes = world.disk.used_bytes("") + room * 4_096
        live(world)
        found["refused"] += world.refused
        found["failed jobs"] += world.failed_jobs
        found["stalls"] += world.stalls
        if room % 3 == 0:
            world.crash()
        world.disk.capacity_bytes = 1 << 40
        live(world)
        world.check_rebuild()
        world.restart()
        world.advance(4 * DAY_MS)
        assert not world.model.pending
        while (delivery := world.receive()) is not None:
            world.ack(delivery)
            world.commit()
        world.check_promises()
    assert all(found.values()), found


def test_refused_publish_when_the_disk_is_full_is_gone_for_good() -> None:
    world = begin()
    world.commit()
    world.has_reserve = False
    world.disk.capacity_bytes = world.disk.used_bytes("")
    token = world.publish([world.now_ms + 10] * 100, producer_id=3)
    world.commit()
    assert isinstance(token.error, errors.DiskFull)
    assert world.shard.log.end_offset == world.shard.log.flushed_end_offset == world.model.offset
    world.crash()
    assert not world.model.messages
    world.disk.capacity_bytes = 1 << 40
    token = world.publish([world.now_ms + 10] * 100, producer_id=3)
    world.commit()
    assert token.error is None
    assert len(world.model.messages) == 100


def test_dispatch_when_it_found_no_room_is_planned_again() -> None:
    world = begin()
    world.publish([world.now_ms + 10] * 5)
    world.commit()
    world.has_reserve = False
    world.now_ms += 10
    world.disk.capacity_bytes = world.disk.used_bytes("")
    assert world.propose_due()
    assert world.mastership.dispatches_in_flight == 1
    write = world.shard.take_write()
    assert write is not None
    world.replica.on_abandoned(world.shard.abandon_write(write), errors.DiskFull())
    world.note()
    assert world.mastership.dispatches_in_flight == 0
    world.disk.capacity_bytes = 1 << 40
    world.tick()
    assert len(world.model.released) == 5


def test_apply_when_a_view_finds_no_room_uses_the_reserve() -> None:
    world = begin()
    world.publish([world.now_ms - 1] * 10)
    world.take_write()
    world.run_write()
    world.finish_write()
    world.disk.capacity_bytes = world.disk.used_bytes("")
    assert world.apply()
    assert not world.has_reserve
    assert world.stalls == 0
    world.check_promises()
    world.restart()
    world.check_rebuild()


def test_apply_when_there_is_no_reserve_waits_and_goes_on() -> None:
    world = begin()
    token = world.publish([world.now_ms - 1] * 10)
    world.take_write()
    world.run_write()
    world.finish_write()
    world.has_reserve = False
    world.disk.capacity_bytes = world.disk.used_bytes("")
    assert world.shard.apply_some(8) == []
    shard = world.shard
    how = (shard.is_stalled, shard.has_committed, shard.views.is_whole, token.is_answered)
    assert how == (True, False, False, False)
    world.disk.capacity_bytes = 1 << 40
    world.shard.try_again()
    assert world.apply()
    assert token.is_answered
    assert world.shard.views.is_whole
    assert len(world.model.released) == 10
    world.check_promises()
    world.check_rebuild()


def test_I5_dispatch_says_what_was_released_when_a_record_is_half_applied() -> None:  # noqa: N802
    world = begin()
    world.publish([world.now_ms + 10] * 5)
    world.commit()
    world.publish([world.now_ms - 1] * 10)
    world.take_write()
    world.run_write()
    world.finish_write()
    world.has_reserve = False
    world.disk.capacity_bytes = world.disk.used_bytes("")
    assert world.shard.apply_some(8) == []
    assert not world.shard.views.is_whole
    world.shard.try_again()
    world.now_ms += 10
    assert world.mastership.dispatch_due(world.now_ms) == 1
    world.disk.capacity_bytes = 1 << 40
    world.commit()
    assert len(world.model.released) == 15
    world.crash()
    world.check_promises()
    world.check_rebuild()
