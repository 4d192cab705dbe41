"""What a master knows of one follower."""

import pytest

from replication.rules.master import Phase, Progress


def replicating(*, sent: int = 100, acked: int = 100, monotonic_ms: float = 0.0) -> Progress:
    progress = Progress("b")
    progress.connect()
    progress.begin(0, "boot")
    progress.sent_end = sent
    progress.acknowledge(acked, 100, monotonic_ms)
    return progress


def test_log_is_sent_when_the_logs_are_known_to_part_somewhere() -> None:
    assert [one for one in Phase if one.may_send] == [Phase.BEGUN, Phase.REPLICATING]


def test_I7_acknowledgement_counts_no_further_than_what_was_sent() -> None:  # noqa: N802
    progress = replicating(sent=60, acked=90)
    assert progress.acked_end == 60
    progress.sent_end = 80
    progress.acknowledge(70, 100, 1.0)
    assert progress.acked_end == 70
    progress.acknowledge(50, 100, 2.0)
    assert progress.acked_end == 70


def test_I7_nothing_counts_any_more_when_the_stream_is_over() -> None:  # noqa: N802
    progress = replicating()
    progress.lose(5.0)
    assert (progress.phase, progress.acked_end, progress.sent_end) == (Phase.ABSENT, 0, 0)
    assert progress.absent_since_ms == 5.0
    progress.connect()
    progress.begin(40, "boot")
    assert (progress.acked_end, progress.sent_end) == (0, 40)


@pytest.mark.parametrize("phase", [Phase.ABSENT, Phase.SNAPSHOT])
def test_absence_counts_from_its_beginning_when_it_is_told_twice(phase: Phase) -> None:
    progress = replicating()
    progress.lose(5.0, phase)
    progress.lose(9.0, phase)
    assert (progress.phase, progress.absent_since_ms) == (phase, 5.0)


def test_absence_goes_on_when_a_greeting_comes_to_nothing() -> None:
    progress = replicating()
    progress.lose(5.0)
    progress.connect()
    progress.lose(9.0)
    assert (progress.phase, progress.absent_since_ms) == (Phase.ABSENT, 5.0)


def test_follower_is_caught_up_when_it_has_what_the_master_had_a_round_trip_ago() -> None:
    """It never has all, while more is appended all the time."""
    progress = replicating(sent=100, acked=90, monotonic_ms=10.0)
    assert progress.caught_up_ms == 0.0
    progress.sent_end = 200
    progress.acknowledge(100, 200, 20.0)
    assert progress.caught_up_ms == 10.0
    progress.acknowledge(150, 300, 30.0)
    assert progress.caught_up_ms == 10.0
    progress.sent_end = 300
    progress.acknowledge(200, 400, 40.0)
    assert progress.caught_up_ms == 20.0
    progress.sent_end = 400
    progress.acknowledge(400, 400, 50.0)
    assert progress.caught_up_ms == 50.0
