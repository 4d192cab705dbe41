"""Holding the files of a snapshot while the shard goes on."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import SnapshotHead
from node.shard.checkpoint import MANIFEST
from node.snapshot.install import install_snapshot
from node.snapshot.source import HeldSnapshot
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import IDENTITY, ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import (
    CONFIG,
    EPOCH,
    age,
    hold,
    live,
    log_state,
    open_replica,
    receive,
)


class InterruptingDisk(SimulatedDisk):
    """Does something before the n-th second name is given."""

    def __init__(self) -> None:
        super().__init__()
        self.links = 0
        self.interrupt_at = 0
        self.interrupt: Callable[[], None] = lambda: None

    def link(self, old: str, new: str) -> None:
        self.links += 1
        if self.links == self.interrupt_at:
            self.interrupt()
        super().link(old, new)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


def begin() -> tuple[ShardWorld, InterruptingDisk]:
    """A shard with all kinds of files, whose log does not begin at 0."""
    disk = InterruptingDisk()
    world = ShardWorld(disk, CONFIG, seed=3)
    age(world, Random(3))
    live(world, Random(4), 12)
    world.save()
    world.publish([world.now_ms] * 3)
    world.commit()
    return world, disk


def names(head: SnapshotHead) -> list[str]:
    return [one.name for one in head.files]


def digest_at_end(disk: SimulatedDisk) -> str:
    """Of the views of a node that installs what was received, with all of the log applied."""
    install_snapshot(disk, "shard-0", IDENTITY)
    shard = open_replica(disk).shard
    shard.committed_offset = shard.log.end_offset
    while shard.apply_some(64):
        pass
    shard.check()
    return shard.views.digest()


def test_head_tells_files_in_order() -> None:
    world, disk = begin()
    stage = hold(world)
    head = stage.head()
    assert head.epoch == EPOCH
    assert names(head)[-1] == MANIFEST
    assert names(head)[0] == "epochs"
    assert "log/00000000000000000000.log" not in names(head)
    assert head.log_start_offset == world.shard.log.start_offset > 0
    assert head.applied_offset == world.maintenance.manifest.applied_offset
    assert [one.epoch for one in head.epochs] == [1]
    assert stage.total_bytes == sum(one.size_bytes for one in head.files)
    assert sorted(names(head)) == sorted(set(names(head)))
    stage.close()
    assert disk.list("") == ["shard-0"]


def test_log_is_cut_at_the_high_watermark() -> None:
    world, _ = begin()
    live(world, Random(5), 10)
    stage = HeldSnapshot(world.place, 0)
    stage.begin()
    state = log_state(world)
    applied = world.maintenance.manifest.applied_offset
    ends = [one.header.offset for one in world.shard.log.scan(applied, state.high_watermark)]
    for end in ends[::2]:
        stage.begin()
        assert stage.complete(state._replace(high_watermark=end))
        disk = SimulatedDisk()
        assert receive(stage, disk).log_end_offset == end
        digest_at_end(disk)
    assert not stage.complete(state._replace(high_watermark=applied - 8))


def test_views_are_left_out_when_there_is_no_checkpoint() -> None:
    world = ShardWorld(SimulatedDisk(), CONFIG)
    world.publish([world.now_ms + 1_000_000] * 5)
    world.commit()
    stage = hold(world)
    assert names(stage.head()) == ["epochs", "log/00000000000000000000.log"]
    assert stage.head().applied_offset == 0
    disk = SimulatedDisk()
    receive(stage, disk)
    assert digest_at_end(disk) == world.shard.views.digest()


def test_nothing_is_there_when_nothing_is_committed() -> None:
    empty = ShardWorld(SimulatedDisk(), CONFIG)
    stage = HeldSnapshot(empty.place, 0)
    stage.begin()
    assert stage.complete(log_state(empty)._replace(high_watermark=0, segments=[]))
    assert names(stage.head()) == ["epochs"]


def test_seals_are_those_of_the_manifest_when_later_checkpoints_write_others() -> None:
    world, _ = begin()
    stage = hold(world)
    digest = world.shard.views.digest()
    for _ in range(3):
        world.publish([world.now_ms] * 2)
        world.commit()
        world.save()
    disk = SimulatedDisk()
    receive(stage, disk)
    assert digest_at_end(disk) == digest


@pytest.mark.parametrize("how", ["two checkpoints", "half a checkpoint", "age"])
def test_snapshot_is_whole_or_refused_when_the_shard_goes_on_meanwhile(how: str) -> None:
    world, disk = begin()
    first = disk.links
    hold(world).close()
    count = disk.links - first
    outcomes = set()
    for at in [1, 2, 3, 4, *range(5, count + 1, 3)]:
        world, disk = begin()

        def go_on(world: ShardWorld = world) -> None:
            live(world, Random(9), 3)
            if how == "age":
                world.advance(5 * 3_600_000)
                world.mastership.trim(world.now_ms, world.now_ms)
                world.commit()
                world.save()
                world.save()
                world.remove()
            elif how == "half a checkpoint":  # with the end of the sequences in another block
                world.publish([world.now_ms + 50_000] * 130)
                world.commit()
                world.begin_job(save=True)
                job = world.job.inner  # type: ignore[union-attr]
                job._flush.run()
                for sync in job._syncs:
                    sync()
            else:
                for _ in how.split():
                    world.publish([world.now_ms] * 3)
                    world.commit()
                    world.save()

        disk.interrupt_at, disk.interrupt = disk.links + at, go_on
        stage = HeldSnapshot(world.place, 0)
        stage.begin()
        state, digest = log_state(world), world.shard.views.digest()
        is_whole = stage.complete(state)
        outcomes.add(is_whole)
        if is_whole:
            other = SimulatedDisk()
            receive(stage, other)
            assert digest_at_end(other) == digest
        stage.close()
    assert True in outcomes
    assert (False in outcomes) == (how != "half a checkpoint")


def test_manifest_is_damaged() -> None:
    world, disk = begin()
    disk.flip_bit(world.place.under(MANIFEST), 100)
    stage = HeldSnapshot(world.place, 0)
    with pytest.raises(errors.CorruptFile):
        stage.begin()


def test_file_has_become_shorter() -> None:
    world, disk = begin()
    stage = hold(world)
    disk.open(world.place.under("epochs")).truncate(10)
    with pytest.raises(errors.CorruptFile, match="shorter"):
        list(stage.pieces())
