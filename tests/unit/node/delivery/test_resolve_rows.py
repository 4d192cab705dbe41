"""Rows of RESOLVE: ranges that are cut where attempts, and so delays, change."""

from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import GroupId, TopicId
from node.delivery.message_lease import Part, runs_of
from node.delivery.resolve_rows import (
    ack_picked_rows,
    ack_rows,
    dead_rows,
    filtered_rows,
    give_back_rows,
    retry_rows,
    unresolved_of,
)
from node.shard.group_queue import GroupQueue
from node.shard.recovery import ShardConfig
from node.shard.views import Views
from storage.views.catalog_items import Group, GroupOrder
from storage.views.unit import join
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import GROUP, LETTERS, QUEUES, RETRIES
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.units import make_units

HELD = GroupQueue(GROUP, QUEUES[0])
NOW_MS = 50_000
WORKERS = Group(
    GroupId(GROUP),
    "workers",
    attempts_max=9,
    invisible_ms=30_000,
    retry_delay_ms=1_000,
    retry_delay_ms_max=5_000,
    dead_letter_topic_id=TopicId(2),
)


def views_with(attempts: list[int]) -> Views:
    """Views whose first queue holds messages of these attempts, in files of eight."""
    with small_sizes(8):
        views = ShardWorld(SimulatedDisk(), ShardConfig()).opened.shard.views
        units = [make_units(n, 1, attempt=attempt) for n, attempt in enumerate(attempts)]
        views.queues.get(QUEUES[0]).append(join(units))
        return views


def plain(rows: Any) -> list[tuple[int, int, int]]:
    """(first, end, due) of rows that are all right otherwise."""
    for row in rows:
        assert (row["group_id"], row["topic_queue"], row["outcome"]) == (*HELD, Outcome.RETRY)
    firsts, counts = rows["first_position"].tolist(), rows["count"].tolist()
    return [
        (first, first + count, due_ms)
        for first, count, due_ms in zip(firsts, counts, rows["retry_due_ms"].tolist(), strict=True)
    ]


def test_ranges_are_cut_where_attempts_change() -> None:
    views = views_with([1, 1, 2, 2, 2, 1])
    rows = retry_rows(views, WORKERS, HELD, [(0, 6)], NOW_MS, None)
    assert plain(rows) == [(0, 2, 51_000), (2, 5, 52_000), (5, 6, 51_000)]


def test_ranges_are_cut_where_retries_are_spread() -> None:
    views = views_with([1] * 150 + [2])
    group = replace(WORKERS, retry_jitter_percent=100)
    rows = plain(retry_rows(views, group, HELD, [(0, 151)], NOW_MS, None))
    assert [span[:2] for span in rows] == [(0, 64), (64, 128), (128, 150), (150, 151)]
    assert all(51_000 <= due_ms <= 52_000 for _, _, due_ms in rows[:3])
    assert 52_000 <= rows[3][2] <= 54_000
    assert len({due_ms for _, _, due_ms in rows[:3]}) == 3


def test_ranges_are_not_joined_or_widened() -> None:
    views = views_with([2, 2, 2, 2, 2])
    rows = retry_rows(views, WORKERS, HELD, [(1, 2), (2, 4)], NOW_MS, None)
    assert plain(rows) == [(1, 2, 52_000), (2, 4, 52_000)]


def test_ranges_cross_files_and_end_with_the_queue() -> None:
    views = views_with([1] * 20)
    rows = retry_rows(views, WORKERS, HELD, [(5, 1_000)], NOW_MS, None)
    spans = plain(rows)
    assert (spans[0][0], spans[-1][1]) == (5, 20)
    assert all(one[1] == next_[0] for one, next_ in pairwise(spans))


def test_trimmed_positions_are_left_out() -> None:
    views = views_with([1] * 8 + [2] * 4)
    views.queues.get(QUEUES[0]).trim_to(8)
    rows = retry_rows(views, WORKERS, HELD, [(0, 4), (6, 10)], NOW_MS, None)
    assert plain(rows) == [(8, 10, 52_000)]


def test_a_delay_of_the_callers_holds_for_all_attempts() -> None:
    views = views_with([1, 2, 3])
    rows = retry_rows(views, WORKERS, HELD, [(0, 2), (2, 3)], NOW_MS, 7)
    assert plain(rows) == [(0, 2, 50_007), (2, 3, 50_007)]
    rows = retry_rows(views, WORKERS, HELD, [(0, 3)], NOW_MS, 0)
    assert plain(rows) == [(0, 3, NOW_MS)], "at once is a delay, too"


def test_acks_and_dead_letters_have_no_due_time() -> None:
    for make, outcome in ((ack_rows, Outcome.ACK), (dead_rows, Outcome.DEAD)):
        rows = make(HELD, [(3, 7), (9, 10)])
        assert rows.tolist() == [(*HELD, 3, 4, outcome, 0), (*HELD, 9, 1, outcome, 0)]
        assert len(make(HELD, [])) == 0


def test_unresolved_of_a_part_leaves_out_what_is_resolved() -> None:
    views = views_with([1] * 8)
    views.acks.get(*HELD).resolve(3, 2)
    assert unresolved_of(views, HELD, Part(1, 7, 0)) == [(1, 3), (5, 7)]
    assert unresolved_of(views, HELD, Part(3, 5, 0)) == []


