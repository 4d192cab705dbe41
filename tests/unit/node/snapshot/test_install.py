"""At the start: a snapshot in the place of the shard, damage aside, whenever the power fails."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from hourwheel import errors
from node.shard.recovery import Opened
from node.shard.snapshot_files import MARKER, Marker, end_of_log, read_lost_end, write_lost_end
from node.snapshot.install import install_snapshot, set_aside_damaged
from node.snapshot.source import HeldSnapshot
from storage.log.epochs import EPOCH_SEEN, EpochStore
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.every_step import EveryStepDisk, lose_power_at_every_step
from tests.support.shard_world import IDENTITY, ShardWorld
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

SEEN = 41
SHARD = "shard-0"


class Given:
    """A master, a snapshot of it, and a follower's disk that is far behind."""

    def __init__(self) -> None:
        with small_sizes(16):
            self.world = begin_world(1)
            age(self.world, Random(1))
            live(self.world, Random(2), 6)
            self.stage: HeldSnapshot = hold(self.world)
        self.end = self.world.shard.log.end_offset

    def prepare(self, disk: SimulatedDisk, *, replaced_end_offset: int = 0) -> Marker:
        """A short log of its own, an epoch seen, and a complete snapshot beside them."""
        begin_follower(disk)
        return receive(self.stage, disk, replaced_end_offset=replaced_end_offset)


@pytest.fixture(scope="module")
def given() -> Given:
    return Given()


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


def seen_store(disk: SimulatedDisk) -> EpochStore:
    place = place_on(disk)
    return EpochStore.open(place.disk, place.under(EPOCH_SEEN), place.identity)


def begin_follower(disk: SimulatedDisk) -> int:
    """A log of its own, and an epoch seen; where the log ends."""
    master = begin_world(5)
    live(master, Random(5), 4)
    follower = open_replica(disk)
    catch_up(follower.shard, master.shard)
    assert follower.watermark is not None
    follower.watermark.store(follower.shard.log.end_offset)
    follower.watermark.datasync()
    for work in follower.shard.log.begin_checkpoint():
        work()
    seen_store(disk).note(SEEN, "n1")
    return int(follower.shard.log.end_offset)


def install(disk: SimulatedDisk) -> Marker | None:
    return install_snapshot(disk, SHARD, IDENTITY)


def seen_on(disk: SimulatedDisk) -> int:
    return seen_store(disk).epoch


def open_installed(disk: SimulatedDisk, given: Given) -> Opened:
    """Open, go on with the master's log, and compare with the master."""
    opened = open_replica(disk)
    assert opened.is_sound
    catch_up(opened.shard, given.world.shard)
    assert opened.shard.views.digest() == given.world.shard.views.digest()
    return opened


def test_snapshot_takes_the_place_of_the_shard(given: Given) -> None:
    disk = SimulatedDisk()
    marker = given.prepare(disk)
    assert install(disk) == marker
    assert disk.list("") == [SHARD]
    assert not disk.exists(f"{SHARD}/{MARKER}")
    assert seen_on(disk) == SEEN
    open_installed(disk, given)
    assert install(disk) is None


def test_snapshot_is_installed_when_there_is_no_shard(given: Given) -> None:
    disk = SimulatedDisk()
    marker = receive(given.stage, disk)
    assert install(disk) == marker
    assert disk.list("") == [SHARD]
    open_installed(disk, given)


def test_nothing_happens_when_there_is_nothing() -> None:
    disk = SimulatedDisk()
    assert install(disk) is None
    assert disk.list("") == []
    end = begin_follower(disk)
    assert install(disk) is None
    assert open_replica(disk).shard.log.end_offset == end


def test_what_is_not_complete_is_removed(given: Given) -> None:
    disk = SimulatedDisk()
    given.prepare(disk)
    disk.remove(f"{SHARD}.incoming/{MARKER}")
    disk.make_dir(f"{SHARD}.outgoing-1")
    disk.open(f"{SHARD}.outgoing-1/000000", create=True)
    assert install(disk) is None
    assert disk.list("") == [SHARD]
    assert seen_on(disk) == SEEN


