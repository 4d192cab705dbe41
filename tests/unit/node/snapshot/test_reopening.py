"""Starting a replica: a snapshot is installed, damage is put aside."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from hourwheel import errors
from node.snapshot.install import reopen_shard
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import (
    CONFIG,
    age,
    begin_world,
    catch_up,
    hold,
    live,
    open_replica,
    place_on,
    receive,
)

REPLICA = replace(CONFIG, has_peers=True)


@pytest.fixture
def master() -> Iterator[ShardWorld]:
    """Its log does not begin at 0."""
    with small_sizes(16):
        world = begin_world(1)
        age(world, Random(1))
        live(world, Random(2), 6)
        yield world


def test_shard_is_opened_when_all_is_well() -> None:
    disk = SimulatedDisk()
    found = reopen_shard(place_on(disk), REPLICA)
    assert (found.installed, found.set_aside, found.damage) == (None, "", None)


def test_shard_is_put_aside_when_its_former_life_found_damage(master: ShardWorld) -> None:
    """Where opening would not look; but not what was fetched in its place meanwhile."""
    disk, damage = SimulatedDisk(), errors.CorruptLog("a bit, long ago")
    receive(hold(master), disk)
    found = reopen_shard(place_on(disk), REPLICA, damage)
    assert found.installed is not None
    assert (found.set_aside, found.damage) == ("", None)
    end = found.opened.shard.log.end_offset
    disk.kill()

    found = reopen_shard(place_on(disk), REPLICA, damage)
    assert (found.set_aside, found.damage) == ("shard-0.damaged-1", damage)
    assert found.opened.shard.log.end_offset == 0
    assert (found.opened.lost_end, found.opened.is_sound) == (end, False)


def test_shard_is_damaged_then_filled_by_a_snapshot(master: ShardWorld) -> None:
    disk = SimulatedDisk()
    receive(hold(master), disk)
    found = reopen_shard(place_on(disk), REPLICA)
    assert found.installed is not None
    end = found.opened.shard.log.end_offset
    disk.kill()

    # The views cannot be built again: the log does not begin at 0.
    disk.flip_bit("shard-0/checkpoint", 100)
    found = reopen_shard(place_on(disk), REPLICA)
    assert found.set_aside == "shard-0.damaged-1"
    assert isinstance(found.damage, errors.CorruptFile)
    assert found.opened.shard.log.end_offset == 0
    assert (found.opened.lost_end, found.opened.is_sound) == (end, False)
    disk.kill()

    receive(hold(master, 1), disk)
    found = reopen_shard(place_on(disk), REPLICA)
    assert (found.installed is not None, found.set_aside) == (True, "")
    assert found.opened.is_sound
    catch_up(found.opened.shard, master.shard)
    assert found.opened.shard.views.digest() == master.shard.views.digest()


def test_node_alone_loses_nothing() -> None:
    with pytest.raises(errors.InvariantViolated):
        reopen_shard(place_on(SimulatedDisk()), CONFIG)


def test_files_of_another_cluster_stay_where_they_are() -> None:
    disk = SimulatedDisk()
    open_replica(disk)
    place = place_on(disk)
    foreign = type(place)(disk, "shard-0", place.identity._replace(cluster_id=bytes(16)))
    with pytest.raises(errors.ForeignDirectory):
        reopen_shard(foreign, REPLICA)
    assert disk.list("") == ["shard-0"]
