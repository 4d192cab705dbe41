"""However often strangers are refused, and for whatever they say: few reasons, and few lines."""

import logging

import pytest

from replication.raft.refusals import LINES_MAX, OTHER, REASONS_MAX, WINDOW_S, Refusals


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [(one.error, one.unlogged) for one in caplog.records]  # type: ignore[attr-defined]


def test_reasons_are_few_whatever_strangers_say(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    refusals = Refusals(Clock())
    for number in range(1_000):
        refusals.note(f"a frame of {number} bytes")
    refusals.note("a frame of 3 bytes")
    refusals.note("x" * 100_000)
    assert len(refusals.counts) == REASONS_MAX + 1
    assert refusals.counts["a frame of 3 bytes"] == 2
    assert refusals.counts[OTHER] == 1_000 - REASONS_MAX + 1
    assert max(map(len, refusals.counts)) < 300


def test_lines_are_few_and_say_how_many_have_none(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    for _ in range(LINES_MAX + 90):
        refusals.note("no proof")
    assert lines(caplog) == [("no proof", 0)] * LINES_MAX
    assert {one.getMessage() for one in caplog.records} == {"raft_connection_cut"}
    clock.now_s += WINDOW_S
    refusals.note("x" * 100_000)
    refusals.note("again")
    (long, unlogged), again = lines(caplog)[LINES_MAX:]
    assert unlogged == 90
    assert len(long) < 300
    assert again == ("again", 0)
