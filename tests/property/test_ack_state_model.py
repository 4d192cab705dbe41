"""An AckWindow against a set of positions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage.queues.ack_state import AckWindow

POSITIONS = st.integers(0, 60)
RANGES = st.tuples(POSITIONS, st.integers(0, 12))


def ranges_of(positions: set[int]) -> list[tuple[int, int]]:
    """The set as ranges, ascending."""
    firsts = sorted(at for at in positions if at - 1 not in positions)
    ends = sorted(at + 1 for at in positions if at + 1 not in positions)
    return list(zip(firsts, ends, strict=True))


@given(st.lists(RANGES, max_size=40), st.tuples(POSITIONS, POSITIONS))
def test_window_when_resolved_in_any_order(
    resolves: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    window, resolved = AckWindow(), set[int]()
    for first, count in resolves:
        wanted = set(range(first, first + count))
        assert window.resolve(first, count) == ranges_of(wanted - resolved)
        resolved |= wanted
        window.check()
        floor = next(at for at in range(100) if at not in resolved)
        assert window.floor == floor
        assert window.span == max((at + 1 - floor for at in resolved if at > floor), default=0)
        assert [window.is_resolved(at) for at in range(80)] == [at in resolved for at in range(80)]
        assert list(window.unresolved(*asked)) == ranges_of(set(range(*asked)) - resolved)
        again = AckWindow.from_deltas(window.floor, window.deltas())
        assert (again.floor, again.ranges()) == (window.floor, window.ranges())
        free = set(range(*asked)) - resolved
        assert window.count_unresolved(*asked) == len(free)


@given(st.lists(RANGES, max_size=20), st.lists(POSITIONS, min_size=2, max_size=20))
def test_many_ranges_are_counted_as_each_of_them(
    resolved: list[tuple[int, int]], cuts: list[int]
) -> None:
    """Every other piece of what the cuts make, and then all of them: with gaps and without."""
    window, bounds = AckWindow(), np.array(sorted(cuts), np.int64)
    for first, count in resolved:
        window.resolve(first, count)
    for step in (2, 1):
        from_, to = bounds[:-1][::step], bounds[1:][::step]
        each = zip(from_.tolist(), to.tolist(), strict=True)
        expected = [window.count_unresolved(*one) for one in each]
        assert window.count_unresolved_each(from_, to).tolist() == expected


@given(st.lists(RANGES, max_size=20), st.lists(RANGES, max_size=20), POSITIONS, POSITIONS)
def test_count_free_is_of_what_neither_window_has(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], from_: int, to: int
) -> None:
    windows, resolved = (AckWindow(), AckWindow()), set[int]()
    for window, ranges in zip(windows, (ours, theirs), strict=True):
        for first, count in ranges:
            window.resolve(first, count)
            resolved |= set(range(first, first + count))
    free = len(set(range(from_, to)) - resolved)
    assert windows[0].count_free(windows[1], from_, to) == free
    assert windows[1].count_free(windows[0], from_, to) == free


@given(st.lists(st.tuples(st.booleans(), RANGES), max_size=40))
def test_what_is_reopened_is_not_resolved_any_more(
    steps: list[tuple[bool, tuple[int, int]]],
) -> None:
    window, resolved = AckWindow(), set[int]()
    for is_reopened, (first, count) in steps:
        changed = set(range(first, first + count))
        if is_reopened:
            window.reopen(first, first + count)
            resolved -= changed
        else:
            window.resolve(first, count)
            resolved |= changed
        window.check()
        assert window.all_ranges() == ranges_of(resolved)
        assert window.floor == next(at for at in range(100) if at not in resolved)
