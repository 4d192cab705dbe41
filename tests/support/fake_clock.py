"""A clock that a test moves by hand."""

from dataclasses import dataclass


@dataclass
class FakeClock:
    """See hourwheel.clock.Clock. The two clocks move together, until a test sets the wall clock."""

    wall: float = 1_800_000_000_000.0
    monotonic: float = 5_000.0

    def wall_ms(self) -> float:
        return self.wall

    def monotonic_ms(self) -> float:
        return self.monotonic

    def pass_ms(self, duration_ms: float, *, wall_drift_ms: float = 0.0) -> None:
        """Time passes; the wall clock gains `wall_drift_ms` meanwhile."""
        self.monotonic += duration_ms
        self.wall += duration_ms + wall_drift_ms
