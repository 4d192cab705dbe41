"""The cluster clock as a node reads it."""

from node.broker.slewed_clock import SlewedClock
from node.cluster.cluster_time import ClusterTime
from tests.support.fake_clock import FakeClock


def made() -> tuple[ClusterTime, FakeClock]:
    clock = FakeClock()
    return ClusterTime(SlewedClock(clock), clock.monotonic_ms), clock


def test_own_clock_is_followed_without_an_offset() -> None:
    time, clock = made()
    begin_ms = time.now_ms()
    clock.pass_ms(1_234)
    assert time.now_ms() == begin_ms + 1_234
    assert time.own_ms() == begin_ms + 1_234


def test_offset_is_taken_at_once_when_a_reign_begins() -> None:
    time, _ = made()
    begin_ms = time.now_ms()
    time.begin(250.0)
    assert time.now_ms() == begin_ms + 250
    assert time.own_ms() == begin_ms
    time.begin(-100.0)  # another mastership, and nothing was said in the name of the former
    assert time.now_ms() == begin_ms - 100


def test_offset_is_followed_slowly_within_a_reign() -> None:
    time, clock = made()
    time.begin(0.0)
    begin_ms = time.now_ms()
    time.set_offset(100.0)
    assert time.now_ms() == begin_ms
    clock.pass_ms(1_000)
    assert time.now_ms() == begin_ms + 1_050
    clock.pass_ms(10_000)
    assert time.now_ms() == begin_ms + 11_100


def test_time_never_falls_when_the_offset_does() -> None:
    time, clock = made()
    time.begin(500.0)
    before_ms = time.now_ms()
    time.set_offset(0.0)
    told = [before_ms]
    for _ in range(200):
        clock.pass_ms(7)
        told.append(time.now_ms())
    assert told == sorted(told)
    clock.pass_ms(20_000)
    assert time.now_ms() == int(time.own_ms())


def test_wait_is_told_with_a_fraction() -> None:
    time, clock = made()
    now_ms = time.now_ms()
    clock.pass_ms(0.25)
    assert time.until_ms(now_ms + 10) == 9.75
    assert time.until_ms(now_ms - 10) == -10.25