def test_snapshot_is_not_installed_when_the_node_has_acknowledged_more() -> None:
    master = begin_world(5)
    live(master, Random(5), 3)
    master.save()
    stage = hold(master)
    disk = SimulatedDisk()
    receive(stage, disk)
    follower = open_replica(disk)
    live(master, Random(6), 3)
    catch_up(follower.shard, master.shard)
    disk.kill()
    assert install(disk) is None
    assert disk.list("") == [SHARD]
    assert open_replica(disk).shard.log.end_offset == master.shard.log.end_offset


def test_longer_log_is_replaced_when_the_snapshot_was_fetched_for_that() -> None:
    master = begin_world(5)
    live(master, Random(5), 3)
    master.save()
    stage = hold(master)
    disk = SimulatedDisk()
    follower = open_replica(disk)
    live(master, Random(6), 3)
    catch_up(follower.shard, master.shard)
    end = int(follower.shard.log.end_offset)
    marker = receive(stage, disk, replaced_end_offset=end)
    disk.kill()
    assert install(disk) == marker
    opened = open_replica(disk)
    assert (opened.lost_end, opened.is_sound) == (end, False)
    catch_up(opened.shard, master.shard)
    disk.kill()
    assert open_replica(disk).is_sound


def test_snapshot_is_not_installed_when_there_is_no_room_for_the_own_files(given: Given) -> None:
    disk = SimulatedDisk()
    given.prepare(disk)
    disk.capacity_bytes = disk.used_bytes("")
    assert install(disk) is None
    assert disk.list("") == [SHARD]
    assert seen_on(disk) == SEEN


def test_shard_comes_back_when_the_snapshot_is_damaged_in_between(given: Given) -> None:
    disk = SimulatedDisk()
    given.prepare(disk)
    disk.rename(SHARD, f"{SHARD}.replaced")
    disk.flip_bit(f"{SHARD}.incoming/{MARKER}", 90)
    assert install(disk) is None
    assert disk.list("") == [SHARD]
    assert seen_on(disk) == SEEN


def check_after_crash(disk: SimulatedDisk, given: Given, rng: Random, *, twice: bool) -> None:
    """Whatever was under way: the next start has the snapshot, or the shard as it was."""
    disk.crash(rng)
    if twice:
        disk.fail_after(rng.randint(1, 6), takes_effect=rng.random() < 0.5)
        try:
            install(disk)
        except SimulatedCrash:
            disk.crash(rng)
    disk.fail_after(1 << 30)
    marker = install(disk)
    assert disk.list("") == [SHARD]
    assert seen_on(disk) == SEEN
    disk.crash(rng)
    opened = open_replica(disk)
    assert opened.shard.log.end_offset == given.end, marker
    catch_up(opened.shard, given.world.shard)
    assert opened.shard.views.digest() == given.world.shard.views.digest()


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("takes_effect", [False, True])
def test_shard_is_the_snapshot_when_power_fails_at_each_operation(
    given: Given, takes_effect: bool, twice: bool
) -> None:
    disk = SimulatedDisk()
    given.prepare(disk)
    before = disk.durability_op_count
    install(disk)
    count = disk.durability_op_count - before
    assert count >= 10
    for at in range(1, count + 1):
        disk = SimulatedDisk()
        given.prepare(disk)
        disk.fail_after(at, takes_effect=takes_effect)
        with pytest.raises(SimulatedCrash):
            install(disk)
        check_after_crash(disk, given, Random(at), twice=twice)


def test_shard_is_the_snapshot_when_power_fails_before_any_step(given: Given) -> None:
    disks: list[EveryStepDisk] = []

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        disks[:] = [disk]
        given.prepare(disk)
        return lambda: install(disk)

    cuts = lose_power_at_every_step(
        prepare,
        lambda rng: check_after_crash(disks[0], given, rng, twice=False),
        stride=9,
    )
    assert cuts > 10


