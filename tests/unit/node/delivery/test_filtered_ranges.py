"""What is remembered of what filters passed over, and when the log is to say so."""

from hourwheel.internal.v1.replication_pb2 import LeaseTable
from node.delivery.filtered_ranges import (
    AGE_MS_MAX,
    POSITIONS_ENOUGH,
    FilteredRange,
    FilteredRanges,
)
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow

HELD, OTHER = GroupQueue(1, 256), GroupQueue(2, 256)


def due(
    ranges: FilteredRanges, now_ms: int, group_queue: GroupQueue | None = None
) -> list[tuple[int, int]]:
    return [(one.first, one.end) for one in ranges.take_due(now_ms, group_queue)]


def test_neighbours_grow_together_until_they_are_old_enough() -> None:
    ranges = FilteredRanges()
    ranges.add(HELD, 0, 10, 500)
    ranges.add(HELD, 10, 30, 900)
    assert ranges.next_due_ms() == 500 + AGE_MS_MAX
    assert due(ranges, 499 + AGE_MS_MAX) == []
    assert due(ranges, 500 + AGE_MS_MAX) == [(0, 30)]
    assert ranges.next_due_ms() is None
    assert due(ranges, 1 << 40) == [], "once is enough"


def test_long_ones_are_due_at_once() -> None:
    ranges = FilteredRanges()
    ranges.add(HELD, 5, 5 + POSITIONS_ENOUGH - 1, 500)
    assert due(ranges, 500) == []
    ranges.add(HELD, 5 + POSITIONS_ENOUGH - 1, 5 + POSITIONS_ENOUGH, 500)
    assert due(ranges, 500) == [(5, 5 + POSITIONS_ENOUGH)]


def test_several_stretches_of_a_queue_are_kept_apart() -> None:
    ranges = FilteredRanges()
    ranges.add(HELD, 0, 10, 500)
    ranges.add(HELD, 20, 30, 600)
    ranges.add(OTHER, 0, 5, 600)
    assert sorted(due(ranges, 500, HELD)) == [(0, 10), (20, 30)]
    assert due(ranges, 600 + AGE_MS_MAX) == [(0, 5)]


def test_lease_takes_along_what_grew_up_to_it_and_nothing_else() -> None:
    ranges = FilteredRanges()
    ranges.add(HELD, 0, 10, 500)
    assert ranges.absorb(OTHER, 10) == 10
    assert ranges.absorb(HELD, 11) == 11
    assert ranges.absorb(HELD, 10) == 0
    assert ranges.absorb(HELD, 10) == 10
    ranges.add(HELD, 30, 40, 500)
    assert due(ranges, 500, HELD) == [(30, 40)]
    assert ranges.absorb(HELD, 40) == 40, "that is on its way into the log"


def test_it_counts_until_the_log_says_so() -> None:
    ranges, window = FilteredRanges(), AckWindow(4)
    ranges.add(HELD, 0, 10, 500)
    assert ranges.count_unresolved(HELD, window) == 6
    assert ranges.count_unresolved(OTHER, window) == 0
    (stretch,) = ranges.take_due(500, HELD)
    assert ranges.count_unresolved(HELD, window) == 6
    ranges.settle(stretch)
    assert ranges.count_unresolved(HELD, window) == 0
    ranges.settle(FilteredRange(OTHER, 1, 2, 3), again_ms=5)
    assert ranges.next_due_ms() is None, "of another mastership"


def test_what_found_no_room_is_due_again_later() -> None:
    ranges = FilteredRanges()
    ranges.add(HELD, 0, POSITIONS_ENOUGH, 500)
    (stretch,) = ranges.take_due(500)
    ranges.add(HELD, POSITIONS_ENOUGH, POSITIONS_ENOUGH + 1, 500)
    ranges.settle(stretch, again_ms=2_000)
    assert due(ranges, 1_499) == []
    assert due(ranges, 1_500) == [(POSITIONS_ENOUGH, POSITIONS_ENOUGH + 1)]
    assert due(ranges, 1_999 + AGE_MS_MAX) == []
    assert due(ranges, 2_000 + AGE_MS_MAX) == [(0, POSITIONS_ENOUGH)]


def test_group_is_forgotten_in_every_state() -> None:
    ranges = FilteredRanges()
    for group_queue in (HELD, OTHER):
        for first in (0, 20, 40):
            ranges.add(group_queue, first, first + 10, 500)
        ranges.take_due(500, group_queue)
        ranges.add(group_queue, 60, 70, 500)
        ranges.add(group_queue, 80, 90, 500)
    ranges.drop_group(HELD.group_id)
    assert ranges.count_unresolved(HELD, AckWindow()) == 0
    assert ranges.count_unresolved(OTHER, AckWindow()) == 50


def test_successor_goes_on_with_all_that_may_not_be_in_the_log() -> None:
    ranges, successor, table = FilteredRanges(), FilteredRanges(), LeaseTable()
    ranges.add(HELD, 0, 10, 500)
    ranges.take_due(500, HELD)
    ranges.add(HELD, 20, 30, 500)
    ranges.add(HELD, 40, 50, 500)
    ranges.add_to(table)
    successor.restore(LeaseTable.FromString(table.SerializeToString()), 3_000)
    assert due(successor, 3_000) == []
    assert sorted(due(successor, 3_000 + AGE_MS_MAX)) == [(0, 10), (20, 30), (40, 50)]


def test_those_half_as_old_are_due_with_the_oldest() -> None:
    """Else thousands of groups would be looked through as often as there are groups."""
    ranges = FilteredRanges()
    for at in range(4):
        ranges.add(GroupQueue(at, 256), 0, 5, 300 * at)
    assert due(ranges, AGE_MS_MAX - 1) == []
    assert len(ranges.take_due(AGE_MS_MAX)) == 2
    assert ranges.next_due_ms() == 600 + AGE_MS_MAX
    assert due(ranges, 600 + AGE_MS_MAX - 1) == []
    assert len(ranges.take_due(600 + AGE_MS_MAX)) == 2
    assert ranges.next_due_ms() is None


def test_so_much_as_one_record_takes_is_due_in_one_turn() -> None:
    ranges = FilteredRanges()
    for at in range(1_300):
        ranges.add(GroupQueue(at, 256), 0, 5, at)
    taken = [len(ranges.take_due(5_000)) for _ in range(3)]
    assert taken == [512, 512, 276]
    assert ranges.next_due_ms() is None


def test_stretch_that_grows_after_a_long_one_was_absorbed_is_due_when_old_enough() -> None:
    ranges = FilteredRanges()
    ranges.add(HELD, 0, POSITIONS_ENOUGH, 500)
    assert ranges.absorb(HELD, POSITIONS_ENOUGH) == 0
    ranges.add(HELD, POSITIONS_ENOUGH + 5, POSITIONS_ENOUGH + 9, 600)
    assert due(ranges, 600) == []
    assert due(ranges, 600 + AGE_MS_MAX) == [(POSITIONS_ENOUGH + 5, POSITIONS_ENOUGH + 9)]


def test_first_unresolved_is_behind_what_was_filtered() -> None:
    ranges, window = FilteredRanges(), AckWindow()
    assert ranges.first_unresolved(HELD, window, 3) == 3
    ranges.add(HELD, 20, 30, 500)  # apart from what comes before: another range
    ranges.add(HELD, 0, 10, 500)
    window.resolve(10, 10)
    assert ranges.first_unresolved(HELD, window, 0) == 30
    assert ranges.first_unresolved(OTHER, window, 0) == 0
    assert ranges.first_unresolved(OTHER, window, 12) == 20
