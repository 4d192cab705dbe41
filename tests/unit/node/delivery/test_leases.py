"""Which positions are handed out next, and how leases split, end and are forgotten."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hourwheel.internal.v1.replication_pb2 import LeaseTable
from node.delivery.leases import Leases
from node.delivery.message_lease import SPARSE_ID, Part
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import WINDOW_POSITIONS, AckWindow
from tests.support.leased import leased_ranges

HELD = GroupQueue(1, 256)
OTHER = GroupQueue(2, 256)


def test_find_range_steps_over_what_is_resolved() -> None:
    leases, window = Leases(), AckWindow(5, [(8, 10)])
    assert leases.find_range(HELD, window, (0, 20), 100) == (5, 8)
    leases.grant(HELD, 5, 8, 1_000)
    assert leases.find_range(HELD, window, (0, 20), 4) == (10, 14)


def test_find_range_stays_within_the_bounds_of_the_queue() -> None:
    leases, window = Leases(), AckWindow(2)
    assert leases.find_range(HELD, window, (7, 9), 100) == (7, 9)
    leases.grant(HELD, 7, 9, 1_000)
    assert leases.find_range(HELD, window, (7, 9), 100) == (9, 9)
    first, end = leases.find_range(HELD, window, (30, 30), 100)
    assert first == end, "all that was there is trimmed"


def test_find_range_is_the_groups_own() -> None:
    leases = Leases()
    leases.grant(HELD, 0, 3, 1_000)
    assert leases.find_range(OTHER, AckWindow(), (0, 5), 100) == (0, 5)


def test_find_range_stops_when_the_window_is_full() -> None:
    leases, window = Leases(), AckWindow(10)
    full = 10 + WINDOW_POSITIONS
    bounds = 0, full + 5
    assert leases.find_range(HELD, window, bounds, 1 << 30) == (10, full)
    leases.skip_to(HELD, full - 1)
    assert not leases.is_blocked(HELD, window, bounds)
    leases.grant(HELD, full - 1, full, 1_000)
    assert leases.find_range(HELD, window, bounds, 1) == (full, full)
    assert leases.is_blocked(HELD, window, bounds)
    assert not leases.is_blocked(HELD, window, (0, full)), "there is no more"
    window.resolve(10, 2)
    assert leases.find_range(HELD, window, bounds, 100) == (full, full + 2)
    assert not leases.is_blocked(HELD, window, bounds)


def test_skip_to_never_goes_back() -> None:
    leases = Leases()
    leases.skip_to(HELD, 8)
    leases.skip_to(HELD, 3)
    assert leases.next_position(HELD) == 8
    assert leases.next_position(OTHER) == 0


def test_hold_leaves_the_next_position_alone() -> None:
    leases = Leases()
    leases.grant(HELD, 0, 10, 1_000)
    lease = leases.hold(HELD, 2, 4, 900)
    assert leases.next_position(HELD) == 10
    assert leases.get(lease.lease_id) is lease
    assert leases.next_end_ms() == 900
    assert leases.count == 2


@pytest.mark.parametrize(
    ("first", "end", "parts"),
    [
        (12, 15, [Part(10, 12, 100), Part(12, 15, 500), Part(15, 20, 100)]),
        (10, 20, [Part(10, 20, 500)]),
        (0, 11, [Part(10, 11, 500), Part(11, 20, 100)]),
        (19, 30, [Part(10, 19, 100), Part(19, 20, 500)]),
        (20, 30, [Part(10, 20, 100)]),
        (13, 13, [Part(10, 20, 100)]),
    ],
)
def test_change_splits_parts(first: int, end: int, parts: list[Part]) -> None:
    leases = Leases()
    lease = leases.grant(HELD, 10, 20, 100)
    leases.change(lease, first, end, 500)
    assert lease.parts == parts
    assert leased_ranges(leases, HELD) == [part[:2] for part in parts]
    assert leases.next_end_ms() == min(part.until_ms for part in parts)


def test_change_spans_parts_but_not_those_that_ended() -> None:
    leases = Leases()
    lease = leases.grant(HELD, 0, 9, 300)
    leases.change(lease, 3, 6, 100)
    assert leases.take_ended(100, 10) == [(HELD, Part(3, 6, 100))]
    leases.change(lease, 2, 7, 900)
    assert lease.parts == [Part(0, 2, 300), Part(2, 3, 900), Part(6, 7, 900), Part(7, 9, 300)]


def test_take_ended_takes_the_first_to_end_first() -> None:
    leases = Leases()
    late = leases.grant(HELD, 0, 5, 300)
    leases.grant(OTHER, 0, 5, 100)
    leases.change(late, 1, 2, 200)
    assert leases.take_ended(99, 10) == []
    assert leases.take_ended(200, 10) == [(OTHER, Part(0, 5, 100)), (HELD, Part(1, 2, 200))]
    assert leases.next_end_ms() == 300
    assert leased_ranges(leases, HELD) == [(0, 1), (2, 5)]
    assert leases.take_ended(300, 10) == [(HELD, Part(0, 1, 300)), (HELD, Part(2, 5, 300))]
    assert (leases.count, leases.next_end_ms()) == (0, None)


def test_what_was_prolonged_ends_later_when_the_rest_has_ended() -> None:
    leases = Leases()
    lease = leases.grant(HELD, 0, 5, 100)
    leases.change(lease, 2, 5, 400)
    assert leases.take_ended(100, 10) == [(HELD, Part(0, 2, 100))]
    assert leases.next_end_ms() == 400
    assert leases.take_ended(400, 10) == [(HELD, Part(2, 5, 400))]


def test_take_ended_leaves_the_rest_when_there_are_many() -> None:
    leases = Leases()
    for first in range(5):
        leases.grant(HELD, first, first + 1, 100 + first)
    assert [part.first for _, part in leases.take_ended(1_000, 2)] == [0, 1]
    assert [part.first for _, part in leases.take_ended(1_000, 2)] == [2, 3]
    assert [part.first for _, part in leases.take_ended(1_000, 2)] == [4]


def test_take_ended_cuts_a_large_lease_of_picked_messages() -> None:
    leases, window = Leases(), AckWindow()
    leases.grant_picked(HELD, (0, 100), np.arange(0, 100, 10), 100)
    leases.grant(OTHER, 0, 500, 101)
    taken = [leases.take_ended(101, 9, 4) for _ in range(4)]
    assert taken == [
        [(HELD, Part(0, 31, 100, (0, 10, 20, 30)))],
        [(HELD, Part(31, 71, 100, (40, 50, 60, 70)))],
        [(HELD, Part(71, 100, 100, (80, 90))), (OTHER, Part(0, 500, 101))],
        [],
    ]
    assert leases.count == 0
    assert leases.count_unresolved(HELD, window, (0, 100), 0) == (100, 0), "given back soon"


def test_what_is_ending_ends_by_no_clock_until_its_end_was_refused() -> None:
    leases = Leases()
    lease = leases.grant(HELD, 0, 9, 100)
    leases.note_ending(lease.lease_id, [(2, 4), (6, 9)], is_ending=True)
    leases.change(lease, 0, 9, 200)
    assert (lease.holds_all(4, 6), lease.holds_all(3, 6)) == (True, False)
    assert len(leases.positions_of(HELD)) == 9, "it is leased"
    assert leases.next_end_ms() == 200
    ended = [(HELD, Part(0, 2, 200)), (HELD, Part(4, 6, 200))]
    assert leases.take_ended(1_000, 10) == ended
    assert (leases.count, leases.next_end_ms()) == (1, None)
    leases.give_up(lease.lease_id, [(2, 4)])
    leases.note_ending(lease.lease_id, [(6, 9)], is_ending=False)
    assert leases.next_end_ms() == 100
    assert leases.take_ended(100, 10) == [(HELD, Part(6, 9, 100))]
    assert leases.count == 0


def test_what_is_held_with_an_end_on_its_way_has_none_by_the_clock() -> None:
    leases = Leases()
    lease = leases.hold(HELD, 2, 4, 900, is_ending=True)
    assert (leases.next_end_ms(), leases.take_ended(1_000, 10)) == (None, [])
    leases.note_ending(lease.lease_id, [(2, 4)], is_ending=False)
    assert leases.next_end_ms() == 900
    leases.note_ending(99, [(2, 4)], is_ending=True)  # over by now


def test_old_ends_count_no_more_when_a_lease_was_prolonged_or_ended() -> None:
    leases = Leases()
    prolonged = leases.grant(HELD, 0, 5, 100)
    resolved = leases.grant(HELD, 5, 6, 110)
    leases.change(prolonged, 0, 5, 400)
    leases.change(prolonged, 0, 5, 100)
    leases.change(prolonged, 0, 5, 500)
    leases.end(resolved.lease_id)
    assert leases.take_ended(499, 10) == []
    assert leases.next_end_ms() == 500
    assert leases.take_ended(500, 10) == [(HELD, Part(0, 5, 500))]
    assert leases.get(prolonged.lease_id) is leases.get(resolved.lease_id) is None


def test_end_is_quiet_when_the_lease_is_gone() -> None:
    leases = Leases()
    lease = leases.grant(HELD, 0, 1, 100)
    leases.end(lease.lease_id)
    leases.end(lease.lease_id)
    assert leases.count == 0


def test_take_at_removes_the_lease_that_holds_the_position() -> None:
    leases = Leases()
    leases.grant(HELD, 0, 4, 100)
    leases.grant(HELD, 4, 8, 200)
    leases.grant(OTHER, 0, 9, 300)
    assert leases.take_at(HELD, 4) == [Part(4, 8, 200)]
    assert leases.take_at(HELD, 4) == []
    assert leases.take_at(HELD, 8) == []
    assert leased_ranges(leases, HELD) == [(0, 4)]
    assert leased_ranges(leases, OTHER) == [(0, 9)]


def test_drop_group_forgets_leases_and_positions_of_that_group_only() -> None:
    leases = Leases()
    dropped = [leases.grant(HELD, 0, 4, 100), leases.grant(GroupQueue(1, 257), 0, 4, 100)]
    kept = leases.grant(OTHER, 0, 4, 200)
    leases.drop_group(1)
    assert [leases.get(lease.lease_id) for lease in dropped] == [None, None]
    assert leases.get(kept.lease_id) is kept
    assert (leases.next_position(HELD), leases.next_position(OTHER)) == (0, 4)
    assert leases.next_end_ms() == 200


def test_group_has_any_lease_until_the_last_ends() -> None:
    leases = Leases()
    assert not leases.has_any(1)
    first, second = leases.grant(HELD, 0, 4, 100), leases.grant(GroupQueue(1, 257), 0, 4, 100)
    leases.end(first.lease_id)
    assert leases.has_any(1)
    leases.end(second.lease_id)
    assert not leases.has_any(1)


def test_ids_are_not_used_again() -> None:
    leases = Leases()
    lease = leases.grant(HELD, 0, 4, 100)
    leases.end(lease.lease_id)
    assert leases.grant(HELD, 4, 8, 100).lease_id != lease.lease_id


# -- picked messages ------------------------------------------------------------------------------


def positions(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def test_stretch_is_neither_delivered_nor_resolved_however_far_from_the_floor() -> None:
    leases, window = Leases(), AckWindow(5, [(8, 10)])
    far = WINDOW_POSITIONS * 3
    assert leases.find_undelivered(HELD, window, (0, far)) == (5, 8)
    leases.grant_picked(HELD, (5, 8), positions(6), 1_000)
    assert leases.find_undelivered(HELD, window, (0, far)) == (10, far)
    leases.skip_to(HELD, far - 2)
    assert leases.find_undelivered(HELD, window, (0, far)) == (far - 2, far)
    leases.skip(HELD, far - 1, far)
    assert leases.find_undelivered(HELD, window, (0, far)) == (far - 2, far - 1)
    assert leases.next_position(HELD) == far - 2
    assert leases.delivered_end(HELD) == far
    leases.skip_to(HELD, far)
    first, end = leases.find_undelivered(HELD, window, (0, far))
    assert first >= end


def test_picked_neighbours_are_an_ordinary_lease() -> None:
    leases = Leases()
    whole = leases.grant_picked(HELD, (4, 7), positions(4, 5, 6), 1_000)
    assert (whole.positions, whole.lease_id & SPARSE_ID) == (None, 0)
    sparse = leases.grant_picked(HELD, (7, 10), positions(8), 1_000)
    assert sparse.lease_id & SPARSE_ID
    assert leases.next_position(HELD) == 10
    assert leases.take_ended(1_000, 9) == [
        (HELD, Part(4, 7, 1_000)),
        (HELD, Part(7, 10, 1_000, (8,))),
    ]


def test_room_counts_messages_above_the_floor_and_not_positions() -> None:
    leases, window = Leases(), AckWindow()
    assert leases.room(HELD, window) == WINDOW_POSITIONS
    leases.grant_picked(HELD, (0, 1_000_000), positions(5, 999_000), 1_000)
    leases.grant_picked(HELD, (1_000_000, 1_000_003), positions(*range(1_000_000, 1_000_003)), 1)
    assert leases.room(HELD, window) == WINDOW_POSITIONS - 5
    window.resolve(0, 6)
    assert leases.room(HELD, window) == WINDOW_POSITIONS - 5
    window.resolve(6, 1_000_000 - 6)
    assert leases.room(HELD, window) == WINDOW_POSITIONS - 3
    assert leases.room(OTHER, AckWindow()) == WINDOW_POSITIONS


def test_window_moves_on_when_the_queue_was_trimmed_before_anything_was_resolved() -> None:
    """The floor of a group that came later stays at 0; what counts is what is there."""
    leases, window, start = Leases(), AckWindow(), 100_000
    end = start + WINDOW_POSITIONS
    bounds = start, end + 10
    assert leases.find_range(HELD, window, bounds, 1 << 20) == (start, end)
    leases.grant(HELD, start, end, 1)
    assert leases.is_blocked(HELD, window, bounds)
    window.resolve(start + 1, WINDOW_POSITIONS - 1)
    assert leases.is_blocked(HELD, window, bounds)
    assert leases.count_resolved(HELD, window, start) == WINDOW_POSITIONS - 1
    window.resolve(start, 1)
    assert window.floor == 0
    assert leases.count_resolved(HELD, window, start) == 0
    assert not leases.is_blocked(HELD, window, bounds)
    assert leases.find_range(HELD, window, bounds, 1 << 20) == (end, end + 10)


def test_room_does_not_count_what_was_trimmed() -> None:
    """Nothing of it can be resolved any more, so the group's own floor may stay where it is."""
    leases, window = Leases(), AckWindow()
    leases.grant_picked(HELD, (0, 2 * WINDOW_POSITIONS), 2 * np.arange(WINDOW_POSITIONS), 1)
    assert leases.room(HELD, window) == 0
    assert leases.room(HELD, window, 2 * WINDOW_POSITIONS - 1) == 0
    assert leases.room(HELD, window, 2 * WINDOW_POSITIONS) == WINDOW_POSITIONS


