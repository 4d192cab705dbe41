"""The wheel against a bag of keys: anything published, or given back, in any order of background
work, comes out once, in key order, with its own bytes; over seconds, hours, days and years, with
power cuts on the way.

Most of what happens is close together in time, or background work and level 0 would never meet:
seeding bugs (a forgotten memtable, readers that are not opened again) showed it.
"""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hourwheel.types import SEQUENCE_MAX, Key
from storage.unit import UNIT_BYTES
from tests.sim.disk import SimulatedDisk
from tests.support.small_sizes import small_sizes
from tests.support.wheel_world import START_MS, WheelWorld, after
from timewheel.levels import DAY_MS, HOUR_LEVEL, HOUR_MS, SECOND_MS
from timewheel.run import Run
from timewheel.wheel import WheelConfig

_soon = st.one_of(st.sampled_from([0, 1, 31, 32, 999, 1_000]), st.integers(0, 4_000))
_later = st.builds(
    int.__add__,
    st.sampled_from([HOUR_MS - 1, HOUR_MS, 2 * HOUR_MS, DAY_MS - 1, DAY_MS, 2 * DAY_MS]),
    _soon,
)
_delays = st.one_of(_soon, _soon, _later, st.integers(0, 900 * DAY_MS))
_seeds = st.integers(0, 1 << 32)
_jobs = st.sampled_from(["begin_flush", "begin_flush", "begin_merge", "begin_cascade"])


def has_units(run: Run, hour: int, slot: int) -> bool:
    """Whether an hour-level run has units in a second: by looking at them."""
    seconds = run.read(*run.section(hour))["due_ms"] % HOUR_MS // SECOND_MS
    return slot in seconds.tolist()


class WheelMachine(RuleBasedStateMachine):
    """Random lives of a wheel."""

    @initialize(
        load_units=st.sampled_from([2, 8, 32]),
        near_loads=st.sampled_from([2, 2, 5, 100_000]),
        merge=st.integers(2, 3),
        hour_level_days=st.integers(0, 2),
    )
    def begin(self, load_units: int, near_loads: int, merge: int, hour_level_days: int) -> None:
        """Start at some ten o'clock."""
        self._sizes = small_sizes()
        self._sizes.__enter__()
        config = WheelConfig(
            near_bytes_max=near_loads * load_units * UNIT_BYTES,
            load_units=load_units,
            memtable_units_max=64,
            hour_level_days=hour_level_days,
            merge_run_count=merge,
        )
        self.world = WheelWorld(SimulatedDisk(), config, after(0), START_MS)

    # -- in

    def _publish(self, delays: list[int], *, is_flushed: bool) -> None:
        self.world.publish([self.world.now_ms + delay for delay in delays])
        if is_flushed and self.world.job is None:
            self.world.flush()

    @rule(delays=st.lists(_delays, min_size=1, max_size=20), is_flushed=st.booleans())
    def publish(self, delays: list[int], *, is_flushed: bool) -> None:
        """Publish at various distances."""
        self._publish(delays, is_flushed=is_flushed)

    @rule(delay=_delays, count=st.integers(1, 40), is_flushed=st.booleans())
    def publish_hot(self, delay: int, count: int, *, is_flushed: bool) -> None:
        """Many in one millisecond."""
        self._publish([delay] * count, is_flushed=is_flushed)

    @rule(
        delay=st.one_of(_soon, _later),
        spread_ms=st.sampled_from([40, 1_000, 4_000, 9_000]),
        count=st.integers(1, 60),
        is_flushed=st.booleans(),
    )
    def publish_dense(self, delay: int, spread_ms: int, count: int, *, is_flushed: bool) -> None:
        """Many in a few seconds."""
        delays = [delay + ordinal * 611 % spread_ms for ordinal in range(count)]
        self._publish(delays, is_flushed=is_flushed)

    @rule(
        ordinal=st.integers(0, 50),
        delay=st.one_of(_soon, _delays),
        groups=st.integers(1, 12),
        is_flushed=st.booleans(),
    )
    def give_back(self, ordinal: int, delay: int, groups: int, *, is_flushed: bool) -> None:
        """Some groups want one message again, at the same moment: units that share a key."""
        self.world.give_back(ordinal, self.world.now_ms + delay, groups)
        self._publish([], is_flushed=is_flushed)

    # -- out

    @rule(step=_soon)
    def advance(self, step: int) -> None:
        """Release everything up to a later instant."""
        self.world.take(Key(self.world.now_ms + step, SEQUENCE_MAX))

    @rule(step=_later)
    def leap(self, step: int) -> None:
        """Release everything of some hours or days, and have days nearing cascaded."""
        self.advance(step)

    @rule(
        limit=st.integers(1, 50),
        reach=st.integers(0, 9_000),
        is_taken=st.booleans(),
        lag_ms=st.sampled_from([0, 0, 0, 500, 5_000, HOUR_MS]),
    )
    def tick(self, limit: int, reach: int, lag_ms: int, *, is_taken: bool) -> None:
        """Do as a node's timer does: plan a dispatch of at most so many units, then preload.

        Maybe with a clock that is behind the cursor; maybe the dispatch is not applied by then.
        """
        world = self.world
        target = Key(world.now_ms + reach, SEQUENCE_MAX)
        loaded = world.wheel.load_for_plan(world.cursor, target, limit)
        to, count = world.wheel.near.plan(world.cursor, loaded, limit)
        expected = world.pending_keys(loaded)
        assert count == min(limit, len(expected))
        assert loaded == target or count == limit
        assert to == (expected[limit - 1] if count < len(expected) else loaded)
        world.check_near()
        if is_taken:
            world.take(to)
        world.wheel.load_ahead(world.cursor, world.now_ms - lag_ms)

    # -- questions

    @rule(ordinal=st.integers(0, 1 << 30))
    def chain_has_every_run(self, ordinal: int) -> None:
        """The chain of a second leads to every run that has units in it, newest first."""
        world = self.world
        keys = world.pending_keys()
        if keys:
            due_ms = keys[ordinal % len(keys)].due_ms
            hour, slot = due_ms // HOUR_MS, due_ms % HOUR_MS // SECOND_MS
            runs = world.wheel.runs.of_level(HOUR_LEVEL)
            having = [run for run in runs if has_units(run, hour, slot)]
            assert world.wheel.runs.chain(hour, slot) == having[::-1]

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

    @precondition(lambda self: self.world.job is not None)
    @rule(install=st.sampled_from([True, True, False]))
    def end_job(self, *, install: bool) -> None:
        """What it wrote is put in place, or thrown away."""
        self.world.end_job(install=install)

    @precondition(lambda self: self.world.job is None)
    @rule(jobs=st.lists(_jobs, min_size=1, max_size=4))
    def do_jobs(self, jobs: list[str]) -> None:
        """Whole jobs."""
        for job in jobs:
            getattr(self.world, job)()
            self.world.end_job()

    @rule(seed=_seeds, is_power_cut=st.booleans())
    def restart(self, seed: int, *, is_power_cut: bool) -> None:
        """Restart, whatever is under way."""
        if is_power_cut:
            self.world.lose_power(Random(seed))
        else:
            self.world.reopen()

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
            try:
                self.world.take(Key(self.world.now_ms + 1_000 * DAY_MS, SEQUENCE_MAX))
                assert not self.world.pending
            finally:
                self._sizes.__exit__(None, None, None)


WheelMachine.TestCase.settings = settings(stateful_step_count=60)
TestWheelAgainstBagOfKeys = WheelMachine.TestCase
