"""One node's part in a shard: taking over, following, giving up.

Whole lives are in tests/sim/test_cluster.py.
"""

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.errors import NotFollowed
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.internal.v1.replication_pb2 import FollowerHello
from hourwheel.internal.v1.state_pb2 import ConfigChange, TopicConfig
from hourwheel.types import NodeId
from node.replica.effects import ReplicaIdentity, Role
from tests.support.replica_world import (
    START_MS,
    ReplicaWorld,
    acknowledge,
    join,
    send,
    sync,
)

A, B = NodeId("a"), NodeId("b")
_YEAR_MS = 365 * 86_400_000


def configure(world: ReplicaWorld, number: int, token: object = None) -> None:
    """Append something."""
    topic = TopicConfig(topic_id=number, name=f"topic-{number}", queue_count=1)
    world.mastership.configure(ConfigChange(put_topic=topic), START_MS, token)


def role_of(world: ReplicaWorld) -> Role:
    """What it is now."""
    return world.replica.role


def cluster() -> tuple[ReplicaWorld, ReplicaWorld, ReplicaWorld]:
    """A master 'a' at work in epoch 1, and its followers."""
    a, b, c = (ReplicaWorld(name) for name in "abc")
    a.become_master(1)
    for follower in (b, c):
        join(a, follower)
    for _ in range(2):
        for follower in (b, c):
            sync(a, follower)
    a.effects()
    return a, b, c


def logs_of(*worlds: ReplicaWorld) -> set[bytes]:
    return {world.shard.log.read(0, world.shard.log.flushed_end_offset) for world in worlds}


def test_master_serves_when_all_that_it_inherited_is_committed_and_applied() -> None:
    a, b, c = (ReplicaWorld(name) for name in "abc")
    a.assign(1, "a")
    a.replica.step(0.0)
    assert a.kinds() == ["OpenStreams", "Write"]
    a.write()
    for follower in (b, c):
        join(a, follower)
        send(a, follower)
    assert role_of(a) is Role.TAKING_OVER
    sync(a, b)
    assert role_of(a) is Role.TAKING_OVER, "c is in sync, and has not said anything"
    sync(a, c)
    assert role_of(a) is Role.MASTER
    assert "Serve" in a.kinds()
    assert a.replica.may_act(100.0)
    assert not a.replica.may_act(571.0), "the lease is over"
    assert b.replica.shard.views.applied_offset == 0
    sync(a, b)
    assert len(logs_of(a, b, c)) == 1
    assert b.shard.views.digest() == a.shard.views.digest()


@pytest.mark.parametrize("wrong_by_ms", [_YEAR_MS, -_YEAR_MS])
def test_epoch_start_bears_the_time_of_the_log_when_the_masters_clock_is_wrong(
    wrong_by_ms: int,
) -> None:
    """A year ahead, the segment would be kept for a year longer; a year behind, it would go."""
    _, b, c = cluster()
    b.own_clock_ms += wrong_by_ms
    b.become_master(2, monotonic_ms=1_000.0)
    assert [one.header.store_ms for one in b.shard.unapplied] == [START_MS]
    join(b, c, 1_000.0)
    sync(b, c, 1_000.0)
    sync(b, c, 1_000.0)
    assert [one.log.segments()[-1].store_ms_max for one in (b.shard, c.shard)] == [START_MS] * 2


def test_epoch_start_bears_the_masters_time_when_the_log_is_empty() -> None:
    a = ReplicaWorld(A)
    a.own_clock_ms += 5
    a.become_master(1)
    assert {one.header.store_ms for one in a.shard.unapplied} == {START_MS + 5}


def test_room_for_the_next_epoch_is_made_when_the_takeover_is_over() -> None:
    """It takes syncs of a folder, for which callers would wait."""
    a, *_ = cluster()

    def spares() -> list[bool]:
        return [a.disk.exists(f"shard-0/{name}.spare") for name in ("epochs", "epoch_seen")]

    a.replica.step(900.0)
    assert spares() == [False, False]
    a.replica.step(1_001.0)
    assert spares() == [True, True]


