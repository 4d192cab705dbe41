from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from storage.views.unit import UNIT_BYTES, is_sorted, sort_by_key
from tests.support.runs import KeyPair, keyed, pairs_of
from timewheel.near import NEAR_BUCKET_MS, Near

LAST_MS = 4 * NEAR_BUCKET_MS
KEYS = st.tuples(st.integers(0, LAST_MS), st.integers(0, 6))
BORDERS = st.tuples(
    st.sampled_from(
        [0, 1, NEAR_BUCKET_MS - 1, NEAR_BUCKET_MS, 2 * NEAR_BUCKET_MS - 1, 2 * NEAR_BUCKET_MS]
    ),
    st.sampled_from([0, 1, SEQUENCE_MAX]),
)
BOUNDS = st.one_of(KEYS, BORDERS).map(lambda pair: Key(*pair))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["extend", "insert"]), st.lists(KEYS, max_size=8), BOUNDS),
        st.tuples(st.sampled_from(["take", "first"]), st.none(), BOUNDS),
        st.tuples(st.just("plan"), st.integers(1, 5), BOUNDS),
        st.tuples(st.just("cut_back"), st.integers(0, 6), BOUNDS),
    ),
    max_size=25,
)


class NearBesideAList:
    """Does the same with a `Near` and with a sorted list of keys."""

    def __init__(self) -> None:
        self.near = Near()
        self.keys: list[KeyPair] = []
        self.cursor = KEY_MIN

    def run(self, steps: list[tuple[str, Any, Key]]) -> None:
        for name, argument, bound in steps:
            getattr(self, name)(argument, bound)
            assert self.near.count == len(self.keys)
            assert self.near.size_bytes == len(self.keys) * UNIT_BYTES
            found = [key for units in self.near.arrays() for key in pairs_of(units)]
            assert sorted(found) == self.keys
            assert all(self.cursor < key <= self.near.frontier for key in self.keys)

    def extend(self, keys: list[KeyPair], to: Key) -> None:
        frontier = max(to, self.near.frontier)
        fresh = [key for key in keys if self.near.frontier < key <= frontier]
        self.near.extend(sort_by_key(keyed(fresh)), frontier)
        self.keys = sorted([*self.keys, *fresh])

    def insert(self, keys: list[KeyPair], _: Key) -> None:
        fresh = [key for key in keys if self.cursor < key <= self.near.frontier]
        self.near.insert(keyed(fresh))
        self.keys = sorted([*self.keys, *fresh])

    def take(self, _: None, to: Key) -> None:
        to = min(to, self.near.frontier)
        taken = self.near.take(to)
        expected = [key for key in self.keys if key <= to]
        assert pairs_of(taken) == expected
        self.keys = self.keys[len(expected) :]
        self.cursor = max(self.cursor, to)

    def first(self, _: None, after: Key) -> None:
        later = [key for key in self.keys if key > after]
        assert self.near.first_due_ms_after(after) == (later[0][0] if later else None)

    def plan(self, limit: int, after: Key) -> None:
        target = self.near.frontier
        inside = [key for key in self.keys if after < key <= target]
        to, count = self.near.plan(after, target, limit)
        assert count == min(limit, len(inside))
        assert to == (target if len(inside) <= limit else inside[limit - 1])

    def cut_back(self, count: int, keep: Key) -> None:
        keep, before = max(keep, self.cursor), self.near.frontier
        self.near.cut_back(count * UNIT_BYTES, keep)
        frontier = self.near.frontier
        if frontier != before:
            assert keep <= frontier < before
        if len(self.keys) > count and (frontier == before or self.near.count > count):
            # What is left cannot be dropped without dropping what `keep` demands.
            start = self.near.count and max(key[0] for key in self.keys if key <= frontier)
            assert Key(start // NEAR_BUCKET_MS * NEAR_BUCKET_MS - 1, SEQUENCE_MAX) < keep
        self.keys = [key for key in self.keys if key <= frontier]


@given(STEPS)
def test_near_when_used_in_any_order_is_a_sorted_list(steps: list[tuple[str, Any, Key]]) -> None:
    NearBesideAList().run(steps)


def filled(*keys: KeyPair, frontier_ms: int = 1_000) -> Near:
    near = Near()
    near.extend(sort_by_key(keyed(keys)), Key(frontier_ms, SEQUENCE_MAX))
    return near


def test_take_when_beyond_the_frontier_stops() -> None:
    near = filled((5, 0))
    with pytest.raises(errors.InvariantViolated):
        near.take(Key(1_001, 0))


def test_extend_when_the_frontier_would_move_back_stops() -> None:
    near = filled((5, 0))
    with pytest.raises(errors.InvariantViolated):
        near.extend(keyed([]), Key(999, SEQUENCE_MAX))
    near.extend(keyed([]), near.frontier)


def test_take_when_inserts_came_in_any_order_is_in_key_order() -> None:
    near = filled((100, 5), (100, 9), (700, 1))
    near.insert(keyed([(700, 0), (100, 7), (40, 8), (100, 6)]))
    near.insert(keyed([(100, 5)]))  # the same message, given back by another group
    assert near.first_due_ms_after(KEY_MIN) == 40
    assert pairs_of(near.take(Key(100, 6))) == [(40, 8), (100, 5), (100, 5), (100, 6)]
    near.insert(keyed([(100, 7)]))  # into a bucket that is in order and half taken
    assert pairs_of(near.take(Key(1_000, 0))) == [(100, 7), (100, 7), (100, 9), (700, 0), (700, 1)]
    assert near.count == 0


def test_take_when_nothing_is_there_is_empty() -> None:
    near = filled(frontier_ms=50)
    assert len(near.take(Key(50, 0))) == 0
    assert near.first_due_ms_after(KEY_MIN) is None
    assert near.plan(KEY_MIN, Key(50, 0), 3) == (Key(50, 0), 0)


def test_plan_when_exactly_the_limit_fits_goes_to_the_target() -> None:
    near = filled((10, 0), (10, 1), (500, 2))
    target = Key(900, SEQUENCE_MAX)
    assert near.plan(KEY_MIN, target, 3) == (target, 3)
    assert near.plan(KEY_MIN, target, 2) == (Key(10, 1), 2)
    assert near.plan(Key(10, 0), target, 1) == (Key(10, 1), 1)
    assert near.plan(Key(10, 0), Key(499, 0), 1) == (Key(499, 0), 1)


def test_plan_when_the_limit_lies_inside_a_bucket() -> None:
    keys = [(10, 0), (10, 1), (11, 0), (12, 5), (12, 6), (500, 2)]
    near = filled(*keys)
    target = Key(900, SEQUENCE_MAX)
    for first in range(5):
        for limit in range(1, 5 - first):
            after = Key(*keys[first - 1]) if first else KEY_MIN
            assert near.plan(after, target, limit) == (Key(*keys[first + limit - 1]), limit)


def test_plan_when_it_is_asked_leaves_everything_in_place() -> None:
    near = filled((10, 0), (10, 1), (500, 2))
    near.plan(KEY_MIN, Key(900, 0), 1)
    assert pairs_of(near.take(Key(900, 0))) == [(10, 0), (10, 1), (500, 2)]


def test_cut_back_when_all_is_one_millisecond_keeps_or_drops_it_whole() -> None:
    near = filled(*((500, sequence) for sequence in range(100)))
    near.cut_back(10 * UNIT_BYTES, Key(500, 3))
    assert near.count == 100
    near.cut_back(10 * UNIT_BYTES, Key(400, 0))
    assert near.count == 0
    assert Key(400, 0) <= near.frontier < Key(500, 0)


def test_cut_back_when_it_fits_changes_nothing() -> None:
    near = filled((10, 0), (900, 1))
    before = near.frontier
    near.cut_back(2 * UNIT_BYTES, KEY_MIN)
    assert (near.count, near.frontier) == (2, before)


def test_cut_back_when_the_frontier_was_far_ahead_drops_the_last_first() -> None:
    near = filled((10, 0), (500, 1), (900, 2))
    near.cut_back(2 * UNIT_BYTES, KEY_MIN)
    assert Key(500, 1) <= near.frontier < Key(900, 2)
    assert pairs_of(near.take(near.frontier)) == [(10, 0), (500, 1)]


def test_cut_back_when_loaded_again_has_everything_once() -> None:
    near = filled((10, 0), (500, 1), (900, 2))
    near.cut_back(UNIT_BYTES, KEY_MIN)
    frontier = near.frontier
    lost = [key for key in [(10, 0), (500, 1), (900, 2)] if key > frontier]
    near.extend(keyed(lost), Key(1_000, 0))
    taken = near.take(Key(1_000, 0))
    assert pairs_of(taken) == [(10, 0), (500, 1), (900, 2)]
    assert is_sorted(taken)


def test_first_when_units_came_one_by_one_looks_at_few_arrays() -> None:
    near = Near()
    near.extend(keyed([]), Key(LAST_MS, SEQUENCE_MAX))
    for sequence in range(1_000):
        near.insert(keyed([(5, sequence)]))
        assert near.first_due_ms_after(Key(5, max(0, sequence - 1))) in (5, None)
        assert len(near.arrays()) <= 33
    assert near.first_due_ms_after(KEY_MIN) == 5
    assert near.first_due_ms_after(Key(5, 998)) == 5
    assert near.first_due_ms_after(Key(5, 999)) is None
    assert near.count == 1_000


def test_first_when_what_was_found_has_gone_or_others_came_before() -> None:
    near = Near()
    near.extend(keyed([(5, 1), (8, 0), (40, 2), (200, 3)]), Key(LAST_MS * 2, 0))
    assert near.first_due_ms_after(KEY_MIN) == 5
    near.take(Key(5, 0))
    assert near.first_due_ms_after(KEY_MIN) == 5
    near.take(Key(5, 1))
    assert near.first_due_ms_after(KEY_MIN) == 8
    near.take(Key(8, 0))
    assert near.first_due_ms_after(KEY_MIN) == 40
    near.insert(keyed([(30, 4), (50, 5)]))
    assert near.first_due_ms_after(KEY_MIN) == 30
    near.take(Key(60, 0))
    assert near.first_due_ms_after(Key(20, 0)) == 200
    near.insert(keyed([(20, 7)]))
    assert near.first_due_ms_after(Key(20, 6)) == 20
    near.cut_back(0, KEY_MIN)
    assert near.first_due_ms_after(Key(20, 0)) is None
