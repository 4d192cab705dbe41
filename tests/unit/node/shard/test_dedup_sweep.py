"""Rows of dedup keys whose messages are past go by and by."""

import pytest

from node.shard import dedup_sweep
from node.shard.dedup_sweep import DedupSweep
from storage.views.dedup_keys import PARTS
from tests.unit.node.shard.test_checkpoint import make_world


def swept(sweep: DedupSweep) -> int:
    steps = 0
    while sweep.step():
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
    assert not sweep.step()
    monkeypatch.setattr(dedup_sweep, "GROWN_MIN", 1)
    world.publish([world.now_ms + 90_000], dedup=[7])
    world.commit()
    assert sweep.step(), "there are many more rows than after the last round"
