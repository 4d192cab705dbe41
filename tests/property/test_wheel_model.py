"""The wheel against a bag of keys: anything published, or given back, in any order of background
work, comes out once, in key order, with its own bytes; over seconds, hours, days and years, with
power cuts on the way.

Most of what happens is close together in time, or background work and the near level would never
meet: seeding bugs (a forgotten memtable, readers that are not opened again) showed it. So steps
have weights, and each draws what it needs from a generator of its own.
"""

from random import Random
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import SEQUENCE_MAX, Key
from storage.views.unit import UNIT_BYTES
from tests.sim.disk import SimulatedDisk
from tests.support.small_sizes import small_sizes
from tests.support.wheel_world import START_MS, WheelWorld, after
from timewheel.levels import DAY_MS, HOUR_LEVEL, HOUR_MS, SECOND_MS
from timewheel.run import Run
from timewheel.wheel import WheelConfig

JOBS: Final = ("begin_flush",) * 2 + ("begin_merge",) * 2 + ("begin_cascade",) * 2
WEIGHTS: Final = {
    "publish": 3,
    "publish_hot": 2,
    "publish_dense": 4,
    "give_back": 3,
    "advance": 3,
    "leap": 2,
    "tick": 6,
    "follow_chain": 2,
    "ask_for_the_next": 2,
    "begin_job": 2,
    "end_job": 3,
    "do_jobs": 3,
    "restart": 1,
    "lose_power_in_job": 1,
}
STEPS: Final = st.tuples(
    st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)]),
    st.integers(0, 1 << 32),
)


def soon(rng: Random) -> int:
    """A delay of a few seconds, often at a border."""
    return rng.choice((0, 1, 31, 32, 999, 1_000, *(rng.randrange(4_000) for _ in range(6))))


def later(rng: Random) -> int:
    """A delay of hours or days."""
    hours = rng.choice((1, 1, 2, 13, 24, 24, 48, 72))
    return hours * HOUR_MS - rng.randrange(2) + rng.choice((0, soon(rng)))


def some_delay(rng: Random) -> int:
    """Any delay, up to years."""
    return rng.choice((soon, soon, soon, later, lambda rng: rng.randrange(900 * DAY_MS)))(rng)


def has_units(run: Run, hour: int, slot: int) -> bool:
    """Whether an hour-level run has units in a second: by looking at them."""
    seconds = run.read(*run.section(hour))["due_ms"] % HOUR_MS // SECOND_MS
    return slot in seconds.tolist()


