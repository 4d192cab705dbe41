"""A shard's replica, built from what was opened."""

from pathlib import Path

import pytest

from hourwheel import errors
from node.cluster.runtime import open_epoch_seen, replication_config
from node.config.model import ClusterSection
from node.shard.checkpoint import ShardPlace
from replication.rules.epoch_store import EPOCH_SEEN
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from tests.support.member_world import LEASE_MS, MemberWorld

IDENTITY = Identity(bytes(range(16)), 0)


def test_rules_are_as_configured() -> None:
    section = ClusterSection(min_in_sync=3, lag_ms=700, lease_ms=900)
    rules = replication_config(section)
    assert (rules.min_in_sync, rules.lag_ms, rules.lease.lease_ms) == (3, 700.0, 900.0)


def test_epoch_that_was_seen_is_kept(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_dir("shard-0")
    place = ShardPlace(disk, "shard-0", IDENTITY)
    open_epoch_seen(place).note(7, "n2")
    again = open_epoch_seen(place)
    assert (again.epoch, again.master) == (7, "n2")
    file = tmp_path / "shard-0" / EPOCH_SEEN
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(errors.CorruptFile):
        open_epoch_seen(place)


async def test_new_node_has_promised_nothing_and_an_old_one_a_whole_lease(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        follower = n2.replica.follower
        assert follower.grant_left_ms(1, "n1", world.clock.monotonic) == 0
        n1 = await world.elect("n1")
        await n1.publish(100_000)
        await world.agreed()
        await n2.close()
        await n2.open()
        follower = n2.replica.follower
        now_ms = world.clock.monotonic
        assert follower.grant_left_ms(1, "n1", now_ms) == LEASE_MS
        assert follower.grant_left_ms(2, "n3", now_ms) == LEASE_MS


async def test_log_is_sound_when_it_has_what_it_is_known_to_have_had(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = await world.elect("n1"), world["n2"]
        await n1.publish(100_000)
        await world.agreed()
        await n2.close()
        log = next((n2.folder / "shard-0" / "log").glob("*.log"))
        log.write_bytes(log.read_bytes()[:-40])
        with pytest.raises(errors.DataLoss):
            await n2.open()
        n2.is_open = False
