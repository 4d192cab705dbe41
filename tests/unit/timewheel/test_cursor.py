import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import CursorState
from hourwheel.types import KEY_MIN, SEQUENCE_MAX, Key
from tests.support.runs import KeyPair, keyed
from timewheel.cursor import Cursor, mix

SEQUENCES = st.integers(0, SEQUENCE_MAX)


def cursor_at(due_ms: int, sequence: int) -> Cursor:
    return Cursor(CursorState(due_ms=due_ms, sequence=sequence))


def mixed(*sequences: int) -> int:
    return mix(np.array(sequences, np.uint64))


@pytest.mark.parametrize(
    ("due_ms", "sequence", "store_ms", "is_due"),
    [
        (99, 7, 0, True),  # before the cursor's millisecond
        (100, 4, 0, True),
        (100, 5, 0, True),  # the cursor itself: it has been passed
        (100, 6, 0, False),
        (101, 0, 0, False),
        (101, 0, 100, False),  # due after it was stored
        (101, 0, 101, True),  # due as it is stored
        (101, 0, 102, True),
        (100, 6, 100, True),  # behind the cursor, but its time has come
        (-5, 9, 0, True),  # long ago
    ],
)
def test_release_rule_when_cursor_is_at_100_5(
    due_ms: int, sequence: int, store_ms: int, is_due: bool
) -> None:
    cursor = cursor_at(100, 5)
    found = cursor.is_due(np.array([due_ms]), np.array([sequence], np.uint64), store_ms)
    assert found.tolist() == [is_due]


@given(
    keys=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1),
    at=st.tuples(st.integers(0, 9), st.integers(0, 4)),
    store_ms=st.integers(0, 9),
)
def test_release_rule_when_compared_with_its_sentence(
    keys: list[KeyPair], at: KeyPair, store_ms: int
) -> None:
    units = keyed(keys)
    found = cursor_at(*at).is_due(units["due_ms"], units["sequence"], store_ms)
    assert found.tolist() == [due_ms <= store_ms or (due_ms, seq) <= at for due_ms, seq in keys]


def test_release_rule_when_nothing_was_ever_dispatched() -> None:
    found = Cursor().is_due(np.array([0, 1]), np.array([0, 0], np.uint64), 0)
    assert Cursor().key == KEY_MIN
    assert found.tolist() == [True, False]


def test_state_when_written_and_read_is_the_same_cursor() -> None:
    cursor = cursor_at(100, 5)
    cursor.count_release(keyed([(100, 1), (100, SEQUENCE_MAX)]))
    cursor.advance(Key(7_200, 9), keyed([(7_000, 1), (7_200, 2)]))
    again = Cursor(cursor.state())
    assert again.key == (7_200, 9)
    assert again.state() == cursor.state()
    assert (again.tick, again.local_index, again.released_count) == (7, 2, 2)


def test_advance_when_it_would_move_back_stops() -> None:
    cursor = cursor_at(100, 5)
    for earlier in (Key(100, 4), Key(99, 9)):
        with pytest.raises(errors.InvariantViolated):
            cursor.advance(earlier, keyed([]))
    cursor.advance(Key(100, 5), keyed([]))
    assert cursor.key == (100, 5)


def test_local_index_when_one_second_is_released_in_pieces() -> None:
    cursor = cursor_at(999, 0)
    cursor.advance(Key(1_200, 1), keyed([(1_000, 0), (1_200, 1)]))
    assert (cursor.tick, cursor.local_index) == (1, 2)
    cursor.advance(Key(1_999, SEQUENCE_MAX), keyed([(1_999, 5)]))
    assert (cursor.tick, cursor.local_index) == (1, 3)


def test_local_index_when_a_dispatch_reaches_over_seconds_counts_the_last_one() -> None:
    cursor = cursor_at(1_500, 0)
    cursor.local_index = 7
    cursor.advance(Key(3_100, 0), keyed([(1_600, 0), (2_999, 0), (3_000, 0), (3_100, 0)]))
    assert (cursor.tick, cursor.local_index) == (3, 2)


def test_local_index_when_a_second_is_empty_is_zero() -> None:
    cursor = cursor_at(1_500, 0)
    cursor.local_index = 7
    cursor.advance(Key(2_000, 0), keyed([(1_600, 0)]))
    assert (cursor.tick, cursor.local_index) == (2, 0)
    cursor.advance(Key(2_000, 3), keyed([]))
    assert cursor.local_index == 0


@given(st.lists(SEQUENCES, max_size=20), st.lists(SEQUENCES, max_size=20))
def test_count_release_when_in_other_portions_and_order_is_the_same(
    first: list[int], second: list[int]
) -> None:
    one, other = Cursor(), Cursor()
    one.count_release(keyed((0, sequence) for sequence in [*first, *second]))
    other.count_release(keyed((9, sequence) for sequence in second))
    other.count_release(keyed((9, sequence) for sequence in first))
    assert one.state() == other.state()
    assert one.released_count == len(first) + len(second)
    assert 0 <= one.released_mix < 1 << 64


@given(st.sets(SEQUENCES, min_size=1, max_size=20), st.data())
def test_mix_when_one_of_a_set_is_swapped_for_another_differs(
    sequences: set[int], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(sequences)))
    other = data.draw(SEQUENCES.filter(lambda sequence: sequence not in sequences))
    assert mixed(*sequences) != mixed(*(sequences - {gone} | {other}))


@pytest.mark.parametrize(
    ("released", "instead"),
    [
        ((1, 4), (2, 3)),  # the same sum
        ((1, 2, 3), (0, 2, 4)),
        ((5, 5), (3, 3)),  # the same xor
        ((1, 2, 4, 7), (0, 3, 5, 6)),  # the same sum and xor
        ((1, 1, 2), (1, 2, 2)),  # a loss made up by a repeat
        ((8,), (8, 8)),
        ((0,), ()),  # sequence 0 counts for something
    ],
)
def test_mix_when_plain_sums_would_cancel_out_differs(
    released: tuple[int, ...], instead: tuple[int, ...]
) -> None:
    assert mixed(*released) != mixed(*instead)


def test_mix_when_known_is_splitmix64() -> None:
    # First outputs of splitmix64 from state 0 (its author's reference): a frozen part of DISPATCH.
    gamma = 0x9E3779B97F4A7C15
    assert mixed(0) == 0xE220A8397B1DCDAF
    assert mixed(gamma) == 0x6E789E6AA1B965F4
    assert mixed(0, gamma) == (0xE220A8397B1DCDAF + 0x6E789E6AA1B965F4) % (1 << 64)
    assert mixed() == 0
