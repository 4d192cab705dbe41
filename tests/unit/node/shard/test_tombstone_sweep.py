"""Tombstones that nothing asks about any more go, and the others stay."""

import numpy as np
import pytest

from node.shard.recovery import ShardConfig
from node.shard.sweeps import TombstoneSweep
from storage.views.bit_pages import U64
from tests.sim.disk import SimulatedDisk
from tests.support.shard_views import check_views, rebuilt_digest
from tests.support.shard_world import ShardWorld


@pytest.fixture
def world() -> ShardWorld:
    """Sequences 0 to 5: three are past by now, and of each three one was not cancelled."""
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    world.publish([*[world.now_ms + 100] * 3, *[world.now_ms + 9_000] * 3])
    world.commit()
    world.cancel([0, 1, 3, 4])
    world.advance(200)
    return world


def marked(world: ShardWorld) -> list[int]:
    every: U64 = np.arange(world.shard.views.next_sequence, dtype=np.uint64)
    return np.flatnonzero(world.shard.views.tombstones.contains(every)).tolist()


def sweep(world: ShardWorld) -> int:
    """A whole round; how many pages it had."""
    one, count = TombstoneSweep(world.shard.views), 0
    assert not one.step(), "nothing was begun"
    one.begin()
    while one.step():
        count += 1
    return count


def raise_floor(world: ShardWorld, floor: int) -> None:
    world.mastership.trim_sequences(floor, world.now_ms)
    world.commit()


def test_sweep_leaves_everything_when_the_floor_is_below(world: ShardWorld) -> None:
    assert sweep(world) == 0
    assert marked(world) == [0, 1, 3, 4]


def test_I5_sweep_forgets_what_is_past_and_below_the_floor_and_the_digest_is_the_same(  # noqa: N802
    world: ShardWorld,
) -> None:
    raise_floor(world, 1)
    before = world.shard.views.digest()
    assert sweep(world) == 1
    assert marked(world) == [1, 3, 4]
    raise_floor(world, 6)
    assert world.shard.views.digest() != before
    before = world.shard.views.digest()
    assert sweep(world) == 1
    assert marked(world) == [3, 4], "these are not due yet"
    assert world.shard.views.digest() == before == rebuilt_digest(world.shard, world.place)
    check_views(world.shard.views, world.model)
    world.save()
    world.crash()
    assert marked(world) == [3, 4]
    world.advance(9_000)
    assert world.shard.views.cursor.released_count == 2, "1 and 5: no cancelled one came back"
    sweep(world)
    assert marked(world) == []
    assert world.shard.views.tombstones.count == 0
    world.save()
    world.restart()
    assert marked(world) == []


def test_sweep_goes_on_behind_what_it_saw_last_when_pages_are_many(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    views = world.shard.views
    monkeypatch.setattr(views.tombstones, "pages_below", lambda _: np.arange(3, 8, dtype=np.uint64))
    monkeypatch.setattr(
        views.tombstones, "members_of", lambda page: (seen.append(page), np.empty(0, np.uint64))[1]
    )
    one = TombstoneSweep(views, 2)
    for _ in range(4):
        one.begin()
        while one.step():
            pass
    assert seen == [3, 4, 5, 6, 7, 3, 4, 5]
