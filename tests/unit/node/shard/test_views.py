"""All views together: the lagged check, epochs, the digest."""

from collections.abc import Callable

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import ConfigChange, EpochState, TopicConfig
from hourwheel.types import Key
from node.shard import views as module
from node.shard.recovery import ShardConfig
from node.shard.views import Views
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import ShardWorld


def make_world() -> ShardWorld:
    """With four messages that wait and four that are released."""
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    world.publish([world.now_ms + 10_000] * 4)
    world.publish([world.now_ms] * 4)
    world.commit()
    return world


# --- the lagged check


def test_check_passes_when_the_same_was_released() -> None:
    views = make_world().shard.views
    cursor = views.cursor
    views.compare_check(views.applied_offset, cursor.released_count, cursor.released_mix)


@pytest.mark.parametrize(("count", "mixed"), [(1, 0), (0, 1)])
def test_check_stops_when_something_else_was_released(count: int, mixed: int) -> None:
    views = make_world().shard.views
    cursor = views.cursor
    with pytest.raises(errors.ReleaseMismatch, match="RELEASE_MISMATCH") as caught:
        views.compare_check(
            views.applied_offset, cursor.released_count + count, cursor.released_mix + mixed
        )
    assert caught.value.params["here"] == str((cursor.released_count, cursor.released_mix))


def test_check_says_nothing_when_the_offset_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKS_KEPT", 2)
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    offsets = []
    for _ in range(3):
        world.publish([world.now_ms])
        world.commit()
        offsets.append(world.shard.views.applied_offset)
    views = world.shard.views
    views.compare_check(offsets[0], 12_345, 0)
    with pytest.raises(errors.ReleaseMismatch):
        views.compare_check(offsets[1], 12_345, 0)


# --- epochs


def test_epochs_of_sequences_when_there_were_several() -> None:
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    for _ in range(2):
        world.publish([world.now_ms + 1_000] * 2)
        world.commit()
        world.restart()
    world.restart()  # an epoch without a message
    world.publish([world.now_ms + 1_000])
    world.commit()
    found = world.shard.views.epochs_of(np.array([4, 0, 1, 2, 3], np.uint64))
    assert found.tolist() == [4, 1, 1, 2, 2]
    for low in range(5):
        for high in range(low, 5):
            every = set(world.shard.views.epochs_of(np.arange(low, high + 1, dtype=np.uint64)))
            expected = every.pop() if len(every) == 1 else None
            assert world.shard.views.find_epoch(low, high) == expected


def test_epoch_is_zero_when_none_has_begun() -> None:
    views = make_world().shard.views
    views.epochs = []
    assert views.epochs_of(np.array([0, 7], np.uint64)).tolist() == [0, 0]
    assert views.find_epoch(0, 7) == 0


# --- the digest

Change = Callable[[ShardWorld, int], None]


def publish_later(world: ShardWorld, which: int) -> None:
    world.publish([world.now_ms + 13 * (which + 1)])


def publish_now(world: ShardWorld, which: int) -> None:
    world.publish([world.now_ms - 13 * which])


def publish_as(world: ShardWorld, which: int) -> None:
    world.publish([world.now_ms], producer_id=7 + which)


def cancel(world: ShardWorld, which: int) -> None:
    world.cancel([which])


def acknowledge(world: ShardWorld, which: int) -> None:
    delivery = world.receive(2)
    assert delivery is not None
    world.ack(delivery, which, which + 1)


def give_back(world: ShardWorld, which: int) -> None:
    delivery = world.receive(1)
    assert delivery is not None
    world.nack(delivery, 5_000 + which)


def make_topic(world: ShardWorld, which: int) -> None:
    topic = TopicConfig(topic_id=9, name="ab"[which], queue_count=1)
    world.mastership.configure(ConfigChange(put_topic=topic), world.now_ms, None)


@pytest.mark.parametrize(
    "change",
    [publish_later, publish_now, publish_as, cancel, acknowledge, give_back, make_topic],
)
def test_digest_differs_when_records_of_one_length_say_different_things(change: Change) -> None:
    digests, offsets = [], set()
    for which in (0, 1, 0):
        world = make_world()
        change(world, which)
        world.commit()
        digests.append(world.shard.views.digest())
        offsets.add(world.shard.views.applied_offset)
    assert len(offsets) == 1, "the digest must not differ for that"
    assert digests[0] == digests[2]
    assert digests[0] != digests[1]


def shift_cursor(views: Views) -> None:
    views.cursor.key = Key(views.cursor.key.due_ms, views.cursor.key.sequence + 1)


def add_epoch(views: Views) -> None:
    views.epochs.append(EpochState(epoch=9))


def bump(holder: str, name: str) -> Callable[[Views], None]:
    def change(views: Views) -> None:
        target = getattr(views, holder) if holder else views
        setattr(target, name, getattr(target, name) + 1)

    return change


@pytest.mark.parametrize(
    "change",
    [
        shift_cursor,
        add_epoch,
        bump("", "applied_offset"),
        bump("", "next_sequence"),
        bump("", "feature_level"),
        bump("cursor", "released_count"),
        bump("cursor", "released_mix"),
        bump("cursor", "local_index"),
        bump("counters", "pending"),
        bump("counters", "cancelled"),
        bump("counters", "discarded"),
    ],
)
def test_digest_differs_when_a_number_does(change: Callable[[Views], None]) -> None:
    views = make_world().shard.views
    before = views.digest()
    change(views)
    assert views.digest() != before


def test_digest_is_the_same_when_only_the_places_of_things_change() -> None:
    world = make_world()
    before = world.shard.views.digest()
    places = world.shard.views.pending_units()["dlog_id"].tolist()
    world.save()
    assert world.shard.views.pending_units()["dlog_id"].tolist() != places
    assert world.shard.views.digest() == before


# --- invariants


def test_check_finds_it_when_pending_is_miscounted() -> None:
    views = make_world().shard.views
    views.check()
    views.counters.pending += 1
    with pytest.raises(errors.InvariantViolated, match="holds what is pending"):
        views.check()


def test_check_finds_it_when_a_sequence_is_not_indexed() -> None:
    views = make_world().shard.views
    views.next_sequence += 1
    with pytest.raises(errors.InvariantViolated, match="indexed"):
        views.check()