def test_count_of_what_is_resolved_follows_the_ends_of_leases() -> None:
    leases, window = Leases(), AckWindow()
    first = leases.grant_picked(HELD, (0, 10), positions(1, 3, 5, 9), 1_000)
    second = leases.grant_picked(HELD, (10, 20), positions(11, 13, 15), 2_000)
    assert leases.count_resolved(HELD, window) == 0
    leases.note_resolved(first.lease_id, 3, 6)
    leases.note_resolved(99, 3, 3)
    assert leases.count_resolved(HELD, window) == 3
    leases.change(second, 10, 12, 500)
    assert leases.take_ended(500, 9) == [(HELD, Part(10, 12, 500, (11,)))]
    assert leases.count_resolved(HELD, window) == 4
    leases.note_resolved(second.lease_id, 9, 99)
    leases.end(second.lease_id)
    leases.end(second.lease_id)
    assert leases.count_resolved(HELD, window) == 6
    leases.drop_group(HELD.group_id)
    assert leases.count_resolved(HELD, window) == 0


def test_room_is_left_for_ranges_that_an_earlier_master_left() -> None:
    leases = Leases()
    window = AckWindow(0, [(first, first + 1) for first in range(1, 1_000, 2)])
    assert leases.room(HELD, window) == WINDOW_POSITIONS - 500
    full = AckWindow(0, [(first, first + 1) for first in range(1, 4 * WINDOW_POSITIONS, 2)])
    assert leases.room(HELD, full) == WINDOW_POSITIONS // 2, "never none at all"


