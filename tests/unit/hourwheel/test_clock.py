from itertools import pairwise

from hourwheel.clock import Clock, SystemClock

YEAR_2024_MS = 1_704_067_200_000
YEAR_2100_MS = 4_102_444_800_000


def test_wall_ms_when_read_is_milliseconds_since_the_epoch() -> None:
    clock: Clock = SystemClock()
    assert YEAR_2024_MS < clock.wall_ms() < YEAR_2100_MS


def test_monotonic_ms_when_read_again_and_again_never_falls() -> None:
    clock: Clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1_000)]
    assert all(earlier <= later for earlier, later in pairwise(readings))
    assert len(set(readings)) > 1  # finer than whole milliseconds
