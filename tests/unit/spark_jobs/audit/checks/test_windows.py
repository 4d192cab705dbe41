"""Windows made in one go are those that `AckWindow` makes row by row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.types import GroupId, TopicId
from spark_jobs.audit.checks.catalog import FOREVER, Life, Timeline
from spark_jobs.audit.checks.windows import Window, windows_at
from spark_jobs.audit.facts.records import RESOLVE
from storage.queues.ack_state import AckWindow
from storage.views.catalog_items import Group

QUEUE, RELEASED = 256, 60


def line() -> Timeline:
    group = Group(GroupId(1), "workers", 3, 1, 1, 1, TopicId(0))
    return Timeline(topics={1: Life(0, FOREVER)}, groups={1: [(0, group)]})


def by_rows(rows: list[tuple[int, int]], trims: dict[int, int]) -> Window:
    """Row i lies at offset 8 (i + 1); `trims`: ordinal of the row behind a TRIM -> new start."""
    window, start = AckWindow(), 0
    for ordinal, (first, count) in enumerate(rows):
        if ordinal in trims and trims[ordinal] > start:
            start = trims[ordinal]
            if not window.is_untouched and window.floor < start:
                window.resolve(window.floor, start - window.floor)
        low, high = max(first, start), min(first + count, RELEASED)
        if low < high:
            window.resolve(low, high - low)
    bounds = [one for pair in window.ranges() for one in pair]
    return () if window.is_untouched else (window.floor, *bounds)


@given(
    rows=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 12)), max_size=20),
    trims=st.dictionaries(st.integers(0, 19), st.integers(1, 30), max_size=3),
)
def test_windows_are_those_of_row_by_row(
    rows: list[tuple[int, int]], trims: dict[int, int]
) -> None:
    resolves = np.zeros(len(rows), RESOLVE)
    resolves["group_id"], resolves["topic_queue"] = 1, QUEUE
    resolves["offset"] = 8 * (1 + np.arange(len(rows)))
    resolves["first"] = [first for first, _ in rows]
    resolves["end"] = [first + count for first, count in rows]
    starts, start = list[tuple[int, int]](), 0
    for ordinal in sorted(trims):
        if ordinal < len(rows) and trims[ordinal] > start:
            start = trims[ordinal]
            starts.append((8 * (ordinal + 1) - 4, start))
    counts = np.ones(len(rows), np.bool_)
    found = windows_at(resolves, counts, {QUEUE: (RELEASED, starts)}, line(), 1 << 40)
    wanted = by_rows(rows, trims)
    assert found == ({(1, QUEUE): wanted} if wanted else {})


def test_windows_of_what_was_deleted_are_gone() -> None:
    resolves = np.zeros(1, RESOLVE)
    resolves["group_id"], resolves["topic_queue"], resolves["end"] = 1, QUEUE, 5
    resolves["offset"] = 8
    counts, queues = np.ones(1, np.bool_), {QUEUE: (RELEASED, ())}
    gone = line()
    gone.topics[1] = Life(0, 100)
    assert windows_at(resolves, counts, queues, gone, 50) == {(1, QUEUE): (5,)}
    assert windows_at(resolves, counts, queues, gone, 101) == {}
    gone = line()
    gone.groups[1].append((100, None))
    assert windows_at(resolves, counts, queues, gone, 101) == {}
