"""An AckWindow against a set of positions."""

from hypothesis import given
from hypothesis import strategies as st

from storage.ack_state import AckWindow

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
