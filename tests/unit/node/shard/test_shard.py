"""A shard's log and proposals: appending, committing, abandoning, replaying."""

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.v1.broker_pb2 import CancelOutcome
from node.shard.dispatcher import DispatchConfig
from node.shard.recovery import ShardConfig
from node.shard.views import FEATURE_LEVEL
from tests.sim.disk import SimulatedDisk
from tests.support.log_batches import batches_of
from tests.support.shard_proposals import Token
from tests.support.shard_world import START_MS, ShardWorld


@pytest.fixture
def world() -> ShardWorld:
    return ShardWorld(SimulatedDisk(), ShardConfig())


def test_nothing_is_applied_when_it_is_not_committed(world: ShardWorld) -> None:
    shard = world.shard
    world.publish([START_MS])
    assert (shard.has_appended, shard.has_committed) == (True, False)
    assert shard.apply_some(8) == []
    world.take_write()
    world.run_write()
    assert shard.apply_some(8) == []
    world.finish_write()
    assert (shard.has_appended, shard.has_committed) == (False, True)
    assert len(shard.apply_some(8)) == 1
    assert (shard.has_appended, shard.has_committed) == (False, False)


def test_answers_come_in_order_and_in_slices_when_there_are_many(world: ShardWorld) -> None:
    tokens = [world.publish([START_MS]), world.cancel([0]), world.publish([START_MS])]
    world.take_write()
    world.run_write()
    world.finish_write()
    world.apply(2)
    assert [token.is_answered for token in tokens] == [True, True, False]
    world.apply(2)
    assert tokens[2].result[0].base_sequence == 1
    assert all(token.error is None for token in tokens)


def abandon(world: ShardWorld) -> list[Token]:
    """Let the write that was taken find no room; the tokens that were answered, in order."""
    assert world.write is not None
    error, open_tokens = errors.DiskFull("none"), [one for one in world.tokens if not one.error]
    world.replica.on_abandoned(world.shard.abandon_write(world.write), error)
    world.write = None
    answered = [token for token in open_tokens if token.error is not None]
    assert all(token.error is error and token.result is None for token in answered)
    return answered


def test_abandoned_write_never_happened_and_so_nothing_behind_it(world: ShardWorld) -> None:
    shard = world.shard
    kept = world.publish([START_MS] * 2)
    world.commit()
    end = shard.log.end_offset
    tokens = [world.publish([START_MS] * 3), world.cancel([0])]
    world.take_write()
    tokens.append(world.publish([START_MS] * 5))
    assert world.mastership.next_sequence == 10
    assert abandon(world) == tokens
    assert shard.log.end_offset == end
    assert world.mastership.next_sequence == 2
    again = world.publish([START_MS])
    world.commit()
    assert kept.result[0].base_sequence == 0
    assert again.result[0].base_sequence == 2
    shard.check()


def test_batches_stay_when_they_were_committed_before_the_abandoned_write(
    world: ShardWorld,
) -> None:
    first = world.publish([START_MS] * 2)
    world.take_write()
    world.run_write()
    world.finish_write()
    second = world.publish([START_MS])
    world.take_write()
    assert abandon(world) == [second]
    world.apply()
    assert (first.error, first.result[0].base_sequence) == (None, 0)
    assert world.mastership.next_sequence == 2


def test_dispatch_is_planned_again_when_its_write_was_abandoned(world: ShardWorld) -> None:
    shard = world.shard
    world.publish([START_MS + 2])
    world.commit()
    before = world.mastership.dispatcher.append_cursor
    assert world.mastership.dispatch_due(START_MS) == 1
    assert world.mastership.dispatch_due(START_MS) == 0, "it is under way"
    assert world.mastership.dispatches_in_flight == 1
    world.take_write()
    abandon(world)
    assert world.mastership.dispatcher.append_cursor == before
    assert world.mastership.dispatches_in_flight == 0
    assert world.mastership.dispatch_due(START_MS) == 1
    world.commit()
    assert world.mastership.dispatches_in_flight == 0
    assert shard.views.cursor.released_count == 1


def test_two_dispatches_are_planned_again_when_both_were_abandoned(world: ShardWorld) -> None:
    shard = world.shard
    world.publish([START_MS + 2, START_MS + 30])
    world.commit()
    before = world.mastership.dispatcher.append_cursor
    assert world.mastership.dispatch_due(START_MS) == 1
    world.take_write()
    assert world.mastership.dispatch_due(START_MS + 25) == 1
    abandon(world)
    assert world.mastership.dispatcher.append_cursor == before
    world.advance(25)
    assert shard.views.cursor.released_count == 2


def test_cancel_knows_no_message_when_the_id_is_of_another_shard(world: ShardWorld) -> None:
    world.publish([START_MS + 1_000])
    world.commit()
    ids = np.zeros(2, ID_DTYPE)
    ids["due_ms"], ids["epoch"], ids["shard"] = START_MS + 1_000, world.mastership.epoch, [1, 0]
    token = Token("cancel", world.shard.log.end_offset)
    world.mastership.cancel(ids, world.now_ms, token)
    world.commit()
    assert token.result.tolist() == [
        CancelOutcome.CANCEL_OUTCOME_UNKNOWN,
        CancelOutcome.CANCEL_OUTCOME_CANCELLED,
    ]


def test_shard_goes_on_where_its_log_ends_when_replayed(world: ShardWorld) -> None:
    world.publish([START_MS, START_MS + 5, START_MS + 10_000])
    world.commit()
    world.advance(10)
    cursor = world.shard.views.cursor.key
    world.disk.kill()
    world.open()
    assert world.mastership.dispatcher.append_cursor == cursor
    assert world.mastership.next_sequence == 3
    assert not world.shard.applier.take_touched().are_some
    token = world.publish([START_MS])
    world.commit()
    assert token.result[0].base_sequence == 3


def test_feature_level_is_written_once_when_epochs_follow(world: ShardWorld) -> None:
    assert world.shard.views.feature_level == FEATURE_LEVEL
    before = len(batches_of(world.shard.log))
    world.restart()
    assert before > 1
    assert len(batches_of(world.shard.log)) == before + 1, "the epoch alone"


def test_check_finds_it_when_more_is_applied_than_committed(world: ShardWorld) -> None:
    world.shard.check()
    world.shard.views.applied_offset = world.shard.log.end_offset + 8
    with pytest.raises(errors.InvariantViolated, match="applied <= flushed"):
        world.shard.check()


def test_dispatches_in_flight_are_few_however_many_messages_are_due() -> None:
    config = ShardConfig(dispatch=DispatchConfig(units_max=4))
    world = ShardWorld(SimulatedDisk(), config)
    world.publish([START_MS + 1] * 30)
    world.commit()
    counts = []
    while world.shard.views.cursor.released_count < 30:
        while world.mastership.may_dispatch_more and world.mastership.dispatch_due(START_MS):
            pass
        counts.append(world.mastership.dispatches_in_flight)
        world.commit()
        assert len(counts) < 30
    assert counts == [2, 2, 2, 2], "twice as many units as one releases, and no more"
