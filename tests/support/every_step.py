"""A simulated disk that can lose power before any operation at all, reads included."""

from collections.abc import Callable
from random import Random

from tests.sim.disk import SimulatedCrash, SimulatedDisk


class EveryStepDisk(SimulatedDisk):
    """`lose_power_before(n)`: the n-th operation from now does not happen, and none after."""

    def __init__(self) -> None:
        self.step_count = 0
        self._last_step: int | None = None
        super().__init__()

    def lose_power_before(self, step: int) -> None:
        self._last_step = self.step_count + step

    def check_alive(self, life: int) -> None:
        self.step_count += 1
        if self.step_count == self._last_step:
            self.is_down = True
        super().check_alive(life)

    def kill(self) -> None:
        self._last_step = None
        super().kill()


def lose_power_at_every_step(
    prepare: Callable[[EveryStepDisk], Callable[[], object]],
    check: Callable[[Random], None],
    *,
    stride: int = 1,
) -> int:
    """Cut the power before each operation of what `prepare` returns, then `check`.

    Args:
        prepare: makes a world on the disk; returns what to do with it.
        check: brings the power back (`SimulatedDisk.crash`) and looks at what is left.
        stride: try each so many-th operation only.

    Returns:
        How often the power was cut.
    """
    disk = EveryStepDisk()
    use = prepare(disk)
    before = disk.step_count
    use()
    steps = range(1, disk.step_count - before + 1, stride)
    for step in steps:
        disk = EveryStepDisk()
        use = prepare(disk)
        disk.lose_power_before(step)
        try:
            use()
        except SimulatedCrash:
            check(Random(step))
        else:
            raise AssertionError("the power was never cut")
    return len(steps)
