"""The wheel against a bag of keys: anything published, or given back, in any order of background
work, comes out once, in key order, with its own bytes; over seconds, hours, days and years, with
power cuts on the way."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hourwheel.types import SEQUENCE_MAX, Key
from storage.unit import UNIT_BYTES
from tests.sim.disk import SimulatedDisk
from tests.support.wheel_world import START_MS, WheelWorld, after
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

_delays = st.one_of(
    st.integers(0, 3_000),
    st.integers(0, 20_000),
    st.integers(0, 3 * HOUR_MS),
    st.sampled_from([0, 1, 999, 1_000, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS]),
    st.integers(0, 5 * DAY_MS),
    st.integers(0, 900 * DAY_MS),
)
_seeds = st.integers(0, 1 << 32)
_jobs = st.sampled_from(["begin_flush", "begin_flush", "begin_merge", "begin_cascade"])


class WheelMachine(RuleBasedStateMachine):
    """Random lives of a wheel."""

    @initialize(
        load_units=st.sampled_from([8, 50, 1_000]),
        near_units=st.sampled_from([20, 300, 100_000]),
        merge=st.integers(2, 4),
        hour_level_days=st.integers(0, 2),
    )
    def begin(self, load_units: int, near_units: int, merge: int, hour_level_days: int) -> None:
        """Start at some ten o'clock."""
        config = WheelConfig(
            near_bytes_max=near_units * UNIT_BYTES,
            load_units=load_units,
            memtable_units_max=64,
            hour_level_days=hour_level_days,
            merge_run_count=merge,
        )
        self.world = WheelWorld(SimulatedDisk(), config, after(0), START_MS)

    # -- in

    @rule(delays=st.lists(_delays, min_size=1, max_size=40))
    def publish(self, delays: list[int]) -> None:
        """Publish at various distances."""
        self.world.publish([self.world.now_ms + delay for delay in delays])

    @rule(delay=_delays, count=st.integers(1, 600))
    def publish_hot(self, delay: int, count: int) -> None:
        """Many in one millisecond."""
        self.world.publish([self.world.now_ms + delay] * count)

    @rule(delay=_delays, spread_ms=st.integers(1, 9_000), count=st.integers(1, 300))
    def publish_dense(self, delay: int, spread_ms: int, count: int) -> None:
        """Many in a few seconds."""
        start_ms = self.world.now_ms + delay
        self.world.publish([start_ms + ordinal * 97 % spread_ms for ordinal in range(count)])

    @rule(ordinal=st.integers(0, 50), delay=_delays, groups=st.integers(1, 300))
    def give_back(self, ordinal: int, delay: int, groups: int) -> None:
        """Some groups want one message again, at the same moment: units that share a key."""
        self.world.give_back(ordinal, self.world.now_ms + delay, groups)

    # -- out

    @rule(step=_delays)
    def advance(self, step: int) -> None:
        """Release everything up to a later instant."""
        self.world.take(Key(self.world.now_ms + step, SEQUENCE_MAX))

    @rule(limit=st.integers(1, 50), reach=_delays)
    def dispatch(self, limit: int, reach: int) -> None:
        """Release as the dispatcher does: planned, and at most so many."""
        world = self.world
        target = Key(world.now_ms + reach, SEQUENCE_MAX)
        loaded = world.wheel.load_for_plan(world.cursor, target, limit)
        to, count = world.wheel.near.plan(world.cursor, loaded, limit)
        expected = world.pending_keys(loaded)
        assert count == min(limit, len(expected))
        assert loaded == target or count == limit
        assert to == (expected[limit - 1] if count < len(expected) else loaded)
        world.take(to)

    @rule(lag_ms=st.sampled_from([0, 0, 500, 5_000, HOUR_MS]))
    def load_ahead(self, lag_ms: int) -> None:
        """Preload as a master does while it waits, maybe with a clock behind the cursor."""
        self.world.wheel.load_ahead(self.world.cursor, self.world.now_ms - lag_ms)

    @rule()
    def next_pending_is_never_late(self) -> None:
        """The next wake-up is at or before the first pending message, if there is one."""
        found = self.world.wheel.next_pending_ms(self.world.cursor)
        keys = self.world.pending_keys()
        if keys:
            assert found is not None
            assert self.world.cursor.due_ms <= found <= keys[0].due_ms

    # -- background work

    @precondition(lambda self: self.world.job is None)
    @rule(job=_jobs)
    def begin_job(self, job: str) -> None:
        """A job is under way."""
        getattr(self.world, job)()

    @rule(install=st.sampled_from([True, True, False]))
    def end_job(self, *, install: bool) -> None:
        """What it wrote is put in place, or thrown away."""
        self.world.end_job(install=install)

    @precondition(lambda self: self.world.job is None)
    @rule(jobs=st.lists(_jobs, min_size=1, max_size=3))
    def do_jobs(self, jobs: list[str]) -> None:
        """Whole jobs."""
        for job in jobs:
            getattr(self.world, job)()
            self.world.end_job()

    @rule()
    def reopen(self) -> None:
        """Restart."""
        self.world.reopen()

    @rule(seed=_seeds)
    def lose_power(self, seed: int) -> None:
        """Power fails, whatever is under way."""
        self.world.lose_power(Random(seed))

    @precondition(lambda self: self.world.job is None)
    @rule(job=_jobs, at=st.integers(1, 6), takes_effect=st.booleans(), seed=_seeds)
    def lose_power_in_job(self, job: str, at: int, seed: int, *, takes_effect: bool) -> None:
        """Power fails in the middle of a job."""
        begin = getattr(self.world, job)
        self.world.lose_power_in(begin, at, Random(seed), takes_effect=takes_effect)

    # -- what must hold

    @invariant()
    def check(self) -> None:
        """Level 0 is complete up to its frontier, and every message is in one place."""
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """At the end of time everything has come out."""
        if hasattr(self, "world"):
            self.world.take(Key(self.world.now_ms + 1_000 * DAY_MS, SEQUENCE_MAX))
            assert not self.world.pending


WheelMachine.TestCase.settings = settings(stateful_step_count=40)
TestWheelAgainstBagOfKeys = WheelMachine.TestCase