def test_I5_nothing_is_written_between_hello_and_begin() -> None:  # noqa: N802
    """The answer told where the log ended; what came behind might even be applied, and not cut."""
    a, b, c = cluster()
    configure(a, 1)
    send(a, b)
    sync(a, c)
    hello = a.replica.on_connected("b")
    answer = b.replica.on_hello(hello, 1.0)
    assert isinstance(answer, FollowerHello)
    assert b.shard.take_write() is None
    assert b.shard.log.end_offset == answer.log_end_offset
    b.replica.begin_following(a.replica.answer_hello("b", answer))
    sync(a, b, 1.0)
    a.write()
    assert len(logs_of(a, b)) == 1


def test_reign_begins_when_an_epoch_was_noted_whose_batches_never_came() -> None:
    """The epochs' file was ahead of the log: a write found no room, or a stream broke."""
    a, b, c = cluster()
    b.become_master(2, monotonic_ms=1_000.0)
    join(b, c, 1_000.0)
    configure(b, 1)
    send(b, c)
    assert [one.epoch for one in c.opened.epochs.entries] == [1, 2]
    b.replica.step_down("test")
    a.become_master(3, monotonic_ms=2_000.0)
    join(a, c, 2_000.0)  # forgets what was not written
    assert [one.epoch for one in c.opened.epochs.entries] == [1]
    c.opened.epochs.append(3, c.shard.log.end_offset + 96)
    c.assign(4, "c", monotonic_ms=3_000.0)
    c.replica.step(3_000.0)
    assert [one.epoch for one in c.opened.epochs.entries] == [1, 4]


def test_I3_master_resigns_when_a_follower_has_released_something_else() -> None:  # noqa: N802
    a, b, _ = cluster()
    ack = b.replica.acknowledge(1.0, float(START_MS))
    a.replica.on_ack("b", ack, 1.0, float(START_MS))
    assert a.kinds() == []
    ack.applied_offset, ack.released_count = a.shard.views.applied_offset, 7
    a.replica.on_ack("b", ack, 1.0, float(START_MS))
    assert "RequestSuccessor" in a.kinds()


def test_I3_follower_says_what_it_has_released_when_a_record_is_half_applied() -> None:  # noqa: N802
    """For want of room: the master compares it with what it had released itself as of there."""
    a, b, c = cluster()
    configure(a, 1)
    sync(a, b)
    sync(a, c)
    messages = RecordBatch(build_publish([START_MS] * 3, [b"x"] * 3))
    due_ms, queue = np.full(3, START_MS - 1, np.int64), np.full(3, 1 << 8, np.uint32)
    a.mastership.publish(messages, due_ms, queue, START_MS, None)
    a.write()
    for follower in (b, c):
        send(a, follower)
        follower.write()
        acknowledge(a, follower)
    a.apply()
    b.disk.capacity_bytes = b.disk.used_bytes("")
    b.replica.on_heartbeat(a.replica.make_heartbeat(50.0, START_MS), 50.0)
    b.apply()
    assert (b.shard.is_stalled, b.shard.views.is_whole) == (True, False)
    ack = b.replica.acknowledge(50.0, float(START_MS))
    assert ack.applied_offset < a.shard.views.applied_offset
    a.effects()
    a.replica.on_ack("b", ack, 50.0, float(START_MS))
    assert "RequestSuccessor" not in a.kinds()


def test_acknowledgement_of_another_epoch_is_ignored() -> None:
    a, b, _ = cluster()
    assert a.replica.rules is not None
    until_ms = a.replica.rules.lease.until_ms()
    b.replica.on_heartbeat(a.replica.make_heartbeat(50.0, START_MS), 50.0)
    ack = b.replica.acknowledge(50.0, float(START_MS))
    ack.epoch = 7
    a.replica.on_ack("b", ack, 50.0, float(START_MS))
    assert a.replica.rules.lease.until_ms() == until_ms
    acknowledge(a, b, 50.0)
    assert a.replica.rules.lease.until_ms() > until_ms


