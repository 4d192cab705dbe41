from hashlib import sha256
from random import Random

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import AckState
from storage.queues.ack_state import WINDOW_POSITIONS, AckStates, AckWindow


def digest(states: AckStates) -> bytes:
    hasher = sha256()
    states.digest_into(hasher)
    return hasher.digest()


def test_resolve_when_at_the_floor_moves_it() -> None:
    window = AckWindow()
    assert window.resolve(0, 3) == [(0, 3)]
    assert (window.floor, window.span, window.ranges()) == (3, 0, [])


def test_resolve_when_above_leaves_a_hole() -> None:
    window = AckWindow(10)
    assert window.resolve(12, 2) == [(12, 14)]
    assert (window.floor, window.span, window.range_count) == (10, 4, len(window.ranges()))
    assert [window.is_resolved(at) for at in range(8, 16)] == [1, 1, 0, 0, 1, 1, 0, 0]


def test_resolve_when_the_hole_is_filled_swallows_what_follows() -> None:
    window = AckWindow(10, [(12, 14), (14 + 1, 20)])
    assert window.resolve(10, 2) == [(10, 12)]
    assert (window.floor, window.ranges()) == (14, [(15, 20)])
    assert window.resolve(14, 1) == [(14, 15)]
    assert (window.floor, window.span) == (20, 0)


def test_resolve_when_over_several_ranges_gives_the_holes() -> None:
    window = AckWindow(0, [(2, 4), (6, 8), (10, 12)])
    assert window.resolve(3, 8) == [(4, 6), (8, 10)]
    assert window.ranges() == [(2, 12)]


def test_resolve_when_touching_melts_ranges() -> None:
    window = AckWindow(0, [(5, 6), (8, 9)])
    assert window.resolve(6, 2) == [(6, 8)]
    assert window.ranges() == [(5, 9)]


@pytest.mark.parametrize(("first", "count"), [(0, 10), (0, 0), (12, 2), (3, 5), (50, 0)])
def test_resolve_when_nothing_is_new(first: int, count: int) -> None:
    window = AckWindow(10, [(12, 14)])
    assert window.resolve(first, count) == []
    assert (window.floor, window.ranges()) == (10, [(12, 14)])


def test_resolve_when_one_by_one_in_random_order() -> None:
    window = AckWindow(7)
    positions = list(range(7, 7 + WINDOW_POSITIONS))
    Random(1).shuffle(positions)
    for position in positions:
        assert window.resolve(position, 1) == [(position, position + 1)]
        assert window.resolve(position, 1) == []
    assert (window.floor, window.ranges(), window.range_count) == (7 + WINDOW_POSITIONS, [], 0)


def test_first_unresolved_when_the_queue_begins_above_the_floor() -> None:
    window = AckWindow(10, [(12, 14), (20, 30)])
    asked = (0, 10, 11, 12, 13, 14, 20, 29, 30, 99)
    assert [window.first_unresolved(at) for at in asked] == [10, 10, 11, 14, 14, 14, 30, 30, 30, 99]


def test_unresolved_when_asked_for_a_part() -> None:
    window = AckWindow(10, [(12, 14), (20, 30)])
    assert list(window.unresolved(0, 100)) == [(10, 12), (14, 20), (30, 100)]
    assert list(window.unresolved(13, 17)) == [(14, 17)]
    assert list(window.unresolved(22, 25)) == []
    assert list(window.unresolved(5, 5)) == []


def test_unresolved_when_resolved_meanwhile() -> None:
    window = AckWindow(0, [(4, 6)])
    seen = []
    for first, end in window.unresolved(0, 10):
        seen.append((first, end))
        window.resolve(0, 8)
    assert seen == [(0, 4), (8, 10)]


@pytest.mark.parametrize(
    "ranges", [[(0, 1)], [(5, 5)], [(5, 6), (6, 7)], [(9, 10), (5, 6)], [(7, 6)]]
)
def test_window_when_ranges_do_not_ascend(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(errors.InvariantViolated):
        AckWindow(0, ranges)


def test_resolve_when_there_are_no_such_positions() -> None:
    with pytest.raises(errors.InvariantViolated):
        AckWindow().resolve(-1, 5)


def test_state_when_taken_up_again() -> None:
    states = AckStates()
    states.get(2, 256).resolve(0, 5)
    states.get(1, 512).resolve(3, 4)
    states.get(1, 512).resolve(9, 1)
    assert [(each.group_id, each.topic_queue) for each in states.state()] == [(1, 512), (2, 256)]
    assert list(states.state()[0].resolved_range_deltas) == [3, 4, 2, 1]
    again = AckStates(states.state())
    assert again.get(1, 512).ranges() == [(3, 7), (9, 10)]
    assert again.get(2, 256).floor == 5
    assert digest(again) == digest(states)


def test_state_when_a_window_was_only_looked_at() -> None:
    states = AckStates()
    before = digest(states)
    states.get(1, 256)
    assert states.state() == []
    assert digest(states) == before
    assert states.find(1, 256) is not None
    assert states.find(2, 256) is None


def test_capture_when_changed_afterwards() -> None:
    states = AckStates()
    states.to_change(1, 256).resolve(3, 4)
    encode = states.capture()
    changed = states.to_change(1, 256)
    changed.resolve(0, 3)
    assert states.to_change(1, 256) is changed, "one copy a capture"
    later = states.capture()
    states.to_change(1, 256).resolve(7, 1)
    assert [one()[0].floor_position for one in (encode, later)] == [0, 7]
    assert states.get(1, 256).floor == 8


def test_state_when_a_range_has_no_end() -> None:
    broken = AckState(group_id=1, topic_queue=256, resolved_range_deltas=[3, 4, 2])
    with pytest.raises(errors.InvariantViolated, match="without an end"):
        AckStates([broken])


def test_windows_of_a_group_are_those_that_it_asked_for_and_still_has() -> None:
    states = AckStates()
    assert states.windows_of(1) == []
    states.get(1, 256)
    states.to_change(2, 256).resolve(3, 1)
    states.get(2, 512)
    assert [queue for queue, _ in states.windows_of(1)] == [256]
    assert dict(states.windows_of(2)) == {queue: states.get(2, queue) for queue in (256, 512)}
    states.drop_topic(1)
    assert [queue for queue, _ in states.windows_of(2)] == [512]


@pytest.mark.parametrize(
    ("from_", "to", "expected"),
    [(0, 9, True), (0, 1, True), (2, 5, False), (2, 6, True), (7, 9, False), (9, 9, False)],
)
def test_whether_anything_of_a_range_is_resolved(from_: int, to: int, expected: bool) -> None:
    window = AckWindow(2, [(5, 7)])
    assert window.has_resolved(from_, to) is expected


def test_drop_when_group_or_topic_is_deleted() -> None:
    states = AckStates()
    for group_id in (1, 2):
        for topic_queue in (256, 257, 512):
            states.get(group_id, topic_queue).resolve(0, group_id)
    assert states.groups_of(256) == [1, 2]
    states.drop_topic(1)
    assert states.groups_of(256) == []
    assert [key for key, _ in states.items()] == [(1, 512), (2, 512)]
    states.drop_group(2)
    assert [key for key, _ in states.items()] == [(1, 512)]
