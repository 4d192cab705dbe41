"""One life of a shard, in which the power fails at each durability operation, before and after it.

What the life goes through is everything that writes: group commits over several segments, dispatch,
cancels, retries, dead letters, checkpoints, merges, a checkpoint that a merge waits for, a cascade,
clean stops, the index of keys built again. After each failure the shard opens again, nothing
acknowledged is gone, and its views are those of the log.
"""

import os
from collections.abc import Iterator

import pytest

from hourwheel import errors
from node.shard import key_jobs
from node.shard.dispatcher import DispatchConfig
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=2_500, index_interval_bytes=512),
    wheel=WheelConfig(
        near_bytes_max=64 * 48,
        load_units=16,
        memtable_units_max=20,
        hour_level_days=2,
        merge_run_count=2,
        job_units_per_slice=8,
    ),
    dispatch=DispatchConfig(units_max=8, interval_ms=4),
)
SEEDS = range(8 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(key_jobs, "MERGE_RUN_COUNT", 2)
    monkeypatch.setattr(key_jobs, "PIECE_ROWS", 4)
    with small_sizes(16):
        yield


def live(world: ShardWorld) -> None:
    """The life."""
    now = world.now_ms
    world.publish([now - 1, now + 5, now + 900, now + HOUR_MS, now + HOUR_MS], producer_id=7)
    world.publish([now + 3 * DAY_MS + n * 1_000 for n in range(12)])
    world.commit()
    world.cancel([2, 7, 99])
    world.publish_merged([(1, 0, [now + 20] * 3), (0, 0, [now + 30]), (2, 0, [now + 40] * 2)])
    world.commit()
    world.save()
    world.advance(50)
    first = world.receive(4)
    second = world.receive(4)
    assert first is not None
    assert second is not None
    world.ack(first)
    world.nack(second, 100, 0, 1)
    world.publish([now + 60, now + 70], producer_id=7, producer_sequence=5)
    world.publish([now + 60, now + 70], producer_id=7, producer_sequence=5)
    world.commit()
    world.begin_job(save=True)
    world.advance(6_000)
    world.end_job()
    world.work()
    world.advance(HOUR_MS)
    again = world.receive()
    assert again is not None
    world.bury(again)
    world.commit()
    world.restart()
    world.advance(2 * DAY_MS)
    world.save()
    while world.work():
        pass
    save_while_merging(world)
    world.advance(DAY_MS - 6_100)
    world.maintenance.distrust(errors.CorruptFile("x", file=world.place.under("keys/x")))
    world.shard.log.close()
    world.open()  # without a checkpoint: the index of keys is built again, in pieces
    while world.work():
        pass
    assert world.shard.views.keys.is_complete
    world.restart()


def save_while_merging(world: ShardWorld) -> None:
    """A merge waits for a checkpoint, which is due because of what came meanwhile."""
    for _ in range(2):
        world.publish([world.now_ms + HOUR_MS, world.now_ms + 3 * DAY_MS])
        world.commit()
        world.save()
    world.begin_job()
    world.publish([world.now_ms + 1_000 * n for n in range(1, 24)])
    world.commit()
    world.advance(5_000)
    world.end_job()
    while world.work():
        pass


def begin(seed: int) -> ShardWorld:
    return ShardWorld(SimulatedDisk(), CONFIG, seed=seed)


def test_life_when_nothing_fails_goes_through_everything() -> None:
    world = begin(0)
    live(world)
    world.check_rebuild()
    assert world.jobs == {"checkpoint", "merge", "cascade", "keys"}
    assert world.saves_beside == 1
    assert len(world.shard.log.segments()) > 1
    assert world.disk.durability_op_count > 100


@pytest.mark.parametrize("takes_effect", [False, True])
def test_I1_I3_I6_nothing_is_lost_when_power_fails_at_each_operation(takes_effect: bool) -> None:  # noqa: N802
    world = begin(0)
    before = world.disk.durability_op_count
    live(world)
    count = world.disk.durability_op_count - before
    for seed in SEEDS:
        for at in range(1, count + 1):
            world = begin(seed + 1_000 * at)
            world.disk.fail_after(at, takes_effect=takes_effect)
            try:
                live(world)
            except SimulatedCrash:
                world.crash()
            assert world.power_failures == 1
            world.check_rebuild()
            world.advance(4 * DAY_MS)
            assert not world.model.pending
            world.check_promises()
