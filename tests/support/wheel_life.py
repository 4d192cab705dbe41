"""What happens to a wheel while something long goes on beside it: anything, from a seed."""

from random import Random
from typing import Final

from hourwheel.types import SEQUENCE_MAX, Key
from tests.sim.disk import SimulatedDisk
from tests.support.wheel_world import START_MS, WheelWorld, after
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.run import Run
from timewheel.wheel import WheelConfig

JOBS: Final = ("begin_flush", "begin_flush", "begin_merge", "begin_cascade")


def some_delay(rng: Random) -> int:
    """Mostly close together, now and then up to years."""
    near = rng.choice((0, 1, 999, 1_000, rng.randrange(4_000)))
    far = rng.choice(
        (0, 0, 0, HOUR_MS, 13 * HOUR_MS, DAY_MS, 3 * DAY_MS, rng.randrange(900 * DAY_MS))
    )
    return far + near


class Life:
    """A wheel, and what may happen to it."""

    def __init__(self, rng: Random) -> None:
        config = WheelConfig(
            load_units=8,
            memtable_units_max=64,
            hour_level_days=rng.choice((0, 1, 2)),
            merge_run_count=rng.choice((2, 3)),
        )
        self.world = WheelWorld(SimulatedDisk(), config, after(0), START_MS)
        self.known: set[Run] = set()

    def publish(self, rng: Random) -> None:
        """Some at various distances, or many at one moment."""
        now_ms, same_ms = self.world.now_ms, some_delay(rng)
        hot = rng.random() < 0.3
        delays = [same_ms if hot else some_delay(rng) for _ in range(rng.randint(1, 40))]
        self.world.publish([now_ms + delay for delay in delays])

    def give_back(self, rng: Random) -> None:
        """Some groups want a message again: units that share a key."""
        due_ms = self.world.now_ms + some_delay(rng)
        self.world.give_back(rng.randrange(50), due_ms, rng.randint(1, 6))

    def advance(self, rng: Random) -> None:
        """Time goes on, and what is due is released."""
        self.world.take(Key(self.world.now_ms + some_delay(rng), SEQUENCE_MAX))

    def begin_job(self, rng: Random) -> None:
        """A job is under way, if none is."""
        if self.world.job is None:
            getattr(self.world, rng.choice(JOBS))()

    def end_job(self, rng: Random) -> None:
        """Its result is put in place, or thrown away; files that nobody needs are gone then."""
        self.world.end_job(install=rng.random() < 0.8)
        runs = set(self.world.wheel.runs.all())
        for run in self.known - runs - self.world.wheel.runs_in_use():
            run.__dict__["_file"] = None
        self.known = runs

    def do_jobs(self, rng: Random) -> None:
        """Whole jobs, one after the other."""
        self.end_job(rng)
        for _ in range(rng.randint(1, 4)):
            self.begin_job(rng)
            self.end_job(rng)

    def live(self, rng: Random) -> None:
        """A few things happen."""
        steps = (self.publish, self.publish, self.give_back, self.begin_job, self.end_job)
        for _ in range(rng.randint(0, 3)):
            rng.choice((*steps, self.do_jobs, self.do_jobs))(rng)