# -- damage --------------------------------------------------------------------------------------


def damage(disk: SimulatedDisk) -> int:
    """A follower with a damaged log; where it ended."""
    end = begin_follower(disk)
    disk.kill()
    disk.flip_bit(f"{SHARD}/log/{0:020}.log", 300)
    with pytest.raises(errors.CorruptLog):
        open_replica(disk)
    return end


def test_damaged_shard_is_put_aside() -> None:
    disk = SimulatedDisk()
    end = damage(disk)
    assert set_aside_damaged(disk, SHARD, IDENTITY) == f"{SHARD}.damaged-1"
    assert disk.list("") == [SHARD, f"{SHARD}.damaged-1"]
    assert disk.list(SHARD) == ["epoch_seen", "high_watermark", "lost_end"]
    assert seen_on(disk) == SEEN
    assert install(disk) is None
    opened = open_replica(disk)
    assert opened.shard.log.end_offset == 0
    assert (opened.lost_end, opened.is_sound) == (end, False)
    assert end_of_log(type(place_on(disk))(disk, f"{SHARD}.damaged-1", IDENTITY)) == end


def test_lost_end_is_kept_when_damage_comes_again() -> None:
    disk = SimulatedDisk()
    end = damage(disk)
    set_aside_damaged(disk, SHARD, IDENTITY)
    set_aside_damaged(disk, SHARD, IDENTITY)
    assert read_lost_end(place_on(disk)) == end


def test_two_damaged_ones_are_kept() -> None:
    disk = SimulatedDisk()
    damage(disk)
    for number in range(1, 6):
        assert set_aside_damaged(disk, SHARD, IDENTITY) == f"{SHARD}.damaged-{number}"
    assert disk.list("") == [SHARD, f"{SHARD}.damaged-4", f"{SHARD}.damaged-5"]


def test_damaged_lost_end_counts_as_all_of_the_log() -> None:
    disk = SimulatedDisk()
    end = damage(disk)
    write_lost_end(place_on(disk), 3)
    disk.flip_bit(f"{SHARD}/lost_end", 81)
    set_aside_damaged(disk, SHARD, IDENTITY)
    assert read_lost_end(place_on(disk)) == end


@pytest.mark.parametrize("takes_effect", [False, True])
def test_damage_is_aside_or_in_place_when_power_fails_at_each_operation(
    takes_effect: bool,
) -> None:
    disk = SimulatedDisk()
    damage(disk)
    before = disk.durability_op_count
    set_aside_damaged(disk, SHARD, IDENTITY)
    count = disk.durability_op_count - before
    for at in range(1, count + 1):
        disk = SimulatedDisk()
        end = damage(disk)
        disk.fail_after(at, takes_effect=takes_effect)
        with pytest.raises(SimulatedCrash):
            set_aside_damaged(disk, SHARD, IDENTITY)
        disk.crash(Random(at))
        assert install(disk) is None
        try:
            open_replica(disk)
        except errors.CorruptLog:
            set_aside_damaged(disk, SHARD, IDENTITY)
        assert disk.list("") == [SHARD, f"{SHARD}.damaged-1"]
        assert seen_on(disk) == SEEN
        opened = open_replica(disk)
        assert (opened.shard.log.end_offset, opened.lost_end) == (0, end)


def test_damaged_shard_is_filled_by_a_snapshot(given: Given) -> None:
    disk = SimulatedDisk()
    damage(disk)
    set_aside_damaged(disk, SHARD, IDENTITY)
    open_replica(disk)
    marker = receive(given.stage, disk)
    disk.kill()
    assert install(disk) == marker
    assert seen_on(disk) == SEEN
    open_installed(disk, given)


def test_world_is_unchanged_by_holding(given: Given) -> None:
    world: ShardWorld = given.world
    world.check_promises()
