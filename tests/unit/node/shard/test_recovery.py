"""Opening a shard: with and without its checkpoint, its log, its views."""

import random
from dataclasses import replace

import pytest

from hourwheel import errors
from node.shard.checkpoint import MANIFEST
from node.shard.recovery import Opened, ShardConfig, open_shard
from storage.files.disk import Disk
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.log_batches import batches_of
from tests.support.lone_replica import lone_replica
from tests.support.shard_world import ShardWorld
from timewheel.levels import HOUR_MS
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(log=LogConfig(segment_bytes=2_500, index_interval_bytes=512))


@pytest.fixture
def world() -> ShardWorld:
    """A shard with messages in several segments and a checkpoint in the middle."""
    world = ShardWorld(SimulatedDisk(), CONFIG)
    for _ in range(8):
        world.publish([world.now_ms, *[world.now_ms + HOUR_MS] * 7])
        world.commit()
    world.save()
    world.publish([world.now_ms, world.now_ms + HOUR_MS])
    world.commit()
    return world


def reopen(world: ShardWorld) -> Opened:
    """As a new process, without the world's own demands."""
    world.disk.kill()
    return open_shard(world.place, CONFIG)


def next_epoch(world: ShardWorld) -> int:
    """That of a new process, which writes nothing of it into the log."""
    mastership = lone_replica(reopen(world), lambda: world.now_ms).mastership
    assert mastership is not None
    return mastership.epoch


def views_of(world: ShardWorld) -> list[str]:
    folders = [f"queues/{name}" for name in world.disk.list(world.place.under("queues"))]
    return [
        f"{folder}/{name}"
        for folder in (*folders, "sequences", "tombstones", "wheel")
        for name in world.disk.list(world.place.under(folder))
    ]


def flip(world: ShardWorld, name: str, position: int = 100) -> str:
    """Damage a file of the shard's; its path."""
    path = world.place.under(name)
    world.disk.flip_bit(path, position)
    return path


def cut_log(world: ShardWorld) -> None:
    """The first segments are gone, as after their retention."""
    log = world.shard.log
    for work in log.begin_delete_below(log.segments()[1].end_offset):
        work()
    assert log.start_offset > 0


def test_shard_is_empty_when_it_is_new() -> None:
    world = ShardWorld(SimulatedDisk(), CONFIG)
    opened = open_shard(type(world.place)(SimulatedDisk(), "new", world.place.identity), CONFIG)
    assert (opened.replayed_batches, opened.rebuilt_because) == (0, "")
    assert (opened.shard.committed_offset, opened.shard.views.applied_offset) == (0, 0)


def test_only_what_is_behind_the_checkpoint_is_replayed(world: ShardWorld) -> None:
    digest = world.shard.views.digest()
    opened = reopen(world)
    assert (opened.replayed_batches, opened.rebuilt_because) == (1, "")
    assert opened.shard.views.digest() == digest


@pytest.mark.parametrize(("batches", "saves"), [(14, False), (40, True)])
def test_replay_saves_on_the_way_only_when_there_is_more_than_a_node_may_have_unsaved(
    batches: int, saves: bool
) -> None:
    config = replace(CONFIG, wheel=WheelConfig(memtable_units_max=20))
    world = ShardWorld(SimulatedDisk(), config)
    for _ in range(batches):
        world.publish([world.now_ms + HOUR_MS] * 4)
        world.commit()
    digest = world.shard.views.digest()
    world.disk.kill()
    opened = open_shard(world.place, config)
    maintenance, views = opened.maintenance, opened.shard.views
    assert views.digest() == digest
    assert (maintenance.manifest.applied_offset > 0) == saves
    assert not maintenance.is_far_behind
    if not saves:
        job = maintenance.plan(world.now_ms)
        assert job is not None
        assert job.name == "checkpoint", "the first thing to do"
        assert views.wheel.frozen is not None
        assert views.wheel.frozen.count == 4 * batches


