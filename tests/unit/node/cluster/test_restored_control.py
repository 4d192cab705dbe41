"""What a restore has noted of the control state is taken over once, wherever the power goes."""

from collections.abc import Callable
from random import Random

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from node.cluster.restored_control import (
    begin_alone,
    begin_together,
    find_restored,
    remove_restored,
    write_restored,
)
from node.shard.node_meta import CONTROL, CONTROL_ALONE, CONTROL_RESTORED
from replication.control_state.state import ControlState, decode_state
from replication.raft.generations import find_generation
from replication.raft.journal import RaftJournal
from replication.standalone.control_journal import ControlJournal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.control_commands import StateWorld
from tests.support.every_step import EveryStepDisk, lose_power_at_every_step

IDENTITY = Identity(b"n" * 16, 0)
A, B = NodeId("a"), NodeId("b")
MEMBERS = {B: "host:2", A: "host:1"}


def backed_up() -> ControlState:
    world = StateWorld()
    world.found()
    world.ok(set_rules=pb.SetRulesCommand(rules=3))
    world.ok(put_user=pb.PutUserCommand(name="alice", secret_hash="#"))
    return world.state


def noted(disk: SimulatedDisk) -> SimulatedDisk:
    write_restored(disk, IDENTITY, backed_up())
    return disk


def state_alone(disk: SimulatedDisk) -> ControlState:
    return ControlJournal.open(disk, CONTROL_ALONE, IDENTITY, A).state


def test_node_alone_begins_with_the_users_of_the_backup() -> None:
    disk = noted(SimulatedDisk())
    begin_alone(disk, IDENTITY, A)
    state = state_alone(disk)
    state.check()
    assert set(state.access.users) == {"alice"}
    assert (state.cluster_id, state.nodes, state.min_in_sync) == (IDENTITY.cluster_id, {}, 1)
    assert find_restored(disk, IDENTITY) is None
    begin_alone(disk, IDENTITY, A)


def test_first_node_of_a_cluster_begins_its_generation_and_others_wait() -> None:
    disk = noted(SimulatedDisk())
    assert begin_together(disk, IDENTITY, B, MEMBERS, 2)
    assert not disk.exists(CONTROL)
    assert not begin_together(disk, IDENTITY, A, MEMBERS, 2)
    assert not disk.exists(CONTROL_RESTORED)
    assert find_generation(disk, CONTROL) == 1
    journal = RaftJournal.open(disk, f"{CONTROL}/generation-0000000001", IDENTITY, A)
    assert journal.is_blank, "whether it has voted in a former life is for others to say"
    state = decode_state(journal.snapshot_file.load().state)
    state.check()
    assert (set(state.access.users), state.min_in_sync) == ({"alice"}, 2)
    assert state.membership.members == MEMBERS
    assert (state.shards[0].replicas, state.shards[0].isr_node_ids) == ((A, B), {A})
    assert not begin_together(disk, IDENTITY, A, MEMBERS, 2)


def test_node_that_was_told_of_its_cluster_waits_no_more() -> None:
    disk = noted(SimulatedDisk())
    disk.make_dir(f"{CONTROL}/generation-0000000002")
    assert not begin_together(disk, IDENTITY, B, MEMBERS, 2)
    assert not disk.exists(CONTROL_RESTORED)


def test_nothing_is_begun_where_nothing_was_restored() -> None:
    disk = SimulatedDisk()
    begin_alone(disk, IDENTITY, A)
    assert not begin_together(disk, IDENTITY, A, MEMBERS, 2)
    remove_restored(disk)
    assert disk.list("") == []


def test_file_that_is_damaged_is_refused() -> None:
    disk = noted(SimulatedDisk())
    disk.flip_bit(CONTROL_RESTORED, 90)
    with pytest.raises(errors.CorruptFile, match=CONTROL_RESTORED):
        begin_alone(disk, IDENTITY, A)
    with pytest.raises(errors.CorruptFile, match=CONTROL_RESTORED):
        begin_together(disk, IDENTITY, A, MEMBERS, 2)


@pytest.mark.parametrize("is_alone", [True, False])
def test_start_that_loses_power_at_any_step_is_begun_again(*, is_alone: bool) -> None:
    disks: list[SimulatedDisk] = []

    def begin() -> None:
        if is_alone:
            begin_alone(disks[-1], IDENTITY, A)
        else:
            begin_together(disks[-1], IDENTITY, A, MEMBERS, 2)

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        disks.append(noted(disk))
        return begin

    def check(rng: Random) -> None:
        disk = disks[-1]
        disk.crash(rng)
        begin()
        assert find_restored(disk, IDENTITY) is None
        if is_alone:
            state = state_alone(disk)
        else:
            raw = first_state_of(disk)
            state = decode_state(raw)
        assert set(state.access.users) == {"alice"}

    assert lose_power_at_every_step(prepare, check) > 10


def first_state_of(disk: SimulatedDisk) -> bytes:
    journal = RaftJournal.open(disk, f"{CONTROL}/generation-0000000001", IDENTITY, A)
    return journal.snapshot_file.load().state
