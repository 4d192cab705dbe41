"""Taking backups: shared pieces, a full disk, kills anywhere."""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from node.shard.node_meta import CONTROL
from node.tools.backup.capture import read_control
from node.tools.backup.manifest import digest_of, pack_manifest, unpack_manifest
from node.tools.backup.repository import Repository
from node.tools.backup.restore import find_control
from node.tools.backup.store import FolderStore
from replication.raft.codec import REGULAR
from replication.raft.journal import RaftJournal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.backup_world import (
    back_up,
    give_users,
    keys_of,
    lived,
    opened_of,
    plan_of,
    restored,
)
from tests.support.control_commands import CLUSTER_ID, NODE_IDS, StateWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import live


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


def test_a_second_backup_writes_only_what_is_new() -> None:
    world, folder = lived(4, 24), SimulatedDisk()
    first = back_up(world, folder)
    assert first.new_bytes > 0.9 * first.manifest.total_bytes
    assert back_up(world, folder).new_bytes == 0
    world.publish([world.now_ms + 1])
    world.commit()
    third = back_up(world, folder)
    assert 0 < third.new_bytes < third.manifest.total_bytes / 4
    repository = Repository(FolderStore(folder))
    assert len(repository.ids()) == 2  # the same at the same time is the same backup
    for one in repository.ids():
        assert set(repository.verify(one)) == {None}


def test_nothing_is_left_beside_the_shard() -> None:
    world, folder = lived(4), SimulatedDisk()
    before = world.disk.list("")
    back_up(world, folder)
    assert world.disk.list("") == before


def test_the_shard_goes_on_and_the_backup_stays_what_it_was() -> None:
    world, folder = lived(6), SimulatedDisk()
    pending = keys_of(world.shard.views.pending_units())
    taken = back_up(world, folder)
    live(world, Random(9), 20)
    _, disk = restored(folder, taken.backup_id, plan_of(world))
    assert keys_of(opened_of(disk).shard.views.pending_units()) == pending


def test_what_is_damaged_is_not_backed_up() -> None:
    world, folder = lived(4), SimulatedDisk()
    world.save()
    first = back_up(world, folder)
    runs = [one for one in world.disk.list("shard-0/wheel") if one.endswith(".run")]
    world.disk.flip_bit(f"shard-0/wheel/{runs[0]}", 80)
    with pytest.raises(errors.CorruptFile):
        back_up(world, folder)
    assert Repository(FolderStore(folder)).ids() == [first.backup_id]


def test_on_a_full_disk_the_backups_before_it_stay_good() -> None:
    world, folder = lived(7, 10), SimulatedDisk()
    first = back_up(world, folder)
    live(world, Random(7), 16)
    folder.capacity_bytes = folder.used_bytes("") + 3_000
    with pytest.raises(errors.DiskFull):
        back_up(world, folder)
    repository = Repository(FolderStore(folder))
    assert repository.ids() == [first.backup_id]
    assert set(repository.verify(first.backup_id)) == {None}
    folder.capacity_bytes = 1 << 40
    second = back_up(world, folder)
    assert set(repository.verify(second.backup_id)) == {None}


@pytest.mark.parametrize("seed", range(3))
def test_a_backup_that_loses_power_anywhere_is_none_or_whole(seed: int) -> None:
    world = lived(seed, 8)
    trial = SimulatedDisk()
    back_up(world, trial)
    for count in range(1, trial.durability_op_count + 1, 3):
        folder = SimulatedDisk()
        folder.fail_after(count)
        try:
            back_up(world, folder)
        except SimulatedCrash:
            folder.crash(Random(count))
        folder.disarm()
        repository = Repository(FolderStore(folder))
        for one in repository.ids():
            assert set(repository.verify(one)) == {None}
        again = back_up(world, folder)
        assert set(repository.verify(again.backup_id)) == {None}