def test_selected_messages_leave_all_others_to_be_delivered() -> None:
    leases, window = Leases(), AckWindow()
    leases.grant(HELD, 0, 2, 1_000)
    lease = leases.grant_selected(HELD, positions(3, 4, 7), 1_000)
    assert lease.ranges(0, 3) == [(3, 5), (7, 8)]
    found = []
    while (span := leases.find_range(HELD, window, (0, 10), 100))[0] < span[1]:
        leases.skip(HELD, *span)
        found.append(span)
    assert found == [(2, 3), (5, 7), (8, 10)]
    assert leases.take_at(HELD, 5) == []
    assert leases.take_at(HELD, 7) == [Part(3, 5, 1_000), Part(7, 8, 1_000)]


def test_what_is_unresolved_is_told_apart_from_what_was_passed_over() -> None:
    leases, window, bounds = Leases(), AckWindow(), (0, 20)
    assert leases.count_unresolved(HELD, window, bounds, 0) == (0, 20)
    sparse = leases.grant_picked(HELD, (0, 10), positions(2, 3, 9), 1_000)
    leases.grant(HELD, 10, 12, 1_000)
    assert leases.count_unresolved(HELD, window, bounds, 0) == (5, 8)
    window.resolve(0, 3)
    leases.note_resolved(sparse.lease_id, 1, 3)
    assert leases.count_unresolved(HELD, window, bounds, 0) == (4, 8)
    leases.skip_to(HELD, 15)
    assert leases.count_unresolved(HELD, window, bounds, 3) == (4, 5), "three are passed over"
    assert leases.count_unresolved(OTHER, window, bounds, 0) == (0, 17)
    assert leases.count_resolved(HELD, window) == 0
    window.resolve(3, 6)
    leases.note_resolved(sparse.lease_id, 1, 1)  # not 3..9 as a whole: it came twice in part
    assert leases.count_unresolved(HELD, window, bounds, 3)[0] <= 3
    leases.end(sparse.lease_id)
    window.resolve(9, 1)
    assert leases.count_unresolved(HELD, window, bounds, 3) == (2, 5)
    assert leases.count_resolved(OTHER, AckWindow(0, [(3, 9)])) == 6


