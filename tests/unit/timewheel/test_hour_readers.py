from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from storage.views.unit import sort_by_key
from tests.sim.disk import SimulatedDisk
from tests.support.runs import KeyPair, keyed, pairs_of, write_run
from tests.support.wheel_world import END as END_OF_ALL
from tests.support.wheel_world import START_MS, after, world_at_start
from timewheel.hour_readers import HourReaders
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.run import Run
from timewheel.run_format import unit_at
from timewheel.run_set import Piece

END = Key(HOUR_MS - 1, SEQUENCE_MAX)
KEYS = st.tuples(st.integers(0, 30), st.integers(0, 3))
RUNS = st.lists(st.lists(KEYS, max_size=25).map(sorted), max_size=6)


readers_of = partial(HourReaders, buffer_units_min=1)
"""Buffers as small as asked for, so that a few units cross many of their borders."""


def pieces_of(disk: SimulatedDisk, runs: list[list[KeyPair]], first_id: int = 1) -> list[Piece]:
    found: list[Piece] = []
    for run_id, keys in enumerate(runs, first_id):
        run = write_run(disk, keyed(keys), run_id=run_id)
        found.append((run, *run.section(0)))
    return found


class Drain:
    """Takes and holds what comes against what must."""

    def __init__(self, readers: HourReaders, after: Key, keys: list[KeyPair]) -> None:
        self.readers, self.bound = readers, after
        self.left = sorted(key for key in keys if key > after)

    def take(self, limit: Key, count: int) -> None:
        parts, bound = self.readers.take(limit, count)
        assert self.bound < bound <= limit
        found = sorted(key for units in parts for key in pairs_of(units))
        assert found == [key for key in self.left if key <= bound]
        assert all(pairs_of(units) == sorted(pairs_of(units)) for units in parts)
        self.left = self.left[len(found) :]
        self.bound = bound

    def to(self, limit: Key, count: int) -> None:
        while self.bound < limit:
            self.take(limit, count)


@given(
    runs=RUNS,
    after=KEYS,
    limits=st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, 1, 3, SEQUENCE_MAX]))),
    count=st.integers(1, 9),
)
def test_take_when_runs_are_merged_has_everything_once_in_order(
    runs: list[list[KeyPair]], after: Key, limits: list[KeyPair], count: int
) -> None:
    readers = readers_of(0, pieces_of(SimulatedDisk(), runs), Key(*after))
    drain = Drain(readers, Key(*after), [key for keys in runs for key in keys])
    for limit in sorted(limits):
        drain.to(Key(*limit), count)
    drain.to(END, count)
    assert drain.left == []


@given(runs=RUNS, more=RUNS, first=st.integers(1, 20), count=st.integers(1, 9))
def test_add_when_half_of_the_hour_is_read(
    runs: list[list[KeyPair]], more: list[list[KeyPair]], first: int, count: int
) -> None:
    disk = SimulatedDisk()
    readers = readers_of(0, pieces_of(disk, runs), KEY_MIN)
    drain = Drain(readers, KEY_MIN, [key for keys in runs for key in keys])
    drain.to(Key(first, 1), count)
    for piece in pieces_of(disk, more, first_id=100):
        readers.add(piece, drain.bound)
    added = [key for keys in more for key in keys if key > drain.bound]
    drain.left = sorted([*drain.left, *added])
    drain.to(END, count)
    assert drain.left == []