def test_whole_log_is_replayed_when_there_is_no_checkpoint(world: ShardWorld) -> None:
    digest, count = world.shard.views.digest(), len(batches_of(world.shard.log))
    world.disk.remove(world.place.under(MANIFEST))
    opened = reopen(world)
    assert opened.replayed_batches == count
    assert opened.rebuilt_because == "no checkpoint"
    assert opened.shard.views.digest() == digest
    assert not [name for name in views_of(world) if name.startswith("wheel/")], "of the manifest"


def test_views_are_rebuilt_when_the_checkpoint_is_damaged(world: ShardWorld) -> None:
    digest, count = world.shard.views.digest(), len(batches_of(world.shard.log))
    path = flip(world, MANIFEST)
    opened = reopen(world)
    assert opened.rebuilt_because.startswith(path)
    assert opened.replayed_batches == count
    assert opened.shard.views.digest() == digest
    assert not world.disk.exists(path), "until the next one is written"
    opened.shard.check()


@pytest.mark.parametrize("folder", ["queues", "sequences", "wheel"])
def test_views_are_rebuilt_when_one_of_their_files_is_damaged(
    world: ShardWorld, folder: str
) -> None:
    digest = world.shard.views.digest()
    name = next(one for one in views_of(world) if one.startswith(f"{folder}/"))
    path = flip(world, name, 10)
    opened = reopen(world)
    assert path in opened.rebuilt_because
    assert opened.shard.views.digest() == digest


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_nothing_is_removed_when_the_log_is_too_short_to_rebuild(
    world: ShardWorld, harm: str
) -> None:
    cut_log(world)
    path = world.place.under(MANIFEST)
    if harm == "damaged":
        flip(world, MANIFEST)
    else:
        world.disk.remove(path)
    before = views_of(world)
    with pytest.raises(errors.CorruptFile, match="cannot be rebuilt") as caught:
        reopen(world)
    assert caught.value.params["file"] == path
    assert views_of(world) == before


def test_shard_opens_from_its_checkpoint_when_the_log_is_cut(world: ShardWorld) -> None:
    digest = world.shard.views.digest()
    cut_log(world)
    opened = reopen(world)
    assert opened.rebuilt_because == ""
    assert opened.shard.views.digest() == digest


def test_epochs_grow_with_each_open_although_no_record_says_so(world: ShardWorld) -> None:
    first = world.mastership.epoch
    assert [next_epoch(world) for _ in range(3)] == [first + add for add in (1, 2, 3)]


def test_epochs_grow_when_power_fails_in_between(world: ShardWorld) -> None:
    first = next_epoch(world)
    world.disk.crash(random.Random(7))
    assert next_epoch(world) == first + 1


def test_open_fails_when_the_file_of_the_epochs_is_damaged(world: ShardWorld) -> None:
    path = flip(world, "epochs", 3)
    with pytest.raises(errors.CorruptFile) as caught:
        reopen(world)
    assert caught.value.params["file"] == path


def test_torn_tail_is_noted_when_it_was_cut(world: ShardWorld) -> None:
    digest = world.shard.views.digest()
    segment = world.shard.log.segments()[-1]
    file = world.disk.open(segment.path)
    file.pwrite([b"half a batch"], file.size())
    opened = reopen(world)
    assert opened.shard.views.digest() == digest
    report = opened.shard.log.recovery_report
    assert report is not None
    assert report.cut is not None
    assert report.cut.file == segment.path


def test_checkpoints_are_written_on_the_way_when_the_log_is_long(world: ShardWorld) -> None:
    world.disk.remove(world.place.under(MANIFEST))
    digest = world.shard.views.digest()
    world.disk.kill()
    disk: Disk = world.disk
    config = ShardConfig(log=CONFIG.log, wheel=WheelConfig(memtable_units_max=5))
    opened = open_shard(world.place, config)
    assert disk.exists(world.place.under(MANIFEST))
    assert opened.maintenance.manifest.applied_offset > 0
    assert opened.shard.views.wheel.memtable.count < 20
    assert opened.shard.views.digest() == digest
