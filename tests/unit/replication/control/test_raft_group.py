"""A generation of voters, as one of them opens it."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from unittest.mock import Mock

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control.raft_group import RaftGroup, check_configured
from replication.control_state.membership import Membership
from replication.control_state.state import ControlState, encode_state
from replication.raft.codec import REGULAR
from replication.raft.generations import begin_generation, open_journal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.control_cluster import CLUSTER_ID, ControlCluster
from tests.support.control_commands import StateWorld
from tests.support.fake_clock import FakeClock

N1, N2, N3, N4 = map(NodeId, ("n1", "n2", "n3", "n4"))
IDENTITY = Identity(bytes.fromhex(CLUSTER_ID), 0)
THREE = frozenset({N1, N2, N3})


def members(*nodes: NodeId) -> list[pb.MemberData]:
    return [pb.MemberData(node_id=one, control_address=f"{one}:1") for one in nodes]


def voted(world: StateWorld) -> SimulatedDisk:
    """The folder of n1 in generation 0, in which three nodes are members."""
    disk = SimulatedDisk()
    journal = open_journal(disk, IDENTITY, N1, 0)
    commands = [
        world.raw(
            bootstrap=pb.BootstrapCommand(
                cluster_id=IDENTITY.cluster_id, min_in_sync=2, shard_count=1, node_ids=THREE
            )
        ),
        world.raw(set_rules=pb.SetRulesCommand(rules=3)),
        world.raw(note_members=pb.NoteMembersCommand(members=members(N1, N2, N3))),
    ]
    for index, command in enumerate(commands, 2):
        journal.add(REGULAR + command, index, 1)
    journal.setRaftCommitIndex(len(commands) + 1)
    journal.onOneSecondTimer()
    return disk


def opened(tmp_path: Path, disk: SimulatedDisk, *others: NodeId) -> RaftGroup:
    config = ControlCluster(tmp_path)[N1].process.config
    peers = {one: f"127.0.0.1:{port}" for port, one in enumerate(others, 1)}
    return RaftGroup(replace(config, peers=peers, min_in_sync=1), disk, FakeClock(), Mock())


@pytest.mark.parametrize("others", [(), (N2,), (N2, N3, N4), (N2, N4)])
async def test_node_does_not_start_when_its_configuration_names_other_members(
    tmp_path: Path, others: tuple[NodeId, ...]
) -> None:
    """One that names itself alone would be a majority of one."""
    with pytest.raises(errors.ConfigError, match="has n1, n2, n3: name all of these"):
        opened(tmp_path, voted(StateWorld()), *others)


async def test_node_starts_with_the_members_that_it_had(tmp_path: Path) -> None:
    group = opened(tmp_path, voted(StateWorld()), N2, N3)
    assert group.generation == 0
    await group.close()


async def test_later_generation_knows_its_members_whatever_is_configured(tmp_path: Path) -> None:
    disk = voted(StateWorld())
    membership = Membership(1, MappingProxyType({N1: "127.0.0.1:1", N4: "127.0.0.1:4"}))
    first = ControlState(codec_version=3, cluster_id=IDENTITY.cluster_id, membership=membership)
    begin_generation(disk, IDENTITY, N1, 1, encode_state(first))
    group = opened(tmp_path, disk)
    assert (group.generation, set(group.peers)) == (1, {N4})
    await group.close()


def test_nodes_that_have_registered_count_where_members_were_never_noted() -> None:
    world = StateWorld()
    world.found()
    check_configured(THREE, world.state)
    check_configured(THREE | {N4}, world.state)
    check_configured({N1}, ControlState())
    with pytest.raises(errors.ConfigError):
        check_configured({N1}, world.state)
