"""One node alone, in this process; three of them are in tests/cluster/test_control_plane.py."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control.client import ControlClient, Hello
from replication.control.node import ControlNode
from replication.control.raft_group import RaftGroup, read_origin
from replication.control_state.membership import Membership
from replication.control_state.state import CODEC_VERSION, decode_state, encode_state
from replication.raft.generations import begin_generation
from replication.raft.handshake import Seal, Session
from replication.raft.journal import RaftJournal
from replication.raft.snapshot import SnapshotFile
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.control_cluster import ControlCluster
from tests.support.control_commands import StateWorld
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock

BOOT = b"b" * 16


@asynccontextmanager
async def lone_node(
    tmp_path: Path, disk: SimulatedDisk | None = None, *, node_id: str = "n1", **values: Any
) -> AsyncIterator[tuple[ControlNode, ControlClient]]:
    config = replace(
        ControlCluster(tmp_path)["n1"].process.config,
        peers={},
        min_in_sync=1,
        raft_s_min=0.01,
        raft_s_max=0.02,
        report_interval_ms=20.0,
        **values,
    )
    node = ControlNode(config, disk or SimulatedDisk(), SystemClock())
    client = ControlClient(config.socket_path)
    try:
        await node.start()
        await client.start(Hello(node_id, BOOT))
        yield node, client
    finally:
        await client.close()
        await node.close()


async def test_node_founds_its_cluster_registers_and_elects(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as (node, client):
        await until(lambda: client.state.is_bootstrapped)
        command = pb.RegisterNodeCommand(node_id="n1", boot_id=BOOT, isr_is_sound=True)
        result = await client.propose(register_node=command)
        assert result.outcome == pb.CONTROL_OUTCOME_OK
        assert client.state.shards[0].master is None
        client.report([link.ShardReport(shard=0, is_ready=True)])
        await until(lambda: client.state.shards[0].master is not None)
        assert client.state.shards[0].epoch == 1
        assert client.leader_node_id == "n1"
        client.report([link.ShardReport(shard=0, is_ready=True, epoch=1, is_resigning=True)])
        await until(lambda: node.decide().next_wakeup_ms is None)
        assert client.state.shards[0].epoch == 1, "there is nobody else"


async def test_state_is_there_again_when_the_node_has_restarted(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (_, client):
        await until(lambda: client.state.is_bootstrapped)
        await client.propose(put_topic=pb.PutObjectCommand(name="kept"))
    async with lone_node(tmp_path, disk) as (_, client):
        await until(lambda: "kept" in client.state.topics)


async def test_voter_that_has_run_since_its_first_start_is_not_blank(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as (node, client):
        await until(lambda: client.state.is_bootstrapped)
        assert not node.group.is_blank, "told of the next generation, it would end itself"


async def test_newer_rules_are_in_a_snapshot_at_once(tmp_path: Path) -> None:
    """Older software refuses that one; it would read the journal, and come to another state."""
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (node, _):
        await until(lambda: node.group.state.codec_version == CODEC_VERSION)
        identity = Identity(node.group.state.cluster_id, 0)
        file = SnapshotFile(disk, "", identity)
        await until(lambda: file.exists)
        assert decode_state(file.load().state).codec_version == CODEC_VERSION


def member(node_id: str, address: str = "127.0.0.1:1") -> pb.MemberData:
    return pb.MemberData(node_id=node_id, control_address=address)


async def change_members(node: ControlNode, client: ControlClient, *new: str) -> pb.ControlResult:
    """Ask for these nodes beside the members that there are."""
    await until(lambda: node.group.state.membership.members)
    membership = node.group.state.membership
    members = [*(member(*one) for one in membership.members.items()), *map(member, new)]
    change = pb.ChangeMembersCommand(expected_generation=membership.generation, members=members)
    return await client.propose(change_members=change)


async def test_next_generation_begins_behind_the_stop_sign_and_stays(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (node, client):
        await until(lambda: client.state.is_bootstrapped)
        await client.propose(put_topic=pb.PutObjectCommand(name="kept"))
        with suppress(errors.Timeout):  # the next generation has no majority: n2 is not there
            await change_members(node, client, "n2")
        await until(lambda: node.group.generation == 1)
        await until(lambda: "kept" in node.group.state.topics)
        assert list(node.group.peers) == ["n2"]
    async with lone_node(tmp_path, disk) as (node, _):
        assert node.group.generation == 1
        assert sorted(node.group.state.membership.members) == ["n1", "n2"]
        assert not node.died.done()


async def test_generation_waits_for_room_on_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (node, client):
        caplog.set_level(logging.WARNING, "replication")
        await until(lambda: node.group.state.membership.members)
        asked = asyncio.ensure_future(change_members(node, client, "n2"))
        await until(lambda: node.group.state.membership.has_ended)
        capacity_bytes, disk.capacity_bytes = disk.capacity_bytes, 0
        await until(lambda: "generation_waits_for_room" in caplog.messages)
        assert not node.died.done()
        disk.capacity_bytes = capacity_bytes
        await until(lambda: node.group.generation == 1)
        with suppress(errors.Timeout):
            await asked


async def first_state(node: ControlNode, *names: str, generation: int = 1) -> bytes:
    """What another node would tell of a generation with these members."""
    await until(lambda: node.group.state.is_bootstrapped)
    members = MappingProxyType(
        {NodeId(one): f"127.0.0.1:{port}" for port, one in enumerate(names, 1)}
    )
    membership = Membership(generation=generation, members=members)
    return encode_state(replace(node.group.state, codec_version=3, membership=membership))


async def test_node_that_was_behind_begins_the_generation_it_is_told_of(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as (node, _):
        state = await first_state(node, "n1", "n2", "n3", generation=4)
        node.on_generation(4, state)
        node.on_generation(4, state)  # another peer says the same
        node.on_generation(4, state)
        node.on_generation(4, state)
        await until(lambda: node.group.generation == 4)
        node.on_generation(3, b"earlier: nobody looks at it")
        assert sorted(node.group.peers) == ["n2", "n3"]
        assert not node.died.done()


async def test_node_that_has_left_ends(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as (node, _):
        node.on_generation(1, await first_state(node, "n2", "n3"))
        await until(node.died.done)
        with pytest.raises(errors.ConfigError, match="not a member"):
            raise node.died.result()


async def test_node_that_lost_its_disk_ends_where_the_cluster_knows_it(tmp_path: Path) -> None:
    config = replace(ControlCluster(tmp_path)["n1"].process.config, peers={})
    node = ControlNode(config, SimulatedDisk(), FakeClock())
    world = StateWorld()
    world.found()
    membership = Membership(generation=1, members=MappingProxyType({NodeId("n1"): "h:1"}))
    known = replace(world.state, codec_version=3, membership=membership)
    node.on_generation(1, encode_state(known))
    with pytest.raises(errors.ConfigError, match="has lost what it voted"):
        raise node.died.result()
    await node.close()


async def test_nonsense_is_no_generation(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as (node, _):
        for state in (b"\xff\xff", await first_state(node, "n1", generation=2)):
            with pytest.raises(errors.InvalidBatch):
                node.on_generation(1, state)
        assert node.group.generation == 0


async def test_refused_note_of_the_members_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, propose = [], RaftGroup.propose

    async def count(group: RaftGroup, command: bytes, timeout_s: float, **how: bool) -> bytes:
        notes.extend([1] if pb.ControlCommand.FromString(command).HasField("note_members") else [])
        return await propose(group, command, timeout_s, **how)

    monkeypatch.setattr(RaftGroup, "propose", count)
    async with lone_node(tmp_path, address="h" * 400) as (_, client):
        await until(lambda: notes)
        for name in "abcde":  # each wakes it up
            await client.propose(put_topic=pb.PutObjectCommand(name=name))
    assert len(notes) == 1


async def test_broker_of_another_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable, match="refuses"):
        async with lone_node(tmp_path, node_id="n2"):
            pass


@pytest.mark.parametrize(
    "frame", [link.BrokerFrame(), link.BrokerFrame(report=link.NodeReport(node_id="n2"))]
)
async def test_frame_that_no_broker_of_this_node_sends_is_refused(
    tmp_path: Path, frame: link.BrokerFrame
) -> None:
    async with lone_node(tmp_path) as (node, _):
        with pytest.raises(errors.InvalidBatch):
            node.on_frame(frame)


async def test_peer_that_has_come_is_told_of_this_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lone_node(tmp_path) as (node, _):
        told: list[link.NodeReport] = []
        node.on_frame(link.BrokerFrame(report=link.NodeReport(node_id="n1", broker_alive=True)))
        monkeypatch.setattr(node.group.network, "broadcast_report", told.append)
        peer = NodeId("n2")
        node.on_peer(peer, what=True)
        assert [one.node_id for one in told] == ["n1"]
        node.on_report(peer, link.NodeReport(node_id="n2", broker_alive=True))
        node.on_peer(peer, what=False)
        assert len(told) == 1


async def test_blank_voter_takes_no_part_and_ends_where_it_is_known(tmp_path: Path) -> None:
    node = ControlNode(ControlCluster(tmp_path)["n1"].process.config, SimulatedDisk(), FakeClock())
    node.on_admission(NodeId("n2"), is_known=False)
    with pytest.raises(errors.Timeout, match="takes no part"):
        await node.group.propose(b"", 0.01, is_unknown=False)
    assert not node.died.done()
    node.on_admission(NodeId("n3"), is_known=True)
    with pytest.raises(errors.ConfigError):
        raise node.died.result()
    await node.close()


async def test_broker_is_told_of_a_peer_that_has_nothing_new_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    config = replace(ControlCluster(tmp_path)["n1"].process.config, peers={})
    node = ControlNode(config, SimulatedDisk(), clock)
    told: list[link.ControlFrame] = []
    monkeypatch.setattr(node.link, "send", told.append)
    report = link.NodeReport(node_id="n2", broker_alive=True)
    counts = []
    for _ in range(10):
        node.on_report("n2", report)
        counts.append(len(told))
        clock.pass_ms(config.report_interval_ms)
    assert counts == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], "well within the time that ends in silence"
    node.on_report("n2", link.NodeReport(node_id="n2"))
    assert len(told) == 6
    await node.close()


async def test_failed_disk_ends_the_node(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with lone_node(tmp_path, disk) as (node, client):
        await until(lambda: client.state.is_bootstrapped)
        disk.fail_sync("journal")
        with pytest.raises((errors.Timeout, errors.Unavailable)):
            await client.propose(put_topic=pb.PutObjectCommand(name="lost"), timeout_s=0.2)
        await until(node.died.done)
        assert isinstance(node.died.result(), errors.FsyncFailed)
        assert "lost" not in client.state.topics


async def test_peer_is_refused_where_there_is_no_room_to_note_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dialler that ended by it would never dial again."""

    def full(*_: object) -> None:
        raise errors.DiskFull("no room")

    async with lone_node(tmp_path) as (node, _):
        monkeypatch.setattr(RaftJournal, "meet", full)
        session = Session(NodeId("n2"), Seal(None), Seal(None), journal_id=b"2" * 16)
        with pytest.raises(errors.PeerRefused, match="no room"):
            node.knows(session)
        assert not node.died.done()


async def test_who_is_behind_believes_its_configuration_and_not_who_has_left(
    tmp_path: Path,
) -> None:
    config = replace(ControlCluster(tmp_path)["n1"].process.config, joins=True)
    disk, identity = SimulatedDisk(), Identity(bytes.fromhex(config.cluster_id), 0)
    assert read_origin(config, disk, identity).named_ids == {"n2", "n3"}
    members = MappingProxyType({NodeId("n1"): "h:1", NodeId("n4"): "h:4"})
    state = replace(
        StateWorld().state,
        membership=Membership(generation=1, members=members, former_node_ids=(NodeId("n2"),)),
    )
    begin_generation(disk, identity, config.node_id, 1, encode_state(state), is_blank=False)
    assert read_origin(config, disk, identity).named_ids == {"n3"}
