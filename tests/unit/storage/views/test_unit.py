from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import SEQUENCE_MAX
from storage.views.unit import (
    NO_UNITS,
    UNIT,
    count_to,
    delay_log_min,
    equal_spans,
    is_sorted,
    join,
    log_offset_min,
    release_ms,
    rows_of,
    sort_by_key,
)
from tests.support.runs import KeyPair, keyed, pairs_of

KEYS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)
LARGE = st.lists(
    st.tuples(st.integers(-5, (1 << 53) - 1), st.integers(0, SEQUENCE_MAX)), max_size=30
)


@given(st.one_of(KEYS, LARGE))
def test_sort_by_key_when_in_any_order(keys: list[KeyPair]) -> None:
    units = keyed(keys)
    units["position"] = np.arange(len(keys))
    ordered = sort_by_key(units)
    assert pairs_of(ordered) == sorted(keys)
    # The rest of each row goes with its key, and units of one key stay in order of arrival.
    expected = sorted(range(len(keys)), key=lambda ordinal: keys[ordinal])
    assert ordered["position"].tolist() == expected
    assert pairs_of(units) == keys


@given(KEYS)
def test_rows_of_when_compared_with_columns(keys: list[KeyPair]) -> None:
    units = keyed(keys)
    for number, name in enumerate(UNIT.names or ()):
        units[name] += np.arange(len(keys), dtype=np.uint8) * (number + 1)
    rows = rows_of(units)
    for name in UNIT.names or ():
        assert [getattr(row, name) for row in rows] == units[name].tolist()
    assert [row.release_ms for row in rows] == release_ms(units).tolist()
    assert [row.blob_bytes for row in rows] == (units["body_len"] + units["meta_len"]).tolist()


def test_sort_by_key_when_in_order_is_the_same_array() -> None:
    units = keyed([(1, 5), (1, 5), (2, 0)])
    assert sort_by_key(units) is units


@given(st.lists(KEYS.map(sorted), max_size=4))
def test_sort_by_key_when_sorted_pieces_are_joined(pieces: list[list[KeyPair]]) -> None:
    merged = sort_by_key(join([keyed(piece) for piece in pieces]))
    assert pairs_of(merged) == sorted(key for piece in pieces for key in piece)


@given(st.one_of(KEYS, LARGE))
def test_is_sorted_when_compared_with_pairs(keys: list[KeyPair]) -> None:
    assert is_sorted(keyed(keys)) == all(one <= other for one, other in pairwise(keys))
    assert is_sorted(keyed(sorted(keys)))


@given(keys=st.one_of(KEYS, LARGE).map(sorted), data=st.data())
def test_count_to_when_compared_with_a_scan(keys: list[KeyPair], data: st.DataObject) -> None:
    anywhere = st.tuples(st.integers(-6, 1 << 53), st.integers(0, SEQUENCE_MAX))
    to = data.draw(st.one_of(anywhere, st.sampled_from(keys)) if keys else anywhere)
    assert count_to(keyed(keys), *to) == sum(key <= to for key in keys)


@pytest.mark.parametrize("sequence", [1 << 53, (1 << 62) + 1, SEQUENCE_MAX - 1])
def test_count_to_when_sequences_need_all_their_bits(sequence: int) -> None:
    units = keyed([(1, sequence - 1), (1, sequence), (1, sequence + 1)])
    assert count_to(units, 1, sequence) == 2


def test_join_when_given_many_is_a_new_array() -> None:
    first, second = keyed([(1, 1), (2, 2)]), keyed([(3, 3)], crc=9)
    joined = join([first, NO_UNITS, second[:0], second, first[::2]])
    assert pairs_of(joined) == [(1, 1), (2, 2), (3, 3), (1, 1)]
    assert joined.dtype == UNIT
    assert joined["crc"].tolist() == [0, 0, 9, 0]
    joined["due_ms"] = 7
    assert pairs_of(first) == [(1, 1), (2, 2)]


def test_join_when_given_one_or_none_copies_nothing() -> None:
    units = keyed([(1, 1)])
    assert join([units]) is units
    assert len(join([])) == 0
    assert join([]).dtype == UNIT


def test_no_units_when_written_to_is_refused() -> None:
    assert not NO_UNITS.flags.writeable
    assert len(NO_UNITS) == 0


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([], []),
        ([5], [(0, 1)]),
        ([5, 5], [(0, 2)]),
        ([5, 6, 6, 5], [(0, 1), (1, 3), (3, 4)]),
        ([0, 0, 1, 1, 1], [(0, 2), (2, 5)]),
    ],
)
def test_stretches_when_neighbours_are_equal(
    column: list[int], expected: list[tuple[int, int]]
) -> None:
    assert equal_spans(np.array(column, np.uint32)) == expected


def test_release_ms_when_stored_after_it_was_due() -> None:
    units = keyed([(100, 0), (100, 1), (100, 2)])
    units["store_ms"] = [99, 100, 101]
    assert release_ms(units).tolist() == [100, 100, 101]
    assert release_ms(NO_UNITS).tolist() == []


def test_lowest_places_when_units_point_into_log_and_delay_logs() -> None:
    units = keyed([(1, n) for n in range(5)])
    units["dlog_id"] = [0, 7, 0, 3, 9]
    units["position"] = [500, 1, 400, 2, 3]
    assert log_offset_min(units) == 400
    assert delay_log_min(units) == 3
    assert log_offset_min(units[3:]) is None
    assert delay_log_min(units[[0, 2]]) is None
    assert log_offset_min(NO_UNITS) is delay_log_min(NO_UNITS) is None


def test_unit_when_laid_out_has_no_holes() -> None:
    assert UNIT.fields is not None
    end = 0
    for name in UNIT.names or ():
        dtype, at = UNIT.fields[name][:2]
        assert at == end, name
        assert dtype.byteorder in "<=|"
        end += dtype.itemsize
    assert end == UNIT.itemsize == 64