def test_count_unresolved_does_not_look_at_each_lease() -> None:
    leases, window = Leases(), AckWindow()
    for first in range(0, 4_000, 2):
        leases.grant_selected(HELD, positions(first), 1_000)
        if first % 4:
            window.resolve(first, 1)
    for lease in leases._by_id.values():
        lease.parts = []  # nobody looks
    assert leases.count_unresolved(HELD, window, (0, 4_000), 0) == (1_000, 2_000)


def test_messages_of_a_part_are_held_again() -> None:
    leases = Leases()
    leases.hold(HELD, 2, 9, 500, (4, 8))
    assert leases.take_ended(500, 9) == [(HELD, Part(2, 9, 500, (4, 8)))]


def test_successor_has_the_same_leases_and_goes_on_behind_them() -> None:
    leases, successor = Leases(), Leases()
    sparse = leases.grant_picked(HELD, (0, 10), positions(2, 3, 9), 1_000)
    leases.change(sparse, 3, 4, 2_000)
    leases.grant(OTHER, 0, 5, 1_500)
    leases.grant_selected(OTHER, positions(7, 9), 1_800)
    table = LeaseTable.FromString(leases.table(epoch=4).SerializeToString())
    successor.restore(table, 0)
    assert successor.find_former(4, 99) is None
    found = successor.find_former(4, sparse.lease_id)
    assert found is not None
    assert (found.parts, found.count, found.end) == (sparse.parts, 3, 10)
    assert successor.room(HELD, AckWindow()) == WINDOW_POSITIONS - 3
    window = AckWindow()
    assert successor.find_range(HELD, window, (0, 20), 100) == (10, 20)
    assert successor.find_range(OTHER, window, (0, 20), 100) == (5, 7)
    assert leased_ranges(successor, OTHER) == leased_ranges(leases, OTHER)
    successor.end(found.lease_id)
    assert successor.find_former(4, sparse.lease_id) is None
    again = Leases()
    again.restore(successor.table(epoch=5), 0)
    (kept,) = (again.find_former(4, one.lease_id) for one in table.sparse if one.keeps_gaps)
    assert kept is not None, "its receipts are still of the mastership that gave it"