@pytest.mark.parametrize("copies", [2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_take_when_one_key_comes_several_times_never_tears_it_apart(
    copies: int, count: int
) -> None:
    # Several groups gave one message back for the same millisecond: one key, several units. A bound
    # at that key says that all of them are taken; a dispatch may end there, and a restart begin.
    keys = [(1, 0), *[(5, 7)] * copies, (5, 8), (9, 1)]
    drain = Drain(readers_of(0, pieces_of(SimulatedDisk(), [keys]), KEY_MIN), KEY_MIN, keys)
    drain.to(END, count)
    assert drain.left == []


def test_take_when_one_key_is_in_two_runs_and_at_the_end_of_a_buffer() -> None:
    runs = [[(1, 0), (5, 7), (5, 7), (6, 0)], [(5, 7), (5, 7), (5, 7)]]
    keys = [key for run in runs for key in run]
    drain = Drain(readers_of(0, pieces_of(SimulatedDisk(), runs), KEY_MIN), KEY_MIN, keys)
    drain.to(END, 2)
    assert drain.left == []


def test_take_when_a_second_is_hot_is_bounded_by_what_was_asked_for() -> None:
    runs = [[(5, sequence) for sequence in range(run, 3_000, 3)] for run in range(3)]
    readers = readers_of(0, pieces_of(SimulatedDisk(), runs), KEY_MIN)
    bound, seen = KEY_MIN, 0
    while bound < END:
        parts, bound = readers.take(END, 90)
        assert sum(map(len, parts)) <= 90
        seen += sum(map(len, parts))
    assert seen == 3_000


def test_take_when_limits_end_inside_a_millisecond() -> None:
    keys = [(5, sequence) for sequence in range(10)]
    drain = Drain(readers_of(0, pieces_of(SimulatedDisk(), [keys]), KEY_MIN), KEY_MIN, keys)
    for sequence in (0, 3, 4, 8):
        drain.to(Key(5, sequence), 100)
        assert len(drain.left) == 9 - sequence


def test_take_when_there_is_nothing_reaches_the_limit() -> None:
    assert readers_of(0, [], KEY_MIN).take(END, 10) == ([], END)
    run = write_run(SimulatedDisk(), keyed([(1, 1)]))
    readers = readers_of(0, [(run, 0, 0)], KEY_MIN)
    assert readers.runs() == set()
    readers.add((run, 1, 1), KEY_MIN)
    assert readers.take(END, 10) == ([], END)


def test_runs_when_some_are_read_to_their_end_are_let_go() -> None:
    pieces = pieces_of(SimulatedDisk(), [[(1, 0)], [(9, 0), (20, 0)]])
    readers = readers_of(0, pieces, KEY_MIN)
    assert readers.runs() == {pieces[0][0], pieces[1][0]}
    readers.take(Key(9, 0), 10)
    readers.take(Key(10, 0), 10)
    assert readers.runs() == {pieces[1][0]}


def test_take_when_a_piece_is_only_a_part_of_its_run() -> None:
    keys = [(due, 0) for due in range(20)]
    run = write_run(SimulatedDisk(), keyed(keys))
    drain = Drain(readers_of(0, [(run, 5, 9)], Key(5, 0)), KEY_MIN, keys[6:9])
    drain.to(END, 2)
    assert drain.left == []


def test_take_when_a_block_is_damaged_fails_again_and_again_and_loses_nothing() -> None:
    disk = SimulatedDisk()
    runs = [[(due, 0) for due in range(600)], [(due, 1) for due in range(600)]]
    pieces = pieces_of(disk, runs)
    drain = Drain(readers_of(0, pieces, KEY_MIN), KEY_MIN, sorted(runs[0] + runs[1]))
    drain.to(Key(100, 0), 40)
    damaged: Run = pieces[1][0]
    disk.flip_bit(damaged.path, unit_at(300))
    for _ in range(2):
        with pytest.raises(errors.CorruptFile):
            drain.to(END, 40)
    assert drain.bound < (256, 1)
    disk.flip_bit(damaged.path, unit_at(300))
    drain.to(END, 40)
    assert drain.left == []


@pytest.mark.parametrize("seed", range(3))
def test_take_when_many_runs_interleave(seed: int) -> None:
    rng = Random(seed)
    keys = [(rng.randrange(2_000), sequence) for sequence in range(2_000)]
    runs = [sorted(keys[run::40]) for run in range(40)]
    drain = Drain(readers_of(0, pieces_of(SimulatedDisk(), runs), KEY_MIN), KEY_MIN, keys)
    drain.to(END, 120)
    assert drain.left == []
    assert len(sort_by_key(keyed(keys))) == 2_000


# -- merges and cascades beside an hour that is read


def test_merge_when_the_hour_is_being_read_goes_on_in_the_old_runs() -> None:
    world = world_at_start(load_units=10)
    for part in range(2):
        world.publish([START_MS + ordinal * 50 + part for ordinal in range(1, 100)])
        world.flush()
    world.wheel.load_for_plan(world.cursor, after(9_000), 5)
    reading = world.wheel.runs_in_use()
    assert world.merge()
    assert world.wheel.runs_in_use() == reading
    assert not reading & set(world.wheel.runs.all())
    world.take(after(3_000))
    world.check()
    world.take(END_OF_ALL)


def test_cascade_when_the_hour_is_being_read_is_not_read_twice() -> None:
    world = world_at_start(load_units=10)
    day_ms = START_MS // DAY_MS * DAY_MS + 2 * DAY_MS
    world.publish([day_ms + ordinal * 50 for ordinal in range(1, 400)])
    world.flush()
    world.take(Key(day_ms + 2_000, 0))
    world.hour_level_end_day += 1
    assert world.cascade()
    world.check()
    world.publish([day_ms + 2_500 + ordinal for ordinal in range(100)])
    world.flush()
    world.take(Key(day_ms + 3_000, 0))
    world.take(END_OF_ALL)


def test_runs_in_use_when_the_next_hour_begins_are_let_go() -> None:
    world = world_at_start()
    world.publish([START_MS + 5_000, START_MS + HOUR_MS + 5_000])
    world.flush()
    world.publish([START_MS + 6_000])
    world.flush()
    world.take(after(1_000))
    assert len(world.wheel.runs_in_use()) == 2
    world.take(after(HOUR_MS + 1))
    assert len(world.wheel.runs_in_use()) == 1
    world.take(after(2 * HOUR_MS))
    assert world.wheel.runs_in_use() == set()