def test_a_manifest_is_read_as_it_was_written_and_nothing_else_is_believed() -> None:
    manifest = back_up(lived(1), SimulatedDisk()).manifest
    raw = pack_manifest(manifest)
    assert unpack_manifest(raw, "m") == manifest
    for size in (0, 1, len(raw) // 2, len(raw) - 1):
        with pytest.raises(errors.CorruptFile):
            unpack_manifest(raw[:size], "m")


@pytest.mark.parametrize("seed", range(4))
def test_removing_a_backup_leaves_the_others_whole_and_nothing_else(seed: int) -> None:
    world, folder = lived(seed), SimulatedDisk()
    repository, ids = Repository(FolderStore(folder)), list[str]()
    for step in range(3):
        live(world, Random(seed * 3 + step), 4)
        world.now_ms += 1
        ids.append(back_up(world, folder).backup_id)
    rng = Random(seed)
    while ids:
        gone = ids.pop(rng.randrange(len(ids)))
        before = folder.used_bytes("objects")
        assert repository.remove(gone) <= before
        assert repository.ids() == sorted(ids)
        for one in ids:
            assert set(repository.verify(one)) == {None}
        needed = {
            piece.digest
            for one in ids
            for file in repository.read(one).files
            for piece in file.pieces
        }
        left = {name for one in folder.list("objects") for name in folder.list(f"objects/{one}")}
        assert left == needed
        with pytest.raises(errors.NotFound):
            repository.remove(gone)


def test_while_a_manifest_is_damaged_nothing_is_removed() -> None:
    world, folder = lived(2), SimulatedDisk()
    first = back_up(world, folder).backup_id
    world.now_ms += 1
    second = back_up(world, folder).backup_id
    folder.flip_bit(f"backups/{second}.json", 50)
    repository = Repository(FolderStore(folder))
    with pytest.raises(errors.CorruptFile):
        repository.remove(first)
    assert repository.ids() == [first, second]
    assert set(repository.verify(first)) == {None}


def test_removal_of_a_backup_leaves_what_is_no_piece() -> None:
    """Behind a link in the folder there may be anything."""
    folder = SimulatedDisk()
    repository = Repository(FolderStore(folder))
    taken = back_up(lived(1), folder)
    folder.make_dir("objects/home")
    strangers = ("objects/README", "objects/home/thesis.txt", "objects/ab/thesis.txt")
    folder.make_dir("objects/ab")
    for path in strangers:
        folder.open(path, create=True).pwrite((b"mine",), 0)
    assert repository.remove(taken.backup_id) >= taken.new_bytes
    assert all(folder.exists(path) for path in strangers)
    for found in folder.list("objects"):
        assert found in {"README", "home"} or len(folder.list(f"objects/{found}")) == (
            found == "ab"
        )


def test_the_control_state_is_backed_up_shared_and_kept_while_it_is_needed() -> None:
    world, folder = lived(4), SimulatedDisk()
    journal = give_users(world, 1)
    repository = Repository(FolderStore(folder))
    first = back_up(world, folder)
    assert find_control(repository, first.manifest) == replace(journal.state, remembered={})
    world.now_ms += 1
    second = back_up(world, folder)
    assert second.new_bytes == 0
    assert second.manifest.control == first.manifest.control
    give_users(world, 2)
    third = back_up(world, folder)
    assert third.manifest.control != first.manifest.control
    repository.remove(third.backup_id)
    repository.remove(first.backup_id)
    assert set(repository.verify(second.backup_id)) == {None}
    state = find_control(repository, second.manifest)
    assert state is not None
    assert set(state.access.users) == {"user-1"}


def test_a_control_state_that_is_damaged_is_not_backed_up() -> None:
    world, folder, looked = lived(4), SimulatedDisk(), list[None]()
    give_users(world, 1)
    world.disk.flip_bit("control-alone/journal", 150)
    with pytest.raises(errors.CorruptFile, match="control state"):
        read_control(world.disk, world.place.identity, lambda: looked.append(None))
    assert looked, "it might have been about to be replaced"
    with pytest.raises(errors.CorruptFile):
        back_up(world, folder)
    assert Repository(FolderStore(folder)).ids() == []


def test_a_backup_of_before_has_no_control_state() -> None:
    manifest = back_up(lived(2), SimulatedDisk()).manifest
    fields = json.loads(pack_manifest(manifest).partition(b"\n")[0])
    del fields["control"]
    line = json.dumps({**fields, "format": 1}).encode()
    former = line + b"\n" + digest_of(line).encode() + b"\n"
    assert unpack_manifest(former, "it") == manifest


def test_what_a_voter_has_not_noted_as_committed_is_waited_for_a_while() -> None:
    """The journal has it, and a second later the voter's word that it is committed."""
    disk, states = SimulatedDisk(), StateWorld()
    identity = Identity(CLUSTER_ID, 0)
    disk.make_dir(CONTROL)
    journal = RaftJournal.open(disk, CONTROL, identity, NodeId("n1"))
    bootstrap = pb.BootstrapCommand(
        cluster_id=CLUSTER_ID, min_in_sync=2, shard_count=1, node_ids=NODE_IDS
    )
    for index, command in enumerate(
        ({"bootstrap": bootstrap}, {"put_topic": pb.PutObjectCommand(name="orders")}), 2
    ):
        raw = states.raw(**command)
        states.apply(raw)
        journal.add(REGULAR + raw, index, 1)
    journal.sync()
    looked = list[int]()

    def commit() -> None:
        looked.append(len(looked))
        if len(looked) in {2, 4}:
            journal.setRaftCommitIndex(1 + len(looked) // 2)
            journal.onOneSecondTimer()

    found = read_control(disk, identity, commit)
    assert found == states.state
    assert len(looked) == 4


def test_what_is_never_committed_is_left_out() -> None:
    disk, states = SimulatedDisk(), StateWorld()
    identity = Identity(CLUSTER_ID, 0)
    disk.make_dir(CONTROL)
    journal = RaftJournal.open(disk, CONTROL, identity, NodeId("n1"))
    bootstrap = pb.BootstrapCommand(
        cluster_id=CLUSTER_ID, min_in_sync=2, shard_count=1, node_ids=NODE_IDS
    )
    journal.add(REGULAR + states.raw(bootstrap=bootstrap), 2, 1)
    journal.sync()
    looked = list[None]()
    assert read_control(disk, identity, lambda: looked.append(None)) is None
    assert 0 < len(looked) < 100
