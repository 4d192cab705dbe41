"""A scan of a range against a bag of keys, while the wheel lives on between its steps.

What stays in the wheel for the whole scan comes once, with its bytes where its unit says; nothing
comes twice, nothing that was not there; and no file is read that the wheel has let go.
"""

from collections import Counter
from random import Random
from typing import Final
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import SEQUENCE_MAX, Key
from tests.sim.disk import SimulatedDisk
from tests.support.small_sizes import small_sizes
from tests.support.wheel_world import START_MS, Entry, WheelWorld, after, body_of, entries_of
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.range_scan import RangeScan
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
    """A wheel, and the scan that goes through it."""

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


def pending_in(world: WheelWorld, low: Key, high: Key) -> Counter[Entry]:
    """What the model has in (low, high]."""
    return Counter({one: count for one, count in world.pending.items() if low < one[0] <= high})


def some_range(rng: Random, world: WheelWorld) -> tuple[Key, Key]:
    """Any range: all of it, between two keys, or around one."""
    keys = [*world.pending_keys(), world.cursor, after(some_delay(rng))]
    low, high = sorted((rng.choice(keys), rng.choice(keys)))
    if rng.random() < 0.4:
        low = world.cursor
    if rng.random() < 0.4:
        high = Key(1 << 52, SEQUENCE_MAX)
    return max(low, world.cursor), max(high, world.cursor)


@given(seed=st.integers(0, 1 << 32), births=st.integers(1, 12), is_calm=st.booleans())
def test_scan_when_the_wheel_lives_on(seed: int, births: int, is_calm: bool) -> None:
    rng = Random(seed)
    with small_sizes(), mock.patch("timewheel.range_scan.BLOCK_UNITS", rng.choice((2, 8))):
        life = Life(rng)
        for _ in range(births):
            life.live(rng)
            life.publish(rng)
            if rng.random() < 0.2:
                life.advance(rng)
        world = life.world
        low, high = some_range(rng, world)
        scan = RangeScan(world.wheel, low, high)
        at_begin, seen, found = pending_in(world, low, high), Counter[Entry](), Counter[Entry]()
        while not scan.is_done:
            reached = scan.after
            stretches = scan.step(rng.randint(1, 40))
            seen |= pending_in(world, low, high)
            assert scan.after >= reached
            for units in stretches:
                assert entries_of(units) == sorted(entries_of(units), key=lambda one: one[0])
                found.update(entries_of(units))
                blobs, bad = world.bodies.read(units)
                assert not bad
                sequences = units["sequence"].tolist()
                assert [bytes(one) for one in blobs] == [body_of(one) for one in sequences]
            # Whatever is there now up to the key that it has reached was found, but for newcomers.
            assert not (at_begin & pending_in(world, low, scan.after)) - found
            if not is_calm:
                life.live(rng)
            if rng.random() < 0.1:
                scan.rewind(scan.after)
        assert not found - seen, "twice, or never there"
        assert not (at_begin & pending_in(world, low, high)) - found
        if is_calm:
            assert found == at_begin