def test_follower_reads_the_log_from_files_when_it_is_far_behind() -> None:
    a, b, c = cluster()
    assert a.shard.recent is not None
    for number in range(1, 9):
        configure(a, number)
    a.write()
    a.shard.recent.truncate(0)
    sync(a, b)
    sync(a, c)
    assert len(logs_of(a, b, c)) == 1


def test_log_is_not_taken_when_it_is_damaged() -> None:
    a, b, _ = cluster()
    configure(a, 1)
    part = a.replica.find_part("b")
    assert part is not None
    end = b.shard.log.end_offset
    part.batches = part.batches[:-1] + bytes([part.batches[-1] ^ 1])
    with pytest.raises(errors.InvalidBatch):
        b.replica.on_log(part)
    assert b.shard.log.end_offset == end


def test_nothing_is_said_in_the_masters_name_when_there_is_none() -> None:
    b = ReplicaWorld("b")
    with pytest.raises(NotFollowed):
        b.replica.on_connected("a")
    with pytest.raises(NotFollowed):
        b.replica.find_part("a")


def test_elected_node_resigns_when_its_own_write_does_not_end() -> None:
    """It has no mastership whose rules could give the epoch up: nobody would ever lead."""
    a, b, _ = cluster()
    configure(a, 1)
    send(a, b)  # appended, and its write hangs
    b.effects()
    b.assign(2, "b", monotonic_ms=1_000.0)
    for now_ms in range(1_000, 4_600, 50):
        b.replica.step(now_ms)
        assert b.kinds() == []
    b.replica.step(1_000.0 + 600.0 + 3_000.0)
    assert b.kinds() == ["RequestSuccessor"]
    b.replica.step(9_000.0)
    assert (b.kinds(), b.replica.is_elected) == ([], True), "it asks once, and begins if it can"
    b.write(9_000.0)
    b.replica.step(9_001.0)
    assert b.kinds() == ["OpenStreams", "Write"]


def test_elected_node_asks_for_a_successor_in_each_epoch_in_which_it_is_stuck() -> None:
    a, b, _ = cluster()
    configure(a, 1)
    send(a, b)
    b.effects()
    for epoch, at_ms in ((2, 1_000.0), (4, 20_000.0)):
        b.assign(epoch, "b", monotonic_ms=at_ms)
        b.replica.step(at_ms + 3_600.0)
        assert b.kinds() == ["RequestSuccessor"]
        b.assign(epoch + 1, "a", monotonic_ms=at_ms + 4_000.0)
        assert not b.replica.is_elected


def test_node_alone_waits_for_its_own_write() -> None:
    alone = ReplicaWorld("a", members=("a",))  # type: ignore[arg-type]
    alone.become_master(1, isr="a")
    configure(alone, 1)
    alone.replica.step_down("test")
    alone.effects()
    alone.assign(2, "a", isr="a")
    alone.replica.step(60_000.0)
    assert (alone.kinds(), alone.replica.is_elected) == ([], True)


def test_node_of_one_with_a_control_plane_needs_more_when_that_says_so() -> None:
    """Its configuration names nobody else; the control plane does, later."""
    world = ReplicaWorld(A, members=(A,))
    world.assign(1, A, isr="a", min_in_sync=1)
    world.replica.step(1.0)
    world.write()
    rules = world.replica.rules
    assert rules is not None
    assert rules.is_begun
    before = rules.high_watermark
    world.assign(1, A, isr="a", version=2, min_in_sync=2)
    assert rules.isr.min_in_sync == 2
    assert rules.isr.high_watermark({A: before + 1}) == 0
    world.assign(1, A, isr="a", version=3, min_in_sync=1)
    assert rules.isr.min_in_sync == 2, "what came late lowers nothing"


def test_who_has_a_control_plane_is_never_alone() -> None:
    assert ReplicaIdentity(A, "1", bytes(16), (A,)).is_alone
    assert not ReplicaIdentity(A, "1", bytes(16), (A,), has_control_plane=True).is_alone
    assert not ReplicaIdentity(A, "1", bytes(16), (A, B)).is_alone
