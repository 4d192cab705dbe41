"""Background jobs of a shard: which comes next, and what may be removed when."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import pytest

from hourwheel import errors
from node.shard import job_planner
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from node.shard.views import TRIM_SEQUENCES_LEVEL
from storage.log.commit_log import LogConfig
from storage.views.tombstones import Tombstones
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import TOPIC
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.compaction import plan_merge
from timewheel.levels import DAY_LEVEL, DAY_MS, HOUR_LEVEL, HOUR_MS
from timewheel.run import Run
from timewheel.run_set import RunSet
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=2_500, index_interval_bytes=512),
    wheel=WheelConfig(memtable_units_max=20, hour_level_days=2, merge_run_count=2),
    retention=RetentionConfig(retention_ms=10 * HOUR_MS, producer_idle_ms=HOUR_MS),
)


@pytest.fixture
def world() -> Iterator[ShardWorld]:
    with small_sizes(16):
        yield ShardWorld(SimulatedDisk(), CONFIG)


def publish_and_save(world: ShardWorld, delay_ms: int, count: int = 4) -> None:
    world.publish([world.now_ms + delay_ms] * count)
    world.commit()
    world.save()


def pass_by(world: ShardWorld, by_ms: int) -> None:
    """Time passes, and the cursor comes to stand behind everything that fell due."""
    world.advance(by_ms)
    world.publish([world.now_ms + 1])
    world.commit()
    world.advance(10)


def kind_of_next(world: ShardWorld) -> str | None:
    """Which job is planned next; it is run."""
    job = world.maintenance.plan(world.now_ms)
    if job is None:
        return None
    world.job = job
    world.end_job()
    world.remove()
    return job.name


def wheel_files(world: ShardWorld) -> list[str]:
    return world.disk.list(world.place.under("wheel"))


# --- what comes next


def test_nothing_is_planned_when_little_is_unsaved(world: ShardWorld) -> None:
    world.publish([world.now_ms + HOUR_MS] * 19)
    world.commit()
    assert kind_of_next(world) is None
    assert world.maintenance.is_idle
    world.publish([world.now_ms + HOUR_MS])
    world.commit()
    assert world.maintenance.is_due
    assert kind_of_next(world) == "checkpoint"
    assert world.maintenance.unsaved_bytes == 0


def test_checkpoint_is_due_when_the_log_behind_it_is_long() -> None:
    config = replace(CONFIG, wheel=replace(CONFIG.wheel, memtable_span_bytes_max=4_000))
    world = ShardWorld(SimulatedDisk(), config)
    world.publish([world.now_ms])
    world.commit()
    while not world.maintenance.is_due:
        assert world.maintenance.unsaved_bytes < 4_000
        world.publish([world.now_ms])
        world.commit()
    assert world.maintenance.unsaved_bytes >= 4_000
    assert not world.maintenance.is_far_behind


def test_publishing_outruns_flushing_when_three_tables_are_full(world: ShardWorld) -> None:
    world.publish([world.now_ms + HOUR_MS] * 59)
    world.commit()
    assert not world.maintenance.is_far_behind
    world.publish([world.now_ms + HOUR_MS])
    world.commit()
    assert world.maintenance.is_far_behind


def test_jobs_come_in_order_of_urgency_when_all_are_to_be_done(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    publish_and_save(world, HOUR_MS)
    publish_and_save(world, 4 * DAY_MS)
    world.now_ms += 3 * DAY_MS - 2 * HOUR_MS
    world.shard.views.store_ms = world.now_ms
    world.publish([world.now_ms + 20 * DAY_MS] * 20)
    world.commit()
    found = [kind_of_next(world) for _ in range(5)]
    assert found == ["checkpoint", "cascade", "merge", "merge", None]


def test_runs_are_looked_at_again_only_when_something_has_changed(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[int]()

    def noted(runs: RunSet, level: int, run_count: int) -> list[Run]:
        looked.append(level)
        return plan_merge(runs, level, run_count)

    monkeypatch.setattr(job_planner, "plan_merge", noted)
    publish_and_save(world, HOUR_MS)
    assert [kind_of_next(world) for _ in range(5)] == [None] * 5
    assert looked == [HOUR_LEVEL, DAY_LEVEL]
    publish_and_save(world, HOUR_MS)
    job = world.maintenance.plan(world.now_ms)
    assert job is not None
    world.maintenance.fail(job)
    assert kind_of_next(world) == "merge", "it is tried again, although nothing has changed"
    publish_and_save(world, 4 * DAY_MS)
    assert kind_of_next(world) is None
    world.now_ms += 3 * DAY_MS
    world.save()
    assert kind_of_next(world) == "cascade", "the same runs, and another day"


def test_one_job_is_under_way_at_a_time(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    publish_and_save(world, HOUR_MS)
    job = world.maintenance.plan(world.now_ms)
    assert job is not None
    assert not world.maintenance.is_idle
    assert world.maintenance.plan(world.now_ms, force_checkpoint=True) is None
    job.run(lambda: None)
    world.maintenance.finish(job, world.now_ms)
    assert world.maintenance.is_idle


def test_nothing_changes_when_there_is_no_room_to_begin(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    pass_by(world, 2 * HOUR_MS)
    wheel, maintenance = world.shard.views.wheel, world.maintenance
    runs, number, manifest = wheel.runs.all(), maintenance.next_run_id, maintenance.manifest
    error = errors.DiskFull("none")
    with (
        mock.patch.object(Tombstones, "begin_checkpoint", side_effect=error),
        pytest.raises(errors.DiskFull),
    ):
        maintenance.plan(world.now_ms, force_checkpoint=True)
    assert wheel.runs.all() == runs
    assert (maintenance.next_run_id, maintenance.manifest) == (number, manifest)
    assert maintenance.is_idle
    world.save()
    assert runs[0] not in wheel.runs.all(), "it was past already"
    world.restart()


# --- a checkpoint beside a merge


def merge_and_save(world: ShardWorld, then: Callable[[], object] = lambda: None) -> None:
    """Run the merge that is planned; `then` happens in its first pause, and a checkpoint."""
    job = world.maintenance.plan(world.now_ms)
    assert job is not None
    assert job.name == "merge"
    assert not world.maintenance.can_save_beside
    assert world.maintenance.plan_beside(world.now_ms) is None, "nothing is due"
    pauses = []

    def pause() -> None:
        pauses.append(1)
        if len(pauses) > 1:
            return
        world.publish([world.now_ms + 3 * HOUR_MS + n for n in range(20)])
        world.commit()
        then()
        assert world.maintenance.can_save_beside
        beside = world.maintenance.plan_beside(world.now_ms)
        assert beside is not None
        assert world.maintenance.plan_beside(world.now_ms) is None, "one at a time"
        assert world.maintenance.plan(world.now_ms, force_checkpoint=True) is None
        beside.run(lambda: None)
        for remove in world.maintenance.finish(beside, world.now_ms):
            remove()
        assert not world.maintenance.is_idle, "the merge goes on"
        assert world.maintenance.unsaved_bytes == 0

    job.run(pause)
    for remove in world.maintenance.finish(job, world.now_ms):
        remove()
    assert pauses
    assert world.maintenance.is_idle


def runs_of(world: ShardWorld) -> list[tuple[int, int, int]]:
    runs = world.maintenance.manifest.runs
    return sorted((one.covers_first, one.run_id, one.unit_count) for one in runs)


def test_checkpoint_goes_first_while_a_merge_rests(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS, 3)
    publish_and_save(world, HOUR_MS, 5)
    (first, second) = world.shard.views.wheel.runs.all()
    merge_and_save(world)
    merged = first.footer.run_id, second.footer.run_id, 8
    newest = second.footer.run_id + 2
    assert runs_of(world) == [merged, (newest, newest, 20)]
    assert [one.footer.unit_count for one in world.shard.views.wheel.runs.all()] == [8, 20]
    assert not world.disk.exists(first.path)
    assert not world.disk.exists(second.path)
    world.shard.check()
    world.kill()
    assert world.opened.replayed_batches == 0, "all is in the checkpoint"
    world.check_rebuild()
    world.advance(4 * HOUR_MS)
    assert world.shard.views.counters.pending == 0


def test_runs_that_are_merged_stay_when_all_in_them_is_past_meanwhile(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS, 3)
    publish_and_save(world, HOUR_MS, 5)
    old = world.shard.views.wheel.runs.all()

    merge_and_save(world, lambda: pass_by(world, 2 * HOUR_MS))
    assert len(world.shard.views.wheel.runs.all()) == 2
    world.save()
    world.remove()
    assert [one.unit_count for one in world.maintenance.manifest.runs] == [20]
    assert not any(world.disk.exists(run.path) for run in old)
    world.restart()
    world.check_promises()


def test_merge_goes_on_when_the_checkpoint_beside_it_finds_no_room(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS, 3)
    publish_and_save(world, HOUR_MS, 5)
    job = world.maintenance.plan(world.now_ms)
    assert job is not None
    failed = []

    def pause() -> None:
        if failed:
            return
        world.publish([world.now_ms + HOUR_MS] * 20)
        world.commit()
        files = wheel_files(world)
        beside = world.maintenance.plan_beside(world.now_ms)
        assert beside is not None
        capacity, world.disk.capacity_bytes = world.disk.capacity_bytes, world.disk.used_bytes("")
        with pytest.raises(errors.DiskFull):
            beside.run(lambda: None)
        world.maintenance.fail(beside)
        world.disk.capacity_bytes = capacity
        failed.append(beside)
        assert wheel_files(world) == files, "also what the merge has written so far"

    job.run(pause)
    world.removals += world.maintenance.finish(job, world.now_ms)
    assert failed
    assert [one.unit_count for one in world.maintenance.manifest.runs] == [8]
    assert world.maintenance.unsaved_bytes
    world.save()
    world.restart()
    assert world.shard.views.counters.pending == 28


def test_no_checkpoint_goes_beside_a_cascade(world: ShardWorld) -> None:
    publish_and_save(world, 4 * DAY_MS)
    world.now_ms += 3 * DAY_MS
    world.save()
    job = world.maintenance.plan(world.now_ms)
    assert job is not None
    assert job.name == "cascade"
    world.publish([world.now_ms + HOUR_MS] * 20)
    world.commit()
    assert world.maintenance.is_due
    assert not world.maintenance.can_save_beside
    assert world.maintenance.plan_beside(world.now_ms) is None


# --- runs


def test_merge_puts_one_run_in_place_of_several(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS, 3)
    publish_and_save(world, HOUR_MS, 5)
    digest = world.shard.views.digest()
    before = wheel_files(world)
    assert kind_of_next(world) == "merge"
    (run,) = world.shard.views.wheel.runs.all()
    assert run.footer.unit_count == 8
    assert [one.unit_count for one in world.maintenance.manifest.runs] == [8]
    assert world.shard.views.digest() == digest
    gone = set(before) - set(wheel_files(world))
    assert len(gone) == 2, "the runs, but not the delay logs, which the new one points into"
    world.restart()
    assert world.shard.views.counters.pending == 8


def test_cascade_brings_a_day_to_the_hour_level(world: ShardWorld) -> None:
    publish_and_save(world, 4 * DAY_MS)
    world.now_ms += 3 * DAY_MS
    world.save()
    digest = world.shard.views.digest()
    assert kind_of_next(world) == "cascade"
    levels = [run.footer.level for run in world.shard.views.wheel.runs.all() if run.buckets()]
    assert levels == [0]
    assert world.shard.views.digest() == digest
    world.save()
    assert [run.level for run in world.maintenance.manifest.runs] == [0], "the day is empty"
    world.restart()
    world.advance(DAY_MS)
    assert world.shard.views.counters.pending == 0


def test_past_runs_are_dropped_by_the_next_checkpoint(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    publish_and_save(world, 5 * HOUR_MS)
    runs = world.shard.views.wheel.runs.all()
    assert len(runs) == 2
    pass_by(world, 2 * HOUR_MS)
    world.save()
    world.remove()
    kept = world.shard.views.wheel.runs.all()
    assert runs[0] not in kept
    assert runs[1] in kept
    assert not world.disk.exists(runs[0].path)
    assert world.disk.exists(runs[1].path)


# --- what is pointed into stays


def test_delay_log_stays_when_a_queue_points_into_it(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    (log,) = world.maintenance.manifest.delay_logs
    world.restart()  # so that messages come out of the run, and not out of memory
    pass_by(world, 2 * HOUR_MS)
    world.save()
    world.remove()
    assert world.shard.views.wheel.runs.all() == []
    assert world.shard.views.queues.references()[1] == log.delay_log_id
    assert list(world.maintenance.manifest.delay_logs) == [log]
    assert world.receive() is not None


def test_delay_log_goes_when_nothing_points_into_it(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS, 32)
    world.restart()
    pass_by(world, 2 * HOUR_MS)
    assert world.shard.views.queues.references()[1] is not None
    world.mastership.trim(world.now_ms - 100, world.now_ms)
    world.commit()
    for _ in range(2):  # the first manifest still needs the chunks that were trimmed
        world.save()
        world.remove()
    assert list(world.maintenance.manifest.delay_logs) == []
    assert wheel_files(world) == []


def test_delay_log_goes_although_a_younger_run_has_a_lost_message(world: ShardWorld) -> None:
    due = [world.now_ms, *[world.now_ms + HOUR_MS] * 31]
    world.publish(due, queues=[TOPIC << 8])
    world.commit()
    world.save()
    (old,) = world.maintenance.manifest.delay_logs
    delivery = world.receive()
    assert delivery is not None
    place = world.shard.log.locate(int(delivery.units["position"][0]))
    world.disk.flip_bit(*place)
    world.nack(delivery, 20 * HOUR_MS)
    world.commit()
    publish_and_save(world, 20 * HOUR_MS)
    run = world.shard.views.wheel.runs.all()[-1]
    ids = run.read(0, run.footer.unit_count)["dlog_id"].tolist()
    assert sorted(ids) == [0, *[run.footer.run_id] * 4], "the lost one is where it was"
    world.disk.flip_bit(*place)  # for the model, which reads the log anew
    world.restart()
    pass_by(world, 2 * HOUR_MS)
    world.mastership.trim(world.now_ms - 100, world.now_ms)
    world.commit()
    for _ in range(2):
        world.save()
        world.remove()
    kept = [one.delay_log_id for one in world.maintenance.manifest.delay_logs]
    assert old.delay_log_id not in kept
    assert run.footer.run_id in kept


def test_segments_stay_when_a_queue_points_into_them_and_go_when_none_does(
    world: ShardWorld,
) -> None:
    for _ in range(16):
        world.publish([world.now_ms] * 4)
        world.commit()
    assert len(world.shard.log.segments()) > 2
    world.now_ms += 11 * HOUR_MS
    world.save()
    world.remove()
    assert world.shard.log.start_offset == 0, "the queues point into it"
    retain_from_ms = world.maintenance.plan_trim_ms(world.now_ms)
    assert retain_from_ms == world.now_ms - 10 * HOUR_MS
    world.mastership.trim(retain_from_ms, world.now_ms)
    world.commit()
    assert world.maintenance.plan_trim_ms(world.now_ms) is None
    for _ in range(2):
        world.save()
        world.remove()
    assert world.shard.log.start_offset > 0
    assert world.shard.log.start_offset <= world.maintenance.manifest.applied_offset
    world.restart()


def test_segments_stay_when_they_are_young(world: ShardWorld) -> None:
    for _ in range(16):
        world.publish([world.now_ms + HOUR_MS] * 4)
        world.commit()
    for _ in range(2):
        world.save()
        world.remove()
    assert world.shard.log.start_offset == 0


def test_segments_stay_for_the_topic_that_asks_for_most_and_others_lose_their_entries(
    world: ShardWorld,
) -> None:
    side = world.make_side(1)
    world.commit()
    world.retain(side.topic, 20 * HOUR_MS)
    world.retain(TOPIC, HOUR_MS)
    for _ in range(16):
        world.publish([world.now_ms] * 4)
        world.commit()
    assert len(world.shard.log.segments()) > 2
    maintenance = world.maintenance
    assert maintenance.log_retention_ms == 20 * HOUR_MS
    world.now_ms += 2 * HOUR_MS
    retain_from_ms = maintenance.plan_trim_ms(world.now_ms)
    assert retain_from_ms == world.now_ms - 10 * HOUR_MS, "the topic's is not in the record"
    world.mastership.trim(retain_from_ms, world.now_ms)
    world.commit()
    assert maintenance.plan_trim_ms(world.now_ms) is None
    world.now_ms += 11 * HOUR_MS
    for _ in range(2):
        world.save()
        world.remove()
    assert world.shard.log.start_offset == 0, "its history is to be told"
    world.delete_topic(side.topic)
    world.commit()
    assert maintenance.log_retention_ms == 10 * HOUR_MS, "others have no less than the node's"
    for _ in range(2):
        world.save()
        world.remove()
    assert world.shard.log.start_offset > 0


# --- when it fails


def test_everything_is_put_back_when_a_job_finds_no_room(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    pass_by(world, 2 * HOUR_MS)
    world.publish([world.now_ms + HOUR_MS] * 6)
    world.commit()
    views = world.shard.views
    runs, digest, files = views.wheel.runs.all(), views.digest(), wheel_files(world)
    manifest = world.maintenance.manifest
    assert world.begin_job(save=True)
    assert views.wheel.runs.all() != runs, "the one that is past"
    capacity, world.disk.capacity_bytes = world.disk.capacity_bytes, world.disk.used_bytes("")
    world.end_job()
    assert world.maintenance.is_idle
    assert world.maintenance.manifest == manifest
    assert views.wheel.runs.all() == runs
    assert views.wheel.frozen is None
    assert wheel_files(world) == files
    assert views.digest() == digest
    world.disk.capacity_bytes = capacity
    world.save()
    assert views.digest() == digest
    assert world.maintenance.manifest.applied_offset == views.applied_offset
    world.restart()


@pytest.mark.parametrize("name", ["run-00000099", "delay-00000099"])
def test_strays_are_removed_when_the_shard_opens(world: ShardWorld, name: str) -> None:
    publish_and_save(world, HOUR_MS)
    files = wheel_files(world)
    world.close()
    world.disk.open(f"{world.place.under('wheel')}/{name}", create=True).pwrite([b"x"], 0)
    world.open()
    assert wheel_files(world) == files


def test_damaged_views_are_built_anew_when_they_are_distrusted(world: ShardWorld) -> None:
    publish_and_save(world, HOUR_MS)
    path = world.place.under("checkpoint")
    assert world.disk.exists(path)
    assert world.maintenance.distrust()
    assert not world.disk.exists(path)
    assert world.maintenance.distrust()


def test_damaged_views_are_kept_when_the_log_no_longer_has_them(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_and_save(world, HOUR_MS)
    monkeypatch.setattr(type(world.shard.log), "start_offset", 64)
    assert not world.maintenance.distrust()
    assert world.disk.exists(world.place.under("checkpoint"))


# --- producers


def test_producers_are_to_expire_when_one_is_idle(world: ShardWorld) -> None:
    assert world.maintenance.plan_expire_ms(world.now_ms) is None
    world.publish([world.now_ms], producer_id=7)
    world.commit()
    assert world.maintenance.plan_expire_ms(world.now_ms + HOUR_MS) is None
    assert world.maintenance.plan_expire_ms(world.now_ms + HOUR_MS + 1) == world.now_ms + 1


def test_clean_up_is_due_now_and_then(world: ShardWorld) -> None:
    now = world.now_ms
    asked = [world.maintenance.is_clean_up_due(now + ms) for ms in (0, 1, 59_999, 60_000, 60_001)]
    assert asked == [True, False, False, True, False]


# --- the floor of the sequences


def with_step(sequence_step: int) -> ShardWorld:
    """A world whose floor rises by so many messages."""
    retention = replace(CONFIG.retention, sequence_step=sequence_step)
    return ShardWorld(SimulatedDisk(), replace(CONFIG, retention=retention))


def test_floor_is_to_rise_when_what_is_past_retention_is_enough() -> None:
    world = with_step(40)
    for _ in range(32):
        world.publish([world.now_ms + DAY_MS] * 2)
        world.commit()
        world.advance(HOUR_MS // 2)
    floor = world.maintenance.plan_sequence_floor(world.now_ms)
    assert floor is None, "not enough of them yet"
    floor = world.maintenance.plan_sequence_floor(world.now_ms + 5 * HOUR_MS)
    assert floor is not None
    assert 40 <= floor <= 44, "of 22 batches, a few less where an index has no entry"
    world.mastership.trim_sequences(floor, world.now_ms)
    world.commit()
    assert world.maintenance.plan_sequence_floor(world.now_ms + 6 * HOUR_MS) is None


def test_floor_waits_for_the_topic_that_asks_for_most() -> None:
    world = with_step(1)
    for _ in range(32):
        world.publish([world.now_ms] * 3)
        world.commit()
    world.retain(TOPIC, 20 * HOUR_MS)
    world.commit()
    begun_ms = world.now_ms
    for hours in (15, 21):
        world.advance(begun_ms + hours * HOUR_MS - world.now_ms)
        world.publish([world.now_ms])
        world.commit()
        floor = world.maintenance.plan_sequence_floor(world.now_ms)
        assert (floor is not None) == (hours == 21)


def test_floor_stays_where_not_all_nodes_know_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_step(1)
    world.publish([world.now_ms] * 3)
    world.commit()
    world.publish([world.now_ms] * 3)
    world.commit()
    later_ms = world.now_ms + 11 * HOUR_MS
    world.shard.views.feature_level = TRIM_SEQUENCES_LEVEL - 1
    assert world.maintenance.plan_sequence_floor(later_ms) is None
    world.shard.views.feature_level = TRIM_SEQUENCES_LEVEL
    monkeypatch.setattr(type(world.shard.log), "find_sequence_before", lambda *_: 99)
    assert world.maintenance.plan_sequence_floor(later_ms) == 6, "never above what was given"
