"""The node's clock by examples. Its promises for any history: tests/property."""

import pytest

from node.broker.slewed_clock import SlewedClock, StepEvent
from tests.support.fake_clock import FakeClock

HOUR_MS = 3_600_000


class World:
    """A clock under test and what it told."""

    def __init__(self) -> None:
        self.machine = FakeClock()
        self.told: list[tuple[str, int]] = []
        self.clock = SlewedClock(self.machine, on_step=self._note)

    def _note(self, event: StepEvent, step_ms: float) -> None:
        self.told.append((event.value, round(step_ms)))

    def run(self, duration_ms: float, every_ms: float = 10.0, drift_ms: float = 0.0) -> int:
        """Ask each `every_ms` for `duration_ms`; the last answer."""
        now = self.clock.now_ms()
        for _ in range(round(duration_ms / every_ms)):
            self.machine.pass_ms(every_ms, wall_drift_ms=drift_ms)
            now = self.clock.now_ms()
        return now


@pytest.fixture
def world() -> World:
    return World()


def test_clock_begins_at_the_wall_clock(world: World) -> None:
    assert world.clock.now_ms() == int(world.machine.wall)
    assert (world.clock.error_ms, world.clock.step_pending) == (0.0, False)


def test_clock_follows_when_the_wall_clock_drifts(world: World) -> None:
    now = world.run(60_000, drift_ms=0.1)  # 1 % fast
    assert now == pytest.approx(world.machine.wall, abs=1)
    assert world.told == []


def test_clock_catches_up_slowly_when_the_wall_clock_is_corrected_a_little(world: World) -> None:
    world.machine.wall += 500
    world.run(5_000)
    assert world.clock.error_ms == pytest.approx(250, abs=1)  # 5 % of 5 s
    world.run(6_000)
    assert world.clock.error_ms == pytest.approx(0, abs=1)
    assert world.told == []


def test_clock_slows_down_but_never_stops_when_the_wall_clock_goes_back_a_little(
    world: World,
) -> None:
    before = world.clock.now_ms()
    world.machine.wall -= 800
    now = world.run(1_000)
    assert now - before == pytest.approx(950, abs=1)


@pytest.mark.parametrize("step_ms", [600_000, -600_000, 365 * 24 * HOUR_MS])
def test_clock_does_not_follow_when_the_wall_clock_has_stepped_a_moment_ago(
    world: World, step_ms: float
) -> None:
    before = world.clock.now_ms()
    world.machine.wall += step_ms
    now = world.run(59_000)
    assert now - before == 59_000
    assert world.clock.step_pending
    assert world.clock.error_ms == pytest.approx(step_ms)
    assert world.told == [("seen", step_ms)]


def test_clock_follows_slowly_when_the_step_has_lasted(world: World) -> None:
    world.machine.wall += 600_000
    before = world.run(60_010)
    assert world.told == [("seen", 600_000), ("followed", 600_000)]
    assert not world.clock.step_pending
    after = world.run(10_000)
    assert after - before == pytest.approx(10_500, abs=2)
    world.run(4 * HOUR_MS, every_ms=1_000)
    assert world.clock.error_ms == pytest.approx(0, abs=1)
    assert len(world.told) == 2


def test_clock_ignores_the_step_when_somebody_takes_it_back(world: World) -> None:
    before = world.clock.now_ms()
    world.machine.wall += 600_000
    world.run(30_000)
    world.machine.wall -= 600_000
    now = world.run(120_000)
    assert now - before == 150_000
    assert world.told == [("seen", 600_000), ("withdrawn", 600_000)]


def test_clock_waits_anew_when_another_step_follows(world: World) -> None:
    world.machine.wall += 600_000
    world.run(50_000)
    world.machine.wall += 600_000
    world.run(50_000)
    assert world.clock.step_pending
    world.run(11_000)
    assert [event for event, _ in world.told] == ["seen", "seen", "followed"]


def test_clock_counts_on_when_the_process_slept_long(world: World) -> None:
    before = world.clock.now_ms()
    world.machine.pass_ms(24 * HOUR_MS)
    assert world.clock.now_ms() - before == 24 * HOUR_MS


def test_clock_stands_when_the_monotonic_clock_is_broken(world: World) -> None:
    world.machine.pass_ms(1_000)
    before = world.clock.now_ms()
    world.machine.monotonic -= 500
    assert world.clock.now_ms() >= before