def test_scattered_positions_that_cannot_be_read_are_bounded() -> None:
    leases = Leases()
    room = WINDOW_POSITIONS // 2
    for position in range(1, 2 * room, 2):
        assert leases.withhold(HELD, position)
    assert not leases.withhold(HELD, 2 * room + 1), "there is no room for one more range"
    assert leases.withhold(HELD, 1), "this one has its room"


def test_nothing_was_delivered_of_a_queue_that_nobody_asked_for() -> None:
    leases = Leases()
    assert leases.delivered_end(HELD) == 0
    leases.offer_again(HELD, 0, 9)
    assert leases.delivered_end(HELD) == 0
    leases.withhold(HELD, 3)
    leases.withhold(HELD, 7)
    leases.offer_again(HELD, 5, 9)
    window = AckWindow(0)
    assert leases.find_range(HELD, window, (0, 9), 9) == (0, 3)
    leases.grant(HELD, 0, 3, 100)
    assert leases.find_range(HELD, window, (0, 9), 9) == (4, 9)


def test_what_nobody_has_seen_is_opened_again_when_its_lease_is_over() -> None:
    leases, window = Leases(), AckWindow()
    leases.grant(HELD, 0, 4, 1_000)
    unseen = leases.grant(HELD, 4, 9, 1_000)
    leases.grant(HELD, 9, 12, 1_000)
    leases.change(unseen, 5, 9, 200, is_unseen=True)
    assert leases.take_ended(199, 10) == []
    assert leases.take_ended(200, 10) == []
    assert leases.reopened == [(HELD, unseen.lease_id, 5, 9)]
    assert leases.held_count(HELD.group_id) == 8
    assert leases.find_range(HELD, window, (0, 20), 100) == (5, 9)
    leases.grant(HELD, 5, 9, 3_000)
    assert leases.find_range(HELD, window, (0, 20), 100) == (12, 20)
    assert [part[:2] for _, part in leases.take_ended(1_000, 10)] == [(0, 4), (4, 5), (9, 12)]


