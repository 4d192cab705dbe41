"""What is remembered of what filters passed over, and when the log is to say so."""

from hourwheel.internal.v1.replication_pb2 import LeaseTable
from node.delivery.filtered_ranges import AGE_MS_MAX, POSITIONS_ENOUGH, PassedOver, Stretch
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow

HELD, OTHER = GroupQueue(1, 256), GroupQueue(2, 256)


def due(
    passed_over: PassedOver, now_ms: int, held: GroupQueue | None = None
) -> list[tuple[int, int]]:
    return [(one.first, one.end) for one in passed_over.take_due(now_ms, held)]


def test_neighbours_grow_together_until_they_are_old_enough() -> None:
    passed_over = PassedOver()
    passed_over.add(HELD, 0, 10, 500)
    passed_over.add(HELD, 10, 30, 900)
    assert passed_over.next_due_ms() == 500 + AGE_MS_MAX
    assert due(passed_over, 499 + AGE_MS_MAX) == []
    assert due(passed_over, 500 + AGE_MS_MAX) == [(0, 30)]
    assert passed_over.next_due_ms() is None
    assert due(passed_over, 1 << 40) == [], "once is enough"


def test_long_ones_are_due_at_once() -> None:
    passed_over = PassedOver()
    passed_over.add(HELD, 5, 5 + POSITIONS_ENOUGH - 1, 500)
    assert due(passed_over, 500) == []
    passed_over.add(HELD, 5 + POSITIONS_ENOUGH - 1, 5 + POSITIONS_ENOUGH, 500)
    assert due(passed_over, 500) == [(5, 5 + POSITIONS_ENOUGH)]


def test_several_stretches_of_a_queue_are_kept_apart() -> None:
    passed_over = PassedOver()
    passed_over.add(HELD, 0, 10, 500)
    passed_over.add(HELD, 20, 30, 600)
    passed_over.add(OTHER, 0, 5, 600)
    assert sorted(due(passed_over, 500, HELD)) == [(0, 10), (20, 30)]
    assert due(passed_over, 600 + AGE_MS_MAX) == [(0, 5)]


def test_lease_takes_along_what_grew_up_to_it_and_nothing_else() -> None:
    passed_over = PassedOver()
    passed_over.add(HELD, 0, 10, 500)
    assert passed_over.absorb(OTHER, 10) == 10
    assert passed_over.absorb(HELD, 11) == 11
    assert passed_over.absorb(HELD, 10) == 0
    assert passed_over.absorb(HELD, 10) == 10
    passed_over.add(HELD, 30, 40, 500)
    assert due(passed_over, 500, HELD) == [(30, 40)]
    assert passed_over.absorb(HELD, 40) == 40, "that is on its way into the log"


def test_it_counts_until_the_log_says_so() -> None:
    passed_over, window = PassedOver(), AckWindow(4)
    passed_over.add(HELD, 0, 10, 500)
    assert passed_over.count_unresolved(HELD, window) == 6
    assert passed_over.count_unresolved(OTHER, window) == 0
    (stretch,) = passed_over.take_due(500, HELD)
    assert passed_over.count_unresolved(HELD, window) == 6
    passed_over.settle(stretch)
    assert passed_over.count_unresolved(HELD, window) == 0
    passed_over.settle(Stretch(OTHER, 1, 2, 3), again_ms=5)
    assert passed_over.next_due_ms() is None, "of another reign"


def test_what_found_no_room_is_due_again_later() -> None:
    passed_over = PassedOver()
    passed_over.add(HELD, 0, POSITIONS_ENOUGH, 500)
    (stretch,) = passed_over.take_due(500)
    passed_over.add(HELD, POSITIONS_ENOUGH, POSITIONS_ENOUGH + 1, 500)
    passed_over.settle(stretch, again_ms=2_000)
    assert due(passed_over, 1_499) == []
    assert due(passed_over, 1_500) == [(POSITIONS_ENOUGH, POSITIONS_ENOUGH + 1)]
    assert due(passed_over, 1_999 + AGE_MS_MAX) == []
    assert due(passed_over, 2_000 + AGE_MS_MAX) == [(0, POSITIONS_ENOUGH)]


def test_group_is_forgotten_in_every_state() -> None:
    passed_over = PassedOver()
    for held in (HELD, OTHER):
        for first in (0, 20, 40):
            passed_over.add(held, first, first + 10, 500)
        passed_over.take_due(500, held)
        passed_over.add(held, 60, 70, 500)
        passed_over.add(held, 80, 90, 500)
    passed_over.drop_group(HELD.group_id)
    assert passed_over.count_unresolved(HELD, AckWindow()) == 0
    assert passed_over.count_unresolved(OTHER, AckWindow()) == 50


def test_successor_goes_on_with_all_that_may_not_be_in_the_log() -> None:
    passed_over, successor, table = PassedOver(), PassedOver(), LeaseTable()
    passed_over.add(HELD, 0, 10, 500)
    passed_over.take_due(500, HELD)
    passed_over.add(HELD, 20, 30, 500)
    passed_over.add(HELD, 40, 50, 500)
    passed_over.add_to(table)
    successor.restore(LeaseTable.FromString(table.SerializeToString()), 3_000)
    assert due(successor, 3_000) == []
    assert sorted(due(successor, 3_000 + AGE_MS_MAX)) == [(0, 10), (20, 30), (40, 50)]


def test_those_half_as_old_are_due_with_the_oldest() -> None:
    """Else thousands of groups would be looked through as often as there are groups."""
    passed_over = PassedOver()
    for at in range(4):
        passed_over.add(GroupQueue(at, 256), 0, 5, 300 * at)
    assert due(passed_over, AGE_MS_MAX - 1) == []
    assert len(passed_over.take_due(AGE_MS_MAX)) == 2
    assert passed_over.next_due_ms() == 600 + AGE_MS_MAX
    assert due(passed_over, 600 + AGE_MS_MAX - 1) == []
    assert len(passed_over.take_due(600 + AGE_MS_MAX)) == 2
    assert passed_over.next_due_ms() is None


def test_so_much_as_one_record_takes_is_due_in_one_turn() -> None:
    passed_over = PassedOver()
    for at in range(1_300):
        passed_over.add(GroupQueue(at, 256), 0, 5, at)
    taken = [len(passed_over.take_due(5_000)) for _ in range(3)]
    assert taken == [512, 512, 276]
    assert passed_over.next_due_ms() is None


def test_stretch_that_grows_after_a_long_one_was_absorbed_is_due_when_old_enough() -> None:
    passed_over = PassedOver()
    passed_over.add(HELD, 0, POSITIONS_ENOUGH, 500)
    assert passed_over.absorb(HELD, POSITIONS_ENOUGH) == 0
    passed_over.add(HELD, POSITIONS_ENOUGH + 5, POSITIONS_ENOUGH + 9, 600)
    assert due(passed_over, 600) == []
    assert due(passed_over, 600 + AGE_MS_MAX) == [(POSITIONS_ENOUGH + 5, POSITIONS_ENOUGH + 9)]
