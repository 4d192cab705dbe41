"""A node alone is that, or the first node of a cluster with all it had, wherever the power goes."""

from collections.abc import Callable
from random import Random

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from node.cluster.promotion import (
    finish_promotion,
    forget_promotion,
    is_promotion_wanted,
    promote,
    promote_if_wanted,
    want_promotion,
)
from node.cluster.restored_control import write_restored
from node.shard.node_meta import CONTROL, CONTROL_ALONE, is_promoted, open_node_meta
from replication.control_state.commands import make_command
from replication.control_state.state import ControlState, decode_state
from replication.raft.journal import RaftJournal
from replication.standalone.control_journal import ControlJournal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.every_step import EveryStepDisk, lose_power_at_every_step

ME = NodeId("a")
ADDRESS = "host:7403"


def identity_of(disk: SimulatedDisk) -> Identity:
    return Identity(open_node_meta(disk, ME).cluster_id, 0)


def lived(disk: SimulatedDisk, *users: str) -> Identity:
    """A node alone with users."""
    identity = identity_of(disk)
    journal = ControlJournal.open(disk, CONTROL_ALONE, identity, ME)
    for number, name in enumerate(users):
        put = pb.PutUserCommand(name=name, secret_hash="#")
        command = make_command(b"user" + number.to_bytes(12, "big"), put_user=put)
        journal.apply([command.SerializeToString()])
    journal.close()
    return identity


def begun(disk: SimulatedDisk, identity: Identity) -> ControlState:
    """What the cluster begins with."""
    journal = RaftJournal.open(disk, f"{CONTROL}/generation-0000000001", identity, ME)
    state = decode_state(journal.snapshot_file.load().state)
    state.check()
    return state


@pytest.mark.parametrize("users", [(), ("alice", "bob")])
def test_cluster_begins_with_what_the_node_had(users: tuple[str, ...]) -> None:
    disk = SimulatedDisk()
    identity = lived(disk, *users)
    first = promote(disk, identity, ME, ADDRESS)
    assert first == begun(disk, identity)
    assert set(first.access.users) == set(users)
    assert (first.membership.generation, dict(first.membership.members)) == (1, {ME: ADDRESS})
    assert (first.min_in_sync, first.min_in_sync_goal) == (1, 2)
    assert first.shards[0].replicas == (ME,)
    assert not disk.exists(CONTROL_ALONE)
    assert open_node_meta(disk, ME, identity.cluster_id).cluster_id == identity.cluster_id
    with pytest.raises(errors.ForeignDirectory, match=r"cluster\.nodes is empty"):
        open_node_meta(disk, ME)
    assert promote(disk, identity, ME, ADDRESS) is None


def test_users_of_a_restore_before_the_first_start_are_taken_along() -> None:
    disk, other = SimulatedDisk(), SimulatedDisk()
    identity = identity_of(disk)
    journal = ControlJournal.open(other, CONTROL_ALONE, lived(other, "alice"), ME)
    write_restored(disk, identity, journal.state)
    promote(disk, identity, ME, ADDRESS)
    assert set(begun(disk, identity).access.users) == {"alice"}


def test_directory_of_a_cluster_is_refused() -> None:
    disk = SimulatedDisk()
    identity = lived(disk)
    disk.make_dir(CONTROL)  # of a node that waits to be told of its cluster
    for _ in range(2):
        with pytest.raises(errors.FailedPrecondition, match="belongs to a node of a cluster"):
            promote(disk, identity, ME, ADDRESS)
        with pytest.raises(errors.ForeignDirectory, match=r"cluster\.nodes is empty"):
            open_node_meta(disk, ME)
        finish_promotion(disk)
        assert disk.exists(CONTROL)
        RaftJournal.open(disk, CONTROL, identity, ME)


def test_empty_folder_that_a_refused_start_has_left_is_in_nobodys_way() -> None:
    disk = SimulatedDisk()
    identity = lived(disk, "alice")
    disk.make_dir(CONTROL)
    with pytest.raises(errors.ForeignDirectory, match="members grow"):
        open_node_meta(disk, ME, identity.cluster_id)
    open_node_meta(disk, ME)
    promote(disk, identity, ME, ADDRESS)
    assert set(begun(disk, identity).access.users) == {"alice"}
    open_node_meta(disk, ME, identity.cluster_id)


