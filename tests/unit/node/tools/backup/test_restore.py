"""What is restored is what was backed up: up to a moment, and without what is overdue."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import Kind
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.outcomes import Missed
from hourwheel.types import Epoch
from node.broker.recurring.occurrence_times import plan_next, schedule_of
from node.shard.checkpoint import ShardPlace
from node.shard.dispatcher import DispatchConfig, Dispatcher
from node.shard.node_meta import CONTROL_RESTORED, NODE_META, open_node_meta
from node.tools.backup.capture import capture
from node.tools.backup.manifest import Piece
from node.tools.backup.repository import Repository
from node.tools.backup.restore import EPOCH_MAX, EPOCHS_SKIPPED, Overdue, choose_backup, restore
from node.tools.backup.store import FolderStore
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.backup_world import (
    NEW_CLUSTER,
    back_up,
    give_users,
    keys_of,
    lived,
    log_of,
    opened_of,
    overdue_keys,
    plan_of,
    restored,
    users_of,
)
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import CONFIG, age, live
from timewheel.levels import HOUR_MS


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


@pytest.mark.parametrize("seed", range(8))
def test_the_restored_shard_has_the_same_log_and_the_same_pending_messages(seed: int) -> None:
    world, folder = lived(seed), SimulatedDisk()
    if seed % 2:
        age(world, Random(seed))
        live(world, Random(seed), 6)
    taken = back_up(world, folder)
    before, log = world.shard.views, log_of(world.opened)
    found, disk = restored(folder, taken.backup_id, plan_of(world))
    opened = opened_of(disk)
    views = opened.shard.views
    assert log_of(opened).startswith(log)
    assert keys_of(views.pending_units()) == keys_of(before.pending_units())
    assert found.pending_count == before.counters.pending
    assert views.cursor.key == before.cursor.key
    assert views.catalog.topics() == before.catalog.topics()
    assert views.epochs[-1].epoch >= world.mastership.epoch + EPOCHS_SKIPPED
    opened.shard.check()
    meta = open_node_meta(disk, "n")
    assert (meta.cluster_id, meta.is_new) == (NEW_CLUSTER, False)


@pytest.mark.parametrize("seed", range(6))
def test_discarding_cancels_what_is_overdue_and_nothing_else(seed: int) -> None:
    world, folder = lived(seed), SimulatedDisk()
    world.publish([world.now_ms + delay for delay in (HOUR_MS, 2 * HOUR_MS, 90 * HOUR_MS)])
    world.commit()
    taken = back_up(world, folder)
    pending = world.shard.views.pending_units()
    world.now_ms += 3 * HOUR_MS
    late = overdue_keys(pending, world.now_ms)
    assert late
    found, disk = restored(folder, taken.backup_id, plan_of(world, Overdue.DISCARD))
    left = keys_of(opened_of(disk).shard.views.pending_units())
    assert left == [key for key in keys_of(pending) if key not in late]
    assert found.discarded_count == len(late)


RECURRING = {name: f"orders\n{name}" for name in ("behind", "ahead", "paused", "ended")}


def with_recurrences() -> ShardWorld:
    """A shard with one that will be behind in three days, and others that will not."""
    world = ShardWorld(SimulatedDisk(), CONFIG)
    for what, name in RECURRING.items():
        world.recur(name, "put", count_max=int(what == "ended"))
        world.commit()
        world.occur([name], [90 * HOUR_MS if what == "ahead" else HOUR_MS])
        world.commit()
    world.recur(RECURRING["paused"], "pause")
    world.commit()
    return world


def test_discarding_discards_what_recurrences_missed_too() -> None:
    world, folder = with_recurrences(), SimulatedDisk()
    before = world.shard.views.recurrences
    taken = back_up(world, folder)
    world.now_ms += 72 * HOUR_MS
    found, disk = restored(folder, taken.backup_id, plan_of(world, Overdue.DISCARD))
    assert (found.recurrence_count, found.discarded_count) == (1, 2)
    view = opened_of(disk).shard.views.recurrences
    for what, name in RECURRING.items():
        assert (view.find(name) == before.find(name)) == (what != "behind"), what
    behind = RECURRING["behind"]
    state, old = view.find(behind), before.find(behind)
    assert state is not None
    assert old is not None
    assert (state.next_index, state.count, state.is_paused) == (old.next_index, old.count, 0)
    hourly = schedule_of(RecurrenceConfig(every_ms=HOUR_MS, start_ms=old.after_ms))
    planned = plan_next(hourly, Missed.ALL, state.after_ms, world.now_ms).due_ms
    assert planned is not None
    assert world.now_ms < planned <= world.now_ms + HOUR_MS
    again, other = restored(folder, taken.backup_id, plan_of(world, Overdue.DISCARD))
    assert again == found
    assert log_of(opened_of(other)) == log_of(opened_of(disk))


@pytest.mark.parametrize("overdue", [Overdue.RELEASE, Overdue.HOLD])
def test_recurrences_stay_as_they_were_where_nothing_is_discarded(overdue: Overdue) -> None:
    world, folder = with_recurrences(), SimulatedDisk()
    taken = back_up(world, folder)
    world.now_ms += 72 * HOUR_MS
    found, disk = restored(folder, taken.backup_id, plan_of(world, overdue))
    assert found.recurrence_count == 0
    view = opened_of(disk).shard.views.recurrences
    for name in RECURRING.values():
        assert view.find(name) == world.shard.views.recurrences.find(name)


def test_what_is_overdue_waits_where_there_is_any() -> None:
    world, folder = lived(4), SimulatedDisk()
    world.publish([world.now_ms + HOUR_MS])
    world.commit()
    pending = world.shard.views.pending_units()
    taken = back_up(world, folder)
    world.now_ms += 3 * HOUR_MS
    late = overdue_keys(pending, world.now_ms)
    found, disk = restored(folder, taken.backup_id, plan_of(world, Overdue.HOLD))
    assert (found.overdue_count, found.discarded_count) == (len(late), 0)
    views = opened_of(disk).shard.views
    assert views.catalog.is_dispatch_paused
    assert keys_of(views.pending_units()) == keys_of(pending)
    dispatcher = Dispatcher(DispatchConfig(), views.cursor.key)
    assert dispatcher.plan(views, world.now_ms) is None
    assert dispatcher.next_wakeup_ms(views) is None
    views.check()

    held = ShardPlace(disk, "shard-0", Identity(NEW_CLUSTER, 0))
    again = capture(
        held, Repository(FolderStore(folder)), node_id="n", made_ms=1, pace=lambda _: None
    )
    for overdue in Overdue:
        found, disk = restored(folder, again.backup_id, plan_of(world, overdue))
        is_held = opened_of(disk).shard.views.catalog.is_dispatch_paused
        assert is_held == (overdue is Overdue.HOLD)


def test_nothing_waits_where_nothing_is_overdue() -> None:
    world, folder = ShardWorld(SimulatedDisk(), CONFIG), SimulatedDisk()
    world.publish([world.now_ms + HOUR_MS])
    world.commit()
    taken = back_up(world, folder)
    found, disk = restored(folder, taken.backup_id, plan_of(world, Overdue.HOLD))
    assert (found.overdue_count, found.pending_count) == (0, 1)
    assert not opened_of(disk).shard.views.catalog.is_dispatch_paused


def test_two_nodes_that_are_restored_by_one_plan_have_the_same_log() -> None:
    world, folder = lived(3), SimulatedDisk()
    taken = back_up(world, folder)
    world.now_ms += HOUR_MS
    plan = plan_of(world, Overdue.DISCARD)
    logs = [log_of(opened_of(restored(folder, taken.backup_id, plan)[1])) for _ in range(2)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("seed", range(6))
def test_until_a_moment_what_was_stored_later_is_left_out(seed: int) -> None:
    world, folder = lived(seed, 20), SimulatedDisk()
    log = world.shard.log
    batches = list(log.scan(log.start_offset, log.end_offset))
    taken = back_up(world, folder)
    moments = sorted({one.header.store_ms for one in batches})
    for until_ms in (*Random(seed).sample(moments, 3), moments[-1] + 1):
        kept = [one.header.offset for one in batches if one.header.store_ms <= until_ms]
        plan = plan_of(world, until_ms=until_ms)
        if log.start_offset > 0 and taken.manifest.views_ms > until_ms:
            with pytest.raises(errors.FailedPrecondition, match="trimmed"):
                restored(folder, taken.backup_id, plan)
            continue
        opened = opened_of(restored(folder, taken.backup_id, plan)[1])
        again = opened.shard.log
        found = list(again.scan(again.start_offset, again.end_offset))
        assert [one.header.offset for one in found[:-1]] == kept
        assert found[-1].header.kind == Kind.EPOCH_START
        opened.shard.check()


def test_nothing_is_restored_of_before_the_first_record() -> None:
    world, folder = lived(1), SimulatedDisk()
    taken, disk = back_up(world, folder), SimulatedDisk()
    with pytest.raises(errors.FailedPrecondition, match="stored so early"):
        restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan_of(world, until_ms=1))
    assert disk.list("") == []


def test_a_directory_that_is_not_empty_is_left_alone() -> None:
    world, folder = lived(1), SimulatedDisk()
    taken, disk = back_up(world, folder), SimulatedDisk()
    disk.make_dir("shard-0")
    with pytest.raises(errors.FailedPrecondition, match="shard-0 is in it"):
        restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan_of(world))
    assert disk.list("") == ["shard-0"]


@pytest.mark.parametrize("how", ["torn", "altered", "missing"])
def test_a_backup_that_was_damaged_is_found_and_never_half_restored(how: str) -> None:
    world, folder = lived(2), SimulatedDisk()
    taken, repository = back_up(world, folder), Repository(FolderStore(folder))
    pieces = sorted({piece for file in taken.manifest.files for piece in file.pieces})
    for piece in pieces:
        undo = damage(folder, piece, how)
        damages = [one for one in repository.verify(taken.backup_id) if one is not None]
        assert [piece.digest in one.message for one in damages] == [True]
        disk = SimulatedDisk()
        with pytest.raises(errors.CorruptFile, match=piece.digest):
            restore(repository, taken.backup_id, disk, plan_of(world))
        assert disk.list("") == []
        folder.open(undo[0], create=True).pwrite((undo[1],), 0)
    assert set(repository.verify(taken.backup_id)) == {None}


def damage(folder: SimulatedDisk, piece: Piece, how: str) -> tuple[str, bytes]:
    path = f"objects/{piece.digest[:2]}/{piece.digest}"
    raw = folder.open(path).pread(piece.size_bytes, 0)
    if how == "torn":
        folder.open(path).truncate(len(raw) - 1)
    elif how == "altered":
        folder.flip_bit(path, len(raw) // 2)
    else:
        folder.remove(path)
    return path, raw


def test_an_altered_manifest_is_found() -> None:
    world, folder = lived(2), SimulatedDisk()
    taken = back_up(world, folder)
    folder.flip_bit(f"backups/{taken.backup_id}.json", 100)
    disk = SimulatedDisk()
    with pytest.raises(errors.CorruptFile, match="altered"):
        restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan_of(world))
    assert disk.list("") == []


def test_without_room_the_directory_is_empty_again() -> None:
    world, folder = lived(2), SimulatedDisk()
    taken = back_up(world, folder)
    disk = SimulatedDisk(taken.manifest.total_bytes // 2)
    with pytest.raises(errors.DiskFull):
        restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan_of(world))
    assert disk.list("") == []


@pytest.mark.parametrize("seed", range(3))
def test_a_restore_that_loses_power_anywhere_leaves_nothing_that_a_node_starts_on(
    seed: int,
) -> None:
    world, folder = lived(seed, 8), SimulatedDisk()
    give_users(world, 1)
    taken, plan = back_up(world, folder), plan_of(world, Overdue.DISCARD)
    whole, disk = restored(folder, taken.backup_id, plan)
    pending = keys_of(opened_of(disk).shard.views.pending_units())
    assert isinstance(disk, SimulatedDisk)
    ends = set()
    for count in range(1, disk.durability_op_count + 1, 3):
        disk = SimulatedDisk()
        disk.fail_after(count)
        try:
            restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan)
        except SimulatedCrash:
            disk.crash(Random(count))
        disk.disarm()
        if disk.exists(NODE_META):
            assert keys_of(opened_of(disk).shard.views.pending_units()) == pending
            assert users_of(disk) == {"user-1"}
            ends.add("whole")
        elif any(name.startswith("shard-") for name in disk.list("")):
            with pytest.raises(errors.CorruptFile, match="missing"):
                open_node_meta(disk, "n")
            ends.add("refused")
            if not disk.exists("shard-0"):
                assert (
                    restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan) == whole
                )
    assert "refused" in ends


@pytest.mark.parametrize("epoch", [EPOCH_MAX + 1, (1 << 32) - 1])
def test_a_backup_with_an_epoch_that_cannot_be_is_refused_and_leaves_nothing(epoch: int) -> None:
    world, folder, disk = lived(1), SimulatedDisk(), SimulatedDisk()
    give_users(world, 1)
    world.opened.epochs.append(Epoch(epoch), world.shard.log.end_offset - 1)
    taken = back_up(world, folder)
    with pytest.raises(errors.DataLoss, match=str(epoch)):
        restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan_of(world))
    assert disk.list("") == []


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (struct.error("too large"), errors.DataLoss),
        (OverflowError("too large"), errors.DataLoss),
        (errors.InvariantViolated("no"), errors.InvariantViolated),
        (OSError(5, "no"), OSError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_whatever_is_raised_the_directory_is_empty_again(
    raised: BaseException, told: type[BaseException]
) -> None:
    class Altered(Repository):
        """Fails at the third piece."""

        count = 0

        def get(self, piece: Piece) -> bytes:
            self.count += 1
            if self.count == 3:
                raise raised
            return super().get(piece)

    world, folder, disk = lived(1), SimulatedDisk(), SimulatedDisk()
    taken = back_up(world, folder)
    with pytest.raises(told):
        restore(Altered(FolderStore(folder)), taken.backup_id, disk, plan_of(world))
    assert disk.list("") == []


def test_users_come_back_unless_they_are_left_out() -> None:
    world, folder = lived(3), SimulatedDisk()
    give_users(world, 1, 2)
    taken, plan = back_up(world, folder), plan_of(world)
    found, disk = restored(folder, taken.backup_id, plan)
    assert (found.user_count, found.grant_count, found.quota_count) == (2, 0, 0)
    assert users_of(disk) == {"user-1", "user-2"}
    found, disk = restored(folder, taken.backup_id, replace(plan, has_access=False))
    assert (found.user_count, users_of(disk)) == (0, set())
    assert not disk.exists(CONTROL_RESTORED)


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_control_state_that_is_torn_or_altered_is_refused_and_nothing_is_made(
    *, is_torn: bool
) -> None:
    world, folder = lived(3), SimulatedDisk()
    give_users(world, 1)
    taken = back_up(world, folder)
    (piece,) = taken.manifest.control
    path = f"objects/{piece.digest[:2]}/{piece.digest}"
    if is_torn:
        folder.open(path).truncate(piece.size_bytes - 1)
    else:
        folder.flip_bit(path, piece.size_bytes // 2)
    disk = SimulatedDisk()
    with pytest.raises(errors.CorruptFile, match=piece.digest):
        restore(Repository(FolderStore(folder)), taken.backup_id, disk, plan_of(world))
    assert disk.list("") == []


def test_the_latest_backup_is_chosen_whose_views_are_early_enough() -> None:
    world, folder = lived(5), SimulatedDisk()
    repository = Repository(FolderStore(folder))
    with pytest.raises(errors.NotFound):
        choose_backup(repository, None, None)
    world.save()
    first = back_up(world, folder)
    world.now_ms += HOUR_MS
    world.publish([world.now_ms + HOUR_MS])
    world.commit()
    world.save()
    second = back_up(world, folder)
    assert choose_backup(repository, None, None) == second.backup_id
    assert choose_backup(repository, None, world.now_ms - 1) == first.backup_id
    assert choose_backup(repository, None, 1) == second.backup_id
    assert choose_backup(repository, first.backup_id, None) == first.backup_id
