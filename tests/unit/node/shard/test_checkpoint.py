"""Checkpoints: what the manifest says, and what is loaded from it."""

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import pytest

from hourwheel import errors
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import Checkpoint, ConfigChange, TopicConfig
from node.shard.checkpoint import (
    MANIFEST,
    check_delay_logs,
    hour_level_end,
    load_views,
    run_state,
    small_state,
    write_manifest,
)
from node.shard.recovery import ShardConfig
from node.shard.views import FEATURE_LEVEL
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import START_MS, ShardWorld
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.run_format import delay_log_path
from timewheel.wheel import WheelConfig

DELETED = 9


def make_world() -> ShardWorld:
    """A shard of whose state nothing is empty, but for what was thrown away."""
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    now = world.now_ms
    world.publish([now - 1, now, now + 50, now + HOUR_MS, now + 5 * DAY_MS], producer_id=7)
    world.publish([now + HOUR_MS] * 4)
    world.commit()
    world.cancel([5])
    world.advance(60)
    delivery = world.receive(1)
    assert delivery is not None
    world.ack(delivery)
    world.commit()
    return world


def discard_one(world: ShardWorld) -> None:
    """Count a message of a deleted topic (by hand: the model beside the shard knows none)."""
    catalog = world.shard.views.catalog
    put = ConfigChange(put_topic=TopicConfig(topic_id=DELETED, name="gone", queue_count=1))
    assert catalog.apply(put)
    assert catalog.apply(ConfigChange(delete_topic_id=DELETED))
    world.shard.views.counters.discarded += 1


def test_every_field_is_the_same_when_loaded_again() -> None:
    world = make_world()
    discard_one(world)
    world.save()
    manifest = world.maintenance.manifest
    views, loaded = load_views(world.place, WheelConfig())
    assert loaded == manifest
    assert small_state(views) == small_state(world.shard.views)
    assert views.queues.state() == world.shard.views.queues.state()
    assert views.catalog.capture()() == world.shard.views.catalog.capture()()
    assert list(views.acks.capture()()) == list(manifest.acks)
    assert list(views.producers.capture()()) == list(manifest.producers)
    assert views.tombstones.state.valid_bytes == manifest.tombstone_bytes
    assert views.catalog.next_topic_id == DELETED + 1
    assert views.store_ms == world.shard.views.store_ms
    assert views.digest() == world.shard.views.digest()


def test_no_field_of_the_manifest_is_left_out_when_there_is_something_to_say() -> None:
    world = make_world()
    discard_one(world)
    world.is_tagged, world.expires_after_ms = True, 1
    world.publish([world.now_ms + 5_000], dedup=[1])
    world.publish([world.now_ms + at for at in range(10, 20)])
    world.mastership.trim_sequences(1, world.now_ms)
    world.commit()
    world.reschedule([world.shard.views.next_sequence - 1], [world.now_ms + 5_000])
    world.recur("orders\nnightly", "put")
    adopt = ConfigChange(adopt_control_state=True, control_revision=1)
    world.mastership.configure(adopt, world.now_ms, None)
    world.commit()
    with ExitStack() as few:
        for place in ("storage.views.transactions", "chaos.log_parts.deals"):
            few.enter_context(mock.patch(f"{place}.TRANSACTIONS_DECIDED_MAX", 1))
        for token in (1, 2, 3):
            world.prepare([world.now_ms + 5], token)
            world.commit()
        world.transact([*world.model.deals.known][:2], Step.ROLL_BACK)
        world.commit()
    world.save()
    said = {field.name for field, _ in world.maintenance.manifest.ListFields()}
    every = {field.name for field in Checkpoint.DESCRIPTOR.fields}
    assert every - said <= {"tombstone_file"}, "the first file is number 0"


def test_manifest_names_the_runs_and_their_delay_logs() -> None:
    world = make_world()
    world.save()
    runs, manifest = world.shard.views.wheel.runs.all(), world.maintenance.manifest
    assert sorted(run.footer.level for run in runs) == [0, 1]
    assert list(manifest.runs) == [run_state(run) for run in runs]
    cancelled = world.shard.views.counters.cancelled
    assert sum(run.unit_count for run in manifest.runs) == manifest.pending_count + cancelled
    for log in manifest.delay_logs:
        path = delay_log_path(world.place.under("wheel"), log.delay_log_id)
        assert world.disk.open(path).size() == log.bytes
    assert manifest.next_run_id > max(run.run_id for run in manifest.runs)


