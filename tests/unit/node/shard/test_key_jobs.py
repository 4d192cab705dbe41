"""Merging, trimming and rebuilding the key index."""

from collections.abc import Iterator

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.shard import key_jobs
from node.shard.checkpoint import read_manifest
from node.shard.job_planner import RetentionConfig
from node.shard.key_jobs import KeyJob, KeyJobs
from node.shard.recovery import ShardConfig
from storage.log.commit_log import CommitLog, LogConfig
from storage.views.key_index import KeyIndex
from storage.views.key_rows import Hashes, KeyRows, hash_keys
from storage.views.key_run import KeyRun
from tests.sim.disk import SimulatedDisk, SimulatedFile
from tests.support.shard_proposals import keys_of
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=2_500, index_interval_bytes=512),
    wheel=WheelConfig(memtable_units_max=1_000, hour_level_days=2, merge_run_count=9),
    retention=RetentionConfig(retention_ms=HOUR_MS, sequence_step=1),
)


@pytest.fixture
def world() -> Iterator[ShardWorld]:
    with small_sizes(16):
        yield ShardWorld(SimulatedDisk(), CONFIG, wanted=FilterExpression.everything())


def keyed(from_ms: int, count: int) -> list[int]:
    """Due times, from one on, of messages with keys."""
    every = (one for one in range(from_ms, from_ms + 100_000) if keys_of(one))
    return [next(every) for _ in range(count)]


def save_some(world: ShardWorld, times: int, delay_ms: int = HOUR_MS, count: int = 4) -> None:
    for _ in range(times):
        world.publish(keyed(world.now_ms + delay_ms, count))
        world.commit()
        world.save()


def names(world: ShardWorld) -> list[str]:
    world.remove()
    return world.disk.list(world.place.under("keys"))


def rows(world: ShardWorld) -> KeyRows:
    return world.shard.views.keys.all_rows()


def same(one: KeyRows, other: KeyRows) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))


def work_all(world: ShardWorld) -> None:
    while world.work():
        pass


def test_runs_are_merged_when_there_are_many(world: ShardWorld) -> None:
    save_some(world, 8)
    before = rows(world)
    assert len(names(world)) == 8
    work_all(world)
    assert len(names(world)) == 1
    assert same(rows(world), before)
    assert "keys" in world.jobs
    world.kill()
    assert same(rows(world), before)
    assert world.shard.views.keys.is_complete


def test_merge_leaves_out_what_nobody_asks_about(world: ShardWorld) -> None:
    save_some(world, 4, 1_000)
    save_some(world, 4, DAY_MS)
    floor = world.shard.views.next_sequence
    world.advance(2_000)
    world.publish([world.now_ms + 1])
    world.commit()
    world.advance(10)
    world.mastership.trim_sequences(floor, world.now_ms)
    world.commit()
    count = rows(world).size
    world.save()
    work_all(world)
    left = rows(world)
    assert 0 < left.size < count
    assert ((left.due_ms > world.now_ms) | (left.sequence >= floor)).all()
    world.check_promises()


def test_a_run_goes_when_all_of_it_is_left_over(world: ShardWorld) -> None:
    save_some(world, 1, 1_000)
    world.advance(2_000)
    world.publish([world.now_ms + 1])
    world.commit()
    world.advance(10)
    world.mastership.trim_sequences(world.shard.views.next_sequence, world.now_ms)
    world.commit()
    world.save()
    assert names(world)
    for _ in range(3):
        world.now_ms += 60_000
        work_all(world)
    assert names(world) == []
    world.kill()
    assert rows(world).size == 0
    assert world.shard.views.keys.is_complete


@pytest.mark.parametrize("moves", [False, True])
def test_a_run_that_is_left_over_goes_at_once_unless_one_of_its_messages_was_moved(
    world: ShardWorld, *, moves: bool
) -> None:
    save_some(world, 1, 1_000)
    work_all(world)  # the run was looked at just now, and is not again for a while
    if moves:
        world.reschedule([1], [world.now_ms + HOUR_MS])
        world.commit()
    world.advance(2_000)
    world.publish([world.now_ms + 1])
    world.commit()
    world.advance(10)
    world.mastership.trim_sequences(world.shard.views.next_sequence, world.now_ms)
    world.commit()
    world.save()
    work_all(world)
    assert bool(names(world)) == moves


