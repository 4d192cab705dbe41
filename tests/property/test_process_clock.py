"""The node's clock under any history of the machine's clocks."""

import math

from hypothesis import given
from hypothesis import strategies as st

from node.broker.slewed_clock import SlewedClock
from tests.support.fake_clock import FakeClock

YEAR_MS = 365.25 * 86_400_000
RATIO = 0.05

passed = st.one_of(
    st.floats(0, 50), st.floats(0, 120_000), st.sampled_from([0.0, 0.001, 60_000.0, 86_400_000.0])
)
moved = st.one_of(
    st.just(0.0), st.floats(-5, 5), st.floats(-2_000, 2_000), st.floats(-YEAR_MS, YEAR_MS)
)


@given(history=st.lists(st.tuples(passed, moved), max_size=60))
def test_clock_never_goes_back_and_keeps_its_rate(history: list[tuple[float, float]]) -> None:
    machine = FakeClock()
    clock = SlewedClock(machine, slew_ratio_max=RATIO)
    now, began, elapsed = clock.now_ms(), machine.wall, 0.0
    for duration_ms, jump_ms in history:
        machine.pass_ms(duration_ms, wall_drift_ms=jump_ms)
        later = clock.now_ms()
        assert later >= now
        assert later - now <= math.ceil(duration_ms * (1 + RATIO)) + 1
        assert later - now >= math.floor(duration_ms * (1 - RATIO)) - 1
        now, elapsed = later, elapsed + duration_ms
        # So nothing is released early by more than its own rate allows, whatever the date says.
        assert now <= began + elapsed * (1 + RATIO) + 1


@given(
    history=st.lists(st.tuples(passed, moved), max_size=30),
    settle=st.floats(-3_600_000, 3_600_000),
)
def test_clock_comes_to_agree_when_the_wall_clock_behaves(
    history: list[tuple[float, float]], settle: float
) -> None:
    machine = FakeClock()
    clock = SlewedClock(machine, slew_ratio_max=RATIO)
    for duration_ms, jump_ms in history:
        machine.pass_ms(duration_ms, wall_drift_ms=jump_ms)
        clock.now_ms()
    machine.wall = clock.now_ms() + settle
    machine.pass_ms(20)
    clock.now_ms()
    for _ in range(2):  # the step lasts, and is then caught up with
        machine.pass_ms(61_000 + 3_600_000 / RATIO)
        clock.now_ms()
    machine.pass_ms(1.0)
    assert abs(clock.now_ms() - machine.wall) <= 2
    assert not clock.step_pending
