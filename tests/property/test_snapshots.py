"""A node that is given a snapshot has the master's views, and goes on from there like any other."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from node.shard.recovery import Opened
from node.shard.snapshot_files import find_files
from node.snapshot.install import install_snapshot
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import START_MS, ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import (
    age,
    begin_world,
    catch_up,
    hold,
    live,
    open_replica,
    place_on,
    receive,
)


@settings(max_examples=15)
@given(seed=st.integers(0, 1 << 32), is_old=st.booleans(), later=st.integers(0, 20))
def test_I5_views_are_the_masters_when_they_came_by_snapshot(  # noqa: N802
    seed: int, is_old: bool, later: int
) -> None:
    with small_sizes():
        rng = Random(seed)
        world = begin_world(seed)
        if is_old:
            age(world, rng)
        else:
            live(world, rng, 20)
            world.save()
        digest, applied = world.shard.views.digest(), world.shard.views.applied_offset
        live(world, rng, later)
        has_gone_on = world.maintenance.manifest.applied_offset != applied
        start, end = world.shard.log.start_offset, world.shard.high_watermark
        stage = hold(world)
        at_end = world.shard.views.digest()
        for _ in range(3):  # the master goes on while the files are copied
            live(world, rng, 4)
            world.save()
            world.remove()
        disk = SimulatedDisk()
        marker = receive(stage, disk)
        stage.close()
        assert world.disk.list("") == ["shard-0"]
        names = {name for name, _ in find_files(place_on(disk))}
        assert not names & {"flushed.mark", "high_watermark", "epoch_seen", "LOCK"}

        opened = _install_and_open(disk)
        follower = opened.shard
        assert opened.is_sound
        assert follower.log.end_offset == end == marker.log_end_offset
        assert follower.log.start_offset == start
        assert start > 0 or not is_old
        assert follower.views.applied_offset == marker.applied_offset
        if not has_gone_on:
            assert follower.views.digest() == digest
        follower.committed_offset = end
        while follower.apply_some(64):
            pass
        assert follower.views.digest() == at_end
        follower.check()

        for _ in range(2):
            live(world, rng, 6)
            opened = _follow(disk, opened, world)
            _checkpoint(opened)
        disk.crash(rng)
        _follow(disk, open_replica(disk), world).shard.check()


def _follow(disk: SimulatedDisk, opened: Opened, world: ShardWorld) -> Opened:
    """Have the master's views, by its log or by another snapshot."""
    if opened.shard.log.end_offset < world.shard.log.start_offset:
        stage = hold(world)
        receive(stage, disk, replaced_end_offset=opened.shard.log.end_offset)
        stage.close()
        disk.kill()
        opened = _install_and_open(disk)
    catch_up(opened.shard, world.shard)
    assert opened.shard.views.digest() == world.shard.views.digest()
    return opened


def _checkpoint(opened: Opened) -> None:
    """With what is removed after it."""
    job = opened.maintenance.plan(START_MS, force_checkpoint=True)
    assert job is not None
    job.run(lambda: None)
    for remove in opened.maintenance.finish(job, START_MS):
        remove()


def _install_and_open(disk: SimulatedDisk) -> Opened:
    install_snapshot(disk, "shard-0", place_on(disk).identity)
    return open_replica(disk)
