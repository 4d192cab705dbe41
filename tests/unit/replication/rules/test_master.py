"""The master's rules: what counts, what is committed, who is lost, when to give up."""

import pytest

from hourwheel.internal.v1.replication_pb2 import EpochMark, FollowerAck, FollowerHello
from hourwheel.types import Epoch, Offset
from replication.rules.isr import InSyncReplicas, IsrChange
from replication.rules.master import EpochStart, Master, Phase, ReplicationConfig
from storage.log.epochs import EpochEntry

CONFIG = ReplicationConfig()
EPOCHS = [EpochEntry(Epoch(1), Offset(0)), EpochEntry(Epoch(4), Offset(100))]
"""Of the master's log: epoch 4 is its own, and its EPOCH_START is [100, 120)."""


def make(members: str = "abc", *, isr: str | None = None) -> Master:
    start = EpochStart(
        *(4, "a", "boot-a", bytes(16), 0, tuple(members)),
        start_offset=100,
        start_end=120,
        high_watermark=70,
    )
    in_sync = InSyncReplicas(4, frozenset(isr or members), 9, min(2, len(members)))
    master = Master(start, in_sync, CONFIG, 0.0)
    master.on_appended(120)
    return master


def hello(end: int = 100, *, applied: int = 70, epochs: tuple[tuple[int, int], ...] = ((1, 0),)):  # type: ignore[no-untyped-def]
    marks = [EpochMark(epoch=epoch, start_offset=start) for epoch, start in epochs]
    return FollowerHello(
        epoch=4, boot_id="boot", log_end_offset=end, applied_offset=applied, epochs=marks
    )


def follow(master: Master, node: str, *, sent: int = 120) -> None:
    master.on_connected(node)
    master.on_hello(node, hello(), EPOCHS, 0)
    master.on_sent(node, sent)


def ack(
    end: int, *, echo_ms: float = 0.0, age_ms: float = 0.0, is_full: bool = False
) -> FollowerAck:
    return FollowerAck(
        epoch=4,
        flushed_end_offset=end,
        echo_us=int(echo_ms * 1_000),
        echo_age_us=int(age_ms * 1_000),
        clock_ms=5_000.0,
        is_full=is_full,
    )


def hear(master: Master, node: str, end: int, monotonic_ms: float = 1.0) -> bool:
    return master.on_ack(node, ack(end), monotonic_ms, 5_000.0)


def test_high_watermark_never_falls_when_a_stream_breaks() -> None:
    master = make()
    master.on_flushed(120, 1.0)
    for node in "bc":
        follow(master, node)
        hear(master, node, 120)
    master.on_lost("b", 2.0)
    master.on_flushed(150, 3.0)
    assert master.high_watermark == 120


@pytest.mark.parametrize("phase", [Phase.ABSENT, Phase.GREETED, Phase.SNAPSHOT])
def test_acknowledgement_counts_nothing_when_the_follower_does_not_follow(phase: Phase) -> None:
    master = make()
    master.on_flushed(120, 1.0)
    follow(master, "c")
    hear(master, "c", 120)
    master.followers["b"].phase = phase
    assert not master.on_ack("b", ack(120, echo_ms=900.0), 1_000.0, 5_000.0)
    assert master.followers["b"].acked_end == 0
    assert not master.lease.is_valid(1_000.0)


def test_hello_is_answered_with_where_the_logs_part() -> None:
    master = make()
    master.on_connected("b")
    begin = master.on_hello("b", hello(95, epochs=((1, 0), (3, 90))), EPOCHS, 0)
    assert (begin.epoch, begin.offset, begin.take_snapshot) == (4, 90, False)
    assert [(one.epoch, one.start_offset) for one in begin.epochs] == [(1, 0)]
    assert master.followers["b"].phase is Phase.BEGUN
    assert master.followers["b"].sent_end == 90


@pytest.mark.parametrize(
    ("applied", "epochs", "log_start"),
    [(95, ((1, 0), (3, 90)), 0), (0, (), 50), (0, ((1, 0),), 101)],
    ids=["it has applied more", "it is blank", "it is too far behind"],
)
def test_follower_fetches_a_snapshot_when_the_log_does_not_lead_there(
    applied: int, epochs: tuple[tuple[int, int], ...], log_start: int
) -> None:
    master = make()
    master.on_connected("b")
    end = 95 if epochs else 0
    begin = master.on_hello("b", hello(end, applied=applied, epochs=epochs), EPOCHS, log_start)
    assert begin.take_snapshot
    assert not master.followers["b"].phase.may_send
    master.on_lost("b", 5.0)
    assert master.followers["b"].phase is Phase.SNAPSHOT


def test_lease_counts_from_when_the_beat_was_sent() -> None:
    master = make()
    follow(master, "b")
    master.on_ack("b", ack(100, echo_ms=50.0, age_ms=30.0), 90.0, 5_090.0)
    assert master.lease.until_ms() == pytest.approx(50 + 570)
    # 10 ms under way: its clock was read at 5,080 to 5,090 of the own one.
    assert master.clock.offsets(90.0) == {"b": pytest.approx(5_000 - 5_080)}


def change(*members: str) -> IsrChange:
    return IsrChange(4, 9, members)


