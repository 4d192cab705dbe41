"""Playing the demo's trace: what is sent in which order, and which error is told."""

from hourwheel import errors
from node.tools.demo.player import FineClock, Player, _first_known, _steps
from node.tools.demo.trace import NEVER, build_trace, generate_orders


def test_steps_are_in_order_of_time_and_set_a_timer_before_they_take_it_back() -> None:
    trace = build_trace(generate_orders(200, 3), 5)
    at_ms, steps = _steps(trace)
    assert at_ms == sorted(at_ms)
    assert sorted(step for step in steps if step >= 0) == list(range(len(trace)))
    places = {step: place for place, step in enumerate(steps)}
    taken_back = [index for index in range(len(trace)) if trace.cancel_ms[index] != NEVER]
    assert len(steps) == len(trace) + len(taken_back)
    assert all(places[index] < places[~index] for index in taken_back)


def test_error_of_ours_is_found_in_a_group() -> None:
    ours = errors.Unavailable("gone")
    inner: ExceptionGroup[Exception] = ExceptionGroup("b", [ValueError("x"), ours])
    assert _first_known(ExceptionGroup("a", [KeyError("y"), inner])) is ours
    alien: ExceptionGroup[Exception] = ExceptionGroup("a", [KeyError("y")])
    assert _first_known(alien) is alien


def test_clock_has_fractions_and_does_not_go_back() -> None:
    clock = FineClock()
    times = [clock.now_ms() for _ in range(100)]
    assert times == sorted(times)
    assert any(time % 1 for time in times)


async def test_nothing_has_passed_before_the_trace_begins() -> None:
    player = Player(build_trace(generate_orders(5, 1), 2), "127.0.0.1:1")
    assert player.elapsed_ms < 0