def test_what_is_repeated_is_not_opened_again() -> None:
    leases = Leases()
    lease = leases.grant(HELD, 0, 4, 1_000)
    leases.change(lease, 0, 4, 200, is_unseen=True)
    leases.change(lease, 0, 4, 2_000)
    assert [part[:2] for _, part in leases.take_ended(2_000, 10)] == [(0, 4)]
    assert leases.reopened == []


def test_room_is_the_same_when_picked_messages_were_opened_again() -> None:
    """However often: else a group that filters would come to a stop."""
    leases, window = Leases(), AckWindow()
    first = np.array([1, 3], np.int64)
    leases.grant_picked(HELD, (0, 5), first, 9_000)
    room = leases.room(HELD, window)
    later = leases.grant_picked(HELD, (5, 12), np.array([6, 11], np.int64), 9_000)
    full = leases.room(HELD, window)
    assert full == room - 2
    for _ in range(3):
        leases.change(later, 5, 12, 100, is_unseen=True)
        leases.take_ended(100, 10)
        assert leases.room(HELD, window) == room
        assert leases.find_undelivered(HELD, window, (0, 20)) == (5, 20)
        later = leases.grant_picked(HELD, (5, 12), np.array([6, 11], np.int64), 9_000)
        assert leases.room(HELD, window) == full
    window.resolve(0, 12)
    assert leases.room(HELD, window) == WINDOW_POSITIONS


def test_room_is_right_when_picked_messages_below_others_were_opened_again() -> None:
    leases, window = Leases(), AckWindow()
    low = leases.grant_picked(HELD, (0, 5), np.array([1, 3], np.int64), 9_000)
    leases.grant_picked(HELD, (5, 9), np.array([6, 8], np.int64), 9_000)
    leases.change(low, 0, 5, 100, is_unseen=True)
    leases.take_ended(100, 10)
    leases.grant_picked(HELD, (0, 5), np.array([1, 3], np.int64), 9_000)
    window.resolve(0, 5)
    assert leases.room(HELD, window) == WINDOW_POSITIONS - 2


def test_table_is_without_what_nobody_has_seen() -> None:
    leases, window = Leases(), AckWindow()
    lease = leases.grant(HELD, 0, 4, 1_000)
    picked = leases.grant_picked(HELD, (4, 9), np.array([5, 7], np.int64), 1_000)
    leases.change(lease, 2, 4, 500, is_unseen=True)
    leases.change(picked, 4, 9, 500, is_unseen=True)
    following = Leases()
    following.restore(LeaseTable.FromString(leases.table(1).SerializeToString()), 0)
    assert leased_ranges(following, HELD) == [(0, 2)]
    assert following.find_undelivered(HELD, window, (0, 20)) == (2, 20)