class Life:
    """One life of a wheel: each method is a step."""

    def __init__(self, rng: Random) -> None:
        load_units = rng.choice((2, 8, 32))
        config = WheelConfig(
            near_bytes_max=rng.choice((2, 2, 5, 100_000)) * load_units * UNIT_BYTES,
            load_units=load_units,
            memtable_units_max=64,
            hour_level_days=rng.choice((0, 1, 2)),
            merge_run_count=rng.choice((2, 3)),
        )
        self.world = WheelWorld(SimulatedDisk(), config, after(0), START_MS)

    # -- in

    def _publish(self, delays: list[int], rng: Random) -> None:
        self.world.publish([self.world.now_ms + delay for delay in delays])
        if rng.random() < 0.5 and self.world.job is None:
            self.world.flush()

    def publish(self, rng: Random) -> None:
        """Some messages at various distances."""
        self._publish([some_delay(rng) for _ in range(rng.randint(1, 20))], rng)

    def publish_hot(self, rng: Random) -> None:
        """Many in one millisecond."""
        self._publish([some_delay(rng)] * rng.randint(1, 40), rng)

    def publish_dense(self, rng: Random) -> None:
        """Many in a few seconds."""
        first, spread_ms = rng.choice((soon, soon, later))(rng), rng.choice((40, 1_000, 9_000))
        self._publish([first + rng.randrange(spread_ms) for _ in range(rng.randint(1, 60))], rng)

    def give_back(self, rng: Random) -> None:
        """Some groups want a message again, at the same moment: units that share a key."""
        due_ms = self.world.now_ms + some_delay(rng)
        for _ in range(rng.randint(1, 3)):
            self.world.give_back(rng.randrange(50), due_ms, rng.randint(1, 12))
        self._publish([], rng)

    # -- out

    def advance(self, rng: Random) -> None:
        """Release everything up to a later instant."""
        self.world.take(Key(self.world.now_ms + soon(rng), SEQUENCE_MAX))

    def leap(self, rng: Random) -> None:
        """Release everything of some hours or days."""
        self.world.take(Key(self.world.now_ms + later(rng), SEQUENCE_MAX))

    def tick(self, rng: Random) -> None:
        """As a node's timer does: plan a dispatch of at most so many units, then preload.

        Maybe with a clock that is behind the cursor; maybe the dispatch is not applied by then.
        """
        world, limit = self.world, rng.randint(1, 50)
        target = Key(world.now_ms + rng.randrange(9_000), SEQUENCE_MAX)
        loaded = world.wheel.load_for_plan(world.cursor, target, limit)
        to, count = world.wheel.near.plan(world.cursor, loaded, limit)
        expected = world.pending_keys(loaded)
        assert count == min(limit, len(expected))
        assert loaded == target or count == limit
        assert to == (expected[limit - 1] if count < len(expected) else loaded)
        world.check_near()
        if rng.random() < 0.5:
            world.take(to)
        lag_ms = rng.choice((0, 0, 0, 500, 5_000, HOUR_MS))
        world.wheel.load_ahead(world.cursor, world.now_ms - lag_ms)

    # -- questions

    def follow_chain(self, rng: Random) -> None:
        """The chain of a second leads to every run that has units in it, newest first."""
        keys = self.world.pending_keys()
        if keys:
            due_ms = rng.choice(keys).due_ms
            hour, slot = due_ms // HOUR_MS, due_ms % HOUR_MS // SECOND_MS
            runs = self.world.wheel.runs.of_level(HOUR_LEVEL)
            having = [run for run in runs if has_units(run, hour, slot)]
            assert self.world.wheel.runs.chain(hour, slot) == having[::-1]

    def ask_for_the_next(self, rng: Random) -> None:
        """The next wake-up is at or before the first pending message, if there is one."""
        found = self.world.wheel.next_pending_ms(self.world.cursor)
        keys = self.world.pending_keys()
        if keys:
            assert found is not None
            assert self.world.cursor.due_ms <= found <= keys[0].due_ms

    # -- background work

    def begin_job(self, rng: Random) -> None:
        """A job is under way, if none is."""
        if self.world.job is None:
            getattr(self.world, rng.choice(JOBS))()

    def end_job(self, rng: Random) -> None:
        """What it wrote is put in place, or thrown away."""
        self.world.end_job(install=rng.random() < 0.75)

    def do_jobs(self, rng: Random) -> None:
        """Whole jobs, one after the other."""
        self.world.end_job()
        for _ in range(rng.randint(1, 4)):
            self.begin_job(rng)
            self.world.end_job()

    def restart(self, rng: Random) -> None:
        """Restart, whatever is under way."""
        rng.choice((self.world.reopen, lambda: self.world.lose_power(rng)))()

    def lose_power_in_job(self, rng: Random) -> None:
        """Power fails in the middle of a job."""
        self.world.end_job()
        begin = getattr(self.world, rng.choice(JOBS))
        takes_effect = rng.random() < 0.5
        self.world.lose_power_in(begin, rng.randint(1, 6), rng, takes_effect=takes_effect)


@given(seed=st.integers(0, 1 << 32), steps=st.lists(STEPS, min_size=60, max_size=120))
def test_I1_I3_wheel_when_it_lives_any_life(  # noqa: N802
    seed: int, steps: list[tuple[str, int]]
) -> None:
    with small_sizes():
        life = Life(Random(seed))
        for name, step_seed in steps:
            getattr(life, name)(Random(step_seed))
            life.world.check()
        life.world.take(Key(life.world.now_ms + 1_000 * DAY_MS, SEQUENCE_MAX))
        assert not life.world.pending
