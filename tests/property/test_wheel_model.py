"""The wheel against a sorted list: anything published, in any order of background work, comes out
once, in key order, with its own bytes; over seconds, hours, days and years."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hourwheel.types import SEQUENCE_MAX, Key
from tests.sim.disk import SimulatedDisk
from tests.support.wheel_world import WheelWorld
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

_START = 20_000 * DAY_MS + 10 * HOUR_MS

_delays = st.one_of(
    st.integers(0, 3_000),
    st.integers(0, 3 * HOUR_MS),
    st.sampled_from([0, 1, 999, 1_000, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS]),
    st.integers(0, 5 * DAY_MS),
    st.integers(0, 900 * DAY_MS),
)


class WheelMachine(RuleBasedStateMachine):
    """Random lives of a wheel."""

    @initialize(near_bytes=st.sampled_from([4 << 20, 3 << 20]), merge=st.integers(2, 4))
    def begin(self, near_bytes: int, merge: int) -> None:
        """Start at some ten o'clock."""
        config = WheelConfig(near_bytes_max=near_bytes, merge_run_count=merge)
        self.world = WheelWorld(SimulatedDisk(), config)
        self.world.cursor = Key(_START, SEQUENCE_MAX)
        self.world.now_ms = _START
        self.world.wheel.near.frontier = self.world.cursor

    @rule(delays=st.lists(_delays, min_size=1, max_size=40))
    def publish(self, delays: list[int]) -> None:
        """Publish at various distances."""
        self.world.publish([self.world.now_ms + delay for delay in delays])

    @rule(delay=_delays, count=st.integers(1, 300))
    def publish_hot(self, delay: int, count: int) -> None:
        """Many in one millisecond."""
        self.world.publish([self.world.now_ms + delay] * count)

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
        expected = sorted(key for key in world.pending if key <= loaded)
        assert count == min(limit, len(expected))
        if count == limit < len(expected):
            assert to == expected[limit - 1]
        world.take(to)

    @rule()
    def load_ahead(self) -> None:
        """Preload as a master does while it waits."""
        self.world.wheel.load_ahead(self.world.cursor, self.world.now_ms)

    @rule()
    def next_pending_is_never_late(self) -> None:
        """The next wake-up is at or before the first pending message, if there is one."""
        found = self.world.wheel.next_pending_ms(self.world.cursor)
        if self.world.pending:
            assert found is not None
            assert found <= min(self.world.pending).due_ms

    @rule(install=st.booleans())
    def flush(self, install: bool) -> None:  # noqa: FBT001
        """Flush, or try to and fail."""
        self.world.flush(install=install)

    @rule()
    def merge(self) -> None:
        """One merge, if one is due."""
        self.world.merge()

    @rule()
    def cascade(self) -> None:
        """One cascade, if one is due."""
        self.world.cascade()

    @rule()
    def reopen(self) -> None:
        """Restart."""
        self.world.reopen()

    @invariant()
    def count_fits(self) -> None:
        """Level 0 holds no more than is pending."""
        if hasattr(self, "world"):
            assert self.world.wheel.near.count <= len(self.world.pending)

    def teardown(self) -> None:
        """At the end of time everything has come out."""
        self.world.take(Key(self.world.now_ms + 1_000 * DAY_MS, SEQUENCE_MAX))
        assert not self.world.pending


WheelMachine.TestCase.settings = settings(stateful_step_count=40)
TestWheelAgainstSortedList = WheelMachine.TestCase
