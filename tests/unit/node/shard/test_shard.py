"""A shard's log and proposals: appending, committing, abandoning, replaying."""

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.v1.broker_pb2 import CancelOutcome
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
    first, second = world.shard.apply_some(2), world.shard.apply_some(2)
    assert [answer.token for answer in first] == tokens[:2]
    assert [answer.token for answer in second] == tokens[2:]
    assert second[0].verdict[0].base_sequence == 1
    assert all(answer.error is None for answer in [*first, *second])


def abandon(world: ShardWorld) -> list[Token]:
    """Let the write that was taken find no room; the tokens that were answered, in order."""
    assert world.write is not None
    error = errors.DiskFull("none")
    answers = world.shard.abandon_write(world.write, error)
    world.write = None
    assert all(answer.error is error for answer in answers)
    assert all(answer.verdict is None for answer in answers)
    return [answer.token for answer in answers]


def test_abandoned_write_never_happened_and_so_nothing_behind_it(world: ShardWorld) -> None:
    shard = world.shard
    kept = world.publish([START_MS] * 2)
    world.commit()
    end = shard.log.end_offset
    tokens = [world.publish([START_MS] * 3), world.cancel([0])]
    world.take_write()
    tokens.append(world.publish([START_MS] * 5))
    assert shard.next_sequence == 10
    assert abandon(world) == tokens
    assert shard.log.end_offset == end
    assert shard.next_sequence == 2
    again = world.publish([START_MS])
    world.commit()
    assert kept.verdict[0].base_sequence == 0
    assert again.verdict[0].base_sequence == 2
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
    assert [answer.token for answer in world.shard.apply_some(8)] == [first]
    assert world.shard.next_sequence == 2


def test_dispatch_is_planned_again_when_its_write_was_abandoned(world: ShardWorld) -> None:
    shard = world.shard
    world.publish([START_MS + 2])
    world.commit()
    before = shard.dispatcher.append_cursor
    assert shard.dispatch_due(START_MS) == 1
    assert shard.dispatch_due(START_MS) == 0, "it is under way"
    assert shard.dispatches_in_flight == 1
    world.take_write()
    abandon(world)
    assert shard.dispatcher.append_cursor == before
    assert shard.dispatches_in_flight == 0
    assert shard.dispatch_due(START_MS) == 1
    world.commit()
    assert shard.dispatches_in_flight == 0
    assert shard.views.cursor.released_count == 1


def test_two_dispatches_are_planned_again_when_both_were_abandoned(world: ShardWorld) -> None:
    shard = world.shard
    world.publish([START_MS + 2, START_MS + 30])
    world.commit()
    before = shard.dispatcher.append_cursor
    assert shard.dispatch_due(START_MS) == 1
    world.take_write()
    assert shard.dispatch_due(START_MS + 25) == 1
    abandon(world)
    assert shard.dispatcher.append_cursor == before
    world.advance(25)
    assert shard.views.cursor.released_count == 2


def test_cancel_knows_no_message_when_the_id_is_of_another_shard(world: ShardWorld) -> None:
    world.publish([START_MS + 1_000])
    world.commit()
    ids = np.zeros(2, ID_DTYPE)
    ids["due_ms"], ids["epoch"], ids["shard"] = START_MS + 1_000, world.shard.epoch, [1, 0]
    token = Token("cancel", world.shard.log.end_offset)
    world.shard.cancel(ids, world.now_ms, token)
    world.commit()
    assert token.verdict.tolist() == [
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
    assert world.shard.dispatcher.append_cursor == cursor
    assert world.shard.next_sequence == 3
    assert world.shard.applier.touched == set()
    token = world.publish([START_MS])
    world.commit()
    assert token.verdict[0].base_sequence == 3


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
