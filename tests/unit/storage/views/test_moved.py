"""The view of moved messages, against a dict."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.types import Key
from storage.views.moved import Moved, pack_rows, unpack_rows

Rows = dict[int, tuple[int, int]]

_sequences = st.integers(0, 200) | st.integers((1 << 17) - 3, (1 << 17) + 3)
_rows = st.dictionaries(_sequences, st.tuples(st.integers(0, 50), st.integers(50, 90)), max_size=30)


def put(moved: Moved, rows: Rows) -> None:
    ordered = sorted(rows.items())
    moved.put(
        np.array([sequence for sequence, _ in ordered], np.uint64),
        np.array([due for _, (due, _) in ordered], np.int64),
        np.array([last for _, (_, last) in ordered], np.int64),
    )


def found(moved: Moved, sequences: list[int]) -> Rows:
    rows = moved.find(np.array(sequences, np.uint64))
    columns = (rows.are_moved.tolist(), rows.due_ms.tolist(), rows.last_due_ms.tolist())
    every = zip(sequences, *columns, strict=True)
    return {sequence: (due, last) for sequence, is_moved, due, last in every if is_moved}


def digest(moved: Moved, key: Key) -> bytes:
    hasher = hashlib.sha256()
    moved.digest_into(hasher, key)
    return hasher.digest()


@given(
    steps=st.lists(_rows, max_size=6),
    key=st.tuples(st.integers(49, 91), st.integers(0, 99)),
    recent_max=st.integers(0, 40),
)
def test_moved_is_a_dict_that_forgets_what_is_past(
    steps: list[Rows], key: tuple[int, int], recent_max: int
) -> None:
    moved, model, cursor = Moved(recent_max=recent_max), dict[int, tuple[int, int]](), Key(*key)
    for rows in steps:
        put(moved, rows)
        model |= rows
        assert found(moved, sorted(model)) == model
    requested = [*sorted(model, reverse=True), 777, 1 << 40]
    assert found(moved, requested) == model
    assert moved.count == len(model)
    assert moved.sequences().tolist() == sorted(model)
    before = digest(moved, cursor)
    for number in moved.numbers():
        moved.forget_past(number, cursor)
    left = {at: row for at, row in model.items() if (row[1], at) > cursor}
    assert found(moved, requested) == left
    assert moved.count == len(left)
    assert digest(moved, cursor) == before
    assert found(Moved(pack_rows(moved.capture())), requested) == left


@given(
    rows=_rows,
    low=_sequences,
    more=st.integers(0, 300) | st.just(1 << 17),
    recent_max=st.integers(0, 40),
)
def test_has_between_is_what_a_look_at_each_row_says(
    rows: Rows, low: int, more: int, recent_max: int
) -> None:
    moved = Moved(recent_max=recent_max)
    put(moved, rows)
    assert moved.has_between(low, low + more) == any(low <= one <= low + more for one in rows)


def test_capture_stays_when_rows_change() -> None:
    moved = Moved()
    put(moved, {3: (10, 20), 5: (11, 21)})
    captured = moved.capture()
    put(moved, {3: (30, 40), 4: (31, 41)})
    moved.forget_past(0, Key(40, 0))
    assert [tuple(row) for row in unpack_rows(pack_rows(captured)).tolist()] == [
        (3, 10, 20),
        (5, 11, 21),
    ]
    assert found(moved, [3, 4, 5]) == {3: (30, 40), 4: (31, 41)}


def test_rows_when_they_are_none() -> None:
    with pytest.raises(errors.CorruptFile, match="25 bytes"):
        Moved(bytes(25))
    with pytest.raises(errors.CorruptFile, match="ascend"):
        Moved(bytes(48))
    Moved().forget_past(7, Key(0, 0))
