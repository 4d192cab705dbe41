"""Rows of dedup keys whose messages are past go by and by."""

import pytest

from hourwheel import limits
from node.shard import sweeps
from node.shard.sweeps import DedupSweep
from storage.views.dedup_keys import PARTS
from tests.unit.node.shard.test_checkpoint import make_world


def swept(sweep: DedupSweep, now_ms: int = 0) -> int:
    steps = 0
    while sweep.step(now_ms):
        steps += 1
    return steps


def test_rows_when_their_messages_are_released_go(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    keys = world.shard.views.dedup_keys
    sweep = DedupSweep(world.shard.views)
    world.publish([world.now_ms + 100, world.now_ms + 90_000], dedup=[1, 4])
    world.commit()
    assert keys.count == 2
    sweep.begin()
    assert swept(sweep) == PARTS
    assert keys.count == 2
    before = world.shard.views.digest()
    world.advance(200)
    digest = world.shard.views.digest()
    sweep.begin()
    swept(sweep)
    assert keys.count == 1
    assert world.shard.views.digest() == digest != before
    assert not sweep.step(0)
    monkeypatch.setattr(sweeps, "DEDUP_GROWN_MIN", 1)
    world.publish([world.now_ms + 90_000], dedup=[7])
    world.commit()
    assert sweep.step(0), "there are many more rows than after the last round"


def test_rounds_when_nearly_all_places_are_taken_go_on_with_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "DEDUP_NEARLY_FULL_MIN", 3)
    world = make_world()
    keys = world.shard.views.dedup_keys
    due_ms = world.now_ms + 100
    world.publish([due_ms] * 3, dedup=[1, 4, 7])
    world.commit()
    sweep = DedupSweep(world.shard.views)
    assert swept(sweep, 1_000) == PARTS, "a round and no more: all of them are pending"
    assert keys.count == 3
    world.advance(200)
    assert swept(sweep, 1_000 + sweeps.DEDUP_REST_MS - 1) == 0
    assert swept(sweep, 1_000 + sweeps.DEDUP_REST_MS) == PARTS
    assert keys.count == 0


def test_no_call_brings_more_keys_than_there_are_places_when_a_round_begins() -> None:
    places = limits.DEDUP_KEY_COUNT_MAX - sweeps.DEDUP_NEARLY_FULL_MIN
    assert places >= limits.BATCH_MESSAGE_COUNT_MAX


def test_rows_that_a_restart_brings_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "DEDUP_GROWN_MIN", 2)
    world = make_world()
    world.publish([world.now_ms + 100] * 2, dedup=[1, 4])
    world.commit()
    world.advance(200)
    swept(DedupSweep(world.shard.views))
    assert world.shard.views.dedup_keys.count == 0
