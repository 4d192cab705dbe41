"""What each kind of record does to the views, on a shard driven by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.record_batch import (
    FEATURE_LEVEL_ROW,
    RESOLVE_ROW,
    TRIM_SEQUENCES_ROW,
    Kind,
    Outcome,
    RecordBatch,
    Stamp,
    build_blob,
    build_rows,
    stamp,
)
from hourwheel.internal.v1.state_pb2 import ConfigChange
from hourwheel.v1.broker_pb2 import CancelOutcome
from node.delivery.resolve_rows import ack_rows, filtered_rows, redrive_rows
from node.shard.group_queue import GroupQueue
from node.shard.recovery import ShardConfig
from node.shard.views import FEATURE_LEVEL, FEATURE_LEVEL_MIN
from storage.views.sequence_index import SlotState
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import ATTEMPTS_MAX, GROUP, LETTERS, QUEUES, RETRIES, TOPIC
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes

CANCELLED = int(CancelOutcome.CANCEL_OUTCOME_CANCELLED)
RELEASED = int(CancelOutcome.CANCEL_OUTCOME_ALREADY_RELEASED)
UNKNOWN = int(CancelOutcome.CANCEL_OUTCOME_UNKNOWN)
EXPIRED = int(CancelOutcome.CANCEL_OUTCOME_EXPIRED)


@pytest.fixture
def world() -> ShardWorld:
    return ShardWorld(SimulatedDisk(), ShardConfig())


def states(world: ShardWorld) -> list[int]:
    """SlotState of each sequence."""
    views = world.shard.views
    every = np.arange(views.next_sequence, dtype=np.uint64)
    return [int(state) for state in views.sequences.read_many(every)[1]]


def queued(world: ShardWorld, number: int) -> list[tuple[int, int]]:
    """(sequence, attempt) of each entry of a queue."""
    queue = world.shard.views.queues.get(number)
    found: list[tuple[int, int]] = []
    at = int(queue.start_position)
    while at < queue.end_position:
        units = queue.read(at, queue.end_position - at)
        found += zip(units["sequence"].tolist(), units["attempt"].tolist(), strict=True)
        at += len(units)
    return found


def stamped(world: ShardWorld, raw: bytes, **changes: int) -> RecordBatch:
    """A batch as the shard would append it next, but for `changes` of the stamp."""
    views = world.shard.views
    at = Stamp(views.applied_offset, views.next_sequence, world.now_ms, 0, world.mastership.epoch)
    return RecordBatch.from_pieces(*stamp(RecordBatch(raw), at._replace(**changes)))


# --- the release rule


def test_message_is_released_by_apply_when_due_at_its_store_time(world: ShardWorld) -> None:
    world.publish([world.now_ms, world.now_ms - 5])
    world.commit()
    assert states(world) == [SlotState.RELEASED_AT_APPLY] * 2
    assert queued(world, QUEUES[0]) == [(0, 1)]
    assert queued(world, QUEUES[1]) == [(1, 1)]
    assert world.shard.views.counters.pending == 0
    assert world.shard.views.cursor.released_count == 2


def test_message_waits_in_the_wheel_when_due_a_millisecond_after_its_store_time(
    world: ShardWorld,
) -> None:
    world.publish([world.now_ms + 1])
    world.commit()
    assert states(world) == [SlotState.WHEEL]
    assert queued(world, QUEUES[0]) == []
    assert world.shard.views.counters.pending == 1


def test_message_is_released_by_apply_when_the_cursor_has_passed_its_due_time(
    world: ShardWorld,
) -> None:
    world.publish([world.now_ms + 3])
    world.commit()
    world.tick()
    assert world.shard.views.cursor.key.due_ms >= world.now_ms + 3
    world.publish([world.now_ms + 2])
    world.commit()
    assert states(world) == [SlotState.WHEEL, SlotState.RELEASED_AT_APPLY]
    assert queued(world, QUEUES[0]) == [(0, 1), (1, 1)]


def test_queue_keeps_the_order_of_the_batch_when_messages_alternate(world: ShardWorld) -> None:
    world.publish([world.now_ms] * 5)
    world.commit()
    assert [one for one, _ in queued(world, QUEUES[0])] == [0, 2, 4]
    assert [one for one, _ in queued(world, QUEUES[1])] == [1, 3]
    assert world.shard.applier.take_touched().grown == set(QUEUES)


def test_sequences_are_void_when_the_batch_is_a_duplicate(world: ShardWorld) -> None:
    for _ in range(2):
        token = world.publish([world.now_ms] * 2, producer_id=7, producer_sequence=0)
        world.commit()
    assert token.result[0].duplicate
    assert token.result[0].base_sequence == 0
    assert states(world)[2:] == [SlotState.REJECTED] * 2
    assert queued(world, QUEUES[0]) == [(0, 1)]


# --- dispatch


def test_dispatch_releases_in_key_order_when_published_in_another(world: ShardWorld) -> None:
    now = world.now_ms
    world.publish([now + 50, 0, now + 40, 0, now + 50, 0])
    world.commit()
    world.advance(100)
    assert [one for one, _ in queued(world, QUEUES[0])] == [2, 0, 4]


def test_dispatch_leaves_out_what_is_cancelled(world: ShardWorld) -> None:
    world.publish([world.now_ms + 100] * 4)
    world.commit()
    world.cancel([0, 3])
    world.commit()
    world.advance(200)
    assert queued(world, QUEUES[0]) == [(2, 1)]
    assert queued(world, QUEUES[1]) == [(1, 1)]
    assert world.shard.views.counters.pending == 0
    assert world.shard.views.cursor.released_count == 2


def test_dispatch_discards_messages_when_their_topic_is_deleted(world: ShardWorld) -> None:
    world.publish([world.now_ms + 100] * 3)
    world.commit()
    change = ConfigChange(delete_topic_id=TOPIC)
    blob = change.SerializeToString(deterministic=True)
    apply = world.shard.applier.apply  # of the views alone: the model knows no deletions
    assert apply(stamped(world, build_blob(Kind.CONFIG, blob)))
    planned = world.mastership.dispatcher.plan(world.shard.views, world.now_ms + 200)
    assert planned is not None
    assert apply(stamped(world, planned)) == 0
    counters = world.shard.views.counters
    assert (counters.discarded, counters.pending) == (3, 0)
    assert world.shard.views.cursor.released_count == 0
    assert world.shard.views.queues.topic_queues() == []


def test_dispatch_stops_when_it_does_not_follow_the_one_before(world: ShardWorld) -> None:
    world.publish([world.now_ms + 3])
    world.commit()
    planned = world.mastership.dispatcher.plan(world.shard.views, world.now_ms)
    assert planned is not None
    world.shard.applier.apply(stamped(world, planned))
    with pytest.raises(errors.InvariantViolated, match="dispatches follow"):
        world.shard.applier.apply(stamped(world, planned))


# --- cancel


def outcomes(world: ShardWorld, sequences: list[int], **forged: int) -> list[int]:
    world.commit()
    token = world.cancel(sequences, **forged)
    world.commit()
    found: list[int] = token.result.tolist()
    return found


def test_cancel_takes_a_message_out_when_it_waits(world: ShardWorld) -> None:
    world.publish([world.now_ms + 100] * 2)
    assert outcomes(world, [1]) == [CANCELLED]
    assert world.shard.views.counters.pending == 1
    assert outcomes(world, [1]) == [CANCELLED]
    world.advance(200)
    world.publish([world.now_ms])  # never waits
    assert outcomes(world, [0, 1, 2]) == [RELEASED, CANCELLED, RELEASED]
    assert world.shard.views.counters.cancelled == 1


def test_cancel_counts_a_message_once_when_ids_repeat(world: ShardWorld) -> None:
    world.publish([world.now_ms + 100] * 2)
    assert outcomes(world, [0, 1, 0, 0]) == [CANCELLED] * 4
    counters = world.shard.views.counters
    assert (counters.cancelled, counters.pending) == (2, 0)


@pytest.mark.parametrize("forged", [{"due_shift_ms": 1}, {"due_shift_ms": -1}, {"epoch_shift": 1}])
def test_cancel_knows_no_such_message_when_the_id_is_forged(
    world: ShardWorld, forged: dict[str, int]
) -> None:
    world.publish([world.now_ms + 100])
    assert outcomes(world, [0, 5], **forged) == [UNKNOWN, UNKNOWN]
    assert world.shard.views.counters.pending == 1
    assert outcomes(world, [5, 0]) == [UNKNOWN, CANCELLED]


def trim_sequences(world: ShardWorld, floor: int) -> None:
    world.mastership.trim_sequences(floor, world.now_ms)
    world.commit()


def test_I6_cancel_below_the_floor_knows_what_is_not_past_and_nothing_else(  # noqa: N802
    world: ShardWorld,
) -> None:
    world.publish([world.now_ms, *[world.now_ms + 100] * 2, *[world.now_ms + 9_000] * 3])
    assert outcomes(world, [1, 4]) == [CANCELLED, CANCELLED]
    world.advance(200)
    world.publish([world.now_ms])
    trim_sequences(world, 6)
    assert outcomes(world, [0, 1, 2]) == [EXPIRED] * 3, "released at once, cancelled, released"
    assert outcomes(world, [3, 4]) == [CANCELLED] * 2, "pending until now; cancelled before"
    assert outcomes(world, [6, 7]) == [RELEASED, UNKNOWN], "at the floor, and above all"
    assert outcomes(world, [3], due_shift_ms=1) == [EXPIRED], "there may have been such a one"
    assert outcomes(world, [3], epoch_shift=1) == [EXPIRED]
    assert outcomes(world, [7], epoch_shift=1) == [UNKNOWN]
    assert world.shard.views.counters.pending == 1
    world.advance(9_000)
    assert outcomes(world, [3, 4, 5]) == [EXPIRED] * 3
    assert world.shard.views.cursor.released_count == 4


def test_cancel_below_the_floor_does_not_know_another_shards_id(world: ShardWorld) -> None:
    world.publish([world.now_ms])
    trim_sequences(world, 1)
    own = world.model.epoch_of(0)
    assert outcomes(world, [0], epoch_shift=-own) == [UNKNOWN]


def test_floor_of_the_sequences_never_falls_and_stays_below_what_was_given(
    world: ShardWorld,
) -> None:
    world.publish([world.now_ms] * 3)
    for floor, found in ((2, 2), (1, 2), (3, 3)):
        trim_sequences(world, floor)
        assert world.shard.views.sequence_floor == found
    beyond = build_rows(Kind.TRIM_SEQUENCES, np.array([(4,)], TRIM_SEQUENCES_ROW))
    with pytest.raises(errors.InvariantViolated):
        world.shard.applier.apply(stamped(world, beyond))


# --- resolve


def deliver(world: ShardWorld, count: int = 1) -> Any:
    """Messages of one queue, leased."""
    world.publish([world.now_ms] * (2 * count))
    world.commit()
    delivery = world.receive(count)
    assert delivery is not None
    return delivery


def test_resolve_counts_only_what_was_unresolved_when_acknowledged_twice(world: ShardWorld) -> None:
    delivery = deliver(world, 4)
    first, whole, again = world.ack(delivery, 1, 3), world.ack(delivery), world.ack(delivery)
    world.commit()
    assert [first.result, whole.result, again.result] == [[2], [2], [0]]
    assert world.shard.views.acks.get(*delivery.lease.group_queue).floor == delivery.lease.end


def test_resolve_brings_messages_back_with_their_attempt_counted_when_retried(
    world: ShardWorld,
) -> None:
    delivery = deliver(world, 2)
    world.nack(delivery, 500)
    world.commit()
    sequences = delivery.units["sequence"].tolist()
    pending = world.shard.views.pending_units()
    assert pending["due_ms"].tolist() == [world.now_ms + 500] * 2
    world.advance(500)
    assert queued(world, RETRIES << 8) == [(one, 2) for one in sequences]
    assert world.shard.views.counters.redelivered == 2


def test_resolve_makes_a_dead_letter_when_asked(world: ShardWorld) -> None:
    delivery = deliver(world)
    world.bury(delivery)
    world.commit()
    assert queued(world, LETTERS << 8) == [(int(delivery.units["sequence"][0]), 1)]
    assert world.shard.views.counters.dead_lettered == 1


def test_resolve_makes_a_dead_letter_when_the_attempts_are_used_up(world: ShardWorld) -> None:
    world.publish([world.now_ms])
    world.commit()
    for attempt in range(1, ATTEMPTS_MAX + 1):
        assert queued(world, LETTERS << 8) == []
        delivery = world.receive()
        assert delivery is not None
        assert delivery.units["attempt"].tolist() == [attempt]
        world.nack(delivery, 0)
        world.commit()
    assert queued(world, LETTERS << 8) == [(0, ATTEMPTS_MAX)]
    assert world.receive() is None


def test_redrive_gives_dead_letters_back_once(world: ShardWorld) -> None:
    delivery = deliver(world, 3)
    world.bury(delivery)
    world.commit()
    sequences = delivery.units["sequence"].tolist()
    first, again = world.redrive(1, 1), world.redrive(0, 9)
    world.commit()
    assert [first.result, again.result] == [[1], [2]]
    pending = world.shard.views.pending_units()
    assert pending["due_ms"].tolist() == [world.now_ms + 500] * 3
    world.advance(500)
    assert queued(world, RETRIES << 8) == [(one, 2) for one in sequences]
    world.redrive(0, 9)
    world.commit()
    assert not len(world.shard.views.pending_units()), "nothing is left to be re-driven"


def test_redriven_message_counts_its_attempts_anew(world: ShardWorld) -> None:
    world.publish([world.now_ms])
    world.commit()
    delivery = world.receive()
    assert delivery is not None
    world.bury(delivery)
    world.commit()
    world.redrive(0, 1)
    world.commit()
    world.advance(500)
    for attempt in range(2, ATTEMPTS_MAX + 1):
        given = world.receive()
        assert given is not None
        assert given.units["attempt"].tolist() == [attempt]
        world.nack(given, 0)
        world.commit()
    letters = queued(world, LETTERS << 8)
    assert [attempt for _, attempt in letters] == [1, ATTEMPTS_MAX], "it is one again"


def test_redrive_of_what_the_group_reads_no_more_leaves_it_dead(world: ShardWorld) -> None:
    delivery = deliver(world)
    world.bury(delivery)
    world.delete_topic(RETRIES)  # and the subscription with it
    token = world.redrive(0, 1)
    world.commit()
    assert token.result == [1]
    sequence = int(delivery.units["sequence"][0])
    assert queued(world, LETTERS << 8) == [(sequence, 1), (sequence, 1)]
    assert world.redrive(1, 1) is not None, "the one behind the others can still be re-driven"


def test_redrive_does_nothing_to_other_queues_or_for_strangers(world: ShardWorld) -> None:
    world.bury(deliver(world))
    world.commit()
    places = [(GROUP, QUEUES[0]), (GROUP, RETRIES << 8), (GROUP + 1, LETTERS << 8), (GROUP, 0)]
    tokens = [
        world.resolve(redrive_rows(GroupQueue.of(*place), [(0, 5)], world.now_ms))
        for place in places
    ]
    world.commit()
    assert [token.result for token in tokens] == [[0]] * len(places)


@pytest.mark.parametrize(("window", "is_freed"), [(8, False), (6, True)])
def test_acknowledgement_frees_a_queue_only_when_a_window_may_have_been_full(
    world: ShardWorld,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    is_freed: bool,
) -> None:
    monkeypatch.setattr("node.shard.apply.WINDOW_POSITIONS", window)
    world.publish([world.now_ms] * 8)  # four in each queue
    world.commit()
    world.shard.applier.take_touched()
    world.resolve(ack_rows(GroupQueue(GROUP, QUEUES[0]), [(0, 1)]))
    world.commit()
    assert world.shard.applier.take_touched().freed == ({QUEUES[0]} if is_freed else set())


def test_resolve_does_nothing_when_the_group_does_not_read_the_queue(world: ShardWorld) -> None:
    deliver(world)
    strangers = [GroupQueue(GROUP + 1, QUEUES[0]), GroupQueue(GROUP, 99 << 8)]
    tokens = [world.resolve(ack_rows(held, [(0, 1)])) for held in strangers]
    tokens.append(
        world.resolve(ack_rows(GroupQueue(GROUP, QUEUES[0]), [(0, 1_000), (5_000, 6_000)]))
    )
    world.commit()
    assert [token.result for token in tokens] == [[0], [0], [1, 0]], "the queue has one entry"


def test_resolve_leaves_nothing_behind_when_filtered(world: ShardWorld) -> None:
    delivery = deliver(world, 2)
    world.model.filters[GROUP, TOPIC] = [FilterExpression.tags("nothing")]
    token = world.resolve(filtered_rows(delivery.lease.group_queue, delivery.lease.ranges(0, 2)))
    world.commit()
    assert (token.result, world.shard.views.counters.pending) == ([2], 0)
    assert queued(world, LETTERS << 8) == []


def finish(
    rows: Any, *, at_once: bool, is_trimmed: bool
) -> tuple[list[int], Any, list[tuple[int, int]]]:
    """What a record of these rows does, or a record for each of them."""
    with small_sizes(16):
        world = ShardWorld(SimulatedDisk(), ShardConfig())
    world.publish([world.now_ms] * 40)
    world.commit()
    early, world.now_ms = world.now_ms, world.now_ms + 1_000
    world.publish([world.now_ms] * 80)
    world.commit()
    if is_trimmed:
        world.mastership.trim(early + 1, world.now_ms)
        world.commit()
    assert world.shard.views.queues.bounds(QUEUES[0]) == (16 if is_trimmed else 0, 60)
    world.model.filters[GROUP, TOPIC] = [FilterExpression.tags("nothing")]
    tokens = [world.resolve(one) for one in ([rows] if at_once else rows.reshape(-1, 1))]
    world.commit()
    window = world.shard.views.acks.get(GROUP, QUEUES[0])
    results = [count for token in tokens for count in token.result]
    return results, (window.floor, window.ranges()), queued(world, RETRIES << 8)


@pytest.mark.parametrize("seed", range(30))
def test_resolve_of_many_rows_does_what_each_of_them_does(seed: int) -> None:
    chooser = np.random.default_rng(seed)
    cuts = np.unique(chooser.integers(0, [70, 150][seed % 2], 50))
    rows = np.zeros(len(cuts) - 1, RESOLVE_ROW)
    rows["group_id"], rows["topic_queue"] = GROUP, QUEUES[0]
    rows["first_position"], rows["count"] = cuts[:-1], np.diff(cuts)
    if seed % 3 == 1:  # they are no neighbours, but ascend
        rows["count"] -= chooser.integers(0, 2, len(rows), np.uint32)
    rows["outcome"] = chooser.choice([Outcome.ACK, Outcome.FILTERED], len(rows))
    odd = chooser.random(len(rows)) < [0.0, 0.05, 0.3][seed % 3]
    rows["outcome"][odd] = Outcome.RETRY
    if seed % 2:  # some are resolved by then, stand elsewhere, or are another group's
        rows = np.concatenate([rows[5:8], rows, rows[::7]])
        rows["group_id"][20:22] += seed % 4 == 1
    is_trimmed = seed % 5 == 0
    once = finish(rows, at_once=True, is_trimmed=is_trimmed)
    assert once == finish(rows, at_once=False, is_trimmed=is_trimmed)


def test_resolve_finishes_what_the_same_record_has_given_back() -> None:
    rows = np.zeros(41, RESOLVE_ROW)
    rows["group_id"], rows["topic_queue"] = GROUP, RETRIES << 8
    rows["first_position"], rows["count"], rows["outcome"] = np.arange(41), 1, Outcome.ACK
    rows[0] = (GROUP, QUEUES[0], 0, 40, Outcome.RETRY, 0)
    rows["first_position"][1:] -= 1
    results, *others = finish(rows, at_once=True, is_trimmed=False)
    assert results == [40] + [1] * 40
    assert (results, *others) == finish(rows, at_once=False, is_trimmed=False)


# --- clean-up


def test_trim_lets_go_of_full_chunks_when_they_are_old_enough() -> None:
    with small_sizes(16):
        world = ShardWorld(SimulatedDisk(), ShardConfig())
        world.publish([world.now_ms] * 80)
        world.commit()
        early = world.now_ms
        world.now_ms += 1_000
        delivery = world.receive(1)
        assert delivery is not None
        queue = world.shard.views.queues.get(delivery.lease.group_queue.topic_queue)
        world.ack(delivery)
        world.mastership.trim(early, world.now_ms)
        world.commit()
        assert queue.start_position == 0
        world.mastership.trim(early + 1, world.now_ms)
        world.commit()
        assert (queue.start_position, queue.end_position) == (32, 40)
        assert world.shard.views.acks.get(*delivery.lease.group_queue).floor == 32


def test_expire_forgets_producers_when_they_are_idle(world: ShardWorld) -> None:
    world.publish([world.now_ms], producer_id=7, producer_sequence=0)
    world.commit()
    world.now_ms += 1_000
    world.publish([world.now_ms], producer_id=8, producer_sequence=0)
    world.mastership.expire_producers(world.now_ms, world.now_ms)
    gone = world.publish([world.now_ms], producer_id=7, producer_sequence=1)
    kept = world.publish([world.now_ms], producer_id=8, producer_sequence=1)
    world.commit()
    assert isinstance(gone.result[0], errors.UnknownProducer)
    assert kept.result[0].count == 1


# --- what stops the node


def level(number: int) -> bytes:
    return build_rows(Kind.FEATURE_LEVEL, np.array([(number, 0)], FEATURE_LEVEL_ROW))


@pytest.mark.parametrize("other", [FEATURE_LEVEL_MIN - 1, FEATURE_LEVEL + 1])
def test_apply_stops_when_the_feature_level_is_another(world: ShardWorld, other: int) -> None:
    world.shard.applier.apply(stamped(world, level(FEATURE_LEVEL)))
    with pytest.raises(errors.IncompatibleFormat, match="feature level"):
        world.shard.applier.apply(stamped(world, level(other)))
    assert world.shard.views.feature_level == FEATURE_LEVEL


@pytest.mark.parametrize("kind", [max(Kind) + 1, 99])
def test_apply_stops_when_the_kind_is_unknown(world: ShardWorld, kind: int) -> None:
    batch = stamped(world, build_blob(Kind.CONFIG, b""))
    batch.header = batch.header._replace(kind=kind)
    before = world.shard.views.applied_offset
    with pytest.raises(errors.IncompatibleFormat, match=f"kind {kind}"):
        world.shard.applier.apply(batch)
    assert world.shard.views.applied_offset == before
    assert world.shard.views.is_whole


@pytest.mark.parametrize("shift", [-8, 8])
def test_apply_stops_when_batches_are_out_of_order(world: ShardWorld, shift: int) -> None:
    batch = stamped(world, level(1), offset=world.shard.views.applied_offset + shift)
    with pytest.raises(errors.InvariantViolated, match="log order"):
        world.shard.applier.apply(batch)


def test_apply_stops_when_an_epoch_does_not_grow(world: ShardWorld) -> None:
    with pytest.raises(errors.InvariantViolated, match="epochs only grow"):
        world.shard.applier.apply(stamped(world, build_blob(Kind.EPOCH_START, b"")))


# --- room


def fill(world: ShardWorld) -> None:
    """A message for a queue without a file stands in the log, and the disk is full."""
    world.publish([world.now_ms])
    world.take_write()
    world.run_write()
    world.finish_write()
    world.disk.capacity_bytes = world.disk.used_bytes("")


def giver(world: ShardWorld, asked: list[str], room_bytes: int) -> Callable[[], bool]:
    def make_room() -> bool:
        asked.append("room")
        world.disk.capacity_bytes += room_bytes
        return room_bytes > 0

    return make_room


def test_apply_goes_on_when_room_is_made(world: ShardWorld) -> None:
    asked: list[str] = []
    fill(world)
    world.shard.applier.make_room = giver(world, asked, 1 << 20)
    assert len(world.shard.apply_some(8)) == 1
    assert asked == ["room"]
    assert queued(world, QUEUES[0]) == [(0, 1)]
    assert world.shard.views.is_whole
    world.shard.check()


def test_apply_is_known_to_be_half_done_when_there_is_no_room(world: ShardWorld) -> None:
    asked: list[str] = []
    fill(world)
    world.shard.applier.make_room = giver(world, asked, 0)
    assert world.shard.apply_some(8) == []
    assert world.shard.is_stalled
    assert set(asked) == {"room"}
    assert not world.shard.views.is_whole
    assert world.maintenance.plan(world.now_ms, force_checkpoint=True) is None
