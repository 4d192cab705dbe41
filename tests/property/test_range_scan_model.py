"""A scan of a range against a bag of keys, while the wheel lives on between its steps.

What stays in the wheel for the whole scan comes once, with its bytes where its unit says; nothing
comes twice, nothing that was not there; and no file is read that the wheel has let go.
"""

from collections import Counter
from random import Random
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from hourwheel.types import SEQUENCE_MAX, Key
from tests.support.small_sizes import small_sizes
from tests.support.wheel_life import Life, some_delay
from tests.support.wheel_world import Entry, WheelWorld, after, body_of, entries_of
from timewheel.range_scan import RangeScan

STEPS_MAX = 150
"""Of a scan while the wheel lives on; then it has some peace."""


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
@example(seed=60860578, births=12, is_calm=False)  # units of one key on both sides of a block's end
@example(seed=903, births=7, is_calm=False)  # runs change before all are opened, again and again
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
        steps = 0
        while not scan.is_done:
            steps += 1
            reached = scan.after
            parts = scan.step(rng.randint(1, 40))
            seen |= pending_in(world, low, high)
            assert scan.after >= reached
            for units in parts:
                assert entries_of(units) == sorted(entries_of(units), key=lambda one: one[0])
                found.update(entries_of(units))
                blobs, bad = world.bodies.read(units)
                assert not bad
                sequences = units["sequence"].tolist()
                assert [bytes(one) for one in blobs] == [body_of(one) for one in sequences]
            # Whatever is there now up to the key that it has reached was found, but for newcomers.
            assert not (at_begin & pending_in(world, low, scan.after)) - found
            # A wheel whose runs change with each step, and that grows by them, is never through.
            if not is_calm and steps <= STEPS_MAX:
                life.live(rng)
            if rng.random() < 0.1:
                scan.rewind(scan.after)
        assert not found - seen, "twice, or never there"
        assert not (at_begin & pending_in(world, low, high)) - found
        if is_calm:
            assert found == at_begin