def test_without_room_the_node_stays_alone() -> None:
    disk = SimulatedDisk()
    identity = lived(disk, "alice")
    disk.capacity_bytes = disk.used_bytes("") + 4_096
    with pytest.raises(errors.DiskFull):
        promote(disk, identity, ME, ADDRESS)
    assert not is_promoted(disk)
    assert open_node_meta(disk, ME).node_id == ME
    assert set(ControlJournal.open(disk, CONTROL_ALONE, identity, ME).state.access.users) == {
        "alice"
    }


def test_promotion_that_loses_power_at_any_step_is_not_halved() -> None:
    """Before it and behind it all users are known to whichever starts; the other one is refused."""
    worlds: list[tuple[SimulatedDisk, Identity]] = []
    ends = set()

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        identity = lived(disk, "alice")
        worlds.append((disk, identity))
        return lambda: promote(disk, identity, ME, ADDRESS)

    def check(rng: Random) -> None:
        disk, identity = worlds[-1]
        disk.crash(rng)
        if is_promoted(disk):
            assert set(begun(disk, identity).access.users) == {"alice"}
            open_node_meta(disk, ME, identity.cluster_id)
            with pytest.raises(errors.ForeignDirectory):
                open_node_meta(disk, ME)
            ends.add("a cluster's")
        else:
            open_node_meta(disk, ME)
            with pytest.raises(errors.ForeignDirectory, match="members grow"):
                open_node_meta(disk, ME, identity.cluster_id)
            journal = ControlJournal.open(disk, CONTROL_ALONE, identity, ME)
            assert set(journal.state.access.users) == {"alice"}
            journal.close()
            ends.add("alone")
        promote(disk, identity, ME, ADDRESS)
        assert set(begun(disk, identity).access.users) == {"alice"}
        assert not disk.exists(CONTROL_ALONE)
        assert not disk.exists(f"{CONTROL}.new")

    assert lose_power_at_every_step(prepare, check) > 20
    assert ends == {"alone", "a cluster's"}


def start(disk: SimulatedDisk, identity: Identity) -> None:
    """What a node does with its directory, by a configuration of a cluster."""
    promote_if_wanted(disk, ME, identity.cluster_id, ADDRESS)
    open_node_meta(disk, ME, identity.cluster_id)
    finish_promotion(disk)


def test_start_that_was_asked_to_promotes_the_node_wherever_the_power_goes() -> None:
    worlds: list[tuple[SimulatedDisk, Identity]] = []

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        identity = lived(disk, "alice")
        want_promotion(disk)
        worlds.append((disk, identity))
        return lambda: start(disk, identity)

    def check(rng: Random) -> None:
        disk, identity = worlds[-1]
        disk.crash(rng)
        start(disk, identity)
        assert set(begun(disk, identity).access.users) == {"alice"}
        assert not is_promotion_wanted(disk)
        assert not disk.exists(CONTROL_ALONE)

    assert lose_power_at_every_step(prepare, check) > 20


def test_wish_that_loses_power_is_there_or_is_not() -> None:
    worlds: list[SimulatedDisk] = []

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        identity_of(disk)
        worlds.append(disk)
        return lambda: want_promotion(disk)

    def check(rng: Random) -> None:
        worlds[-1].crash(rng)
        open_node_meta(worlds[-1], ME)
        want_promotion(worlds[-1])
        worlds[-1].crash(rng)
        assert is_promotion_wanted(worlds[-1]), "durable when it returns"

    assert lose_power_at_every_step(prepare, check) > 1


def test_start_that_was_not_asked_to_promotes_nobody() -> None:
    disk = SimulatedDisk()
    identity = lived(disk, "alice")
    for wish in (lambda: None, lambda: want_promotion(disk)):
        wish()
        promote_if_wanted(disk, ME, b"another cluster!", ADDRESS)
        assert not is_promoted(disk)
    forget_promotion(disk)
    with pytest.raises(errors.ForeignDirectory, match="members grow"):
        start(disk, identity)
    other = SimulatedDisk()
    identity = lived(other)
    other.make_dir(CONTROL)  # of a node that waits to be told of its cluster
    want_promotion(other)
    start(other, identity)
    assert not is_promoted(other)
    assert not is_promotion_wanted(other)