def test_follower_is_dropped_when_it_refuses_each_greeting_at_once() -> None:
    """It is never away for long, and never there."""
    master = make()
    follow(master, "b")
    for now_ms in range(0, 300, 100):
        master.on_connected("c")
        master.on_lost("c", now_ms + 1.0)
        assert master.plan_isr(now_ms + 99.0) is None
    assert master.plan_isr(300.0) == change("a", "b")


def test_follower_is_dropped_when_it_does_not_answer_the_greeting() -> None:
    """As where its process is stopped: its kernel still takes what is sent."""
    master = make()
    follow(master, "b")
    master.on_connected("c")
    assert master.plan_isr(299.0) is None
    assert master.plan_isr(300.0) == change("a", "b")


def test_follower_stays_when_it_answers_the_greeting_in_time() -> None:
    master = make()
    for node in "bc":
        follow(master, node)
    assert master.plan_isr(300.0) is None


def test_follower_is_dropped_when_its_streams_break_as_soon_as_they_have_begun() -> None:
    master = make()
    master.on_flushed(120, 1.0)
    follow(master, "b")
    for now_ms in range(0, 1_500, 100):
        hear(master, "b", 120, now_ms)
        follow(master, "c")
        master.on_lost("c", now_ms + 1.0)
        assert master.plan_isr(now_ms + 99.0) is None
    assert master.plan_isr(1_500.0) == change("a", "b")


def test_follower_with_a_low_disk_stays_or_joins_where_there_would_be_too_few_without_it() -> None:
    """Nothing could be committed otherwise; but messages are to be refused meanwhile."""
    master = make()
    for node in "bc":
        follow(master, node)
        master.on_ack(node, ack(100, is_full=True), 1.0, 5_000.0)
    assert master.plan_isr(2.0) is None
    assert master.low_members == {"b", "c"}
    master.on_isr({"a", "b"}, 10, 3.0)
    master.on_flushed(120, 3.0)
    hear(master, "b", 100, 3.0)
    master.on_ack("c", ack(120, is_full=True), 4.0, 5_000.0)
    master.on_lost("b", 4.0)
    assert master.plan_isr(5.0) is None, "it is not lost yet"
    assert master.plan_isr(400.0) == IsrChange(4, 10, ("a", "c"))
    master.on_isr({"a", "c"}, 11, 401.0)
    assert master.high_watermark == 120
    follow(master, "b")
    hear(master, "b", 120, 402.0)
    assert master.plan_isr(403.0) == IsrChange(4, 11, ("a", "b"))


def test_follower_joins_when_it_has_the_epochs_beginning_and_all_that_is_committed() -> None:
    """It need not wait for the high watermark: alone in the set, that would wait for it."""
    master = make(isr="ab")
    master.on_flushed(120, 1.0)
    follow(master, "b")
    follow(master, "c")
    hear(master, "c", 119)
    assert master.plan_isr(2.0) is None
    hear(master, "c", 120)
    assert master.plan_isr(3.0) == change("a", "b", "c")


def test_master_resigns_when_it_has_nothing_to_commit_and_nobody_hears_it() -> None:
    """Nobody can give it anything then: it would stay so for ever."""
    master = make()
    master.on_flushed(120, 1.0)
    for node in "bc":
        follow(master, node)
        master.on_ack(node, ack(120, echo_ms=1_000.0), 1_001.0, 5_000.0)
    assert master.high_watermark == 120
    assert master.find_reason_to_step_down(1_001.0) is None
    assert master.find_reason_to_step_down(4_000.0) is None
    assert "no majority" in str(master.find_reason_to_step_down(1_000.0 + 570.0 + 3_000.0))


def test_master_resigns_when_round_trips_keep_its_lease_and_tell_it_no_clock() -> None:
    """Each echo renews the lease, and each is too long to tell a clock by: none of this ends."""
    master = make()
    master.on_flushed(120, 1.0)
    for node in "bc":
        follow(master, node)
    master.on_ack("b", ack(120, echo_ms=50.0), 50.0, 5_000.0)
    master.on_ack("c", ack(120, echo_ms=50.0), 50.0, 5_000.0)
    for now_ms in range(350, 5_000, 50):
        master.on_ack("b", ack(120, echo_ms=now_ms - 300.0), now_ms, 5_000.0)
        assert master.lease.is_valid(now_ms)
        assert master.find_reason_to_step_down(now_ms) is None
    assert master.clock.update(5_000.0) is None
    why = master.find_reason_to_step_down(2_050.0 + 3_000.0)
    assert why == "the cluster clock has not been known for too long"
    master.on_ack("b", ack(120, echo_ms=5_050.0), 5_100.0, 5_000.0)
    assert master.find_reason_to_step_down(5_100.0) is None


def test_master_resigns_when_it_has_never_known_the_cluster_clock() -> None:
    master = make()
    master.on_flushed(120, 1.0)
    for node in "bc":
        follow(master, node)
    for now_ms in range(350, 3_000, 50):
        for node in "bc":
            master.on_ack(node, ack(120, echo_ms=now_ms - 300.0), now_ms, 5_000.0)
        assert master.find_reason_to_step_down(now_ms) is None
    assert "the cluster clock" in str(master.find_reason_to_step_down(3_000.0))