def test_manifest_says_what_was_when_the_job_began_although_it_runs_later() -> None:
    world = make_world()
    world.begin_job(save=True)
    before = small_state(world.shard.views)
    digest = world.shard.views.digest()
    delivery = world.receive(1)
    assert delivery is not None
    world.ack(delivery)
    world.publish([world.now_ms, world.now_ms + HOUR_MS], producer_id=8)
    world.commit()
    world.cancel([3])
    world.commit()
    world.end_job()
    assert world.maintenance.manifest.applied_offset == before.applied_offset
    world.disk.kill()
    views, _ = load_views(world.place, WheelConfig())
    assert small_state(views) == before
    assert views.digest() == digest


def test_checkpoint_copies_only_what_came_since_the_one_before() -> None:
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    world.publish([world.now_ms + HOUR_MS] * 100)
    world.commit()
    world.save()
    first = list(world.maintenance.manifest.runs)
    world.publish([world.now_ms + HOUR_MS] * 3)
    world.commit()
    world.save()
    runs = list(world.maintenance.manifest.runs)
    assert runs[:1] == first
    assert [run.unit_count for run in runs] == [100, 3]


def test_views_are_empty_when_there_is_no_manifest() -> None:
    world = make_world()
    world.disk.kill()
    views, manifest = load_views(world.place, WheelConfig())
    assert manifest == Checkpoint()
    assert (views.applied_offset, views.next_sequence, len(views.pending_units())) == (0, 0, 0)


@pytest.mark.parametrize("field", ["unit_count", "level"])
def test_run_is_refused_when_the_manifest_means_another(field: str) -> None:
    world = make_world()
    world.save()
    manifest = world.maintenance.manifest
    setattr(manifest.runs[0], field, getattr(manifest.runs[0], field) + 1)
    write_manifest(world.place, manifest)
    with pytest.raises(errors.CorruptFile, match="not the one"):
        load_views(world.place, WheelConfig())


def test_manifest_is_refused_when_a_later_version_made_it() -> None:
    """Restored, and with the log behind it unread, it would look like one of ours."""
    world = make_world()
    world.save()
    manifest = Checkpoint()
    manifest.CopyFrom(world.maintenance.manifest)
    manifest.feature_level = FEATURE_LEVEL + 1
    write_manifest(world.place, manifest)
    with pytest.raises(errors.IncompatibleFormat, match="feature level"):
        load_views(world.place, WheelConfig())


def test_manifest_is_refused_when_a_bit_of_it_flipped() -> None:
    world = make_world()
    world.save()
    world.disk.flip_bit(world.place.under(MANIFEST), 100)
    with pytest.raises(errors.CorruptFile):
        load_views(world.place, WheelConfig())


def remove(world: ShardWorld, path: str) -> None:
    world.disk.remove(path)


def shorten(world: ShardWorld, path: str) -> None:
    file = world.disk.open(path)
    file.truncate(file.size() - 1)


def damage_header(world: ShardWorld, path: str) -> None:
    world.disk.flip_bit(path, 8)


@pytest.mark.parametrize("harm", [remove, shorten, damage_header])
def test_delay_log_is_missed_when_it_is_demanded(harm: Callable[[ShardWorld, str], None]) -> None:
    world = make_world()
    world.save()
    manifest = world.maintenance.manifest
    check_delay_logs(world.place, manifest, demand_all=True)
    number = manifest.delay_logs[0].delay_log_id
    path = delay_log_path(world.place.under("wheel"), number)
    harm(world, path)
    check_delay_logs(world.place, manifest, demand_all=False)
    with pytest.raises(errors.CorruptFile) as caught:
        check_delay_logs(world.place, manifest, demand_all=True)
    assert caught.value.params["file"] == path


def test_hour_level_ends_so_many_days_after_today() -> None:
    today = START_MS // DAY_MS
    assert hour_level_end(today * DAY_MS, 2) == today + 2
    assert hour_level_end(today * DAY_MS + DAY_MS - 1, 2) == today + 2