def test_runs_are_looked_at_again_when_time_has_passed(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[int]()
    plan = KeyJobs.plan

    def noted(jobs: KeyJobs, manifest: Checkpoint, now_ms: int) -> KeyJob | None:
        looked.append(now_ms - begun_ms)
        return plan(jobs, manifest, now_ms)

    save_some(world, 1)
    begun_ms = world.now_ms
    monkeypatch.setattr(KeyJobs, "plan", noted)
    for after_ms in (0, 1, 59_999, 60_000, 60_001):
        assert world.maintenance.plan(begun_ms + after_ms) is None
    assert looked == [0, 60_000]
    save_some(world, 1)
    assert world.maintenance.plan(begun_ms + 60_002) is None
    assert looked == [0, 60_000, 60_002], "there is another run"


def test_a_run_stays_when_a_merge_finds_no_room(world: ShardWorld) -> None:
    save_some(world, 8)
    before = rows(world)
    assert world.begin_job()
    world.disk.capacity_bytes = world.disk.used_bytes("")
    world.end_job()
    assert world.failed_jobs == 1
    world.disk.capacity_bytes = 1 << 40
    assert len(names(world)) == 8
    assert same(rows(world), before)
    world.kill()
    assert same(rows(world), before)


def test_rows_stay_when_a_checkpoint_finds_no_room(world: ShardWorld) -> None:
    world.publish(keyed(world.now_ms + HOUR_MS, 40))
    world.commit()
    before = rows(world)
    world.disk.capacity_bytes = world.disk.used_bytes("")
    world.save()
    world.disk.capacity_bytes = 1 << 40
    assert world.failed_jobs == 1
    assert same(rows(world), before)
    work_all(world)
    world.save()
    assert same(rows(world), before)
    assert len(names(world)) == 1


@pytest.mark.parametrize("damage", ["missing", "footer"])
def test_index_is_built_again_when_a_run_is_damaged(world: ShardWorld, damage: str) -> None:
    save_some(world, 3)
    world.publish(keyed(world.now_ms + HOUR_MS, 3))
    world.commit()
    before = rows(world)
    path = world.place.under(f"keys/{names(world)[1]}")
    if damage == "missing":
        world.disk.remove(path)
    else:
        file = world.disk.open(path)
        file.pwrite([b"\xff"], file.size() - 20)
    world.disk.sync_dir(world.place.under("keys"))
    world.kill()
    keys = world.shard.views.keys
    assert not keys.is_complete
    world.publish(keyed(world.now_ms + DAY_MS, 3))  # meanwhile
    world.commit()
    work_all(world)
    assert keys.is_complete
    assert rows(world).size == before.size + len(
        [key for due in keyed(world.now_ms + DAY_MS, 3) for key in keys_of(due)]
    )
    world.check_promises()
    world.kill()
    assert world.shard.views.keys.is_complete
    world.check_promises()


def test_index_is_built_in_pieces(world: ShardWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    save_some(world, 3)
    monkeypatch.setattr(key_jobs, "PIECE_BYTES", 400)
    assert world.maintenance.distrust(
        errors.CorruptFile("x", file=world.place.under(f"keys/{names(world)[0]}"))
    )
    world.kill()
    count = 0
    while not world.shard.views.keys.is_complete:
        assert world.work()
        count += 1
    assert count > 3
    world.check_promises()


def test_index_is_distrusted_in_the_newest_manifest(world: ShardWorld) -> None:
    """Of a job that wrote it and did not come to its end: else its runs would be lost."""
    save_some(world, 3)
    written = world.maintenance.manifest
    world.publish(keyed(world.now_ms + HOUR_MS, 3))
    world.commit()
    assert world.begin_job(save=True)
    assert world.job is not None
    world.job.run(lambda: None)
    world.maintenance.distrust(errors.CorruptFile("x", file=world.place.under("keys/x")))
    found = read_manifest(world.place)
    assert found.applied_offset > written.applied_offset
    assert not found.key_run_ids
    world.kill()
    assert not world.shard.views.keys.is_complete
    work_all(world)
    world.check_promises()


def test_index_has_pending_messages_that_are_older_than_the_log(world: ShardWorld) -> None:
    save_some(world, 3, 9 * DAY_MS)
    save_some(world, 3, 5 * HOUR_MS)
    expected = rows(world)
    for _ in range(4):
        world.advance(HOUR_MS)
        world.publish([world.now_ms + 1] * 40)
        world.commit()
        world.advance(10)
        world.save()
        world.remove()
    assert world.shard.log.start_offset > 0
    assert world.maintenance.distrust(
        errors.CorruptFile("x", file=world.place.under(f"keys/{names(world)[0]}"))
    )
    world.kill()
    assert not world.shard.views.keys.is_complete
    work_all(world)
    assert world.shard.views.keys.is_complete
    found = rows(world)
    wanted = set(expected.sequence.tolist())
    assert wanted <= set(found.sequence.tolist())
    keys = [key.encode() for key in keys_of(int(expected.due_ms[0]))]
    located = world.shard.views.keys.find(hash_keys([1] * len(keys), keys))
    assert len(located.sequences) or len(located.many)


def test_rebuild_has_few_rows_in_memory_when_very_many_messages_are_due_in_one_hour(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_jobs, "PIECE_ROWS", 100)
    monkeypatch.setattr(key_jobs, "UNITS_AT_ONCE", 256)
    due_ms = keyed(world.now_ms + 9 * HOUR_MS, 700)
    for at in range(0, len(due_ms), 50):
        world.publish(due_ms[at : at + 50])
        world.commit()
    world.save()
    expected = rows(world)
    for _ in range(4):
        world.advance(HOUR_MS)
        world.publish([world.now_ms + 1] * 40)
        world.commit()
        world.advance(10)
        world.save()
        world.remove()
    assert world.shard.log.start_offset > 0
    world.maintenance.distrust(errors.CorruptFile("x", file=world.place.under("keys/x")))
    world.kill()
    sizes: list[int] = []
    write_run = KeyIndex.write_run

    def noted(
        keys: KeyIndex, run_id: int, slices: Iterator[KeyRows], rows_max: int
    ) -> KeyRun | None:
        sizes.append(rows_max)
        return write_run(keys, run_id, slices, rows_max)

    with monkeypatch.context() as context:
        context.setattr(KeyIndex, "write_run", noted)
        while not world.shard.views.keys.is_complete:
            assert world.work()
    keys_max = max(len(keys_of(one)) for one in due_ms)
    assert max(sizes) <= 100 + 256 * keys_max
    assert len([size for size in sizes if size]) >= 3
    found = rows(world)
    pairs = set(zip(found.low.tolist(), found.sequence.tolist(), strict=True))
    assert pairs >= set(zip(expected.low.tolist(), expected.sequence.tolist(), strict=True))
    assert len(pairs) == found.size, "no row is there twice"
    assert (np.lexsort((found.sequence, found.high)) == np.arange(found.size)).all()


def test_runs_are_merged_while_the_index_is_being_built(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_jobs, "PIECE_BYTES", 200)
    save_some(world, 12)
    expected = rows(world)
    world.maintenance.distrust(errors.CorruptFile("x", file=world.place.under("keys/x")))
    world.kill()
    keys, most = world.shard.views.keys, 0
    while not keys.is_complete:
        assert world.work()
        most = max(most, len(keys.runs))
    assert most <= key_jobs.MERGE_RUN_COUNT
    work_all(world)
    assert same(rows(world), expected)


def test_sequences_that_were_refused_do_no_harm(world: ShardWorld) -> None:
    due_ms = keyed(world.now_ms + HOUR_MS, 2)
    for _ in range(2):
        world.publish(due_ms, producer_id=7)
        world.commit()
    world.save()
    assert set(rows(world).sequence.tolist()) == {0, 1}
    world.maintenance.distrust(errors.CorruptFile("x", file=world.place.under("keys/x")))
    world.kill()
    work_all(world)
    found = set(rows(world).sequence.tolist())
    assert found == {0, 1, 2, 3}
    states = world.shard.views.sequences.read_many(np.array([2, 3], np.uint64))[1]
    assert not states.any()


def test_rows_of_a_key_come_when_its_runs_are_merged_meanwhile(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[SimulatedFile] = []
    read = SimulatedFile.pread

    def pread(file: SimulatedFile, length: int, position: int) -> bytes:
        assert all(file is not one for one in ended), "it is closed"
        return read(file, length, position)

    def close(file: SimulatedFile) -> None:
        ended.append(file)

    monkeypatch.setattr(SimulatedFile, "close", close)
    monkeypatch.setattr(SimulatedFile, "pread", pread)
    due = keyed(world.now_ms + HOUR_MS, 1)
    for _ in range(9):
        world.publish(due)
        world.commit()
        world.save()
    world.publish(due)  # in memory, so that its rows come first
    world.commit()
    found, keys = rows(world), world.shard.views.keys
    pieces = keys.pieces(Hashes(found.high[:1], found.low[:1]), 0)
    count = next(pieces).size
    work_all(world)
    names(world)
    count += sum(piece.size for piece in pieces)
    assert count == int(((found.high == found.high[0]) & (found.low == found.low[0])).sum())


def test_index_waits_when_the_log_cannot_be_read_for_it(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_some(world, 3)
    before = rows(world)
    world.disk.remove(world.place.under(f"keys/{names(world)[1]}"))
    world.disk.sync_dir(world.place.under("keys"))
    world.kill()
    keys = world.shard.views.keys

    def fail(*_: object) -> None:
        raise errors.CorruptLog(file="log", offset=0)

    with monkeypatch.context() as damaged:
        damaged.setattr(CommitLog, "scan", fail)
        work_all(world)
    assert not keys.is_complete
    assert rows(world).size < before.size
    work_all(world)
    assert not keys.is_complete, "it does not try again at once"
    world.advance(61_000)
    work_all(world)
    assert keys.is_complete
    assert rows(world).size == before.size
