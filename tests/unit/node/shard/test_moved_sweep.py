"""Rows of moved messages that nothing asks about any more go, and the others stay."""

from node.shard.recovery import ShardConfig
from node.shard.sweeps import MovedSweep
from tests.sim.disk import SimulatedDisk
from tests.support.shard_views import check_views, rebuilt_digest
from tests.support.shard_world import ShardWorld


def test_sweep_forgets_what_has_no_entry_ahead_and_the_digest_is_the_same() -> None:
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    now_ms = world.now_ms
    world.publish([now_ms + 100, now_ms + 9_000, now_ms + 9_000])
    world.commit()
    # Later and past by then; sooner, with an entry ahead; into the future.
    world.reschedule([0, 1, 2], [now_ms + 150, now_ms + 160, now_ms + 20_000])
    world.commit()
    world.advance(500)
    views = world.shard.views
    sweep = MovedSweep(views)
    assert not sweep.step(), "nothing was begun"
    before = views.digest()
    assert views.moved.sequences().tolist() == [0, 1, 2]
    sweep.begin()
    sweep.begin()  # the last round still goes on
    assert sweep.step()
    assert not sweep.step()
    assert views.moved.sequences().tolist() == [1, 2]
    assert views.digest() == before == rebuilt_digest(world.shard, world.place)
    check_views(views, world.model)
    world.reschedule([0, 1, 2], [now_ms + 1_000] * 3)
    world.commit()
    assert [outcome for outcome, _ in world.tokens[-1].result.tolist()] == [2, 2, 1]
