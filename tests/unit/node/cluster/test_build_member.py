"""A shard's replica, built from what was opened."""

from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.types import Epoch, NodeId, Offset, ShardId
from node.cluster.member import min_in_sync_of, targets_of
from node.cluster.runtime import open_epoch_seen, replication_config
from node.config.cluster import ClusterSection
from node.config.model import NodeConfig
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import ShardConfig, open_shard
from replication.control_state.membership import Membership
from replication.control_state.state import ControlState, NodeInfo, ShardInfo
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.log.epochs import EPOCH_SEEN, EpochStore
from tests.support import member_world
from tests.support.eventually import until
from tests.support.member_world import LEASE_MS, MemberWorld

IDENTITY = Identity(bytes(range(16)), 0)
N1 = NodeId("n1")


def test_rules_are_as_configured() -> None:
    section = ClusterSection(min_in_sync=3, lag_ms=700, lease_ms=900)
    rules = replication_config(section)
    assert (rules.min_in_sync, rules.lag_ms, rules.lease.lease_ms) == (3, 700.0, 900.0)


def test_epoch_that_was_seen_is_kept(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    opened = open_shard(ShardPlace(disk, "shard-0", IDENTITY), ShardConfig(has_peers=True))
    open_epoch_seen(opened, N1).note(7, "n2")
    again = open_epoch_seen(opened, N1)
    assert (again.epoch, again.master) == (7, "n2")
    opened.epochs.append(Epoch(7), Offset(0), log_start_offset=0)
    assert open_epoch_seen(opened, N1).master == "n2"
    file = tmp_path / "shard-0" / EPOCH_SEEN
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(errors.CorruptFile):
        open_epoch_seen(opened, N1)


def test_epochs_of_a_node_that_was_alone_were_its_own(tmp_path: Path) -> None:
    place = ShardPlace(RealDisk(tmp_path), "shard-0", IDENTITY)
    opened = open_shard(place, ShardConfig())
    opened.epochs.append(Epoch(3), Offset(0), log_start_offset=0)
    assert open_epoch_seen(opened, N1).epoch == 3
    again = EpochStore.open(place.disk, place.under(EPOCH_SEEN), IDENTITY)
    assert (again.epoch, again.master) == (3, N1)


def test_more_of_configured_and_agreed_upon_have_to_be_in_sync() -> None:
    state = ControlState(min_in_sync=2)
    assert [min_in_sync_of(state, one) for one in (1, 2, 3)] == [2, 2, 3]
    grown = ControlState(min_in_sync=1, min_in_sync_goal=2)
    assert [min_in_sync_of(grown, one) for one in (1, 2, 3)] == [1, 1, 1]


async def test_new_node_has_promised_nothing_and_an_old_one_a_whole_lease(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        follower = n2.replica.follower
        assert follower.grant_left_ms(1, "n1", world.clock.monotonic) == 0
        await world.elect_with_message("n1")
        await n2.close()
        await n2.open()
        follower = n2.replica.follower
        now_ms = world.clock.monotonic
        assert follower.grant_left_ms(1, "n1", now_ms) == LEASE_MS
        assert follower.grant_left_ms(2, "n3", now_ms) == LEASE_MS


async def test_promise_of_a_former_life_counts_as_long_as_older_versions_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"cluster": {"sync_interval_ms": 10, "lease_ms": 300}}
    monkeypatch.setattr(member_world, "CONFIG", NodeConfig.of(values))
    async with MemberWorld(tmp_path) as world:
        await world.elect("n1")
        n2 = world["n2"]
        await until(lambda: n2.replica.follower.has_followed)
        await n2.close()
        await n2.open()
        assert n2.replica.follower.grant_left_ms(2, "n3", world.clock.monotonic) == 600


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


def test_members_that_never_registered_keep_their_replicas_and_get_none() -> None:
    n1, n2, n3, n4 = map(NodeId, ("n1", "n2", "n3", "n4"))
    membership = Membership(members={n1: "h:1", n2: "h:2", n4: "h:4"})
    shard = ShardInfo(ShardId(0), Epoch(1), None, (), 1, replicas=(n1, n2, n3))
    info = {one: NodeInfo(one, "", "", "", b"", "", {}, 1) for one in (n1, n4)}
    unregistered = ControlState(membership=membership, nodes={n1: info[n1]})
    assert targets_of(unregistered, shard) == (n1, n2)
    assert targets_of(ControlState(membership=membership, nodes=info), shard) == (n1, n2, n4)
