"""Each store does what a repository relies on; and backups are whole in each."""

from collections.abc import Iterator
from random import Random

import pytest

from hourwheel import errors
from hourwheel.clock import SystemClock
from node.tools.backup.capture import Captured, capture
from node.tools.backup.object_store import ObjectStore
from node.tools.backup.repository import Repository
from node.tools.backup.restore import Overdue, restore
from node.tools.backup.store import BackupStore, FolderStore
from tests.sim.disk import SimulatedDisk
from tests.support.backup_world import lived, log_of, opened_of, plan_of
from tests.support.s3_server import BUCKET, s3_server
from tests.support.shard_world import ShardWorld
from tests.support.snapshot_world import live


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackupStore]:
    if request.param == "folder":
        yield FolderStore(SimulatedDisk())
        return
    with s3_server(monkeypatch):
        yield ObjectStore.open(f"s3://{BUCKET}/of/us", SystemClock())


def test_what_is_written_is_there_and_what_is_not_is_not(store: BackupStore) -> None:
    with store.adding():
        assert not store.keep("objects/ab/x", 3)
        store.write("objects/ab/x", b"123")
        assert store.keep("objects/ab/x", 3)
        assert not store.keep("objects/ab/x", 4)
        store.write("objects/ab/x", b"1234")
        store.write("objects/cd/y", b"")
        store.settle()
    assert store.read("objects/ab/x", 4) == b"1234"
    assert len(store.read("objects/ab/x", 2)) == 3, "one more than is allowed tells that it is more"
    assert store.read("objects/cd/y", 9) == b""
    assert store.names("objects") == ["ab", "cd"]
    assert store.names("objects/ab") == ["x"]
    assert store.names("nothing") == []
    with pytest.raises(FileNotFoundError):
        store.read("objects/ab/z", 1)
    with store.removing():
        assert store.remove("objects/ab/x") == 4
        assert store.remove("objects/ab/x") == 0
    assert store.names("objects/ab") == []


def test_what_is_new_replaces_nothing(store: BackupStore) -> None:
    with store.adding():
        store.write_new("backups/a.json", b"first")
        store.write_new("backups/a.json", b"first")
        for other in (b"second", b"fir", b"first of all"):
            with pytest.raises(errors.AlreadyExists):
                store.write_new("backups/a.json", other)
    assert store.read("backups/a.json", 10) == b"first"


def back_up(world: ShardWorld, store: BackupStore) -> Captured:
    with store.adding():
        return capture(
            *(world.place, Repository(store)),
            node_id="n",
            made_ms=world.now_ms,
            pace=lambda _: None,
        )


def test_backups_share_pieces_are_restored_and_removed(store: BackupStore) -> None:
    world, repository = lived(3), Repository(store)
    first = back_up(world, store)
    assert first.new_bytes == first.manifest.total_bytes
    live(world, Random(9), 4)
    world.now_ms += 1
    second = back_up(world, store)
    assert second.new_bytes < second.manifest.total_bytes
    assert repository.ids() == sorted((first.backup_id, second.backup_id))
    for one in repository.ids():
        assert set(repository.verify(one)) == {None}
    with store.removing():
        assert repository.remove(first.backup_id) > 0
    assert set(repository.verify(second.backup_id)) == {None}
    folder = FolderStore(SimulatedDisk())
    same = back_up(world, folder)
    assert same.manifest == second.manifest
    logs = list[bytes]()
    for one in (store, folder):
        disk = SimulatedDisk()
        restore(Repository(one), second.backup_id, disk, plan_of(world, Overdue.RELEASE))
        logs.append(log_of(opened_of(disk)))
    assert logs[0] == logs[1]
    assert logs[0]


def test_a_damaged_piece_is_in_each_later_backup_until_it_is_removed(store: BackupStore) -> None:
    world, repository = lived(3), Repository(store)
    first = back_up(world, store)
    piece = max(first.manifest.pieces, key=lambda one: one.size_bytes)
    path = f"objects/{piece.digest[:2]}/{piece.digest}"
    raw = repository.get(piece)
    with store.adding():
        store.write(path, bytes([raw[0] ^ 1]) + raw[1:])
        store.settle()
    world.now_ms += 1
    second = back_up(world, store)
    damaged = [one for one in repository.verify(second.backup_id) if one is not None]
    assert [path in one.message for one in damaged] == [True]

    removed: list[str] = []
    with store.removing():
        found = [one for one in repository.verify(second.backup_id, removed) if one is not None]
    assert [one.message for one in found] == [one.message for one in damaged]
    assert removed == [path]
    with pytest.raises(errors.CorruptFile, match="missing"):
        repository.get(piece)
    world.now_ms += 1
    third = back_up(world, store)
    assert third.new_bytes >= piece.size_bytes
    for one in repository.ids():
        assert set(repository.verify(one)) == {None}
    disk = SimulatedDisk()
    restore(repository, third.backup_id, disk, plan_of(world, Overdue.RELEASE))
    assert log_of(opened_of(disk))


class ReadsBadlyOnce(FolderStore):
    """Whose first read of a piece is wrong, as of a machine with bad memory."""

    bad_reads = 1

    def read(self, path: str, most_bytes: int) -> bytes:
        """See `FolderStore`."""
        raw = super().read(path, most_bytes)
        if path.startswith("objects/") and self.bad_reads:
            self.bad_reads -= 1
            return raw[:-1]
        return raw


def test_a_piece_that_is_read_badly_once_is_said_and_stays() -> None:
    store = ReadsBadlyOnce(SimulatedDisk())
    repository, removed = Repository(store), list[str]()
    taken = back_up(lived(2), store)
    with store.removing():
        found = [one for one in repository.verify(taken.backup_id, removed) if one is not None]
    assert len(found) == 1
    assert removed == []
    assert set(repository.verify(taken.backup_id)) == {None}
