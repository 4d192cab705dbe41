"""Timers of transactions: one each."""

from node.broker.transactions.timers import Timers


def due(timers: Timers, now_ms: int) -> list[int]:
    return list(iter(lambda: timers.pop_due(now_ms), None))


def test_the_timer_that_was_set_last_holds() -> None:
    timers = Timers()
    for offset, at_ms in ((8, 20), (16, 10), (8, 30), (8, 20), (16, 10)):
        timers.set(offset, at_ms)
    assert due(timers, 9) == []
    assert due(timers, 10) == [16]
    assert due(timers, 40) == [8]
    assert due(timers, 40) == []
    assert len(timers) == 0


def test_timers_of_what_has_ended_are_forgotten() -> None:
    timers = Timers()
    for offset in range(100):
        timers.set(offset, 1_000 - offset)
        timers.set(offset, 2_000 - offset)
    timers.keep(lambda offset: offset in {7, 9})
    assert len(timers) == 2
    assert due(timers, 2_000) == [9, 7]
