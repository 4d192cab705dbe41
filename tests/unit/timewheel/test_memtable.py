from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from tests.support.runs import keyed, pairs_of
from timewheel.memtable import UNSORTED_MAX, Memtable, within

KEYS = st.builds(Key, st.integers(0, 12), st.integers(0, 4))
"""Few, so that borders are met and keys repeat (a message given back by two groups)."""
BOUNDS = st.one_of(
    KEYS,
    st.just(KEY_MIN),
    st.builds(Key, st.integers(0, 13), st.sampled_from([0, SEQUENCE_MAX])),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(KEYS, max_size=5)),
        st.tuples(st.just("select"), st.tuples(BOUNDS, BOUNDS)),
        st.tuples(st.just("next_due_ms"), BOUNDS),
    ),
    max_size=30,
)


@given(steps=STEPS, capacity=st.integers(0, 3))
def test_memtable_when_asked_in_any_order_answers_as_a_list(
    steps: list[tuple[str, Any]], capacity: int
) -> None:
    table = Memtable(capacity)
    model: list[Key] = []
    for name, argument in steps:
        if name == "insert":
            table.insert(keyed(argument))
            model += argument
        elif name == "select":
            after, to = argument
            expected = [key for key in model if after < key <= to]
            assert pairs_of(table.select(after, to)) == expected
        else:
            later = [key for key in model if key > argument]
            assert table.next_due_ms(argument) == (min(later).due_ms if later else None)
        assert table.count == len(model)
    assert pairs_of(table.units) == model


def test_next_due_ms_when_something_earlier_is_inserted_behind_the_cache() -> None:
    table = Memtable()
    table.insert(keyed([(100, 0)]))
    assert table.next_due_ms(Key(10, SEQUENCE_MAX)) == 100  # from here on (10, 100) is known empty
    table.insert(keyed([(50, 1), (5, 2)]))
    assert table.next_due_ms(Key(10, SEQUENCE_MAX)) == 50
    assert table.next_due_ms(Key(4, SEQUENCE_MAX)) == 5
    assert pairs_of(table.select(Key(10, 0), Key(60, 0))) == [(50, 1)]


def test_next_due_ms_when_the_key_is_inside_a_millisecond() -> None:
    table = Memtable()
    table.insert(keyed([(7, 3), (7, 5), (9, 1)]))
    assert table.next_due_ms(Key(7, 3)) == 7
    assert table.next_due_ms(Key(7, 5)) == 9
    assert table.next_due_ms(Key(9, 1)) is None


def test_select_when_the_bounds_are_in_one_millisecond() -> None:
    table = Memtable()
    table.insert(keyed([(7, 5), (7, 3), (7, 4), (8, 3)]))
    assert pairs_of(table.select(Key(7, 3), Key(7, 5))) == [(7, 5), (7, 4)]
    assert pairs_of(table.select(Key(7, 5), Key(7, 5))) == []
    assert pairs_of(table.select(Key(7, 5), Key(7, 3))) == []


def test_select_when_what_it_gave_is_changed_keeps_its_own() -> None:
    table = Memtable()
    table.insert(keyed([(7, 3)]))
    found = table.select(KEY_MIN, Key(9, 0))
    found["position"] = 99
    assert table.units["position"].tolist() == [0]


def test_insert_when_the_array_is_changed_afterwards_keeps_a_copy() -> None:
    table, units = Memtable(), keyed([(7, 3)])
    table.insert(units)
    units["due_ms"] = 1
    assert pairs_of(table.select(KEY_MIN, Key(9, 0))) == [(7, 3)]


def test_insert_when_more_than_double_the_capacity_comes_at_once() -> None:
    table = Memtable(2)
    table.insert(keyed([(1, 0)], position=77))
    table.insert(keyed([(due, due) for due in range(2, 50)]))
    assert pairs_of(table.units) == [(1, 0), *((due, due) for due in range(2, 50))]
    assert int(table.units["position"][0]) == 77


def test_units_when_read_is_no_longer_than_what_was_inserted() -> None:
    table = Memtable(100)
    assert len(table.units) == 0
    assert table.next_due_ms(KEY_MIN) is None
    assert len(table.select(KEY_MIN, Key(1 << 60, 0))) == 0


@given(keys=st.lists(KEYS), after=BOUNDS, to=BOUNDS)
def test_within_when_compared_with_tuples(keys: list[Key], after: Key, to: Key) -> None:
    expected = [key for key in keys if after < key <= to]
    assert pairs_of(within(keyed(keys), after, to)) == expected


def test_within_when_sequences_need_all_their_bits() -> None:
    keys = [(1, SEQUENCE_MAX - 2), (1, SEQUENCE_MAX - 1), (1, SEQUENCE_MAX)]
    units = keyed(keys)
    assert pairs_of(within(units, Key(*keys[0]), Key(*keys[1]))) == [keys[1]]


@given(
    keys=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), unique=True, max_size=40),
    after=st.tuples(st.integers(-1, 7), st.sampled_from([0, 9, 30, SEQUENCE_MAX])),
    count=st.integers(1, 12),
)
def test_select_some_when_compared_with_a_list(
    keys: list[tuple[int, int]], after: tuple[int, int], count: int
) -> None:
    table = Memtable()
    table.insert(keyed(keys))
    low, to = Key(*after), Key(6, 40)
    while low < to:
        units, bound = table.select_some(low, to, count)
        assert low < bound <= to
        assert pairs_of(units) == [key for key in keys if low < key <= bound]
        assert len(units) <= count
        low = bound


def test_find_when_some_units_are_kept_in_order_and_others_came_behind_them() -> None:
    count, more, step = UNSORTED_MAX + 1, 100, 7_919
    keys = [(at % 5_000, at * step % (count + more)) for at in range(count + more)]
    assert len({sequence for _, sequence in keys}) == len(keys)
    table = Memtable()
    table.insert(keyed(keys[:count]))
    found: list[list[tuple[int, int]]] = []
    for wanted in (keys[:count:100], keys[count:], [*keys[5:count:500], *keys[count::9]]):
        due_ms, sequences = map(np.array, zip(*wanted, strict=True))
        attempts = np.full(len(wanted), keyed(keys[:1])["attempt"][0], np.uint16)
        here, units = table.find(due_ms, sequences.astype(np.uint64), attempts)
        assert pairs_of(units) == [wanted[at] for at in here.tolist()]
        found.append([wanted[at] for at in here.tolist()])
        if len(found) == 1:
            table.insert(keyed(keys[count:]))
    assert found == [keys[:count:100], keys[count:], [*keys[5:count:500], *keys[count::9]]]
    here, _ = table.find(np.array([1]), np.array([0], np.uint64), np.array([1], np.uint16))
    assert not len(here)
