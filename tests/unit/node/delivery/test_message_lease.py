"""Which positions the messages of a lease stand for."""

import numpy as np
import pytest
from numpy.typing import NDArray

from node.delivery.message_lease import Lease, Part, runs_of
from node.shard.group_queue import GroupQueue

HELD = GroupQueue(1, 256)
NEIGHBOURS = Lease(1, HELD, 10, 15, [Part(10, 15, 100)])


def sparse(*, keeps_gaps: bool = False) -> Lease:
    """Messages at 12, 13 and 17 of [10, 20)."""
    positions = np.array([12, 13, 17], np.int64)
    return Lease(2, HELD, 10, 20, [Part(10, 20, 100)], positions, keeps_gaps)


def pairs(runs: NDArray[np.int64]) -> list[tuple[int, int]]:
    return [(first, end) for first, end in runs.tolist()]


def test_messages_stand_side_by_side_without_positions() -> None:
    assert NEIGHBOURS.count == 5
    assert NEIGHBOURS.ranges(1, 3) == pairs(NEIGHBOURS.message_runs(1, 3)) == [(11, 13)]
    assert NEIGHBOURS.count_messages(11, 14) == 3
    assert NEIGHBOURS.with_messages(Part(10, 12, 100)) == Part(10, 12, 100)


@pytest.mark.parametrize(
    ("low", "high", "finished", "runs"),
    [
        (0, 3, [(10, 20)], [(12, 14), (17, 18)]),
        (0, 1, [(10, 13)], [(12, 13)]),
        (1, 2, [(13, 14)], [(13, 14)]),
        (2, 3, [(14, 20)], [(17, 18)]),
        (1, 3, [(13, 20)], [(13, 14), (17, 18)]),
    ],
)
def test_gaps_are_finished_with_the_message_behind_them_and_the_end_with_the_last(
    low: int, high: int, finished: list[tuple[int, int]], runs: list[tuple[int, int]]
) -> None:
    assert sparse().ranges(low, high) == finished
    assert pairs(sparse().message_runs(low, high)) == runs


def test_single_messages_finish_together_what_all_of_them_finish() -> None:
    each = [sparse().ranges(at, at + 1)[0] for at in range(3)]
    assert [end for _, end in each[:-1]] == [first for first, _ in each[1:]]
    assert (each[0][0], each[-1][1]) == (10, 20)


def test_gaps_are_left_alone_when_they_are_kept() -> None:
    assert sparse(keeps_gaps=True).ranges(0, 3) == [(12, 14), (17, 18)]
    assert sparse(keeps_gaps=True).ranges(1, 3) == [(13, 14), (17, 18)]


def test_parts_tell_where_their_messages_are() -> None:
    lease = sparse()
    assert lease.count_messages(13, 18) == 2
    assert lease.with_messages(Part(13, 20, 5)) == Part(13, 20, 5, (13, 17))
    assert lease.with_messages(Part(14, 16, 5)) == Part(14, 16, 5, ())


@pytest.mark.parametrize("keeps_gaps", [True, False])
def test_lease_is_the_same_when_it_was_handed_over_twice(*, keeps_gaps: bool) -> None:
    lease = sparse(keeps_gaps=keeps_gaps)
    once = Lease.from_wire(70, lease.to_wire(epoch=4))
    assert (once.lease_id, once.origin) == (70, (4, 2))
    twice = Lease.from_wire(71, once.to_wire(epoch=5))
    assert twice.origin == (4, 2), "its receipts still say so"
    assert (twice.group_queue, twice.first, twice.end, twice.parts) == (HELD, 10, 20, lease.parts)
    assert twice.positions is not None
    assert twice.positions.tolist() == [12, 13, 17]
    assert twice.keeps_gaps == keeps_gaps


@pytest.mark.parametrize(
    ("positions", "runs"),
    [
        ([], []),
        ([5], [(5, 6)]),
        ([5, 6, 7], [(5, 8)]),
        ([1, 3, 4, 9], [(1, 2), (3, 5), (9, 10)]),
    ],
)
def test_runs_are_the_longest_stretches_of_neighbours(
    positions: list[int], runs: list[tuple[int, int]]
) -> None:
    assert pairs(runs_of(np.array(positions, np.int64))) == runs


def test_cut_behind_so_many_picked_messages() -> None:
    lease = sparse()
    whole = Part(10, 20, 5)
    assert lease.cut(whole, 3) == (whole, None)
    assert lease.cut(whole, 2) == (Part(10, 14, 5), Part(14, 20, 5))
    assert lease.cut(Part(13, 20, 5), 1) == (Part(13, 14, 5), Part(14, 20, 5))
    assert sparse(keeps_gaps=True).cut(whole, 1) == (whole, None)
    neighbours = Lease(1, HELD, 10, 20, [whole])
    assert neighbours.cut(whole, 1) == (whole, None)