def test_part_with_gaps_gives_its_messages_back_and_passes_over_the_rest() -> None:
    views = views_with([1] * 12)
    part = Part(2, 10, 99, messages=(4, 5, 8))
    rows = give_back_rows(views, WORKERS, HELD, [part], NOW_MS)
    *retries, rest = rows.tolist()
    assert [row[2:5] for row in retries] == [(4, 2, Outcome.RETRY), (8, 1, Outcome.RETRY)]
    assert rest[2:5] == (2, 8, Outcome.FILTERED), "whatever is left by then"


def test_part_without_gaps_gives_back_what_is_unresolved() -> None:
    views = views_with([1] * 12)
    views.acks.get(*HELD).resolve(3, 2)
    rows = give_back_rows(views, WORKERS, HELD, [Part(2, 10, 99)], NOW_MS)
    assert plain(rows) == [(2, 3, NOW_MS + 1_000), (5, 10, NOW_MS + 1_000)]


def test_many_parts_are_given_back_before_what_stands_between_is_passed_over() -> None:
    views = views_with([1] * 20)
    parts = [Part(2, 6, 9, messages=(3, 5)), Part(6, 8, 9), Part(8, 12, 9, messages=(9,))]
    rows = give_back_rows(views, WORKERS, HELD, parts, NOW_MS)
    retries = [row[2:4] for row in rows.tolist() if row[4] == Outcome.RETRY]
    assert retries == [(3, 1), (5, 1), (6, 2), (9, 1)]
    assert [row[2:5] for row in rows[len(retries) :].tolist()] == [
        (2, 4, Outcome.FILTERED),
        (8, 4, Outcome.FILTERED),
    ]


def test_filtered_rows_pass_over_ranges() -> None:
    rows = filtered_rows(HELD, [(2, 5), (9, 10)])
    assert rows["outcome"].tolist() == [Outcome.FILTERED] * 2
    assert (rows["first_position"].tolist(), rows["count"].tolist()) == ([2, 9], [3, 1])


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 1 << 40))
def test_picked_messages_are_acknowledged_and_the_rest_passed_over(
    marks: list[bool], first: int
) -> None:
    """The longest neighbours of one kind, in order: as if each position were looked at."""
    assume(any(marks))
    expected, at = [], first
    for is_picked, group in groupby(marks):
        count = len(list(group))
        outcome = Outcome.ACK if is_picked else Outcome.FILTERED
        expected.append((*HELD, at, count, outcome, 0))
        at += count
    positions = np.flatnonzero(marks).astype(np.int64) + first
    rows = ack_picked_rows(HELD, (first, at), runs_of(positions))
    assert rows.tolist() == expected


def test_rows_of_ranges_that_were_trimmed_or_are_not_there_yet_are_left_out() -> None:
    views = views_with([1, 1, 1, 2] * 8)
    views.queues.get(QUEUES[0]).trim_to(8)
    ranges = [(0, 3), (4, 10), (11, 13), (31, 40), (50, 60)]
    rows = retry_rows(views, WORKERS, HELD, ranges, NOW_MS, None)
    once, twice = NOW_MS + 1_000, NOW_MS + 2_000
    assert plain(rows) == [(8, 10, once), (11, 12, twice), (12, 13, once), (31, 32, twice)]
    assert len(retry_rows(views, WORKERS, HELD, ranges[-1:], NOW_MS, None)) == 0
    assert len(retry_rows(views, WORKERS, HELD, [], NOW_MS, None)) == 0


def test_rows_that_give_back_at_once_are_applied_one_behind_the_other() -> None:
    """What the first one releases stands in the queue that the second reaches to the end of."""
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    world.publish([world.now_ms] * 4)
    world.commit()
    retries = GroupQueue(GROUP, RETRIES << 8)
    for number in QUEUES:
        world.resolve(
            retry_rows(world.shard.views, WORKERS, GroupQueue(GROUP, number), [(0, 2)], 0, 0)
        )
    world.commit()
    queue = world.shard.views.queues.get(RETRIES << 8)
    assert (queue.read(0, 9)["attempt"].tolist(), queue.end_position) == ([2] * 4, 4)
    ranges = [(1, 2), (3, 4), (0, 1), (2, 99)]
    token = world.resolve(retry_rows(world.shard.views, WORKERS, retries, ranges, 0, 0))
    world.commit()
    assert token.result == [1, 1, 1, 4]
    found = queue.read(4, 99)
    before = queue.read(0, 4)["sequence"].tolist()
    order = [before[at] for at in (1, 3, 0, 2)]
    assert found["sequence"].tolist() == order
    letters = world.shard.views.queues.get(LETTERS << 8).read(0, 9)
    assert letters["sequence"].tolist() == order[:3], "their attempts are used up"


def test_ordered_group_gets_back_the_messages_alone_and_nothing_that_is_resolved() -> None:
    views = views_with([1] * 20)
    ordered = replace(WORKERS, order=GroupOrder.BLOCK)
    rows = give_back_rows(views, ordered, HELD, [Part(2, 9, 9, messages=(3, 4, 7))], NOW_MS)
    assert {row[4] for row in rows.tolist()} == {Outcome.HELD}
    given = [at for row in rows.tolist() for at in range(row[2], row[2] + row[3])]
    assert given == [3, 4, 7]
    assert len(give_back_rows(views, ordered, HELD, [Part(30, 40, 9)], NOW_MS)) == 0
